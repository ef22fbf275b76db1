from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from raceway import config
from raceway.model.intents.peers import WatchLog
from raceway.net.connection import (
    AHEAD_BYTES,
    HIGH_WATER,
    LOW_WATER,
    MAX_UNANSWERED,
    SMALL_READ,
    Connection,
    Gate,
)
from tests.rigs.doubles import Bench, RecordingPeer, RecordingTransport


class PlainPeer(RecordingPeer):
    def __init__(self, session: PlainSession) -> None:
        super().__init__()
        self._session = session

    def log_record(self, level: str, message: str, time_us: int, extra: dict[str, str]) -> None:
        self._session.write(message.encode())


class PlainSession(Connection):
    """The least a wire must add."""

    feeds: frozenset[Any] | set[Any] = frozenset()

    def __init__(self, bench: Bench, gate: Gate[PlainSession], transport: RecordingTransport) -> None:
        super().__init__(gate, transport, lambda: 0)
        self._broker, self.peer = bench.broker, PlainPeer(self)

    def opened(self) -> None:
        self._broker.connect(self.peer)

    def closed(self) -> None:
        self._broker.disconnect(self.peer)

    def count_error(self) -> None:
        self._broker.count_error(self.peer)

    def close(self, reason: str) -> None:
        self.stop(reason)
        self.transport.close()

    def take(self, events: Iterable[Any]) -> None:
        """Each event is written back."""
        self.runtime.credits.fed |= self.feeds
        for event in events:
            self.write(event)

    def sweep(self, now: float) -> None:
        """Nothing is looked for."""


class Seat:
    """A session over a recording transport."""

    def __init__(self, bench: Bench, output_bytes: int = config.MIB) -> None:
        self.transport = RecordingTransport()
        self.fed: set[Any] = set()
        gate: Gate[PlainSession] = Gate(bench.broker.runtime, config.Listen(output_bytes=output_bytes))
        self.session = PlainSession(bench, gate, self.transport)
        self.session.feeds = self.fed
        self.gate = gate
        self.session.start()


@pytest.fixture
def bench() -> Bench:
    return Bench()


# ---- output ----------------------------------------------------------------------------------------------------------


def test_everything_said_in_a_turn_is_one_write(bench: Bench) -> None:
    seat = Seat(bench)
    for piece in (b"a", b"b", b"c"):
        seat.session.write(piece)
    assert seat.transport.writes == []
    bench.loop.settle()
    assert seat.transport.writes == [b"abc"]
    seat.session.write(b"d")
    bench.loop.settle()
    assert seat.transport.writes == [b"abc", b"d"]


def test_a_small_read_on_a_quiet_bus_is_answered_at_once(bench: Bench) -> None:
    seat = Seat(bench)
    seat.session.read([b"a", b"b"], size=2)
    assert seat.transport.writes == [b"ab"]


def test_a_large_read_is_answered_at_the_end_of_the_turn(bench: Bench) -> None:
    seat = Seat(bench)
    seat.session.read([b"a"], size=SMALL_READ + 1)
    assert seat.transport.writes == []
    bench.loop.settle()
    assert seat.transport.writes == [b"a"]


def test_reads_that_follow_each_other_closely_are_answered_together(bench: Bench) -> None:
    seat = Seat(bench)
    bench.loop.settle()  # a turn has just ended
    seat.session.runtime.turn.quiet_s = 3600
    seat.session.write(b"")
    bench.loop.settle()
    seat.transport.writes.clear()
    for piece in (b"a", b"b"):
        seat.session.read([piece], size=1)
    assert seat.transport.writes == []
    bench.loop.settle()
    assert seat.transport.writes == [b"ab"]


def test_what_was_flushed_early_is_not_written_again(bench: Bench) -> None:
    seat = Seat(bench)
    seat.session.write(b"a")
    seat.session.flush()
    seat.session.write(b"b")
    bench.loop.settle()
    assert seat.transport.writes == [b"a", b"b"]


