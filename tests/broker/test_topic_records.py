"""Namespaces, topics, partitions, limits: what may be made, what is kept."""

from __future__ import annotations

import pytest

from raceway.broker.topic_records import partition_of
from raceway.config import TopicLimits
from raceway.errors import (
    InUseError,
    InvalidValueError,
    MismatchError,
    NameReservedError,
    NameTakenError,
    TopicKindError,
    UnknownNamespaceError,
    UnknownTopicError,
)
from raceway.model.envelope import PUBLISH, Batch
from raceway.model.hashing import fnv1a64
from raceway.model.intents.batches import Publish
from raceway.model.subscriptions import Policies, TopicRow
from tests.rigs.doubles import Message
from tests.rigs.subscribing import SubscribingBench


@pytest.fixture
def bench() -> SubscribingBench:
    return SubscribingBench()


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("a-part-0", ("a", 0)),
        ("/ns/a-part-12", ("/ns/a", 12)),
        ("a-part-1-part-2", ("a-part-1", 2)),
        ("a-part-01", None),
        ("a-part-", None),
        ("-part-1", None),
        ("a-part-٣", None),
        ("a-part-1x", None),
        ("a", None),
    ],
)
def test_only_exact_names_are_partitions(name: str, wanted: tuple[str, int] | None) -> None:
    assert partition_of(name) == wanted


@pytest.mark.parametrize("name", ["system.message", "raceway.rejected", "/system/x", "SYSTEM.x"])
def test_names_of_the_broker_are_refused(bench: SubscribingBench, name: str) -> None:
    with pytest.raises(NameReservedError):
        bench.producer(name)
    assert not bench.broker.topic_admin.partitions(name)


def test_a_name_that_differs_only_in_case_is_refused(bench: SubscribingBench) -> None:
    bench.producer("Orders")
    with pytest.raises(NameTakenError, match="Orders"):
        bench.producer("orders")
    bench.producer("Parts-part-0")
    with pytest.raises(NameTakenError, match="Parts"):
        bench.producer("parts-part-1")


def test_a_topic_of_another_wire_is_found_by_its_name(bench: SubscribingBench) -> None:
    bench.publish(bench.foreign_peer(), Message(b"Born.Elsewhere"))
    assert bench.broker.topic_admin.partitions("born.elsewhere")
    assert not bench.broker.topic_admin.partitions("Born.Elsewhere"), "names are looked up exactly"
    assert bench.broker.topic_admin.partitions("born.elsewhere") == ["born.elsewhere"]
    assert bench.broker.topic_admin.partitions("nothing") == []


# ---- dispatch strategy -----------------------------------------------------------------------------------------------


def test_the_first_producer_settles_the_strategy(bench: SubscribingBench) -> None:
    bench.publish(bench.foreign_peer(), Message(b"t"))
    assert bench.broker.topic_admin.describe("t").reliable is None
    bench.producer("t", reliable=False)
    assert bench.broker.topic_admin.describe("t").reliable is False
    with pytest.raises(MismatchError, match="non-reliable, not reliable"):
        bench.producer("t", name="other", reliable=True)
    bench.restart()
    with pytest.raises(MismatchError):
        bench.producer("t", name="other", reliable=True)


def test_subscriptions_made_while_it_is_open_are_durable_and_stay_so(bench: SubscribingBench) -> None:
    stranger = bench.foreign_peer()
    bench.publish(stranger, Message(b"t"))
    consumer = bench.member(topic="t")
    bench.producer("t", reliable=False)
    consumer.leave()
    bench.publish(stranger, Message(b"t", b"kept"))
    assert bench.open(consumer.id).payloads == [b"kept"]
    assert bench.status("t", "billing").lag == 1
    bench.member(topic="t", subscription="young")
    assert bench.status("t", "young").reliable is False


def test_topics_without_rows_survive_a_restart(bench: SubscribingBench) -> None:
    bench.broker.topic_admin.create_topic("empty", reliable=True)
    bench.restart()
    assert bench.broker.topic_admin.partitions("empty")
    assert bench.broker.topic_admin.describe("empty") == TopicRow("empty", True)


def test_topics_are_not_made_by_consumers(bench: SubscribingBench) -> None:
    with pytest.raises(UnknownTopicError):
        bench.subscribe(topic="nothing")


def test_without_auto_create_producers_make_none(bench: SubscribingBench) -> None:
    bench = SubscribingBench(auto_create=False)
    with pytest.raises(UnknownTopicError):
        bench.producer("t")
    bench.broker.topic_admin.create_topic("t", reliable=True)
    bench.producer("t")


# ---- partitions ------------------------------------------------------------------------------------------------------


