"""Owner's side of every journal: stamping rows, giving offsets, filling blocks, calling back those who wait.

    append ──> open block ──full──> waiting blocks ──flush──> in flight ──> committed ──> done, after_commit

At most `max_in_flight` blocks are in flight, one on a disk; while they are written the next one fills: that is the
whole of group commit. Nothing here blocks or locks: everything runs on the owner thread, and engines answer by calling
`_committed`, block by block in their order, or `_failed` on it.

When a block fails, everything after it fails too: sequences and offsets are given again, so that none is ever missing
or given twice. Control rows are never refused, so they are kept and go into the next block that can be written; callers
that wait for them are told of the failure nevertheless, unless they asked to wait for space.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count, repeat
from typing import Any, Literal, TypedDict

from raceway import config
from raceway.errors import DiskFullError, DrainingError, RacewayError, ReadOnlyError, UnavailableError
from raceway.journal.contract import OnCommit
from raceway.journal.log import log
from raceway.journal.state import State, encode_row
from raceway.journal.write.block import OpenBlock, TopicSpan, parts_of, size_of, spans_of
from raceway.model.envelope import PUBLISH, REQUEST, Batch

# `low_space`: rows are refused as on a full disk, but state is still written.
# `away`: what stores the rows cannot be reached; `lost`: another node owns them.
JournalStatus = Literal["ok", "read_only", "low_space", "disk_full", "away", "lost", "closed"]
_REFUSALS: dict[JournalStatus, type[UnavailableError]] = {
    "read_only": ReadOnlyError, "low_space": DiskFullError, "disk_full": DiskFullError, "away": UnavailableError,
    "lost": UnavailableError, "closed": DrainingError,
}  # fmt: skip
# State is taken in, and written now or when writing goes on.
_TAKES_STATE = frozenset(("ok", "low_space", "disk_full", "away"))
# Nothing is written, until the engine says otherwise.
_WRITES_NOTHING = frozenset(("read_only", "disk_full", "away", "lost"))
_WITH_OFFSET = frozenset((PUBLISH, REQUEST))


# This many rows are worth a block of their own, whether somebody waits for them or not.
MANY_ROWS = 512


class IntakeFigures(TypedDict):
    """Fields of `Health` that the owner's side knows, whatever stores the rows."""

    status: JournalStatus
    reason: str
    unsynced_bytes: int
    refusals: int


