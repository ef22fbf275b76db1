from __future__ import annotations

import pytest

from raceway.errors import (
    NameInvalidError,
    NameReservedError,
    SchemaReferenceError,
    TopicKindError,
    UnknownNamespaceError,
    UnknownTopicError,
)
from raceway.model.intents.schemas import RegisterSchema
from raceway.model.subscriptions import TopicRow
from tests.rigs.doubles import Message
from tests.rigs.subscribing import NAME, SubscribingBench


@pytest.fixture
def bench() -> SubscribingBench:
    return SubscribingBench()


def test_topics_are_listed_by_name_and_namespace(bench: SubscribingBench) -> None:
    admin, records = bench.broker.topic_admin, bench.broker.topic_records
    records.create_namespace("shop")
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
    assert admin.topics("shop") == [TopicRow("/shop/b", False, (NAME,))]
    with pytest.raises(UnknownNamespaceError):
        admin.topics("nothing")


def test_streams_of_the_broker_itself_are_neither_listed_nor_deleted(bench: SubscribingBench) -> None:
    bench.broker.topics.own("raceway.undeliverable")
    assert bench.broker.topic_admin.topics() == []
    with pytest.raises(NameReservedError):
        bench.broker.topic_admin.delete_topic("raceway.undeliverable")
    with pytest.raises(NameReservedError):
        bench.broker.topic_records.create_namespace("raceway")


def test_a_base_is_described_by_its_partitions(bench: SubscribingBench) -> None:
    admin = bench.broker.topic_admin
    admin.create_partitioned_topic("parts", 2, False)
    bench.member(topic="parts-part-1")
    assert admin.describe("parts") == TopicRow("parts", False, (), ("parts-part-0", "parts-part-1"))
    subscriptions = bench.broker.subscription_admin.subscriptions
    assert subscriptions("parts") == [NAME]
    assert subscriptions("parts-part-0") == []
    with pytest.raises(UnknownTopicError):
        admin.describe("nothing")


def test_a_topic_is_made_once(bench: SubscribingBench) -> None:
    bench.broker.topic_admin.create_topic("t", True)
    with pytest.raises(TopicKindError):
        bench.broker.topic_admin.create_topic("t", True)


def test_a_topic_may_be_made_with_a_subject(bench: SubscribingBench) -> None:
    admin = bench.broker.topic_admin
    with pytest.raises(SchemaReferenceError):
        admin.create_topic("t", True, "nothing")
    with pytest.raises(SchemaReferenceError):
        admin.create_partitioned_topic("parts", 2, True, "nothing")
    assert not bench.broker.topic_admin.partitions("t")
    assert not bench.broker.topic_admin.partitions("parts")
    bench.broker.schemas.register(RegisterSchema("s", "string", b""))
    admin.create_partitioned_topic("parts", 2, True, "s")
    for name in bench.broker.topic_admin.partitions("parts"):
        topic = bench.broker.topics.maybe_exact(name)
        assert topic is not None
        assert bench.broker.schemas.topic_schema(topic).subject == "s"
    admin.delete_topic("parts")
    bench.restart()
    bench.broker.topic_admin.create_partitioned_topic("parts", 2, True)
    topic = bench.broker.topics.maybe_exact("parts-part-0")
    assert topic is not None
    assert bench.broker.schemas.topic_schema(topic).subject is None


def test_names_of_namespaces_are_checked(bench: SubscribingBench) -> None:
    for name in ("", "a.b", "a/b", "a b"):
        with pytest.raises(NameInvalidError):
            bench.broker.topic_records.create_namespace(name)
