"""Publishes of several topics in one read: the same for every subscriber as if each had come alone."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raceway.broker import mixed
from raceway.model.envelope import Batch
from raceway.model.topics import matches
from tests.rigs.desk import MbDesk, Service
from tests.rigs.mb_wire import Message
from tests.rigs.queues import QueueBench
from tests.rigs.rounds import rounds

NAMES = ("a", "b", "c.d", "c.e")
PATTERNS = (*NAMES, "#", "c.+", "+")
VERSIONS = ("1.0.0", "2.1.0")

rows = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VERSIONS), st.binary(max_size=9)), min_size=1)


def publishes(messages: list[Message]) -> list[tuple[str, bytes]]:
    """Header without the id, and payload, of every copy."""
    return [(":".join(m.fields[:3]), m.payload) for m in messages if m.action == "publish"]


def learn(publisher: Service, desk: MbDesk) -> None:
    """Publish once on every topic: a first message of a topic takes the other way."""
    for name in NAMES:
        publisher.send(f"publish:{name}:1.0.0", b"first")
    desk.loop.settle()


@settings(max_examples=rounds(60), deadline=None)
@given(st.lists(st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3), min_size=1, max_size=4), rows)
def test_each_subscriber_gets_its_rows_in_the_order_of_the_read(
    patterns: list[list[str]], sent: list[tuple[str, str, bytes]]
) -> None:
    desk = MbDesk()
    subscribers, publisher = [desk.service() for _ in patterns], desk.service()
    for subscriber, wanted in zip(subscribers, patterns, strict=True):
        for pattern in wanted:
            subscriber.subscribe(pattern)
    learn(publisher, desk)
    for subscriber in subscribers:
        subscriber.heard()
    publisher.send_together(*((f"publish:{name}:{version}", payload) for name, version, payload in sent))
    for subscriber, wanted in zip(subscribers, patterns, strict=True):
        expected = [row for row in sent if any(matches(pattern, row[0]) for pattern in wanted)]
        assert publishes(subscriber.heard()) == [
            (f"publish:{name}:{version}", payload.decode("utf-8", "replace").encode())
            for name, version, payload in expected
        ]
    stored = [(row["topic"], row["version"], row["payload"]) for row in desk.rows()][len(NAMES) :]
    assert stored == sent


def test_offsets_ids_and_counters_are_those_of_single_publishes(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    deliver = mixed.deliver

    def noted(batch: Batch, *facts: Any) -> int:
        taken.append(batch.count)
        return deliver(batch, *facts)

    monkeypatch.setattr(mixed, "deliver", noted)
    desk = MbDesk()
    both, one, publisher = desk.service(), desk.service(), desk.service()
    for pattern in ("a", "b"):
        both.subscribe(pattern)
    one.subscribe("b")
    for name in ("a", "b"):
        publisher.send(f"publish:{name}:1.0.0", b"0")
    desk.loop.settle()
    before = desk.counted("bus.delivered")
    ids = [str(uuid.uuid4()) for _ in range(4)]
    publisher.heard()
    topics = ["a", "b", "a", "b"]
    publisher.send_together(*((f"publish:{t}:1.0.0:{i}", b"x") for t, i in zip(topics, ids, strict=True)))
    assert [message.fields[3] for message in publisher.heard()] == ids, "acknowledged in the order sent"
    assert taken == [4], "one batch, not one stretch after the other"
    found = desk.rows()[2:]
    assert [(row["topic"], row["offset"], row["message_id"]) for row in found] == [
        ("a", 1, ids[0]), ("b", 1, ids[1]), ("a", 2, ids[2]), ("b", 2, ids[3]),
    ]  # fmt: skip
    masked = [message.fields[3] for message in both.heard() if message.payload == b"x"]
    assert masked == [row["forwarded_id"] for row in found]
    assert [m.fields[3] for m in one.heard() if m.payload == b"x"] == masked[1::2], "copies share the masked id"
    assert desk.counted("bus.delivered") == before + 6
    assert desk.journal.offsets("a") == desk.journal.offsets("b") == (0, 3)


def test_a_read_with_a_topic_that_nobody_hears_is_told_so_row_by_row() -> None:
    desk = MbDesk()
    subscriber, publisher = desk.service(), desk.service()
    subscriber.subscribe("a")
    learn(publisher, desk)
    publisher.heard()
    subscriber.heard()
    publisher.send_together(("publish:a:1.0.0", b"1"), ("publish:b:1.0.0", b"2"), ("publish:a:1.0.0", b"3"))
    assert [payload for _, payload in publishes(subscriber.heard())] == [b"1", b"3"]
    (refused,) = publisher.heard()
    assert b"NO_ROUTE_FOUND" in refused.payload


def test_an_auditor_sees_each_copy_of_a_mixed_read() -> None:
    desk = MbDesk()
    subscriber, publisher = desk.service(), desk.service()
    subscriber.subscribe("#")
    learn(publisher, desk)
    auditor = desk.auditor()
    publisher.send_together(("publish:a:1.0.0", b"1"), ("publish:b:1.0.0", b"2"))
    assert len(auditor.records()) == 4, "each was received and sent"


def test_queues_and_subscribers_without_frames_get_the_rows_of_a_mixed_read_in_order() -> None:
    bench = QueueBench()
    bench.create("a")
    bench.create("b")
    other, consumer, sender = bench.foreign_peer("b"), bench.peer(), bench.peer()
    for name in ("a", "b"):
        bench.produce(b"first", name=name, peer=sender)
    bench.arm(consumer, "b", window=10)
    bench.settle()
    payloads = [b"%d" % row for row in range(5)]
    bench.produce(*payloads, name="b", peer=sender, topic=[b"b", b"a", b"b", b"b", b"a"])
    bench.settle()
    assert [copy.payload for copy in other.copies] == [b"first", b"0", b"2", b"3"]
    assert [row["offset"] for row in bench.rows("publish")[2:]] == [1, 1, 2, 3, 2]
    assert bench.queue("a").backlog == 3
    assert consumer.payloads == [b"first", b"0", b"2", b"3"]
