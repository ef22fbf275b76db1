"""Publish/subscribe queues: exact topics, one buffer per subscriber."""

from __future__ import annotations

from typing import Any

import pytest

from raceway.broker.queues.pubsub import PubSubQueue
from raceway.errors import NoRouteError, TooLargeError
from raceway.model.envelope import encode_attributes
from tests.rigs.doubles import Refusal, refusals
from tests.rigs.queues import PUBSUB, QueueBench, QueuePeer, numbered

KIB = 1024


@pytest.fixture
def bench() -> QueueBench:
    bench = QueueBench(pubsub_messages=5, pubsub_bytes=4 * KIB)
    bench.create("ticks", PUBSUB)
    return bench


def subscriber(bench: QueueBench, topics: str, window: int = 1, ticket: bytes = b"t") -> QueuePeer:
    peer = bench.peer()
    bench.arm(peer, "ticks", ticket, topics, window)
    return peer


def tick(bench: QueueBench, topic: str | None, *payloads: bytes) -> None:
    attributes = {"other": "x"} if topic is None else {"zbus.topic": topic}
    assert bench.produce(*payloads, name="ticks", attributes=encode_attributes(attributes)) is not None


def queue(bench: QueueBench) -> PubSubQueue:
    ((_, _, found),) = bench.broker.queues
    assert isinstance(found, PubSubQueue)
    return found


# ---- topics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "got"),
    [
        ("hk", ["hk"]),
        ("sse hk", ["sse", "hk"]),
        ("*", ["sse", "hk", "HK", "hk.a", "*", "#", "a,b"]),
        ("sse *", ["sse", "hk", "HK", "hk.a", "*", "#", "a,b"]),
        ("HK", ["HK"]),
        ("#", ["#"]),
        ("hk.*", []),
        ("hk.#", []),
        ("a", []),
        ("a,b", ["a,b"]),
        ("", []),
    ],
)
def test_a_message_goes_to_those_whose_topics_hold_its_own_exactly(
    bench: QueueBench, wanted: str, got: list[str]
) -> None:
    peer = subscriber(bench, wanted, window=-1)
    for topic in ("sse", "hk", "HK", "hk.a", "*", "#", "a,b"):
        tick(bench, topic, topic.encode())
    assert [payload.decode() for payload in peer.payloads] == got


def test_a_message_without_topic_reaches_nobody(bench: QueueBench) -> None:
    everything = subscriber(bench, "*", window=-1)
    tick(bench, None, b"void")
    bench.produce(b"void", name="ticks")
    assert everything.payloads == []


def test_topics_add_up_on_a_connection_and_arming_again_needs_none(bench: QueueBench) -> None:
    peer = subscriber(bench, "b")
    tick(bench, "b", b"1")
    bench.arm(peer, "ticks", topics="a")
    bench.arm(peer, "ticks")
    for topic in ("c", "b", "a"):
        tick(bench, topic, topic.encode())
    bench.arm(peer, "ticks")
    assert peer.payloads == [b"1", b"b", b"a"]
    assert sorted(queue(bench).consumers[peer].topics) == ["a", "b"]


def test_a_message_of_another_wire_has_its_canonical_name_as_topic(bench: QueueBench) -> None:
    by_name, everything, other = (subscriber(bench, topics, window=-1) for topics in ("ticks", "*", "TICKS"))
    bench.produce(b"foreign", name="Ticks", peer=bench.foreign_peer())
    assert (by_name.payloads, everything.payloads, other.payloads) == ([b"foreign"], [b"foreign"], [])


def test_only_publishes_are_copied(bench: QueueBench) -> None:
    peer = subscriber(bench, "*", window=-1)
    assert refusals(bench.ask(bench.foreign_peer(), b"r", name="ticks")) == [Refusal(0, 1, NoRouteError)]
    assert refusals(bench.ask(bench.peer(), b"r", name="ticks")) == [Refusal(0, 1, NoRouteError)]
    assert peer.payloads == []


# ---- deliveries ------------------------------------------------------------------------------------------------------


