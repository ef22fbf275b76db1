"""Become the owner of a lane: a claim, and then the state at it, which no former owner can change any more."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

from raceway.errors import FormatVersionError, UnavailableError
from raceway.journal.contract import Damage
from raceway.journal.format import HAS_CONTROL_ROWS
from raceway.journal.integrity.recovery import SKIPPED, apply_control_rows
from raceway.journal.kafka.lane import Lane
from raceway.journal.kafka.records import (
    VERSION,
    Claimant,
    ClaimRule,
    Record,
    ValidBlock,
    claim_record,
    claim_version,
    is_claim,
)
from raceway.journal.kafka.segments import LanePlace, LaneSegment
from raceway.journal.kafka.snapshots import LaneSnapshot, segment_entry, snapshots_of
from raceway.journal.read.blocks import maybe_read_block
from raceway.journal.read.segment import missing
from raceway.journal.state import State, maybe_decode_snapshot
from raceway.journal.write.block import Frame

# Claims that Kafka acknowledged without their offset; a claim more does no harm.
_ATTEMPTS = 5


class OpenedLane(NamedTuple):
    """Lane as its new owner found it. `segments` end with the one to be written; `begin` is the first position left.

    `void` counts records that do not count, `replayed` the bytes of those blocks that are behind the snapshot.
    """

    epoch: int
    state: State
    next_sequence: int
    segments: list[LaneSegment]
    begin: int
    void: int
    replayed: int


def claim(lane: Lane, claimant: Claimant, timeout_s: float) -> int:
    """Append a claim; return its offset, the epoch. Raises UnavailableError."""
    for _ in range(_ATTEMPTS):
        heard, answers = threading.Event(), list[tuple[int | None, UnavailableError | None]]()

        def told(offset: int | None, error: UnavailableError | None, heard=heard, answers=answers) -> None:  # type: ignore[no-untyped-def]
            answers.append((offset, error))
            heard.set()

        lane.append(*claim_record(claimant), told)
        if not heard.wait(timeout_s):
            # Or it would be sent when Kafka is back, and take the lane from whoever owns it by then.
            lane.begin_anew()
            raise UnavailableError(f"Kafka does not answer a claim of {lane.name} within {timeout_s:.0f} s")
        offset, error = answers[0]
        if error is not None:
            raise error
        if offset is not None:
            return offset
    raise UnavailableError(f"Kafka does not report the offsets of claims of {lane.name}")


def open_lane(place: LanePlace, claimant: Claimant, timeout_s: float) -> OpenedLane:
    """Claim a lane and read the state at the claim. Raises UnavailableError, FormatVersionError."""
    lane = place.lane
    epoch = claim(lane, claimant, timeout_s)
    # Values first: a former owner trims after it has stored a snapshot, so `low` shows which of these are too old.
    values, low = lane.values(), lane.extent()[0]
    for snapshot in snapshots_of(values):
        # Behind the claim, or of rows that were removed: not for us.
        if low <= snapshot.offset <= epoch and (found := _maybe_from(snapshot, place, values, epoch)) is not None:
            return found
    state = State()
    if low > 0:
        reason = f"no readable snapshot, and records below {low} were removed by retention: state set there is lost"
        place.damage.add(Damage(kind="missing", file=lane.name, reason=reason))
    # In a lane that has all its records no block counts before the first claim, and -1 is the offset of none.
    return _Replay(place, state, ClaimRule(None if low else -1), low).run(epoch, [], None)


def _maybe_from(snapshot: LaneSnapshot, place: LanePlace, values: Mapping[str, bytes], epoch: int) -> OpenedLane | None:
    """Open a lane from a snapshot; None if the snapshot, or a segment of it, cannot be read."""
    decoded = maybe_decode_snapshot(snapshot.state)
    if decoded is None or not all(entry.key in values for entry in snapshot.segments):
        return None
    sequence, _, state = decoded
    # Under keys of this epoch: a former owner that goes on for a moment may still remove its own.
    segments = [
        LaneSegment(place, segment_entry(epoch, entry.offset, entry.first), values[entry.key])
        for entry in snapshot.segments
    ]
    rule = ClaimRule(snapshot.epoch, snapshot.number)
    return _Replay(place, state, rule, snapshot.offset, sequence + 1).run(epoch, segments, snapshot.begin)


class _Replay:
    """Records from an offset up to a claim, added to a state and to a new segment."""

    def __init__(
        self, place: LanePlace, state: State, rule: ClaimRule, start: int, following: int | None = None
    ) -> None:
        """Begin at the offset `start`; `following` is the sequence there, None if no snapshot tells it."""
        self._place, self._state, self._rule, self._start, self._following = place, state, rule, start, following
        self._segment: LaneSegment | None = None
        self._known = -1
        self._bytes = 0
        # Damaged blocks in a row, until the next block tells how many rows they had.
        self._damaged: list[ValidBlock] = []

    def run(self, epoch: int, segments: list[LaneSegment], begin: int | None) -> OpenedLane:
        """Take in everything up to the claim. `begin` None: the first row that is found."""
        # Rows that the segments of the snapshot describe already.
        self._known = segments[-1].last if segments else -1
        # Not beyond the claim: what former owners appended behind it is void.
        for record in self._place.lane.read(self._start, epoch):
            _check_format(record, self._place.lane.name)
            block = self._rule.maybe_block(record)
            if block is not None:
                self._take_in(block, epoch)
        if self._damaged:
            # No block behind them tells how many rows they had: as many positions are left out as none of them had.
            self._lose(SKIPPED)
        following = self._following or 0
        # A new segment, even if it is empty: segments of former owners have keys of their epochs and must not grow.
        written = self._segment or self._new_segment(epoch, epoch + 1, following)
        first = written.first if begin is None else begin
        return OpenedLane(epoch, self._state, following, [*segments, written], first, self._rule.void, self._bytes)

    def _new_segment(self, epoch: int, offset: int, first: int) -> LaneSegment:
        return LaneSegment(self._place, segment_entry(epoch, offset, first))

    def _take_in(self, block: ValidBlock, epoch: int) -> None:
        """Add a block to the segment, its rows to the state."""
        place, state = self._place, self._state
        stored = maybe_read_block(
            BytesSource(block.data), 0, len(block.data), place.marker, place.lane.name, place.damage
        )
        if self._following is None:
            self._following = block.first
        if stored is None:
            self._damaged.append(block)
            return
        prefix, spans = stored.prefix, [(topic, first, count) for topic, first, count in stored.meta.spans]
        if self._damaged:
            self._lose(prefix.first - self._following)
        for topic, first, count in spans:
            state.reached(topic, first + count)
        state.time_us = max(state.time_us, prefix.time_us)
        has_control = bool(prefix.flags & HAS_CONTROL_ROWS)
        if has_control:
            apply_control_rows(stored.read(0, prefix.rows, ["kind", "payload"]), state)
        self._following = prefix.last + 1
        self._bytes += len(block.data)
        # The value of a segment may be of a later snapshot than the one that was found, whose parts did not all arrive.
        if prefix.last <= self._known:
            return
        if self._segment is None:
            self._segment = self._new_segment(epoch, block.offset, prefix.first)
        frame = Frame(block.data, b"", prefix.first, prefix.rows, prefix.time_us, spans, has_control)
        self._segment.accept(frame, block.offset, block.end)

    def _lose(self, rows: int) -> None:
        """Tell the damaged blocks as a gap of so many rows."""
        assert self._following is not None
        block, size = self._damaged[0], sum(len(each.data) for each in self._damaged)
        first, last = self._following, self._following + rows - 1
        reason = f"{len(self._damaged)} blocks of the lane from offset {block.offset} on are damaged beyond repair"
        self._place.damage.add(missing(self._place.lane.name, block.offset, size, first, last, reason))
        # No offset that these rows may have had is given again.
        self._state.skip(rows)
        self._following = last + 1
        self._damaged.clear()


class BytesSource:
    """Bytes in memory, read like a file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size(self) -> int:
        return len(self._data)

    def read(self, size: int, position: int) -> bytes:
        return self._data[position : position + size]

    def close(self) -> None:
        """Nothing is held."""


def _check_format(record: Record, lane: str) -> None:
    if is_claim(record) and (found := claim_version(record)) > VERSION:
        raise FormatVersionError(f"the lane {lane}", found, VERSION)