class Intake(ABC):
    """Everything of a journal except storing the rows; `_hand_over` starts that for one block."""

    # Blocks that the engine stores at a time.
    max_in_flight = 1

    def __init__(
        self, settings: config.JournalSettings, state: State, next_sequence: int, clock: Callable[[], int]
    ) -> None:
        self.state = state
        # Ignored by owners that do not read from sockets.
        self.pressure: Callable[[bool], None] = lambda _: None
        self._settings, self._clock = settings, clock
        self._block_rows, self._block_bytes = settings.block_rows, settings.block_bytes
        self._open = OpenBlock(next_sequence)
        self._waiting: deque[OpenBlock] = deque()
        self._in_flight: deque[OpenBlock] = deque()
        self._unsynced = 0
        self._pressed = False
        self._refusal: UnavailableError | None = None
        self._status: JournalStatus = "ok"
        self._refusals = 0
        # Set if somebody waits for the open block, or asked for a flush while a block was in flight.
        self._hurry = False

    @property
    def next_sequence(self) -> int:
        """Sequence that the next appended row will have."""
        # Control rows of the open block come after its messages, so they do not count here.
        return self._open.first + self._open.messages

    @property
    def is_awaited(self) -> bool:
        """See `Journal.is_awaited`."""
        return self._hurry or bool(self._waiting)

    def check_writable(self) -> None:
        """See `Journal.check_writable`."""
        if self._refusal is not None:
            self._refusals += 1
            raise type(self._refusal)(self._refusal.reason)

    def append(self, batch: Batch, done: OnCommit | None = None, *, awaited: bool | None = None) -> int:
        """See `Journal.append`. `batch.offset` becomes a range if all rows are of one topic, otherwise a list."""
        self.check_writable()
        count = batch.count
        if not count:
            if done is not None:
                self.after_commit(done)
            return self.next_sequence
        state, block = self.state, self._open
        now_us: int = self._clock() if batch.time_us is None else batch.time_us  # type: ignore[assignment]  # a scalar
        # Times never decrease along positions, also when the wall clock is set back: searches by time bisect.
        state.time_us = batch.time_us = now_us if now_us > state.time_us else state.time_us
        spans = self._give_offsets(batch)
        size = size_of(batch)
        # Closed before it exceeds a limit, not after: block_rows and block_bytes hold for every block.
        if block.messages + count > self._block_rows or block.size + size > self._block_bytes:
            block = self._close_open()
        first = block.first + block.messages
        # Larger than any block by itself: cut, each part into a block of its own.
        if count > self._block_rows or size > self._block_bytes:
            size = self._append_in_parts(batch)
        else:
            block.add(batch, size, spans)
        if done is not None:
            # On the block of the last part: when that is committed, so are the earlier ones.
            self._open.dones.append(done)
        if (done is not None if awaited is None else awaited) or self._open.messages >= MANY_ROWS:
            self._hurry = True
        self._unsynced += size
        # Once per crossing; released below half, so that it does not flap.
        if self._unsynced > self._settings.unsynced_bytes and not self._pressed:
            self._press(True)
        return first

    def set_state(self, section: str, key: str, value: Any | None) -> None:
        """See `Journal.set_state`. Also accepted while the disk is full, or the store is away."""
        if self._refusal is not None and self._status not in _TAKES_STATE:
            raise type(self._refusal)(self._refusal.reason)
        # State first, row second: a snapshot taken with this block has the value, and replaying the row is
        # harmless.
        self.state.put(section, key, value)
        self.state.time_us = max(self._clock(), self.state.time_us)
        self._unsynced += self._open.add_control(section, key, encode_row(section, key, value), self.state.time_us)

    def flush(self) -> None:
        """See `Journal.flush`."""
        # Remembered: `_committed` flushes again as soon as the writer is free.
        if len(self._in_flight) >= self.max_in_flight or self._status in _WRITES_NOTHING:
            self._hurry = True
            return
        if not self._waiting:
            if not self._open.rows:
                return
            self._close_open()
        block = self._waiting.popleft()
        self._in_flight.append(block)
        self._hand_over(block)

    def after_commit(self, done: OnCommit, *, patient: bool = False) -> None:
        """See `Journal.after_commit`."""
        # Blocks commit in order, so the newest block with rows stands for all earlier ones.
        newest = (self._open,) if self._open.rows else self._waiting or self._in_flight
        if not newest:
            done(None)
        elif self._status in ("ok", "low_space") or (patient and self._status in _TAKES_STATE):
            newest[-1].waiting.append((done, patient))
            self._hurry = True
        else:
            done(self._refusal)

    @abstractmethod
    def _hand_over(self, block: OpenBlock) -> None:
        """Start storing a block. `_committed` or `_failed` must follow on the owner thread, not within this call."""

    def _committed(self, block: OpenBlock) -> None:
        """Handle the commit of the oldest block in flight."""
        self._in_flight.popleft()
        self._unsynced -= block.size
        if self.is_awaited:
            self.flush()  # first: the disk works while the callbacks run
        for done in block.dones:
            _tell(done, None)
        for done, _ in block.waiting:
            _tell(done, None)
        if self._pressed and self._unsynced < self._settings.unsynced_bytes // 2:
            self._press(False)

    def _failed(self, error: RacewayError, status: JournalStatus, reason: str) -> None:
        """Fail everything that is not committed yet. `status` ok: only these rows could not be stored."""
        failed = [*self._in_flight, *self._waiting, self._open]
        # Offsets and sequences are rolled back before any callback runs: a callback may append at once.
        self._give_back(failed)
        self._in_flight.clear()
        self._waiting.clear()
        self._open = OpenBlock(failed[0].first)
        for block in failed:
            for (section, key), payload in block.controls.items():
                # In block order, so that the last value of a key wins.
                self._open.add_control(section, key, payload, self.state.time_us)
        self._unsynced = self._open.size
        waiting = [each for block in failed for each in block.waiting]
        if self._open.controls and status in _TAKES_STATE:  # they will be written, now or when there is space
            self._open.waiting = [each for each in waiting if status == "ok" or each[1]]
        self._refuse(status, reason)
        # All state is consistent by now, and errors are reported in append order.
        for done in (done for block in failed for done in block.dones):
            _tell(done, error)
        for each in waiting:
            if each not in self._open.waiting:
                _tell(each[0], error)
        if self._pressed:
            self._press(False)

    def _refuse(self, status: JournalStatus, reason: str) -> None:
        """Set the error that the next append raises; `ok` accepts rows."""
        self._status = status
        self._refusal = None if status == "ok" else _REFUSALS[status](reason)

    def _figures(self) -> IntakeFigures:
        """Return status and counters for a health response. Any thread may ask."""
        # Read once: the owner may clear it while another thread asks.
        refusal = self._refusal
        return {
            "status": self._status,
            "reason": refusal.reason if refusal else "",
            "unsynced_bytes": self._unsynced,
            "refusals": self._refusals,
        }

    def _is_idle(self) -> bool:
        """Return whether everything appended is committed."""
        return not self._in_flight and not self._waiting and not self._open.rows

    def _close_open(self) -> OpenBlock:
        """Queue the open block, if it has rows, and begin a new one."""
        self._hurry = False
        if self._open.rows:
            self._waiting.append(self._open)
            self._open = OpenBlock(self._open.end)
        return self._open

    def _append_in_parts(self, batch: Batch) -> int:
        """Append each part of a large batch as a block of its own; return their total size."""
        total = 0
        for part in parts_of(batch, self._block_rows, self._block_bytes):
            size = size_of(part)
            self._close_open().add(part, size, spans_of(part))
            total += size
        return total

    def _give_offsets(self, batch: Batch) -> list[TopicSpan]:
        """Set `batch.offset`; return (topic, first offset, count) of each topic."""
        kind, topic = batch.kind, batch.topic
        if type(kind) is list:
            return self._give_row_offsets(batch)
        # Answers belong to their request, not to the topic's sequence of messages: they have no offset.
        if kind not in _WITH_OFFSET:
            batch.offset = None
            return []
        if type(topic) is list:
            return self._give_mixed_offsets(batch, topic)
        name = topic.decode()  # type: ignore[union-attr]  # publishes and requests have a topic
        first = self.state.next_offset(name)
        self.state.next_offsets[name] = first + batch.count
        batch.offset = range(first, first + batch.count)
        return [(name, first, batch.count)]

    def _give_mixed_offsets(self, batch: Batch, topics: list[Any]) -> list[TopicSpan]:
        """Give offsets to rows of one kind and several topics."""
        offsets = self.state.next_offsets
        firsts = {topic: offsets.get(topic.decode(), self.state.unseen) for topic in dict.fromkeys(topics)}
        giving = {topic: count(first).__next__ for topic, first in firsts.items()}
        batch.offset = [giving[topic]() for topic in topics]
        spans = [(topic.decode(), first, giving[topic]() - first) for topic, first in firsts.items()]
        offsets.update((name, first + number) for name, first, number in spans)
        return spans

    def _give_row_offsets(self, batch: Batch) -> list[TopicSpan]:
        """Give offsets row by row, for batches of several kinds."""
        topics: Iterable[Any] = batch.topic if type(batch.topic) is list else repeat(batch.topic, batch.count)
        kinds: Iterable[Any] = batch.kind if type(batch.kind) is list else repeat(batch.kind, batch.count)
        offsets = self.state.next_offsets
        firsts: dict[Any, int] = {}
        nexts: dict[Any, int] = {}
        given: list[int | None] = []
        for topic, kind in zip(topics, kinds, strict=True):
            if kind not in _WITH_OFFSET:
                given.append(None)
                continue
            offset = nexts.get(topic)
            if offset is None:
                offset = firsts[topic] = offsets.get(topic.decode(), self.state.unseen)
            given.append(offset)
            nexts[topic] = offset + 1
        batch.offset = given
        spans = [(topic.decode(), first, nexts[topic] - first) for topic, first in firsts.items()]
        offsets.update((topic, first + count) for topic, first, count in spans)
        return spans

    def _give_back(self, blocks: list[OpenBlock]) -> None:
        """Roll back the offsets of rows that will not be stored."""
        offsets = self.state.next_offsets
        # Newest first: the last assignment, of the oldest block, is the offset to continue with.
        for block in reversed(blocks):
            for topic, first, _ in reversed(block.spans):
                offsets[topic] = first
                if first == self.state.unseen:  # its first rows
                    del offsets[topic]

    def _press(self, on: bool) -> None:
        """Tell the owner to stop or resume reading from sockets."""
        self._pressed = on
        self.pressure(on)


def _tell(done: OnCommit, error: RacewayError | None) -> None:
    """Call back one waiter. Its exception is logged and must not keep the others waiting."""
    try:
        done(error)
    except Exception:  # noqa: BLE001  # boundary between the journal and its callers
        log().exception("commit callback failed")
