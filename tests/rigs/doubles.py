"""Doubles of what surrounds the broker: a loop moved by hand, peers and transports that write down what they are told,
and a journal with faults to order. `Bench` joins them with the real broker and the real memory journal.
"""

from __future__ import annotations

import asyncio
import heapq
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.peers import Encoder, Peer, Pending
from raceway.broker.runs import Run
from raceway.errors import DiskFullError, RacewayError
from raceway.journal.contract import OnCommit
from raceway.journal.memory import MemoryJournal
from raceway.journal.write.intake import JournalStatus
from raceway.model.envelope import Batch
from raceway.model.intents.batches import Publish, Request, Respond, Taken
from raceway.model.intents.peers import Subscribe, SubscriptionKind

EPOCH_US = 1_700_000_000_000_000


class ManualTimer:
    """What `call_later` gives: may be cancelled."""

    def __init__(self, callback: Callable[[], Any]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualLoop:
    """An event loop's clock and calls. Nothing runs until `turn`, `settle` or `advance` says so."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._ready: deque[Callable[[], Any]] = deque()
        self._timers: list[tuple[float, int, ManualTimer]] = []
        self._made = 0

    def time(self) -> float:
        return self._now

    def wall_us(self) -> int:
        return EPOCH_US + round(self._now * 1_000_000)

    def call_soon(self, callback: Callable[[], Any]) -> None:
        self._ready.append(callback)

    def call_later(self, delay: float, callback: Callable[[], Any]) -> ManualTimer:
        timer = ManualTimer(callback)
        self._made += 1
        heapq.heappush(self._timers, (self._now + delay, self._made, timer))
        return timer

    def forget_timers(self) -> None:
        """Whoever asked for them is no more."""
        self._timers.clear()

    def turn(self) -> None:
        """One turn: what was ready when it began."""
        for _ in range(len(self._ready)):
            self._ready.popleft()()

    def settle(self) -> None:
        """Turns until nothing is ready. Time stands still."""
        while self._ready:
            self.turn()

    def advance(self, seconds: float) -> None:
        """Let time pass, from timer to timer."""
        self.settle()
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            self._now, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                timer.callback()
            self.settle()
        self._now = end

    @property
    def waits(self) -> bool:
        """Is a timer set?"""
        return any(not timer.cancelled for _, _, timer in self._timers)


class FaultyJournal(MemoryJournal):
    """The memory journal with faults to order: it refuses appends, or fails a commit, as a disk would make it do."""

    _fails: JournalStatus | None = None

    def refuse_writes(self) -> None:
        self._refuse("read_only", "a sync failed")

    def take_writes(self) -> None:
        self._refuse("ok", "")

    def fail_next_commit(self, status: JournalStatus = "ok") -> None:
        """What waits for it is lost, and positions are given again, as after a full disk. `status`: what then holds."""
        self._fails = status

    def _commit(self) -> None:
        if self._fails is not None:
            status, self._fails = self._fails, None
            self._failed(DiskFullError("no space left"), status, "")
        else:
            super()._commit()


class Copy(NamedTuple):
    """A publish as a subscriber gets it."""

    topic: bytes
    id: bytes
    payload: bytes


def encode_copies(run: Run) -> bytes:
    """The encoder of recording peers: what it makes is compared, not read."""
    rows = range(run.span.start, run.span.stop)
    return b"".join(b"%b %b\n" % (run.ids[row], run.batch.item("payload", row)) for row in rows)


class RecordingPeer(Peer):
    """A peer that writes down everything it is told. Speaks like MB: disregards the case of names."""

    wire: ClassVar[bytes] = b"mb"
    folds_case: ClassVar[bool] = True
    encoder: Encoder = staticmethod(encode_copies)

    def __init__(self, name: str = "", time_us: int = EPOCH_US) -> None:
        super().__init__(name or str(uuid.uuid4()), time_us)
        self.copies: list[Copy] = []
        self.delivered: list[bytes] = []
        self.requests: list[tuple[Pending, bytes]] = []
        self.answers: list[tuple[Pending, bytes, bytes | None]] = []
        self.failures: list[tuple[Pending, RacewayError]] = []
        self.announced: list[tuple[str, bytes]] = []
        self.records: list[tuple[str, str, int, dict[str, str]]] = []

    def deliver(self, run: Run, data: bytes) -> None:
        self.delivered.append(data)
        for row in range(run.span.start, run.span.stop):
            self.copies.append(Copy(run.span.sent, run.ids[row], run.batch.item("payload", row)))

    def forward(self, request: Pending, batch: Batch, row: int) -> None:
        self.requests.append((request, batch.item("payload", row)))

    def answer(self, request: Pending, batch: Batch, row: int) -> None:
        self.answers.append((request, batch.item("payload", row), batch.item("error", row)))

    def fail(self, request: Pending, error: RacewayError) -> None:
        self.failures.append((request, error))

    def announce(self, topic: str, payload: bytes) -> None:
        self.announced.append((topic, payload))

    def log_record(self, level: str, message: str, time_us: int, extra: dict[str, str]) -> None:
        self.records.append((level, message, time_us, extra))

    @property
    def masked(self) -> bytes:
        """The id under which the last request was handed to this peer."""
        return self.requests[-1][0].forwarded_id


class ExactPeer(RecordingPeer):
    """A peer of a wire that looks names up exactly."""

    wire: ClassVar[bytes] = b"zbus"
    folds_case: ClassVar[bool] = False


class Message(NamedTuple):
    """One message as a codec reads it."""

    topic: bytes = b"orders"
    payload: bytes = b"{}"
    id: bytes | None = None
    parent: bytes | None = None
    timeout_ms: int | None = None
    version: bytes = b"1.0.0"


def batch_of(kind: bytes, *messages: Message, wire: bytes = b"mb") -> Batch:
    """Columns as codecs make them: one value where all rows agree, None where no row has any."""
    batch = Batch(len(messages), wire=wire, kind=kind, payload=[message.payload for message in messages])
    batch.topic = _same_or_all([message.topic for message in messages])
    batch.version = _same_or_all([message.version for message in messages])
    batch.message_id = _all_or_none([message.id for message in messages])
    batch.parent_id = _all_or_none([message.parent for message in messages])
    batch.timeout_ms = _all_or_none([message.timeout_ms for message in messages])
    return batch


def _same_or_all(column: list[Any]) -> Any:
    return column[0] if len(set(column)) == 1 else column


def _all_or_none(column: list[Any]) -> Any:
    return None if all(value is None for value in column) else column


def new_id() -> bytes:
    return str(uuid.uuid4()).encode()


class Bench:
    """The real broker over the memory journal, in a loop moved by hand."""

    def __init__(self, journal: dict[str, Any] | None = None, loop: ManualLoop | None = None, **settings: Any) -> None:
        self.loop = loop or ManualLoop()
        self.skew_us = 0
        self.journal = FaultyJournal(
            config.JournalSettings(durability="memory", **journal or {}), self.loop.call_soon, self.clock_us
        )
        self.broker = Broker(
            config.BrokerSettings(**{"linger_ms": 0, **settings}), self.journal, self.loop, self.clock_us
        )

    def clock_us(self) -> int:
        """The wall clock; `skew_us` is how far somebody has moved it."""
        return self.loop.wall_us() + self.skew_us

    def peer(self, *patterns: str, kind: SubscriptionKind = "publish", priority: float = 0) -> RecordingPeer:
        """A connected peer, subscribed to these patterns."""
        return self.connected(RecordingPeer(), *patterns, kind=kind, priority=priority)

    def exact_peer(self, *patterns: str) -> RecordingPeer:
        return self.connected(ExactPeer(), *patterns)

    def connected(
        self, peer: RecordingPeer, *patterns: str, kind: SubscriptionKind = "publish", priority: float = 0
    ) -> RecordingPeer:
        self.broker.connect(peer)
        for pattern in patterns:
            self.broker.perform(peer, Subscribe(kind, pattern, priority))
        return peer

    def responder(self, pattern: str, priority: float = 0) -> RecordingPeer:
        return self.peer(pattern, kind="request", priority=priority)

    def publish(self, peer: Peer, *messages: Message, done: OnCommit | None = None) -> Taken:
        return self._taken(peer, Publish(batch_of(b"publish", *messages, wire=peer.wire)), done)

    def request(self, peer: Peer, *messages: Message, done: OnCommit | None = None) -> Taken:
        return self._taken(peer, Request(batch_of(b"request", *messages, wire=peer.wire)), done)

    def respond(self, peer: Peer, *messages: Message, error: list[bytes | None] | None = None) -> Taken:
        batch = batch_of(b"response", *messages, wire=peer.wire)
        batch.error = error
        return self._taken(peer, Respond(batch), None)

    def _taken(self, peer: Peer, intent: Publish | Request | Respond, done: OnCommit | None) -> Taken:
        outcome = self.broker.perform(peer, intent, done)
        assert isinstance(outcome, Taken)
        return outcome

    def rows(self) -> list[dict[str, Any]]:
        """Everything stored, after a commit."""
        self.loop.settle()
        return [row for batch in self.journal.read(0) for row in batch.to_pylist()]

    def counted(self, name: str) -> int:
        return self.broker.meter.counts[name]


class Refusal(NamedTuple):
    """One entry of `Taken.refused`, in a form that can be compared."""

    start: int
    stop: int
    error: type[RacewayError]


def refusals(taken: Taken) -> list[Refusal]:
    return [Refusal(start, stop, type(error)) for start, stop, error in taken.refused]


class RecordingTransport(asyncio.Transport):
    """A transport that keeps what is written until `drain` takes it away, as a slow peer would."""

    def __init__(self, **extra: Any) -> None:
        super().__init__({"peername": ("127.0.0.1", 4711), **extra})
        self.writes: list[bytes] = []
        self.waiting = 0
        self.reading = True
        self.limits: tuple[int | None, int | None] = (None, None)
        self.closed = self.aborted = False

    def write(self, data: Any) -> None:
        assert not self.is_closing(), "nothing may be written to a closing transport"
        self.writes.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = (high, low)

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        assert self.reading, "paused twice"
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading, "resumed twice"
        self.reading = True

    @property
    def written(self) -> bytes:
        return b"".join(self.writes)