def test_partitions_are_given_by_number(bench: SubscribingBench) -> None:
    for number in (10, 2, 0, 1):
        bench.producer(f"t-part-{number}", name=f"p-{number}")
    bench.producer("t-partial")
    wanted = ["t-part-0", "t-part-1", "t-part-2", "t-part-10"]
    assert bench.broker.topic_admin.partitions("t") == wanted
    assert bench.broker.topic_admin.partitions("t")
    assert bench.broker.topic_admin.partitions("t-part-2") == ["t-part-2"]
    bench.restart()
    assert bench.broker.topic_admin.partitions("t") == wanted


def test_a_name_is_plain_or_partitioned(bench: SubscribingBench) -> None:
    bench.producer("plain")
    with pytest.raises(TopicKindError):
        bench.producer("plain-part-0")
    bench.producer("parted-part-0")
    with pytest.raises(TopicKindError):
        bench.producer("parted")
    with pytest.raises(TopicKindError):
        bench.broker.topic_admin.create_topic("parted", True)
    with pytest.raises(TopicKindError):
        bench.broker.topic_admin.create_partitioned_topic("plain", 2, True)
    with pytest.raises(UnknownTopicError):
        bench.subscribe(topic="parted")


def test_an_administrator_fixes_their_number(bench: SubscribingBench) -> None:
    bench.broker.topic_admin.create_partitioned_topic("t", 3, reliable=True)
    bench.producer("t-part-2")
    with pytest.raises(MismatchError, match="is 3"):
        bench.producer("t-part-3")
    bench.restart()
    with pytest.raises(MismatchError):
        bench.producer("t-part-3")
    with pytest.raises(TopicKindError):
        bench.broker.topic_admin.create_partitioned_topic("t", 4, reliable=True)


@pytest.mark.parametrize("count", [0, 10_001])
def test_the_number_of_partitions_has_bounds(bench: SubscribingBench, count: int) -> None:
    with pytest.raises(InvalidValueError):
        bench.broker.topic_admin.create_partitioned_topic("t", count, reliable=True)


def test_publishes_of_other_wires_to_the_base_go_to_the_partition_of_their_sender(bench: SubscribingBench) -> None:
    bench.broker.topic_admin.create_partitioned_topic("t", 3, reliable=True)
    members = [bench.member(topic=f"t-part-{number}") for number in range(3)]
    senders = [bench.foreign_peer() for _ in range(8)]
    for sender in senders:
        taken = bench.publish(sender, Message(b"t", b"1"), Message(b"T", b"2"))
        assert taken.refused == ()
    for number, member in enumerate(members):
        wanted = [sender for sender in senders if fnv1a64(sender.producer) % 3 == number]
        assert member.payloads == [b"1", b"2"] * len(wanted)


def test_the_routing_key_counts_before_the_sender(bench: SubscribingBench) -> None:
    bench.broker.topic_admin.create_partitioned_topic("t", 3, reliable=True)
    members = [bench.member(topic=f"t-part-{number}") for number in range(3)]
    keys = [b"k%d" % number for number in range(12)]
    batch = Batch(12, wire=b"zbus", kind=PUBLISH, topic=b"t", payload=list(keys), routing_key=list(keys))
    batch.attributes = [b'{"a":"b"}'] * 12
    bench.broker.perform(bench.sender, Publish(batch))
    for number, member in enumerate(members):
        assert member.payloads == [key for key in keys if fnv1a64(key) % 3 == number]
        assert all(member.sink.attributes(at)["a"] == "b" for at in range(len(member.payloads)))


def test_subscribers_of_other_wires_to_the_base_get_all_partitions(bench: SubscribingBench) -> None:
    early = bench.foreign_peer("t")
    producers = [bench.producer(f"t-part-{number}") for number in range(2)]
    late, wild = bench.foreign_peer("t"), bench.foreign_peer("#")
    for number, producer in enumerate(producers):
        bench.sent(producer, b"%d" % number, topic=f"t-part-{number}")
    for peer in (early, late, wild):
        assert [(copy.topic, copy.payload) for copy in peer.copies] == [(b"t", b"0"), (b"t", b"1")]
    bench.broker.disconnect(late)
    bench.sent(producers[0], b"2", topic="t-part-0")
    assert len(late.copies) == 2


# ---- deletion --------------------------------------------------------------------------------------------------------


def test_a_deleted_topic_is_gone_with_all_that_belongs_to_it(bench: SubscribingBench) -> None:
    producer = bench.producer()
    consumer = bench.member()
    bench.sent(producer, b"a")
    bench.broker.topic_admin.delete_topic("orders")
    assert not bench.broker.topic_admin.partitions("orders")
    assert [type(error).__name__ for error in consumer.sink.ended] == ["UnknownConsumerError"]
    assert not bench.broker.subscriptions.is_consumer(consumer.id)
    assert not bench.broker.producers.hear(producer)
    bench.restart()
    assert not bench.broker.topic_admin.partitions("orders")
    assert bench.journal.state.get("cursors", "subscription:orders:billing") is None