def test_a_peer_that_takes_nothing_of_what_waits_for_the_set_time_is_closed_and_counted(bench: Bench) -> None:
    seat = Seat(bench, output_bytes=100)
    seat.session.write(b"x" * 1000)  # one message may be larger than the mark
    bench.loop.settle()
    for left in (1000, 999):
        seat.transport.waiting = left
        assert not seat.session.cut_stuck(bench.loop.time())
        bench.loop.advance(seat.gate.listen.stall_s)
        assert seat.session.open, "a byte is enough"
    assert not seat.session.cut_stuck(bench.loop.time())
    bench.loop.advance(1)
    assert seat.session.cut_stuck(bench.loop.time())
    assert seat.transport.aborted
    assert (bench.counted("bus.slow_closed"), len(bench.broker.peers)) == (1, 0)


def test_a_peer_without_output_is_never_stuck(bench: Bench) -> None:
    seat = Seat(bench)
    for _ in range(3):
        assert not seat.session.cut_stuck(bench.loop.time())
        bench.loop.advance(1000)


def test_a_peer_that_is_cut_is_told_of_in_the_log(bench: Bench) -> None:
    watcher, seat = bench.peer(), Seat(bench)
    bench.broker.perform(watcher, WatchLog(("warn",)))
    seat.session.cut("takes nothing", "bus.slow_closed")
    assert [message for _, message, _, _ in watcher.records] == [f"connection {seat.session.id} closed: takes nothing"]


def test_a_watcher_of_the_log_may_be_cut_itself(bench: Bench) -> None:
    seat = Seat(bench)
    bench.broker.perform(seat.session.peer, WatchLog(("warn",)))
    seat.session.cut("takes nothing", "bus.slow_closed")
    bench.loop.settle()
    assert seat.transport.aborted
    assert seat.transport.writes == []


def test_a_closing_connection_gathers_nothing(bench: Bench) -> None:
    """A peer that has sent its end but does not read keeps its connection closing for long."""
    seat = Seat(bench)
    seat.transport.closed = True
    for _ in range(100):
        seat.session.write(b"x" * 1000)
        bench.loop.settle()
    assert seat.session._outbox == []
    assert seat.session.idle()


def test_after_a_stop_nothing_is_written(bench: Bench) -> None:
    seat = Seat(bench)
    seat.session.write(b"lost")
    seat.session.stop("gone")
    seat.session.flush()
    bench.loop.settle()
    assert seat.transport.writes == []


def test_idle_means_that_everything_has_left(bench: Bench) -> None:
    seat = Seat(bench)
    assert seat.session.idle()
    seat.session.write(b"x")
    assert not seat.session.idle()
    bench.loop.settle()
    assert seat.session.idle()
    seat.transport.waiting = 1
    assert not seat.session.idle()


# ---- the end ---------------------------------------------------------------------------------------------------------


def test_a_stop_may_be_repeated(bench: Bench) -> None:
    seat = Seat(bench)
    seat.session.stop("gone")
    seat.session.stop("gone")
    assert bench.counted("connection.disconnected") == 1
    assert not seat.session.open


def test_what_waits_at_a_close_may_leave_for_a_while_only(bench: Bench) -> None:
    seat = Seat(bench)
    seat.transport.waiting = 1000
    seat.session.close("done")
    bench.loop.advance(Connection.linger_s - 0.1)
    assert not seat.transport.aborted
    bench.loop.advance(0.2)
    assert seat.transport.aborted


def test_a_close_with_nothing_waiting_sets_no_timer(bench: Bench) -> None:
    seat = Seat(bench)
    seat.session.close("done")
    assert not bench.loop.waits


# ---- input -----------------------------------------------------------------------------------------------------------


def test_reading_goes_on_when_every_reason_to_pause_is_gone(bench: Bench) -> None:
    seat = Seat(bench)
    seat.session.pause()
    seat.session.pause()
    assert not seat.transport.reading
    seat.session.resume()
    assert not seat.transport.reading
    seat.session.resume()
    assert seat.transport.reading
    seat.session.pause()
    assert not seat.transport.reading


def test_a_closing_transport_is_neither_paused_nor_resumed(bench: Bench) -> None:
    seat = Seat(bench)
    seat.session.pause()
    seat.transport.closed = True
    seat.session.resume()
    assert not seat.transport.reading


def test_a_yielded_turn_is_one_turn_without_reading(bench: Bench) -> None:
    seat = Seat(bench)
    seat.session.yield_turn()
    assert not seat.transport.reading
    bench.loop.turn()
    assert seat.transport.reading


