"""Reading on from the journal for a subscriber that left the live path, until it has caught up.

A catch-up knows the position behind the last copy that its subscriber was given. It reads committed rows from there, in
another thread and in small pieces, and gives those that were meant for the subscriber when they were accepted. Near the
end it chooses a position J: copies of everything accepted from now on are put aside, rows before J are still read. When
all of those are given, what was put aside follows, and the subscriber is live again: no gap, no repeat, although live
copies leave before the commit. If too much comes meanwhile it is thrown away, and reading goes on.

Positions that could not be stored are given again. Whoever keeps one across a commit asks to be told (`after_commit`)
and goes back to the first that is free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from raceway.broker.bus import Bus
from raceway.broker.queues import batch_of
from raceway.broker.runs import Run, Span, spelling_key
from raceway.broker.topics import Topic
from raceway.broker.tracing import random_id
from raceway.broker.undeliverable import UNDELIVERABLE
from raceway.errors import RacewayError, TrimmedError
from raceway.journal.contract import Journal
from raceway.model.envelope import DANUBE, PUBLISH, Batch, decode_attributes

# One read: other catch-ups wait for the same threads, and what was read waits for one subscriber.
READ_ROWS, READ_BYTES = 4096, 1024 * 1024
# So near to the end a catch-up tries to join the live path.
NEAR_ROWS = READ_ROWS
# Reads of all catch-ups at a time.
READS = 2
# Changes of subscriptions that a catch-up remembers: each was a call of its peer's.
MAX_CHANGES = 100_000

T = TypeVar("T")
log = structlog.get_logger("raceway.broker")


class Outlet(Protocol):
    """A subscriber, as its catch-up sees it."""

    def has_room(self) -> bool:
        """May more be given? If not, it calls `CatchUp.wake` when it has."""

    def wants(self, topic: Topic) -> bool:
        """Were publishes of this topic meant for it, as of the catch-up's place?"""

    def emit(self, run: Run) -> None:
        """Hand over rows from the journal, in the way of live ones."""

    def join(self, aside: list[tuple[Run, bytes]]) -> None:
        """The catch-up has ended: hand these over, and be live again."""

    def tell_gap(self, first: int, stop: int) -> None:
        """Rows between these positions are gone that it might have been given."""


class _Piece(NamedTuple):
    """What a read found: publishes of wanted topics, where to go on, and topics nobody has judged yet."""

    batch: Batch | None
    next: int
    unknown: tuple[str, ...] = ()


