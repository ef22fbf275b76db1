from __future__ import annotations

import pytest

from raceway.errors import DrainingError
from raceway.model.envelope import Batch
from raceway.model.intents.peers import Subscribe, Unsubscribe
from raceway.model.topics import AUDIT_STREAM
from tests.rigs.doubles import Bench, Message, RecordingPeer, batch_of


class CountingBench(Bench):
    """Counts how often the journal is flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.flushes = 0
        flush = self.journal.flush

        def counted() -> None:
            self.flushes += 1
            flush()

        self.journal.flush = counted  # type: ignore[method-assign]


def test_the_journal_is_flushed_once_at_the_end_of_a_turn() -> None:
    bench = CountingBench()
    peer = bench.peer("orders")
    for _ in range(5):
        bench.publish(peer, Message())
    assert (bench.flushes, bench.journal.committed) == (0, -1)
    bench.loop.turn()
    assert bench.flushes == 1
    bench.publish(peer, Message())
    bench.loop.settle()
    assert bench.journal.committed == 5


def test_a_turn_without_rows_does_not_touch_the_journal() -> None:
    bench = CountingBench()
    bench.peer("orders")
    bench.publish(bench.peer(), Message(b"system.x"))
    bench.loop.settle()
    assert bench.flushes == 0


def test_append_gives_the_position_of_the_first_row() -> None:
    bench = Bench()
    two = batch_of(b"publish", Message(), Message())
    assert bench.broker.append(two, None) == 0
    assert bench.broker.append(batch_of(b"publish", Message()), None) == 2


def test_topics_in_the_journal_are_known_at_the_start() -> None:
    bench = Bench()
    bench.publish(bench.exact_peer(), Message(b"Orders"))
    bench.loop.settle()
    again = type(bench.broker)(bench.broker.settings, bench.journal, bench.loop, bench.clock_us)
    assert [topic.name for topic in again.topics] == ["Orders"]


def test_what_comes_in_is_counted_by_kind_wire_and_size() -> None:
    bench = Bench()
    peer = RecordingPeer()
    bench.broker.admit("publish", peer, batch_of(b"publish", Message(payload=b"12345"), Message(payload=b"")))
    bench.broker.admit("response", peer, batch_of(b"response", Message(payload=b"123")))
    counts = bench.broker.meter.counts
    assert (counts["router.publish"], counts["router.response"], counts["router.message"]) == (2, 1, 3)
    assert (counts["bus.bytes"], bench.broker.meter.largest) == (8, 5)
    assert dict(bench.broker.meter.messages) == {(b"mb", "publish"): 2, (b"mb", "response"): 1}


@pytest.mark.parametrize("kind", ["publish", "request"])
def test_a_stopping_bus_admits_answers_only_and_counts_nothing_else(kind: str) -> None:
    bench = Bench()
    bench.broker.draining = True
    batch = batch_of(kind.encode(), Message())
    with pytest.raises(DrainingError):
        bench.broker.admit(kind, RecordingPeer(), batch)
    bench.broker.admit("response", RecordingPeer(), batch)
    assert bench.counted("router.message") == 1


@pytest.mark.parametrize("pattern", ["system.message", "System.Message", "system.#", "system.+"])
def test_the_bus_knows_whether_anybody_reads_the_audit(pattern: str) -> None:
    bench = Bench()
    reader, other = bench.peer(), bench.peer("#", "+.message", "orders")
    assert not bench.broker.runtime.audited
    bench.broker.perform(reader, Subscribe("publish", pattern))
    assert bench.broker.runtime.audited
    bench.broker.audit(b"{}")
    assert (reader.announced, other.announced) == ([(AUDIT_STREAM, b"{}")], [])
    bench.broker.perform(reader, Unsubscribe("publish", pattern))
    assert not bench.broker.runtime.audited


def test_the_audit_ends_with_its_readers_connection() -> None:
    bench = Bench()
    reader = bench.peer("system.message", "system.#")
    assert bench.broker.runtime.audited
    bench.broker.audit(b"{}")
    assert len(reader.announced) == 1, "once, however many patterns match"
    bench.broker.disconnect(reader)
    assert not bench.broker.runtime.audited


def test_a_request_subscription_does_not_read_the_audit() -> None:
    bench = Bench()
    bench.peer("system.message", kind="request")
    assert not bench.broker.runtime.audited


# ---- rows that nobody waits for --------------------------------------------------------------------------------------


def test_rows_that_nobody_waits_for_are_committed_after_a_while() -> None:
    bench = Bench(linger_ms=2)
    bench.broker.append(Batch(1, topic=b"a", kind=b"publish", wire=b"mb", payload=[b"x"]), None)
    bench.loop.turn()
    assert bench.journal.committed == -1
    bench.loop.advance(0.003)
    bench.loop.settle()
    assert bench.journal.committed == 0


def test_a_row_that_somebody_waits_for_takes_the_others_along_at_once() -> None:
    bench = Bench(linger_ms=2)
    told: list[object] = []
    bench.broker.append(Batch(1, topic=b"a", kind=b"publish", wire=b"mb", payload=[b"x"]), None)
    bench.broker.append(Batch(1, topic=b"a", kind=b"publish", wire=b"mb", payload=[b"y"]), told.append)
    bench.loop.turn()
    bench.loop.settle()
    assert told == [None]
    assert bench.journal.committed == 1


def test_many_rows_do_not_linger() -> None:
    bench = Bench(linger_ms=2)
    bench.broker.append(Batch(600, topic=b"a", kind=b"publish", wire=b"mb", payload=[b"x"] * 600), None)
    bench.loop.turn()
    bench.loop.settle()
    assert bench.journal.committed == 599
