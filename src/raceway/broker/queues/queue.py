"""Queues: rows of a topic in offset order, each to one consumer, in the order in which consumers asked (armed).

A queue is a cursor over its topic. Committed rows wait in memory up to a limit; the rest is read from the journal when
needed, so a long backlog costs no memory. A row is *handed out* to a consumer that has armed, and *taken* when its
bytes were written to the socket; rows that a lost consumer did not take return to their place. The cursor never passes
a row that is not taken, and is stored at the end of each turn in which it moved.

    committed ──> waiting (bounded) ──armed──> handed out ──> taken: the cursor moves
                     ^                              │
        journal ─────┘ <──────── given back ────────┘

Publishes enter every queue of their topic. A request enters if the queue was chosen to answer it: one from a wire with
queues of its own has no `forwarded_id` then, and enters also when it is read back after a restart; one from another
wire must be expected (`forward`), and is void when its requester no longer waits.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from raceway.broker.peers import Pending, Responder
from raceway.broker.queues.consumer import Entry, QueueConsumer
from raceway.broker.topics import Topic
from raceway.errors import AwayError, TrimmedError
from raceway.journal.contract import Journal
from raceway.model.envelope import NUMBER_COLUMNS, PUBLISH, TEXT_COLUMNS, Batch, Hop, encode_attributes, encode_hops
from raceway.model.intents.peers import SubscriptionKind
from raceway.model.wires import QUEUEING
from raceway.net.ids import random_id

CURSORS = "cursors"
# Columns that are lists in every batch, even if all rows are equal.
ROW_BY_ROW = ("message_id", "offset")
# Rows that wait in memory, and their bytes. One commit may add thousands, and reading back costs more than keeping.
KEPT_ROWS, KEPT_BYTES = 16_384, 8 * 1024 * 1024
# One read from the journal, and reads per call: small, because other connections wait meanwhile.
READ_ROWS, READ_BYTES, READS_AT_ONCE = 1000, 1024 * 1024, 2
# Rows handed out to one consumer and not taken: its socket decides how fast a backlog is sent. Half of the output
# limit of a connection.
HELD_ROWS, HELD_BYTES = 1000, 8 * 1024 * 1024


class _Seat:
    """A consumer: how much it asked for, and how much it was handed and has not taken."""

    __slots__ = ("consumer", "held_bytes", "held_rows", "ticket", "window")

    topics: ClassVar[None] = None  # those of a publish/subscribe queue

    def __init__(self, consumer: QueueConsumer) -> None:
        self.consumer = consumer
        self.ticket = b""
        self.window = self.held_rows = self.held_bytes = 0

    def hold(self, entry: Entry) -> None:
        self.held_rows += 1
        self.held_bytes += entry.size
        if self.window > 0:
            self.window -= 1

    def let_go(self, entry: Entry) -> None:
        self.held_rows -= 1
        self.held_bytes -= entry.size

    @property
    def wants_more(self) -> bool:
        return self.window != 0 and self.held_rows < HELD_ROWS and self.held_bytes < HELD_BYTES


class Queue:
    """A queue; while it has consumers, a `Responder` of its topic.

    `moved` is called when the cursor may have moved or more remains to be handed out: the owner stores the cursor and
    calls `pump` at the end of the turn. `gone` is called with the range of lost rows, `linked` before a row is handed
    out that is a request or belongs to a chain, `bring_back` for rows that are in the archive.
    """

    reads_source: ClassVar[bool] = False
    by_content: ClassVar[bool] = False

    def __init__(
        self,
        topic: Topic,
        cursor: int,
        end: int,
        journal: Journal,
        moved: Callable[[Queue], None],
        gone: Callable[[Queue, int, int], None],
        linked: Callable[[QueueConsumer, Entry], None],
        bring_back: Callable[[AwayError, Callable[[], None]], None],
    ) -> None:
        self.id = random_id().decode()
        self.subscriptions: dict[tuple[SubscriptionKind, str], float] = {}
        self.topic = topic
        self.name = topic.spoken.decode()
        self.consumers: dict[QueueConsumer, _Seat] = {}
        self._journal = journal
        self._moved = moved
        self._gone = gone
        self._linked = linked
        self._bring_back = bring_back
        # In order of offsets, returned rows included.
        self._waiting: deque[Entry] = deque()
        self._waiting_bytes = 0
        # Set during shutdown: it must be known which rows were taken.
        self.paused = False
        # In order of service. A consumer that wants more and is not here has enough rows handed out.
        self._armed: OrderedDict[QueueConsumer, _Seat] = OrderedDict()
        self._handed: dict[int, tuple[Entry, _Seat]] = {}
        self._expected: dict[int, Pending] = {}
        # Rows before `_next` were read into memory; rows before `_end` are committed. Those between are in the journal.
        self._next = cursor
        self._end = end
        # Rows before `_purged_to` were purged, but for those that were handed out then.
        self._purged_to = 0
        self._spared: set[int] = set()

    @property
    def cursor(self) -> int:
        """Offset of the first row that is not taken."""
        return min(self._first_waiting, min(self._handed, default=self._next))

    def progress(self) -> dict[str, Any]:
        """Return the state to be stored: the cursor, and a purge while rows before it are handed out."""
        cursor = self.cursor
        found: dict[str, Any] = {"topic": self.topic.name, "offset": cursor}
        if cursor < self._purged_to:
            found |= {"purged": self._purged_to, "spared": sorted(self._spared)}
        return found

    def resume(self, kept: Mapping[str, Any]) -> None:
        """Take back what else than the cursor was stored."""
        self._purged_to, self._spared = kept.get("purged", 0), set(kept.get("spared", ()))

    @property
    def backlog(self) -> int:
        """Number of offsets not taken, including requests that were answered elsewhere."""
        return self._end - self.cursor

    @property
    def _first_waiting(self) -> int:
        return self._waiting[0].offset if self._waiting else self._next

    def spells(self, name: str) -> bool:
        return True

    def members(self) -> Sequence[Responder]:
        return (self,)

    # ---- intake ------------------------------------------------------------------------------------------------------

    def forward(self, request: Pending, batch: Batch, row: int) -> None:
        """Note a request that was assigned to the queue and is not committed yet."""
        assert request.offset is not None
        self._expected[request.offset] = request

    def withdraw(self, request: Pending) -> None:
        """Forget a request whose requester no longer waits, or that could not be stored."""
        if request.offset is not None and self._expected.get(request.offset) is request:
            del self._expected[request.offset]

    def committed(self, batch: Batch, rows: Sequence[int]) -> None:
        """Take committed rows of the topic, all of this batch. Their offsets follow the previous ones."""
        first: int = batch.item("offset", rows[0])
        if first < self._end:  # earlier rows could not be stored: their offsets are assigned again
            self._next = first
            self._moved(self)
        is_next = self._next == first
        self._end = first + len(rows)
        if is_next:
            if len(rows) < batch.count:  # do not keep other topics' rows in memory
                batch, rows = batch.keep(list(rows)), range(len(rows))
            self._take_in(batch, rows, range(first, self._end))
            if not self._waiting:
                self._moved(self)
        self.pump()

    def withdrawn(self, batch: Batch, row: int) -> None:
        """Do nothing: rows are counted only after their commit."""

    def _take_in(self, batch: Batch, rows: Iterable[int], offsets: Iterable[int]) -> None:
        """Add rows to memory until the limit is reached."""
        waiting, expected, payloads, attributes = self._waiting, self._expected, batch.payload, batch.attributes
        assert type(payloads) is list
        only_publishes = batch.kind == PUBLISH and not expected
        for row, offset in zip(rows, offsets, strict=True):
            if offset >= self._end or len(waiting) >= KEPT_ROWS or self._waiting_bytes >= KEPT_BYTES:
                return
            self._next = offset + 1
            request = None if only_publishes else expected.pop(offset, None)
            if offset < self._purged_to and offset not in self._spared:
                continue
            if only_publishes or request is not None or _enters_unasked(batch, row):
                size = len(payloads[row])  # type: ignore[arg-type]  # every row has one
                if attributes is not None:
                    size += len(batch.item("attributes", row) or b"")
                waiting.append(Entry(offset, batch, row, size, request))
                self._waiting_bytes += size

    def _read_back(self) -> None:
        """Read the next rows from the journal; skip those that are damaged or removed by retention."""
        begin = self._next
        try:
            for found in self._journal.read_topic(self.topic.name, begin, READ_ROWS, READ_BYTES):
                if not self._take_found(batch_of(found), found.column("offset").to_pylist()):
                    break
        except TrimmedError as error:
            self._step_to(min(error.first, self._end))
        if self._next == begin:
            self._step_to(self._end)

    def _take_found(self, batch: Batch, offsets: list[int]) -> bool:
        """Add rows read back. Return whether there was room for all. Offsets are dense except for lost rows."""
        begin = 0
        for stop in range(1, len(offsets) + 1):
            if stop < len(offsets) and offsets[stop] == offsets[stop - 1] + 1:
                continue
            if offsets[begin] < self._end:
                self._step_to(max(self._next, offsets[begin]))
            self._take_in(batch, range(begin, stop), offsets[begin:stop])
            if self._next < offsets[stop - 1] + 1:
                return False
            begin = stop
        return True

    def _step_to(self, offset: int) -> None:
        """Go on behind rows that are damaged or were removed by retention."""
        if offset > self._next:
            self._gone(self, self._next, offset)
        self._go_to(offset)

    def _go_to(self, offset: int) -> None:
        self._next = offset
        for gone in [expected for expected in self._expected if expected < offset]:
            del self._expected[gone]

    # ---- delivery ----------------------------------------------------------------------------------------------------

    def arm(self, consumer: QueueConsumer, ticket: bytes, window: int = 1) -> None:
        """Ask for `window` rows (-1: no limit). A further call replaces ticket and window, not the place in line."""
        seat = self.consumers.get(consumer)
        if seat is None:
            seat = self.consumers[consumer] = _Seat(consumer)
        seat.ticket, seat.window = ticket, window
        # A consume of one row is always served, whatever the consumer holds: the client counts them.
        if window == 1 or seat.wants_more:
            self._armed.setdefault(consumer, seat)
        self.pump()

    def leave(self, consumer: QueueConsumer) -> None:
        """Remove a closed connection. Rows it did not take return to the queue."""
        seat = self.consumers.pop(consumer, None)
        self._armed.pop(consumer, None)
        if seat is None or seat.held_rows:
            self.give_back([offset for offset, (_, holder) in self._handed.items() if holder.consumer is consumer])

    def dismiss(self, consumer: QueueConsumer) -> bytes:
        """Stop delivering to this consumer; it may still take what it was handed. Return its pending ticket, if any."""
        seat = self.consumers.pop(consumer)
        self._armed.pop(consumer, None)
        waited, seat.window = seat.window != 0, 0
        return seat.ticket if waited else b""

    def pump(self) -> None:
        """Hand out waiting rows to consumers in order of arming."""
        if self.paused:
            return
        while self._armed and (self._waiting or self._fill()):
            entry = self._waiting.popleft()
            self._waiting_bytes -= entry.size
            if entry.request is not None and not entry.request.open and entry.is_masked:  # nobody waits for it
                self._moved(self)
                continue
            consumer, seat = next(iter(self._armed.items()))
            self._handed[entry.offset] = (entry, seat)
            seat.hold(entry)
            if seat.wants_more:
                self._armed.move_to_end(consumer)
            else:
                del self._armed[consumer]
            if entry.batch.kind != PUBLISH or entry.batch.correlation_id is not None:
                self._linked(consumer, entry)
            consumer.hand_out(self.name, seat.ticket, entry)

    def _fill(self) -> bool:
        """Read from the journal if needed. Return whether a row is waiting."""
        reads = 0
        while not self._waiting and self._next < self._end and reads < READS_AT_ONCE:
            try:
                self._read_back()
            except AwayError as away:
                self._bring_back(away, self.pump)
                break
            reads += 1
        if reads:
            self._moved(self)
        return bool(self._waiting)

    def taken(self, consumer: QueueConsumer, offset: int) -> None:
        """Note that the row was written to the socket. A no-op if the consumer does not hold it."""
        handed = self._handed.get(offset)
        if handed is None or handed[1].consumer is not consumer:
            return
        del self._handed[offset]
        self._spared.discard(offset)
        entry, seat = handed
        seat.let_go(entry)
        if seat.window and seat.wants_more:
            self._armed.setdefault(seat.consumer, seat)
        self._moved(self)

    def give_back(self, offsets: Iterable[int]) -> None:
        """Return rows that a broken connection did not take to their place in the queue."""
        handed = [found for offset in offsets if (found := self._handed.pop(offset, None)) is not None]
        if not handed:
            return
        for entry, seat in handed:
            seat.let_go(entry)
        entries = [entry for entry, _ in handed]
        self._waiting_bytes += sum(entry.size for entry in entries)
        youngest = max(entry.offset for entry in entries)
        while self._waiting and self._waiting[0].offset < youngest:
            entries.append(self._waiting.popleft())
        self._waiting.extendleft(sorted(entries, key=lambda entry: entry.offset, reverse=True))
        self.pump()

    def move(self, offset: int) -> None:
        """Set the cursor. Rows that are handed out count as taken."""
        for entry, seat in self._handed.values():
            seat.let_go(entry)
        self._handed.clear()
        self._waiting.clear()
        self._waiting_bytes = 0
        self._go_to(offset)
        self._purged_to, self._spared = 0, set()
        for seat in self.consumers.values():
            if seat.wants_more:
                self._armed.setdefault(seat.consumer, seat)
        self._moved(self)

    def purge(self) -> int:
        """Drop all waiting rows, but not those handed out. Return how many offsets were dropped."""
        dropped = self._end - self._first_waiting
        self._waiting.clear()
        self._waiting_bytes = 0
        self._go_to(self._end)
        self._purged_to, self._spared = self._end, set(self._handed)
        self._moved(self)
        return dropped


def _enters_unasked(batch: Batch, row: int) -> bool:
    if batch.item("kind", row) == PUBLISH:
        return True
    return batch.item("wire", row) in QUEUEING and batch.item("forwarded_id", row) is None


def batch_of(rows: pa.RecordBatch) -> Batch:
    """Convert rows of the journal to a batch, column by column, with text as bytes."""
    batch = Batch(rows.num_rows)
    for name in (*TEXT_COLUMNS, *NUMBER_COLUMNS):
        column = rows.column(name)
        if column.null_count < len(column):
            values = (column.cast(pa.binary()) if name in TEXT_COLUMNS else column).to_pylist()
            same = name not in ROW_BY_ROW and values.count(values[0]) == len(values)
            setattr(batch, name, values[0] if same else values)
    attributes, hops = rows.column("attributes"), rows.column("hops")
    if _has_items(attributes):
        batch.attributes = [encode_attributes(dict(each)) for each in attributes.to_pylist()]
    if _has_items(hops):
        batch.hops = [encode_hops([_hop(hop) for hop in each]) for each in hops.to_pylist()]
    batch.payload = [payload or b"" for payload in rows.column("payload").to_pylist()]
    return batch


def _hop(found: dict[str, Any]) -> Hop:
    return Hop(found["sid"] or "", found["rid"] or "", found["mid"] or "", tuple(found["tms"] or ()))


def _has_items(lists: pa.ListArray) -> bool:
    offsets = lists.offsets
    return bool(offsets[0] != offsets[-1])
