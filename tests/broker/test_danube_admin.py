from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from raceway.errors import (
    NameInvalidError,
    NameReservedError,
    SchemaReferenceError,
    TopicKindError,
    UnknownNamespaceError,
    UnknownSubscriptionError,
    UnknownTopicError,
)
from raceway.model.subscriptions import FailurePolicy, TopicRow
from tests.rigs.doubles import Message
from tests.rigs.subscribing import NAME, TOPIC, SubscribingBench


@pytest.fixture
def bench() -> SubscribingBench:
    return SubscribingBench()


def test_topics_are_listed_by_name_and_namespace(bench: SubscribingBench) -> None:
    admin = bench.broker.danube_admin
    admin.create_namespace("shop")
    admin.create_topic("/shop/b", False)
    admin.create_partitioned_topic("parts", 2, True)
    bench.publish(bench.foreign_peer(), Message(b"elsewhere"))
    bench.member(topic="/shop/b")
    assert admin.topics() == [
        TopicRow("/shop/b", False, (NAME,)),
        TopicRow("elsewhere", None),
        TopicRow("parts-part-0", True),
        TopicRow("parts-part-1", True),
    ]
    assert admin.namespace_topics("shop") == ["/shop/b"]
    with pytest.raises(UnknownNamespaceError):
        admin.topics("nothing")


def test_streams_of_the_broker_itself_are_neither_listed_nor_deleted(bench: SubscribingBench) -> None:
    bench.broker.topics.own("raceway.undeliverable")
    assert bench.broker.danube_admin.topics() == []
    with pytest.raises(NameReservedError):
        bench.broker.danube_admin.delete_topic("raceway.undeliverable")
    with pytest.raises(NameReservedError):
        bench.broker.danube_admin.create_namespace("raceway")


@pytest.mark.parametrize("target", ["raceway.rejected", "/system/dead"])
def test_dead_letters_do_not_go_to_the_broker_itself(bench: SubscribingBench, target: str) -> None:
    bench.producer()
    bench.member()
    policy = FailurePolicy(poison="dead_letter", dead_letter_topic=target)
    with pytest.raises(NameReservedError):
        bench.broker.danube_admin.set_failure_policy(TOPIC, NAME, policy)


def test_a_base_is_described_by_its_partitions(bench: SubscribingBench) -> None:
    admin = bench.broker.danube_admin
    admin.create_partitioned_topic("parts", 2, False)
    bench.member(topic="parts-part-1")
    assert admin.describe("parts") == TopicRow("parts", False, (), ("parts-part-0", "parts-part-1"))
    assert admin.subscriptions("parts") == [NAME]
    assert admin.subscriptions("parts-part-0") == []
    with pytest.raises(UnknownTopicError):
        admin.describe("nothing")


def test_a_topic_is_made_once(bench: SubscribingBench) -> None:
    bench.broker.danube_admin.create_topic("t", True)
    with pytest.raises(TopicKindError):
        bench.broker.danube_admin.create_topic("t", True)


def test_a_topic_may_be_made_with_a_subject(bench: SubscribingBench) -> None:
    admin = bench.broker.danube_admin
    with pytest.raises(SchemaReferenceError):
        admin.create_topic("t", True, "nothing")
    with pytest.raises(SchemaReferenceError):
        admin.create_partitioned_topic("parts", 2, True, "nothing")
    assert not bench.broker.danube.look_up("t")
    assert not bench.broker.danube.look_up("parts")
    bench.broker.schemas.register("s", "string", b"")
    admin.create_partitioned_topic("parts", 2, True, "s")
    for name in bench.broker.danube.partitions("parts"):
        topic = bench.broker.topics.maybe_exact(name)
        assert topic is not None
        assert bench.broker.schemas.topic_schema(topic).subject == "s"
    admin.delete_topic("parts")
    bench.restart()
    bench.broker.danube_admin.create_partitioned_topic("parts", 2, True)
    topic = bench.broker.topics.maybe_exact("parts-part-0")
    assert topic is not None
    assert bench.broker.schemas.topic_schema(topic).subject is None


def test_names_of_namespaces_are_checked(bench: SubscribingBench) -> None:
    for name in ("", "a.b", "a/b", "a b"):
        with pytest.raises(NameInvalidError):
            bench.broker.danube_admin.create_namespace(name)


def test_settings_of_a_live_subscription_are_kept_for_what_they_are_worth(bench: SubscribingBench) -> None:
    bench.producer(reliable=False)
    bench.member()
    bench.broker.danube_admin.set_failure_policy(TOPIC, NAME, FailurePolicy(poison="drop"))
    bench.broker.danube_admin.set_dispatch_limit(TOPIC, NAME, 5)
    assert bench.broker.danube_admin.failure_policy(TOPIC, NAME)[0].poison == "drop"
    assert bench.broker.danube_admin.dispatch_limit(TOPIC, NAME) == 5


def test_defaults_are_the_settings_of_the_bus(bench: SubscribingBench) -> None:
    bench.producer()
    bench.member()
    policy, kind = bench.broker.danube_admin.failure_policy(TOPIC, NAME)
    assert (policy, kind) == (FailurePolicy(), "exclusive")
    assert bench.broker.danube_admin.dispatch_limit(TOPIC, NAME) == 100


def test_what_is_set_before_a_subscription_is_made_is_kept_and_goes_with_the_topic(tmp_path: Path) -> None:
    bench = SubscribingBench(tmp_path)
    admin = bench.broker.danube_admin
    bench.producer()
    admin.set_failure_policy(TOPIC, NAME, FailurePolicy(poison="drop", max_redelivery_count=0))
    admin.set_dispatch_limit(TOPIC, NAME, 2)
    bench.settle()
    bench.crash()
    admin = bench.broker.danube_admin
    assert (admin.settings_of(TOPIC), admin.subscriptions(TOPIC)) == ([NAME], [])
    assert admin.dispatch_limit(TOPIC, NAME) == 2
    producer, consumer = bench.producer(), bench.member("shared")
    bench.sent(producer, b"0", b"1", b"2")
    assert consumer.offsets == [0, 1]
    bench.nack(0)
    assert (consumer.offsets, bench.status().dropped) == ([0, 1, 2], 1)
    assert admin.failure_policy(TOPIC, NAME)[1] == "shared"
    admin.delete_topic(TOPIC)
    bench.producer()
    assert admin.settings_of(TOPIC) == []
    with pytest.raises(UnknownSubscriptionError):
        admin.failure_policy(TOPIC, NAME)


def test_settings_go_with_their_subscription(bench: SubscribingBench) -> None:
    bench.producer()
    bench.member().leave()
    bench.broker.danube_admin.set_dispatch_limit(TOPIC, NAME, 2)
    bench.broker.danube_admin.unsubscribe(TOPIC, NAME)
    bench.member()
    assert bench.broker.danube_admin.dispatch_limit(TOPIC, NAME) == 100


def test_journals_of_earlier_releases_have_settings_with_their_subscriptions(tmp_path: Path) -> None:
    bench = SubscribingBench(tmp_path)
    bench.producer()
    bench.subscribe()
    record = {"topic": TOPIC, "name": NAME, "type": "exclusive", "reliable": True, "max_unacked": 7}
    record["policy"] = msgspec.to_builtins(FailurePolicy(poison="drop"))
    bench.journal.set_state("subscriptions", f"{TOPIC}:{NAME}", record)
    bench.settle()
    bench.crash()
    admin = bench.broker.danube_admin
    assert (admin.dispatch_limit(TOPIC, NAME), admin.failure_policy(TOPIC, NAME)[0].poison) == (7, "drop")