def test_every_subscriber_gets_a_copy_before_the_commit_and_in_order(bench: QueueBench) -> None:
    peers = [subscriber(bench, "hk", window=-1) for _ in range(3)]
    tick(bench, "hk", *numbered(0, 4))
    assert [peer.payloads for peer in peers] == [numbered(0, 4)] * 3


def test_one_consume_is_one_delivery_and_the_rest_waits(bench: QueueBench) -> None:
    peer = subscriber(bench, "hk", ticket=b"s-1")
    tick(bench, "hk", *numbered(0, 3))
    assert peer.handed == [(b"s-1", b"0")]
    bench.arm(peer, "ticks", b"s-2")
    bench.arm(peer, "ticks", b"s-3")
    bench.arm(peer, "ticks", b"s-4")
    bench.arm(peer, "ticks", b"s-5")
    assert peer.handed[1:] == [(b"s-2", b"1"), (b"s-3", b"2")]
    tick(bench, "hk", *numbered(3, 2))
    assert peer.handed[3:] == [(b"s-5", b"3")], "a further consume replaces the waiting one"


def test_a_window_is_that_many_deliveries(bench: QueueBench) -> None:
    peer = subscriber(bench, "hk", window=2)
    tick(bench, "hk", b"0")
    assert queue(bench).consumers[peer].window
    tick(bench, "hk", b"1", b"2")
    assert (peer.payloads, bool(queue(bench).consumers[peer].window)) == ([b"0", b"1"], False)
    bench.arm(peer, "ticks", window=-1)
    tick(bench, "hk", *numbered(3, 20))
    assert (peer.payloads, bool(queue(bench).consumers[peer].window)) == (numbered(0, 23), True)


def test_what_waits_goes_with_the_connection_and_there_is_no_history(bench: QueueBench) -> None:
    gone = subscriber(bench, "hk")
    tick(bench, "hk", *numbered(0, 3))
    bench.leave(gone)
    late = subscriber(bench, "hk", window=-1)
    assert late.payloads == []
    assert len(queue(bench).consumers) == 1


def test_copies_are_for_subscribers_of_this_queue_only(bench: QueueBench) -> None:
    bench.create("others", PUBSUB)
    peer = bench.peer()
    bench.arm(peer, "others", topics="hk")
    tick(bench, "hk", b"1")
    assert peer.payloads == []


# ---- buffers ---------------------------------------------------------------------------------------------------------


def test_a_full_buffer_holds_publishers_back_until_it_has_drained(bench: QueueBench) -> None:
    slow, quick = subscriber(bench, "hk"), subscriber(bench, "hk", window=-1)
    (seat, _) = queue(bench).consumers.values()
    tick(bench, "hk", *numbered(0, 6))
    assert seat not in bench.broker.credits.full, "one was delivered, five wait"
    tick(bench, "hk", *numbered(6, 1))
    assert bench.broker.credits.full == {seat}
    bench.arm(slow, "ticks", window=-1)
    assert not bench.broker.credits.full
    assert slow.payloads == quick.payloads == numbered(0, 7)


def test_a_buffer_is_measured_by_bytes_but_one_message_of_any_size_is_not_too_much(bench: QueueBench) -> None:
    slow = subscriber(bench, "hk")
    (seat,) = queue(bench).consumers.values()
    tick(bench, "hk", b"first", b"huge" * 4 * KIB)
    assert seat not in bench.broker.credits.full
    tick(bench, "hk", b"next")
    assert seat in bench.broker.credits.full
    bench.arm(slow, "ticks", window=-1)
    assert slow.payloads == [b"first", b"huge" * 4 * KIB, b"next"]


def test_a_buffer_far_above_its_mark_goes_on_from_the_journal_without_gap_or_repeat(bench: QueueBench) -> None:
    slow = subscriber(bench, "hk")
    (seat,) = queue(bench).consumers.values()
    for number in range(0, 40, 4):
        tick(bench, "hk", *numbered(number, 4))
        bench.settle()
    assert len(seat.waiting) <= 12, "twice the mark, and what came at once"
    assert (bench.counted("bus.detached"), bench.broker.catch_ups.count) == (1, 1)
    assert bench.broker.queues.is_behind(slow)
    for _ in range(40):
        bench.arm(slow, "ticks")
        bench.settle()
    assert slow.payloads == numbered(0, 40)
    assert (bench.counted("bus.rejoined"), bench.broker.catch_ups.count) == (1, 0)
    assert not bench.broker.queues.is_behind(slow)
    tick(bench, "hk", b"live")
    assert slow.payloads[-1] == b"live"


