"""Catch-up: a subscriber that left the live path reads from the journal until it can join again.

A catch-up starts at the position after the last copy that its subscriber received. It reads committed rows from there,
in another thread and in small pieces, and delivers those that matched the subscriptions when they were accepted. Near
the end it chooses a position J: copies of rows accepted from now on are buffered, rows before J are still read. When
all of those are delivered, the buffer follows and the subscriber is live again: no gap and no repeat, although live
copies are sent before the commit. If the buffer grows too large it is discarded and reading continues.

After a failed commit its positions are assigned again. Code that keeps a position across a commit registers for it
(`after_commit`) and goes back to the first free position.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from raceway.broker.bus import Bus
from raceway.broker.queues.queue import batch_of
from raceway.broker.runs import RowSpan, Run
from raceway.broker.steps import run_here
from raceway.broker.topics import Topic
from raceway.broker.undelivered.undeliverable import UNDELIVERABLE
from raceway.errors import RacewayError, TrimmedError
from raceway.journal.contract import Journal
from raceway.model.envelope import PUBLISH, Batch, decode_attributes
from raceway.model.wires import PUBLICLY_NAMED, spelling_key
from raceway.net.ids import random_id

# Limits of one read: other catch-ups wait for the same threads, and the rows stay in memory for one subscriber.
READ_ROWS, READ_BYTES = 4096, 1024 * 1024
# Within this distance from the end a catch-up tries to join the live path.
NEAR_ROWS = READ_ROWS
# Concurrent reads of all catch-ups.
READS = 2
# Pending subscription changes of one catch-up; each was a call of its peer.
MAX_CHANGES = 100_000

T = TypeVar("T")
log = structlog.get_logger("raceway.broker")


class Outlet(Protocol):
    """A subscriber, as its catch-up sees it."""

    def has_room(self) -> bool:
        """Return whether it can be written to. If not, it calls `CatchUp.wake` later."""

    def wants(self, topic: Topic) -> bool:
        """Return whether the topic matched its subscriptions at the catch-up's position."""

    def emit(self, run: Run) -> None:
        """Deliver rows from the journal, encoded like live ones."""

    def join(self, aside: list[tuple[Run, bytes]]) -> None:
        """Deliver the buffered copies and return to the live path."""

    def tell_gap(self, first: int, stop: int, reason: str) -> None:
        """Note that rows between these positions were removed or lost before they could be delivered."""


class _Piece(NamedTuple):
    """Result of one read: publishes of wanted topics, the next position, topics not yet matched, and positions that
    could not be read."""

    batch: Batch | None
    next: int
    unknown: tuple[str, ...] = ()
    lost: Sequence[tuple[int, int]] = ()


