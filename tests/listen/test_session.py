from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import pytest

from raceway import config
from raceway.broker.peers import LivePeer, Pending
from raceway.broker.runs import Run
from raceway.errors import RacewayError
from raceway.listen.gate import Gate
from raceway.listen.session import HIGH_WATER, LINGER_S, LOW_WATER, SMALL_READ, STALL_S, Session
from raceway.model.envelope import Batch
from raceway.model.intents import WatchLog
from tests.doubles import Bench, RecordingTransport, encode_copies


class PlainSession(Session, LivePeer):
    """The least a wire must add: here only the bytes of publishes are written on."""

    wire: ClassVar[bytes] = b"plain"

    def close(self, reason: str) -> None:
        self.stop(reason)
        self.transport.close()

    def take(self, events: Iterable[Any]) -> None:
        """Each event is written back."""
        for event in events:
            self.write(event)

    def sweep(self, now: float) -> None:
        """Nothing is looked for."""

    def deliver(self, run: Run, data: bytes) -> None:
        self.write(data)

    def forward(self, request: Pending, batch: Batch, row: int) -> None:
        self.write(batch.item("payload", row))

    def answer(self, request: Pending, batch: Batch, row: int) -> None:
        self.write(batch.item("payload", row))

    def fail(self, request: Pending, error: RacewayError) -> None:
        self.write(str(error).encode())

    def announce(self, topic: str, payload: bytes) -> None:
        self.write(payload)

    def log_record(self, level: str, message: str, time_us: int, extra: dict[str, str]) -> None:
        self.write(message.encode())


class Seat:
    """A session over a recording transport."""

    def __init__(self, bench: Bench, output_bytes: int = config.MIB) -> None:
        self.transport = RecordingTransport()
        gate: Gate[PlainSession] = Gate(bench.broker, config.Listen(output_bytes=output_bytes), bench.loop.time)
        self.session = PlainSession(gate, self.transport, encode_copies, lambda: 0)
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


def test_reads_that_follow_each_other_closely_are_answered_together(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    seat = Seat(bench)
    bench.loop.settle()  # a turn has just ended
    monkeypatch.setattr("raceway.broker.turn.QUIET_S", 3600)
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


@pytest.mark.parametrize(("waiting", "cut"), [(99, False), (100, False), (101, True)])
def test_a_peer_that_lets_more_than_the_limit_wait_is_closed_and_counted(bench: Bench, waiting: int, cut: bool) -> None:
    seat = Seat(bench, output_bytes=100)
    seat.transport.waiting = waiting
    seat.session.write(b"x" * 1000)  # one message may be larger than the limit
    bench.loop.settle()
    assert seat.transport.aborted is cut
    assert (bench.counted("bus.slow_closed"), len(bench.broker.peers)) == ((1, 0) if cut else (0, 1))
    assert len(seat.transport.writes) == (0 if cut else 1)
    assert seat.session.open is not cut


def test_a_peer_that_is_cut_is_told_of_in_the_log(bench: Bench) -> None:
    watcher, seat = bench.peer(), Seat(bench, output_bytes=100)
    bench.broker.perform(watcher, WatchLog(("warn",)))
    seat.transport.waiting = 101
    seat.session.write(b"x")
    bench.loop.settle()
    assert [message for _, message, _, _ in watcher.records] == [f"connection {seat.session.id} closed: too slow"]


def test_a_watcher_of_the_log_may_be_cut_itself(bench: Bench) -> None:
    seat = Seat(bench, output_bytes=100)
    bench.broker.perform(seat.session, WatchLog(("warn",)))
    seat.transport.waiting = 101
    seat.session.write(b"x")
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
    bench.loop.advance(LINGER_S - 0.1)
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


def test_a_flood_is_held_back_while_a_peer_is_crowded_and_no_longer(bench: Bench) -> None:
    flooding, crowded = Seat(bench), Seat(bench, output_bytes=4 * config.MIB)
    crowded.transport.waiting = 2 * config.MIB + 1
    crowded.session.write(b"x")
    bench.loop.settle()
    crowded.session.pause()
    flooding.session.yield_turn()
    bench.loop.turn()
    assert not flooding.transport.reading
    bench.loop.advance(STALL_S)
    assert flooding.transport.reading
    crowded.session.relieve()
    assert crowded.transport.reading
    flooding.session.yield_turn()
    bench.loop.turn()
    assert flooding.transport.reading


def test_a_peer_that_was_closed_crowds_nobody(bench: Bench) -> None:
    flooding, crowded = Seat(bench), Seat(bench, output_bytes=4 * config.MIB)
    crowded.transport.waiting = 3 * config.MIB
    crowded.session.write(b"x")
    bench.loop.settle()
    crowded.session.stop("gone")
    flooding.session.yield_turn()
    bench.loop.turn()
    assert flooding.transport.reading


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
    gate: Gate[PlainSession] = Gate(bench.broker, config.Listen(), bench.loop.time)
    nameless = PlainSession(gate, RecordingTransport(peername=None), encode_copies, lambda: 0)
    assert nameless.address == "unknown"


def test_a_read_that_fails_does_not_keep_others_waiting(bench: Bench) -> None:
    """The loop ends that connection; the bus goes on."""
    seat, other = Seat(bench), Seat(bench)
    with pytest.raises(TypeError):
        seat.session.read(None, size=1)  # type: ignore[arg-type]
    other.session.write(b"x")
    bench.loop.settle()
    assert other.transport.writes == [b"x"]