def test_topics_added_while_behind_hold_for_what_is_accepted_from_then_on(bench: QueueBench) -> None:
    slow = subscriber(bench, "hk")
    for number in range(0, 20, 4):
        tick(bench, "hk", *numbered(number, 4))
        tick(bench, "sse", b"not wanted yet")
        bench.settle()
    assert bench.broker.catch_ups.count == 1
    bench.arm(slow, "ticks", topics="sse")
    tick(bench, "sse", b"wanted")
    bench.settle()
    for _ in range(20):
        bench.arm(slow, "ticks")
        bench.settle()
    assert slow.payloads == [*numbered(0, 20), b"wanted"]


def test_a_subscriber_that_leaves_while_behind_is_counted_no_more(bench: QueueBench) -> None:
    slow = subscriber(bench, "hk")
    for number in range(0, 20, 4):
        tick(bench, "hk", *numbered(number, 4))
        bench.settle()
    assert bench.broker.catch_ups.count == 1
    bench.broker.queues.leave(slow)
    bench.settle()
    assert (bench.broker.catch_ups.count, bench.broker.credits.full) == (0, set())


def test_a_buffered_message_does_not_keep_the_batch_it_came_in(bench: QueueBench) -> None:
    slow = subscriber(bench, "hk")
    bench.produce(
        b"armed", b"other", b"waits", b"other",
        name="ticks",
        attributes=[encode_attributes({"zbus.topic": topic}) for topic in ("hk", "sse", "hk", "sse")],
        message_id=[b"1", b"2", b"3", b"4"],
    )  # fmt: skip
    ((copy,),) = [seat.waiting for seat in queue(bench).consumers.values()]
    assert copy.batch.payload == [b"waits"]
    assert (copy.batch.item("message_id", copy.row), copy.batch.count) == (b"3", 1)
    bench.arm(slow, "ticks")
    assert slow.payloads == [b"armed", b"waits"]


# ---- routes ----------------------------------------------------------------------------------------------------------


def test_a_pubsub_queue_stands_in_the_routes_while_somebody_consumes(bench: QueueBench) -> None:
    sender = bench.foreign_peer()
    no_route: list[Any] = [Refusal(0, 1, NoRouteError)]
    assert refusals(bench.produce(b"x", name="ticks", peer=sender)) == no_route, "a live subscription, and nobody there"
    first, second = subscriber(bench, "hk"), subscriber(bench, "hk")
    assert refusals(bench.produce(b"x", name="ticks", peer=sender)) == []
    bench.leave(first)
    assert refusals(bench.produce(b"x", name="ticks", peer=sender)) == []
    bench.leave(second)
    assert refusals(bench.produce(b"x", name="ticks", peer=sender)) == no_route
    assert [row["payload"] for row in bench.rows()] == [b"x"] * 4, "stored in any case"


def test_a_pubsub_queue_keeps_no_cursor_and_no_backlog(bench: QueueBench) -> None:
    subscriber(bench, "hk", window=-1)
    tick(bench, "hk", *numbered(0, 3))
    bench.settle()
    assert dict(bench.journal.state.section("cursors")) == {}
    bench.restart()
    late = subscriber(bench, "*", window=-1)
    assert late.payloads == []
    tick(bench, "hk", b"new")
    assert late.payloads == [b"new"]


def test_the_topics_one_consumer_gathers_have_a_limit_and_what_it_had_goes_on() -> None:
    bench = QueueBench(pubsub_topic_bytes=10)
    bench.create("ticks", PUBSUB)
    peer = subscriber(bench, "hk sse", window=-1)
    with pytest.raises(TooLargeError, match="13 bytes is over the limit of 10"):
        bench.arm(peer, "ticks", b"t", "hk sse szse4444", -1)
    bench.arm(peer, "ticks", b"t", "hk nyse", -1)
    assert sorted(queue(bench).consumers[peer].topics) == ["hk", "nyse", "sse"]