class CatchUps:
    """All catch-ups of a bus. `offload` runs work in another thread and passes on its result or exception."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.routing = bus.routing
        self.max_aside = bus.settings.aside_bytes
        self.count = 0
        self.offload: Callable[[Callable[[], Any], Callable[[Any], None]], None] = lambda work, then: (
            bus.loop.call_soon(partial(run_here, work, then))
        )
        self._reading = 0
        self._queued: deque[CatchUp] = deque()

    def open(self, outlet: Outlet) -> CatchUp:
        """Start a catch-up at the current position: everything before it was delivered live."""
        catch_up = CatchUp(self, self._bus, outlet, self._bus.journal.next_sequence)
        self.count += 1
        self._bus.meter.counts["bus.detached"] += 1
        self._bus.after_commit(catch_up.settled)
        return catch_up

    def tell_gap(self, subscriber: str, first: int, stop: int, reason: str) -> None:
        """Count and log that rows were removed or lost before a subscriber read them."""
        self._bus.meter.counts["bus.gaps"] += 1
        log.warning("rows missed by a subscriber", subscriber=subscriber, first=first, next=stop, reason=reason)
        text = f"subscriber {subscriber} missed positions {first} to {stop - 1}: {reason}"
        self._bus.logs.emit("warn", text, module="broker")

    def read(self, catch_up: CatchUp) -> None:
        """Queue a read of this catch-up."""
        self._queued.append(catch_up)
        self._read_next()

    def _read_next(self) -> None:
        while self._queued and self._reading < READS:
            catch_up = self._queued.popleft()
            if catch_up.open:
                self._reading += 1
                self.offload(catch_up.work(), partial(self._found, catch_up))

    def _found(self, catch_up: CatchUp, found: _Piece | Exception) -> None:
        self._reading -= 1
        try:
            catch_up.take(found)
        finally:
            self._read_next()


class CatchUp:
    """The catch-up of a subscriber. `position` is the next row to read; `_join` is J, where buffering starts."""

    def __init__(self, catch_ups: CatchUps, bus: Bus, outlet: Outlet, position: int) -> None:
        self.position = position
        self.open = True
        self._catch_ups, self._bus, self._outlet = catch_ups, bus, outlet
        self._verdicts: dict[str, bool] = {}
        self._changes: deque[tuple[int, Callable[[], None]]] = deque()
        self._busy = False
        self._join: int | None = None
        self._is_joinable = False
        self._aside: list[tuple[Run, bytes]] = []
        self._aside_bytes = 0

    # ---- events ------------------------------------------------------------------------------------------------------

    def offer(self, run: Run, data: bytes) -> None:
        """Take a live copy: buffered after J, otherwise ignored because it will be read."""
        if self._join is None:
            return
        self._aside.append((run, data))
        self._aside_bytes += len(data) or _size(run)
        if self._aside_bytes > self._catch_ups.max_aside:
            self._give_up()

    @property
    def is_collecting(self) -> bool:
        """Whether live copies are buffered, because all rows before them are about to be delivered."""
        return self._join is not None

    def change(self, apply: Callable[[], None]) -> bool:
        """Call `apply` when the catch-up reaches the current position. Return False if too many changes are pending."""
        if len(self._changes) >= MAX_CHANGES:
            return False
        journal = self._bus.journal
        if journal.next_sequence > journal.committed + 1:
            self._bus.after_commit(self.settled)
        self._changes.append((journal.next_sequence, apply))
        return True

    def forget_verdicts(self) -> None:
        """Clear the cached matches of topics."""
        self._verdicts.clear()

    def settled(self, error: RacewayError | None) -> None:
        """Handle the commit of rows accepted before the catch-up started or subscriptions changed."""
        if error is not None and self.open:
            self._go_back()

    def wake(self) -> None:
        """Continue if the subscriber has room."""
        if self.open and not self._busy and self._outlet.has_room():
            self._step()

    def close(self) -> None:
        """Stop after the subscriber has disconnected. Idempotent."""
        if self.open:
            self._catch_ups.count -= 1
        self.open = False
        self._aside.clear()
        self._changes.clear()

    def _go_back(self) -> None:
        """Go back to the first free position after a failed commit: its positions are assigned to other rows."""
        free = self._bus.journal.committed + 1
        self.position = min(self.position, free)
        if self._join is not None:
            self._join = min(self._join, free)
        self._changes = deque((min(at, free), apply) for at, apply in self._changes)

    # ---- reading -----------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        journal = self._bus.journal
        if self._join is None and journal.committed - self.position < NEAR_ROWS:
            self._begin_join()
            if self._busy or not self.open:  # `_joinable` ran already and continued
                return
        is_over = self._is_joinable and self.position > journal.committed  # all rows before J are read
        if self._join is not None and (self.position >= self._join or is_over):
            self._end()
        elif self.position <= journal.committed:
            while self._changes and self._changes[0][0] <= self.position:
                self._changes.popleft()[1]()
                self._verdicts.clear()
            self._busy = True
            self._catch_ups.read(self)

    def _begin_join(self) -> None:
        self._join, self._is_joinable = self._bus.journal.next_sequence, False
        if self.position < self._join:
            begun = self._join
            self._bus.after_commit(lambda error: self._joinable(begun, error))

    def _joinable(self, begun: int, error: RacewayError | None) -> None:
        """Handle the commit of the rows before J, or its failure."""
        if not self.open:
            return
        if error is not None:
            self._go_back()
        if self._join is not None and self._join <= begun:
            self._is_joinable = True
        self.wake()

    def _give_up(self) -> None:
        """Discard the buffered copies, which are too many: they will be read instead."""
        self._join = None
        self._aside, self._aside_bytes = [], 0

    def _end(self) -> None:
        while self._changes:
            self._changes.popleft()[1]()
        aside, self._aside = self._aside, []
        self.open = False
        self._catch_ups.count -= 1
        self._bus.meter.counts["bus.rejoined"] += 1
        self._outlet.join(aside)

    def work(self) -> Callable[[], _Piece]:
        """Return the next read as a function for another thread."""
        start = self.position
        stop = min(start + READ_ROWS, self._bus.journal.committed + 1)
        if self._join is not None:
            stop = min(stop, self._join)
        if self._changes:
            stop = min(stop, self._changes[0][0])
        journal, verdicts = self._bus.journal, dict(self._verdicts)
        return lambda: read_piece(journal, start, stop, verdicts)

    def take(self, found: _Piece | Exception) -> None:
        self._busy = False
        if not self.open:
            return
        if isinstance(found, TrimmedError):
            self._outlet.tell_gap(self.position, found.first, "removed by retention")
            self.position = max(self.position, found.first)
        elif isinstance(found, Exception):
            log.error("catch-up read failed", reason=str(found))
            self._bus.loop.call_later(1.0, self.wake)
            return
        else:
            for name in found.unknown:
                self._verdicts[name] = self._outlet.wants(self._bus.topics.own(name))
            self.position = found.next
            for first, stop in found.lost:
                self._outlet.tell_gap(first, stop, "lost by damage")
            if found.batch is not None:
                for run in runs_of(found.batch, self._bus):
                    self._outlet.emit(run)
                    self._bus.meter.counts["bus.delivered"] += run.span.stop - run.span.start
        self.wake()


def read_piece(journal: Journal, start: int, stop: int, verdicts: dict[str, bool]) -> _Piece:
    """Read committed publishes of wanted topics from `start` on. Raises TrimmedError."""
    for rows in journal.read(start, stop):
        if not rows.num_rows:
            continue
        if rows.nbytes > READ_BYTES:
            rows = rows.slice(0, max(1, rows.num_rows * READ_BYTES // rows.nbytes))
        lost, following = _lost_before(rows, start), rows.column("sequence")[-1].as_py() + 1
        rows = rows.filter(pc.equal(rows.column("kind"), PUBLISH.decode()))
        names = [name for name in rows.column("topic").unique().to_pylist() if name is not None]
        unknown = tuple(name for name in names if name not in verdicts)
        if unknown:  # read again after they were matched
            return _Piece(None, start, unknown)
        wanted = [name for name in names if verdicts[name]]
        if len(wanted) < len(names):
            rows = rows.filter(pc.is_in(rows.column("topic"), pa.array(wanted, pa.string())))
        return _Piece(batch_of(rows) if rows.num_rows else None, following, lost=lost)
    return _Piece(None, stop, lost=[(start, stop)] if start < stop else [])


def _lost_before(rows: pa.RecordBatch, start: int) -> list[tuple[int, int]]:
    """Return the positions missing from `start` until the last of these rows: there are no gaps but lost rows."""
    positions = rows.column("sequence").to_numpy()
    if positions[-1] + 1 - start == len(positions):
        return []
    before = [start - 1, *positions.tolist()]
    return [(last + 1, first) for last, first in pairwise(before) if first > last + 1]


def runs_of(batch: Batch, bus: Bus) -> Iterator[Run]:
    """Yield rows of the journal as runs, with the ids of their copies and the topic as the sender spelled it."""
    ids = [_delivered_id(batch, row) for row in range(batch.count)]
    _remember(batch, bus)
    start, last = 0, None
    for row in range(batch.count):
        named = (batch.item("topic", row), _sent(batch, row, bus))
        if last is not None and named != last:
            yield Run(RowSpan(bus.topics.own(last[0].decode()), last[1], start, row), batch, ids)
            start = row
        last = named
    if last is not None:
        yield Run(RowSpan(bus.topics.own(last[0].decode()), last[1], start, batch.count), batch, ids)


def _delivered_id(batch: Batch, row: int) -> bytes:
    found = batch.item("forwarded_id", row)
    if found is None and batch.item("topic", row) != UNDELIVERABLE.encode():
        found = batch.item("message_id", row)
    return found or random_id()


def _sent(batch: Batch, row: int, bus: Bus) -> bytes:
    wire, attributes = batch.item("wire", row), batch.item("attributes", row)
    spelled = decode_attributes(attributes).get(spelling_key(wire)) if attributes else None
    if spelled is not None:
        return spelled.encode()
    name: bytes = batch.item("topic", row)
    return bus.topics.own(name.decode()).public.encode() if wire in PUBLICLY_NAMED else name


def _remember(batch: Batch, bus: Bus) -> None:
    """Remember the chains of these copies, so that messages that name one as parent are linked."""
    if batch.forwarded_id is None:
        return
    for row in range(batch.count):
        masked, message_id = batch.item("forwarded_id", row), batch.item("message_id", row)
        if masked is not None and message_id is not None:
            bus.chains.remember(masked, message_id, batch.item("correlation_id", row) or message_id)


def _size(run: Run) -> int:
    return sum(len(run.batch.item("payload", row)) for row in range(run.span.start, run.span.stop))
