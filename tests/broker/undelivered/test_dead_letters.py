"""Dead letters, and notes of what a wire cannot carry."""

from __future__ import annotations

import msgspec
import pytest

from raceway.broker.undelivered.redrive import DEAD_LETTER, Redrive, facts_of
from raceway.model.envelope import PUBLISH, Batch, decode_attributes
from raceway.model.hashing import sender_id
from raceway.model.intents.batches import Publish, Return, Send
from raceway.model.subscriptions import FailurePolicy
from tests.rigs.doubles import ExactPeer
from tests.rigs.subscribing import NAME, TOPIC, Member, RecordingSink, SubscribingBench

POLICY = FailurePolicy(
    max_redelivery_count=1, base_redelivery_delay_ms=10, poison="dead_letter", dead_letter_topic="dead"
)


@pytest.fixture
def bench() -> SubscribingBench:
    bench = SubscribingBench()
    bench.broker.letters.broker_address = "http://broker:6650"
    return bench


def fail(bench: SubscribingBench, *offsets: int, reason: str | None = None) -> None:
    """Until they are poison."""
    for _ in range(2):
        bench.nack(*offsets, reason=reason)
        bench.loop.advance(0.1)
    bench.settle()


def with_policy(bench: SubscribingBench) -> tuple[int, Member]:
    producer, consumer = bench.producer(), bench.member()
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=POLICY)
    return producer, consumer


def letters(bench: SubscribingBench) -> list[dict[str, object]]:
    return [row for row in bench.rows("publish") if row["topic"] == "dead"]


def test_a_dead_letter_keeps_what_the_message_had_and_says_where_it_came_from(bench: SubscribingBench) -> None:
    producer, _ = with_policy(bench)
    batch = bench.batch(producer, b"bad", key=b"k", attributes={"colour": "red"})
    batch.schema_id, batch.schema_version = [5], [2]
    bench.broker.perform(bench.sender, Send(batch))
    bench.settle()
    fail(bench, 0, reason="too heavy")
    (row,) = letters(bench)
    assert (row["payload"], row["routing_key"], row["schema_id"], row["schema_version"]) == (b"bad", "k", 5, 2)
    assert (row["producer"], row["producer_id"], row["message_id"]) == ("p", producer, f"{producer}-2")
    assert dict(row["attributes"]) == {  # type: ignore[call-overload]
        "colour": "red",
        "x-original-topic": "/default/orders",
        "x-original-subscription": "billing",
        "x-original-topic-offset": "0",
        "x-original-producer-id": str(producer),
        "x-original-broker-addr": "http://broker:6650",
        "x-poison-policy": "dead_letter",
        "x-delivery-attempt": "2",
        "x-failure-reason": "too heavy",
    }
    assert bench.kept_cursor() == 1
    assert (bench.status().dead_letters, bench.counted("bus.dead_letters")) == (1, 1)


def test_the_topic_of_dead_letters_is_made_reliable(bench: SubscribingBench) -> None:
    producer, _ = with_policy(bench)
    bench.sent(producer, b"bad")
    fail(bench, 0)
    assert bench.broker.topic_admin.describe("dead").reliable is True
    consumer = bench.member(topic="dead")
    bench.sent(producer, b"bad too")
    fail(bench, 1)
    assert consumer.payloads == [b"bad too"]


def test_a_message_of_another_wire_has_the_id_of_its_sender(bench: SubscribingBench) -> None:
    with_policy(bench)
    peer = ExactPeer("worker")
    bench.broker.connect(peer)
    bench.broker.perform(peer, Publish(Batch(1, wire=b"zbus", kind=PUBLISH, topic=b"orders", payload=[b"x"])))
    bench.settle()
    fail(bench, 0)
    attributes = dict(letters(bench)[0]["attributes"])  # type: ignore[call-overload]
    assert attributes["x-original-producer-id"] == str(sender_id(b"orders", b"worker"))
    assert "x-failure-reason" not in attributes


def test_a_consumer_that_hangs_for_ever_is_a_reason(bench: SubscribingBench) -> None:
    producer, _ = with_policy(bench)
    bench.sent(producer, b"x")
    bench.loop.advance(100)
    assert letters(bench) == [], "it may be slow"
    bench.loop.advance(10_000)
    assert dict(letters(bench)[0]["attributes"])["x-failure-reason"] == "ack timeout"  # type: ignore[call-overload]


def test_each_subscription_sends_its_own_dead_letter_even_of_a_named_message(bench: SubscribingBench) -> None:
    producer, _ = with_policy(bench)
    bench.member(subscription="audit")
    bench.broker.subscription_admin.change(TOPIC, "audit", policy=POLICY)
    bench.sent(producer, b"x", attributes={"x-dedup-id": "1"})
    for subscription in (NAME, "audit"):
        for _ in range(2):
            bench.nack(0, subscription=subscription)
            bench.loop.advance(0.1)
    assert len(letters(bench)) == 2