class CatchUps:
    """All catch-ups of a bus. `offload` runs work elsewhere and then hands over its result, or the error."""

    def __init__(self, bus: Bus, max_aside: int) -> None:
        self._bus = bus
        self.max_aside = max_aside
        self.count = 0
        self.offload: Callable[[Callable[[], Any], Callable[[Any], None]], None] = self._do_here
        self._reading = 0
        self._queued: deque[CatchUp] = deque()

    def open(self, outlet: Outlet) -> CatchUp:
        """A catch-up from here on: everything accepted so far was handed over live."""
        catch_up = CatchUp(self, self._bus, outlet, self._bus.journal.next_sequence)
        self.count += 1
        self._bus.meter.counts["bus.detached"] += 1
        self._bus.after_commit(catch_up.settled)
        return catch_up

    def tell_gap(self, subscriber: str, first: int, stop: int) -> None:
        """A subscriber reads from the journal, and retention was there before it."""
        self._bus.meter.counts["bus.gaps"] += 1
        log.warning("retention overtook a subscriber", subscriber=subscriber, first=first, next=stop)
        text = f"subscriber {subscriber} missed what was stored from {first} to {stop - 1}: retention removed it"
        self._bus.logs.emit("warn", text, module="broker")

    def read(self, catch_up: CatchUp) -> None:
        """As soon as it is its turn."""
        self._queued.append(catch_up)
        self._read_next()

    def _read_next(self) -> None:
        while self._queued and self._reading < READS:
            catch_up = self._queued.popleft()
            if catch_up.open:
                self._reading += 1
                self.offload(catch_up.work(), lambda found, catch_up=catch_up: self._found(catch_up, found))  # type: ignore[misc]

    def _found(self, catch_up: CatchUp, found: _Piece | Exception) -> None:
        self._reading -= 1
        try:
            catch_up.take(found)
        finally:
            self._read_next()

    def _do_here(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        def run() -> None:
            try:
                found = work()
            except Exception as error:  # noqa: BLE001  # handed to whoever asked
                found = error
            then(found)

        self._bus.loop.call_soon(run)


class CatchUp:
    """`position` is the next row to be looked at; `J` the one from which on copies are put aside."""

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

    # ---- what happens meanwhile --------------------------------------------------------------------------------------

    def offer(self, run: Run, data: bytes) -> None:
        """A live copy: it will be read, or is put aside."""
        if self._join is None:
            return
        self._aside.append((run, data))
        self._aside_bytes += len(data) or _size(run)
        if self._aside_bytes > self._catch_ups.max_aside:
            self._give_up()

    def change(self, apply: Callable[[], None]) -> bool:
        """Subscriptions change: `apply` is called when the catch-up comes to this place. False: there were too many."""
        if len(self._changes) >= MAX_CHANGES:
            return False
        journal = self._bus.journal
        if journal.next_sequence > journal.committed + 1:
            self._bus.after_commit(self.settled)
        self._changes.append((journal.next_sequence, apply))
        return True

    def forget_verdicts(self) -> None:
        """What topics are wanted is to be asked again."""
        self._verdicts.clear()

    def settled(self, error: RacewayError | None) -> None:
        """Everything accepted before the catch-up was opened, or subscriptions changed, is stored, or was not."""
        if error is not None and self.open:
            self._go_back()

    def wake(self) -> None:
        """There may be room, or more rows."""
        if self.open and not self._busy and self._outlet.has_room():
            self._step()

    def close(self) -> None:
        """The subscriber is gone. May be repeated."""
        if self.open:
            self._catch_ups.count -= 1
        self.open = False
        self._aside.clear()
        self._changes.clear()

    def _go_back(self) -> None:
        """Positions behind the last commit are given again, to rows that nobody was handed."""
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
            if self._busy or not self.open:  # everything was committed, and it has gone on by itself
                return
        if self._join is not None and (self.position >= self._join or self._is_over()):
            self._end()
        elif self.position <= journal.committed:
            self._apply_changes()
            self._busy = True
            self._catch_ups.read(self)

    def _is_over(self) -> bool:
        """Nothing before J is left to be committed, nor to be read."""
        return self._is_joinable and self.position > self._bus.journal.committed

    def _begin_join(self) -> None:
        self._join, self._is_joinable = self._bus.journal.next_sequence, False
        if self.position < self._join:
            begun = self._join
            self._bus.after_commit(lambda error: self._joinable(begun, error))

    def _joinable(self, begun: int, error: RacewayError | None) -> None:
        """Rows before J are committed, or will never be."""
        if not self.open:
            return
        if error is not None:
            self._go_back()
        if self._join is not None and self._join <= begun:
            self._is_joinable = True
        self.wake()

    def _give_up(self) -> None:
        """Too much came while the last rows were read: they are read as well."""
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

    def _apply_changes(self) -> None:
        while self._changes and self._changes[0][0] <= self.position:
            self._changes.popleft()[1]()
            self._verdicts.clear()

    def work(self) -> Callable[[], _Piece]:
        """The next read, to be done in another thread."""
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
            self._outlet.tell_gap(self.position, found.first)
            self.position = max(self.position, found.first)
        elif isinstance(found, Exception):
            log.error("rows could not be read for a subscriber", reason=str(found))
            self._bus.loop.call_later(1.0, self.wake)
            return
        else:
            self._judge(found.unknown)
            self.position = found.next
            if found.batch is not None:
                self._emit(found.batch)
        self.wake()

    def _judge(self, names: Iterable[str]) -> None:
        for name in names:
            self._verdicts[name] = self._outlet.wants(self._bus.topics.own(name))

    def _emit(self, batch: Batch) -> None:
        for run in runs_of(batch, self._bus):
            self._outlet.emit(run)
            self._bus.meter.counts["bus.delivered"] += run.span.stop - run.span.start


def read_piece(journal: Journal, start: int, stop: int, verdicts: dict[str, bool]) -> _Piece:
    """Committed publishes of wanted topics from `start` on. Raises TrimmedError."""
    for rows in journal.read(start, stop):
        if not rows.num_rows:
            continue
        if rows.nbytes > READ_BYTES:
            rows = rows.slice(0, max(1, rows.num_rows * READ_BYTES // rows.nbytes))
        following = rows.column("sequence")[-1].as_py() + 1
        rows = rows.filter(pc.equal(rows.column("kind"), PUBLISH.decode()))
        names = [name for name in rows.column("topic").unique().to_pylist() if name is not None]
        unknown = tuple(name for name in names if name not in verdicts)
        if unknown:  # read again when it is known what they are
            return _Piece(None, start, unknown)
        wanted = [name for name in names if verdicts[name]]
        if len(wanted) < len(names):
            rows = rows.filter(pc.is_in(rows.column("topic"), pa.array(wanted, pa.string())))
        return _Piece(batch_of(rows) if rows.num_rows else None, following)
    return _Piece(None, stop)


def runs_of(batch: Batch, bus: Bus) -> Iterator[Run]:
    """Rows from the journal as they were handed out: under the ids of their copies, and as their senders spelled it."""
    ids = [_delivered_id(batch, row) for row in range(batch.count)]
    _remember(batch, bus)
    start, last = 0, None
    for row in range(batch.count):
        named = (batch.item("topic", row), _sent(batch, row, bus))
        if last is not None and named != last:
            yield Run(Span(bus.topics.own(last[0].decode()), last[1], start, row), batch, ids)
            start = row
        last = named
    if last is not None:
        yield Run(Span(bus.topics.own(last[0].decode()), last[1], start, batch.count), batch, ids)


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
    return bus.topics.own(name.decode()).public.encode() if wire == DANUBE else name


def _remember(batch: Batch, bus: Bus) -> None:
    """Whoever names one of these copies as parent still belongs to its chain."""
    if batch.forwarded_id is None:
        return
    for row in range(batch.count):
        masked, message_id = batch.item("forwarded_id", row), batch.item("message_id", row)
        if masked is not None and message_id is not None:
            bus.chains.remember(masked, message_id, batch.item("correlation_id", row) or message_id)


def _size(run: Run) -> int:
    return sum(len(run.batch.item("payload", row)) for row in range(run.span.start, run.span.stop))