def test_its_name_may_be_used_again_and_offsets_go_on(bench: SubscribingBench) -> None:
    bench.sent(bench.producer(), b"a")
    bench.broker.topic_admin.delete_topic("orders")
    producer = bench.producer(reliable=False)
    consumer = bench.member()
    bench.sent(producer, b"b")
    assert consumer.sink.got == [(1, b"b")]
    bench.restart()
    assert bench.broker.topic_admin.describe("orders").reliable is False


def test_a_publish_of_another_wire_brings_it_back(bench: SubscribingBench) -> None:
    bench.sent(bench.producer(), b"a")
    bench.broker.topic_admin.delete_topic("orders")
    bench.publish(bench.foreign_peer(), Message())
    assert bench.broker.topic_admin.partitions("orders")
    bench.restart()
    assert bench.broker.topic_admin.describe("orders") == TopicRow("orders")


def test_partitions_go_with_their_base(bench: SubscribingBench) -> None:
    bench.broker.topic_admin.create_partitioned_topic("t", 2, reliable=True)
    with pytest.raises(InvalidValueError):
        bench.broker.topic_admin.delete_topic("t-part-0")
    bench.broker.topic_admin.delete_topic("t")
    assert bench.broker.topic_admin.partitions("t") == []
    bench.producer("t")
    bench.restart()
    assert bench.broker.topic_admin.partitions("t") == ["t"]


def test_a_queue_is_not_deleted_as_a_topic(bench: SubscribingBench) -> None:
    bench.broker.queues.create(bench.sender, "me", "q", 1, "")
    with pytest.raises(InUseError):
        bench.broker.topic_admin.delete_topic("q")


# ---- namespaces ------------------------------------------------------------------------------------------------------


def test_topics_of_another_namespace_are_seen_by_danube_only(bench: SubscribingBench) -> None:
    with pytest.raises(UnknownNamespaceError):
        bench.producer("/shop/orders")
    bench.broker.topic_records.create_namespace("shop")
    listener = bench.foreign_peer("#")
    producer, consumer = bench.producer("/shop/orders"), bench.member(topic="/shop/orders")
    bench.sent(producer, b"a", topic="/shop/orders")
    assert (consumer.payloads, listener.copies) == ([b"a"], [])
    assert bench.rows("publish")[0]["topic"] == "/shop/orders"
    bench.restart()
    assert bench.broker.topic_records.namespaces() == ["default", "shop", "system"]
    assert [row.name for row in bench.broker.topic_admin.topics("shop")] == ["/shop/orders"]
    assert bench.broker.topic_admin.topics("default") == []


def test_an_alias_lets_other_wires_reach_them() -> None:
    bench = SubscribingBench(aliases={"shop.orders": "/shop/orders"})
    bench.broker.topic_records.create_namespace("shop")
    listener = bench.foreign_peer("shop.+")
    producer, consumer = bench.producer("/shop/orders"), bench.member(topic="/shop/orders")
    bench.sent(producer, b"a", topic="/shop/orders")
    assert [(copy.topic, copy.payload) for copy in listener.copies] == [(b"shop.orders", b"a")]
    bench.publish(bench.foreign_peer(), Message(b"Shop.Orders", b"b"))
    assert consumer.payloads == [b"a", b"b"]


def test_only_an_empty_namespace_goes(bench: SubscribingBench) -> None:
    admin, records = bench.broker.topic_admin, bench.broker.topic_records
    records.create_namespace("shop")
    with pytest.raises(TopicKindError):
        records.create_namespace("shop")
    admin.create_topic("/shop/orders", True)
    for name in ("shop", "default", "system"):
        with pytest.raises(InUseError):
            records.delete_namespace(name)
    with pytest.raises(UnknownNamespaceError):
        records.delete_namespace("nothing")
    admin.delete_topic("/shop/orders")
    records.delete_namespace("shop")
    bench.restart()
    assert bench.broker.topic_records.namespaces() == ["default", "system"]


# ---- limits ----------------------------------------------------------------------------------------------------------


def test_a_topic_counts_before_its_namespace_and_that_before_the_broker() -> None:
    bench = SubscribingBench(limits=TopicLimits(max_producers_per_topic=7, max_publish_rate=5))
    admin, records = bench.broker.topic_admin, bench.broker.topic_records
    admin.create_topic("t", True)
    records.set_policies("namespace", "default", Policies(max_producers_per_topic=3, max_consumers_per_topic=2))
    records.set_policies("topic", "t", Policies(max_consumers_per_topic=0))
    for _ in range(2):
        found = bench.broker.topic_records.topic_policies("t")
        assert (found.max_producers_per_topic, found.max_consumers_per_topic, found.max_publish_rate) == (3, 0, 5)
        assert bench.broker.topic_records.namespace_policies("default").max_consumers_per_topic == 2
        bench.restart()


def test_limits_cannot_be_negative(bench: SubscribingBench) -> None:
    with pytest.raises(InvalidValueError):
        bench.broker.topic_records.set_policies("namespace", "default", Policies(max_publish_rate=-1))