def test_a_dead_letter_that_cannot_be_stored_is_tried_again(bench: SubscribingBench) -> None:
    producer, _ = with_policy(bench)
    bench.sent(producer, b"x")
    bench.nack(0)
    bench.loop.advance(0.1)
    bench.faulty.refuse_writes()
    bench.nack(0)
    assert bench.status().lag == 1
    bench.faulty.take_writes()
    bench.loop.advance(1.1)
    assert len(letters(bench)) == 1
    assert bench.kept_cursor() == 1


def test_a_message_is_done_when_its_dead_letter_is_safe(bench: SubscribingBench) -> None:
    producer, _ = with_policy(bench)
    bench.sent(producer, b"x")
    bench.nack(0)
    bench.loop.advance(0.1)
    bench.settle()
    bench.faulty.fail_next_commit()
    bench.nack(0)
    assert (letters(bench), bench.kept_cursor(), bench.status().waiting) == ([], 0, 1)
    bench.loop.advance(1.1)
    assert (len(letters(bench)), bench.kept_cursor()) == (1, 1)


def test_an_acknowledgement_while_the_dead_letter_is_stored_counts(bench: SubscribingBench) -> None:
    producer, _ = with_policy(bench)
    bench.sent(producer, b"x")
    bench.nack(0)
    bench.loop.advance(0.1)
    bench.settle()
    bench.broker.perform(bench.sender, Return([TOPIC], [NAME], [0], [None], [None]))
    bench.ack(0)
    assert (bench.kept_cursor(), bench.status().lag, bench.status().in_flight) == (1, 0, 0)


def test_a_partitioned_topic_may_take_dead_letters(bench: SubscribingBench) -> None:
    bench.broker.topic_admin.create_partitioned_topic("dead", 2, reliable=True)
    producer, _ = with_policy(bench)
    bench.sent(producer, b"x", key=b"k")
    fail(bench, 0)
    assert [row["topic"] for row in bench.rows("publish") if str(row["topic"]).startswith("dead")] in (
        ["dead-part-0"],
        ["dead-part-1"],
    )


@pytest.mark.parametrize("reliable", [True, False])
def test_a_message_too_large_for_the_wire_is_stepped_over_and_noted(bench: SubscribingBench, reliable: bool) -> None:
    producer = bench.producer(reliable=reliable)
    consumer = bench.member(sink=RecordingSink(largest=1000))
    listener = bench.foreign_peer("raceway.undeliverable")
    bench.sent(producer, b"a", b"x" * 2000, b"b")
    assert consumer.payloads == [b"a", b"b"]
    (note,) = [row for row in bench.rows("publish") if row["topic"] == "raceway.undeliverable"]
    facts = msgspec.json.decode(note["payload"])
    assert (facts["topic"], facts["offset"], facts["subscription"], facts["reason"]) == (TOPIC, 1, NAME, "too_large")
    assert dict(note["attributes"])["offset"] == "1"
    assert facts["size"] > facts["limit"] == 1000
    assert len(listener.copies) == 1
    assert (bench.status().undeliverable, bench.counted("bus.undeliverable")) == (1, 1)
    if reliable:
        bench.ack(0, 2)
        assert bench.kept_cursor() == 3


def test_attributes_count_towards_the_size(bench: SubscribingBench) -> None:
    producer, consumer = bench.producer(), bench.member(sink=RecordingSink(largest=1000))
    bench.sent(producer, b"", attributes={"a": "x" * 900})
    bench.sent(producer, b"b")
    assert consumer.payloads == [b"b"]


def test_a_dead_letter_is_listed_and_goes_back_as_it_was(bench: SubscribingBench) -> None:
    producer, _ = with_policy(bench)
    bench.broker.perform(bench.sender, Send(bench.batch(producer, b"bad", key=b"k", attributes={"colour": "red"})))
    bench.settle()
    fail(bench, 0, reason="too heavy")
    redrive = Redrive(bench.broker, bench.broker.subscriptions)
    assert redrive.topics(DEAD_LETTER) == ["dead"]
    (row,) = redrive.newest("dead", None, 10)
    told = facts_of(row)
    assert (told["source"], told["topic"], told["subscription"]) == ("dead_letter", "orders", "billing")
    assert (told["reason"], told["offset"]) == ("too heavy", "0")
    assert redrive.row(row["sequence"]) == row
    again = redrive.batch(row, None)
    assert (again.item("topic", 0), again.item("payload", 0), again.item("routing_key", 0)) == (b"orders", b"bad", b"k")
    kept = decode_attributes(again.item("attributes", 0))
    assert kept == {"colour": "red", "raceway.redriven": str(row["sequence"])}


def test_partitions_of_dead_letters_are_listed_one_by_one(bench: SubscribingBench) -> None:
    bench.broker.topic_admin.create_partitioned_topic("dead", 2, reliable=True)
    with_policy(bench)
    assert Redrive(bench.broker, bench.broker.subscriptions).topics(DEAD_LETTER) == ["dead-part-0", "dead-part-1"]