def test_input_that_is_too_far_ahead_of_its_outcomes_waits_for_all_of_them(bench: Bench) -> None:
    seat = Seat(bench)
    seat.session.read((), 2 * AHEAD_BYTES)
    assert seat.transport.reading, "everything has its outcome"
    seat.session.note_asked()
    seat.session.note_asked()
    seat.session.read((), AHEAD_BYTES)
    assert seat.transport.reading
    seat.session.read((), 1)
    seat.session.read((), 1)  # was on its way
    assert not seat.transport.reading
    seat.session.note_answered()
    assert not seat.transport.reading
    seat.session.note_answered()
    assert not seat.transport.reading, "what was answered is written first"
    bench.loop.turn()
    assert seat.transport.reading
    seat.session.note_asked()
    seat.session.read((), AHEAD_BYTES)
    assert seat.transport.reading, "counted again from the last outcome on"


def test_too_many_intents_without_an_outcome_stop_the_reading_however_short(bench: Bench) -> None:
    seat = Seat(bench)
    for _ in range(MAX_UNANSWERED):
        seat.session.note_asked()
    seat.session.read((), 1)
    assert seat.transport.reading
    seat.session.note_asked()
    seat.session.read((), 1)
    assert not seat.transport.reading
    for _ in range(MAX_UNANSWERED + 1):
        seat.session.note_answered()
    bench.loop.turn()
    assert seat.transport.reading


def test_what_must_wait_for_the_outcomes_is_done_in_order_and_not_after_the_end(bench: Bench) -> None:
    done: list[str] = []
    for closes in (False, True):
        session = Seat(bench).session
        session.when_answered(lambda: done.append("nothing is open"))
        session.note_asked()
        session.when_answered(lambda: done.append("first"))
        session.when_answered(lambda: done.append("second"))
        if closes:
            session.close("test")
        session.note_answered()
    assert done == ["nothing is open", "first", "second", "nothing is open"]


def test_a_publisher_waits_until_the_subscriber_it_feeds_has_drained(bench: Bench) -> None:
    feeding, full = Seat(bench), Seat(bench)
    bench.broker.credits.fill(full.session)
    bench.broker.credits.fed.add(full.session)
    feeding.session.read([b"x"], size=1)
    assert feeding.transport.reading, "what others fed before is no business of it"
    feeding.fed.add(full.session)
    feeding.session.read([b"x"], size=1)
    assert not feeding.transport.reading
    bench.broker.credits.drain(full.session)
    assert feeding.transport.reading


def test_nobody_waits_for_a_peer_that_was_closed(bench: Bench) -> None:
    feeding, full = Seat(bench), Seat(bench)
    bench.broker.credits.fill(full.session)
    feeding.fed.add(full.session)
    feeding.session.read([b"x"], size=1)
    full.session.stop("gone")
    assert feeding.transport.reading


def test_a_peer_that_lets_its_own_answers_wait_is_not_read_from(bench: Bench) -> None:
    seat = Seat(bench)
    seat.session.crowd()
    assert not seat.transport.reading
    bench.loop.advance(30)
    assert not seat.transport.reading, "it has no other way to get them"
    seat.session.relieve()
    assert seat.transport.reading


def test_a_session_that_stopped_yields_nothing(bench: Bench) -> None:
    seat = Seat(bench)
    seat.session.stop("gone")
    seat.session.yield_turn()
    assert seat.transport.reading


def test_a_session_knows_its_address_and_its_transports_limits(bench: Bench) -> None:
    seat = Seat(bench)
    assert seat.session.address == "127.0.0.1:4711"
    assert seat.transport.limits == (HIGH_WATER, LOW_WATER)
    assert not seat.session.is_tls
    gate: Gate[PlainSession] = Gate(bench.broker.runtime, config.Listen())
    nameless = PlainSession(bench, gate, RecordingTransport(peername=None))
    assert nameless.address == "unknown"


def test_a_read_that_fails_does_not_keep_others_waiting(bench: Bench) -> None:
    """The loop ends that connection; the bus goes on."""
    seat, other = Seat(bench), Seat(bench)
    with pytest.raises(TypeError):
        seat.session.read(None, size=1)  # type: ignore[arg-type]
    other.session.write(b"x")
    bench.loop.settle()
    assert other.transport.writes == [b"x"]
