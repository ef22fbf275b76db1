"""`x-dedup-id`: what is sent twice is stored once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raceway.broker.dedup import MARKS
from raceway.errors import DiskFullError, ReadOnlyError, UnavailableError
from raceway.model.envelope import PUBLISH, Batch, encode_attributes
from raceway.model.intents.batches import Publish, Send
from tests.rigs.doubles import ExactPeer
from tests.rigs.journal import quick_folder
from tests.rigs.subscribing import TOPIC, SubscribingBench


@pytest.fixture
def bench() -> SubscribingBench:
    return SubscribingBench()


@pytest.fixture
def p(bench: SubscribingBench) -> int:
    return bench.producer()


def send(bench: SubscribingBench, p: int, dedup_id: str, payload: bytes = b"", **facts: Any) -> list[Any]:
    """What its sender is told."""
    told: list[Any] = []
    outcome = bench.send(p, payload, attributes={"x-dedup-id": dedup_id}, done=told.append, **facts)
    assert outcome.refused == ()
    bench.settle()
    return [error if error is None else type(error) for error in told]


def stored(bench: SubscribingBench) -> list[bytes]:
    return [row["payload"] for row in bench.rows("publish")]


def test_a_repeated_message_is_taken_and_not_stored(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    assert send(bench, p, "1", b"first") == [None]
    assert send(bench, p, "1", b"again") == [None]
    assert send(bench, p, "2", b"other") == [None]
    assert stored(bench) == consumer.payloads == [b"first", b"other"]
    assert bench.counted("bus.deduplicated") == 1


def test_within_one_batch_too(bench: SubscribingBench, p: int) -> None:
    told: list[Any] = []
    batch = bench.batch(p, b"a", b"b", b"c")
    ids = ["1", "1", "2"]
    batch.attributes = [encode_attributes({"x-dedup-id": each}) for each in ids]
    bench.broker.perform(bench.sender, Send(batch), told.append)
    assert stored(bench) == [b"a", b"c"]
    assert told == [None]


def test_producers_and_topics_count_apart(bench: SubscribingBench, p: int) -> None:
    other, elsewhere = bench.producer(name="other"), bench.producer("elsewhere")
    send(bench, p, "1", b"a")
    send(bench, other, "1", b"b")
    send(bench, elsewhere, "1", b"c", topic="elsewhere")
    assert stored(bench) == [b"a", b"b", b"c"]


def test_any_wire_that_carries_attributes_may_say_it(bench: SubscribingBench) -> None:
    peer, told = ExactPeer("worker"), list[Any]()
    bench.broker.connect(peer)
    for _ in range(3):
        batch = Batch(1, wire=peer.wire, kind=PUBLISH, topic=b"q", payload=[b"x"], attributes=[b'{"x-dedup-id":"7"}'])
        bench.broker.perform(peer, Publish(batch), told.append)
    bench.settle()
    assert (stored(bench), told) == ([b"x"], [None, None, None])


def test_an_id_is_forgotten_after_the_window(bench: SubscribingBench, p: int) -> None:
    send(bench, p, "1")
    bench.loop.advance(599)
    send(bench, p, "1")
    bench.loop.advance(2)
    send(bench, p, "1")
    assert len(stored(bench)) == 2


def test_only_so_many_ids_of_a_producer_are_remembered() -> None:
    bench = SubscribingBench(dedup_ids=3)
    p = bench.producer()
    for number in (1, 2, 3, 4, 1, 3):
        send(bench, p, str(number), b"%d" % number)
    assert stored(bench) == [b"1", b"2", b"3", b"4", b"1"]


def test_silent_producers_cost_nothing(bench: SubscribingBench) -> None:
    for number in range(50):
        send(bench, bench.producer(name=f"p{number}"), "1")
    senders = bench.broker.producers._publishing._dedup._senders
    assert len(senders) == 50
    bench.loop.advance(601)
    send(bench, bench.producer(name="last"), "1")
    assert len(senders) == 1


def test_the_repetition_of_what_could_not_be_stored_is_no_success(bench: SubscribingBench, p: int) -> None:
    told: list[Any] = []
    bench.faulty.fail_next_commit()
    for _ in range(2):
        bench.send(p, b"x", attributes={"x-dedup-id": "1"}, done=told.append)
    bench.settle()
    assert [type(error) for error in told] == [DiskFullError, UnavailableError]
    assert send(bench, p, "1", b"x") == [None]
    assert stored(bench) == [b"x"]


def test_what_the_journal_does_not_take_is_not_remembered(bench: SubscribingBench, p: int) -> None:
    bench.faulty.refuse_writes()
    with pytest.raises(ReadOnlyError):
        send(bench, p, "1")
    bench.faulty.take_writes()
    send(bench, p, "1")
    assert len(stored(bench)) == 1


# ---- over a restart --------------------------------------------------------------------------------------------------


def test_ids_are_read_back_after_a_restart(bench: SubscribingBench, p: int) -> None:
    for number in range(30):
        send(bench, p, str(number))
        bench.loop.advance(60)
    bench.restart()
    for number in range(30):
        send(bench, p, str(number))
    repeated = bench.counted("bus.deduplicated")
    assert 9 <= repeated <= 10, "those of the last ten minutes"
    marks = bench.journal.state.get(MARKS, TOPIC)
    assert marks is not None
    assert len(marks) <= 13


def test_a_topic_that_used_ids_long_ago_is_not_read(bench: SubscribingBench, p: int, monkeypatch: Any) -> None:
    send(bench, p, "1")
    bench.loop.advance(3600)
    monkeypatch.setattr(bench.journal, "read_topic", lambda *_, **__: pytest.fail("there is nothing to be found"))
    bench.restart()


def test_after_a_kill_what_was_stored_is_known() -> None:
    with quick_folder() as folder:
        bench = SubscribingBench(Path(folder))
        p = bench.producer()
        send(bench, p, "1", b"first")
        bench.crash()
        assert send(bench, p, "1", b"again") == [None]
        assert stored(bench) == [b"first"]
        bench.close()
