"""Retention: which segments are removed, and what happens to cursors that still need them.

By default rows are kept for ever. With limits set, segments are *due* from the oldest on: those whose newest row is
over `max_age_s`, and those that bring the total over `max_bytes`. Walking from the oldest and stopping at the first one
that stays keeps positions, and the offsets of every topic, contiguous up to the tail.

A due segment stays while a durable cursor has not passed it. What cursors keep in this way is bounded by `max_pinned`:
beyond it the oldest due segment is removed nevertheless; its cursors move to the first offset left, which is logged as
an error.

Topics that match a pattern of `hold_s` outlive their segment: their rows are first copied to `held-<first>-<last>`, a
sealed segment with gaps, which is removed when its own time is over, by the same rules for cursors. A cursor whose rows
are held keeps its place. Held files do not count towards `max_bytes`.

With an archive a due segment stays until its copy there is proven, however full the disk gets. Then it may go whatever
cursors need, because they go on in the archive: none is moved, and nothing is held.

The active segment is never removed. Planning changes nothing; `remove_segment` does, one segment at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from raceway.config import Retention
from raceway.journal.contract import SegmentExtent
from raceway.journal.files import Files
from raceway.model.topics import matches

# Rows first, then side files: after a crash in between, `remove_unfinished` removes side files without rows.
_SUFFIXES = (".parquet", ".blocks", ".sum", ".idx")
# Whether rows of a topic in a segment are held elsewhere.
IsHeld = Callable[[str, SegmentExtent], bool]


class CursorMove(NamedTuple):
    """Move of the cursor `key` from `offset` of `topic`, whose row is removed, to `first_left`."""

    key: str
    topic: str
    offset: int
    first_left: int

    def __str__(self) -> str:
        return (
            f"cursor {self.key!r} lagged too far behind: moved from offset {self.offset} of topic {self.topic!r} "
            f"to {self.first_left}, the first one left; {self.first_left - self.offset} offsets are skipped"
        )


class Plan(NamedTuple):
    """Work of one round, in this order: move cursors, copy rows to hold, remove segments and held files (by `first`).

    A segment that has rows to hold is not in `remove` yet: it will be, once its held file exists.
    """

    moves: tuple[CursorMove, ...] = ()
    hold: Mapping[int, tuple[str, ...]] = {}
    remove: tuple[int, ...] = ()
    remove_held: tuple[int, ...] = ()


def plan(
    segments: Sequence[SegmentExtent],
    held: Sequence[SegmentExtent],
    cursors: Mapping[str, Mapping[str, Any]],
    now_us: int,
    retention: Retention,
    is_archived: Callable[[Path], bool] | None = None,
) -> Plan:
    """Plan one round. Both lists are oldest first; the last of `segments` is the active one. `cursors` is the state's
    section, `is_archived` whether a segment has a copy in the archive, if there is one."""
    holding = _Holding(retention.hold_s, now_us)
    existing = {file.first for file in held}
    moves: dict[str, CursorMove] = {}
    hold: dict[int, tuple[str, ...]] = {}
    remove: list[int] = []
    due = _due_segments(segments, now_us, retention)
    if is_archived is not None:
        remove += [segment.first for segment in takewhile(lambda segment: is_archived(segment.path), due)]
        due = []
    for segment, moved in _leaving(due, cursors, retention.max_pinned, holding.is_held):
        # The held file exists, so an earlier round has copied the rows: the segment can be removed.
        topics = () if segment.first in existing else holding.held_topics(segment)
        if topics:
            hold[segment.first] = topics
        if not hold:  # oldest first: nothing is removed before an older segment is
            remove.append(segment.first)
            moves |= moved
    remove_held: list[int] = []
    outlived = [file for file in held if not holding.held_topics(file)]
    # Held files are not held again.
    for file, moved in _leaving(outlived, cursors, retention.max_pinned, lambda topic, file: False):
        remove_held.append(file.first)
        moves |= moved
    return Plan(tuple(moves.values()), hold, tuple(remove), tuple(remove_held))


def _due_segments(segments: Sequence[SegmentExtent], now_us: int, retention: Retention) -> list[SegmentExtent]:
    """Return the segments from the oldest on that are over a limit."""
    total = sum(segment.size for segment in segments) if retention.max_bytes else 0
    oldest_us = now_us - retention.max_age_s * 1e6
    due: list[SegmentExtent] = []
    # Without the active one. The first segment that stays ends the walk, so that no gap appears.
    for segment in segments[:-1]:
        too_much = retention.max_bytes and total > retention.max_bytes
        too_old = retention.max_age_s and segment.time_range_us[1] < oldest_us
        if not too_much and not too_old:
            break
        total -= segment.size
        due.append(segment)
    return due


def _leaving(
    due: Sequence[SegmentExtent],
    cursors: Mapping[str, Mapping[str, Any]],
    max_pinned: int,
    is_held: IsHeld,
) -> Iterator[tuple[SegmentExtent, dict[str, CursorMove]]]:
    """Yield due segments that no cursor needs, or that exceed `max_pinned`, each with the cursors that must move."""
    left = sum(segment.size for segment in due)
    moved: dict[str, CursorMove] = {}
    for segment in due:
        wanting = {m.key: m for m in _wanting(segment, cursors, moved) if not is_held(m.topic, segment)}
        # `left` is what would stay pinned from here on; 0 as `max_pinned` means that cursors pin without limit.
        if wanting and not (max_pinned and left > max_pinned):
            return
        moved |= wanting
        left -= segment.size
        yield segment, wanting


def _wanting(
    segment: SegmentExtent, cursors: Mapping[str, Mapping[str, Any]], moved: Mapping[str, CursorMove]
) -> Iterator[CursorMove]:
    """Yield cursors that have not passed the segment, as the moves that its removal would cause."""
    topics = segment.topics() if cursors else {}
    for key, cursor in cursors.items():
        topic, offset = cursor["topic"], cursor["offset"]
        # Moved by an older segment of this round already; reported once, from its original offset.
        now_at = moved[key].first_left if key in moved else offset
        if topic in topics and now_at < topics[topic][1]:
            yield CursorMove(key, topic, offset, topics[topic][1])


class _Holding:
    """Rules for how long topics outlive their segment."""

    def __init__(self, hold_s: Mapping[str, float], now_us: int) -> None:
        self._hold_s = hold_s
        self._now_us = now_us

    def held_topics(self, segment: SegmentExtent) -> tuple[str, ...]:
        """Return the topics of a segment whose rows must still be kept."""
        return tuple(topic for topic in segment.topics() if self.is_held(topic, segment)) if self._hold_s else ()

    def is_held(self, topic: str, segment: SegmentExtent) -> bool:
        """Return whether rows of `topic` in this segment must be kept longer than the segment."""
        longest = max((seconds for pattern, seconds in self._hold_s.items() if matches(pattern, topic)), default=0.0)
        return longest > 0 and segment.time_range_us[1] + longest * 1e6 > self._now_us


# ---- execution ------------------------------------------------------------------------------------------------------


def held_path(folder: Path, first: int, last: int) -> Path:
    """Return the path of the held file for the positions `first` to `last`."""
    return folder / f"held-{first:020}-{last:020}.parquet"


def remove_segment(files: Files, rows: Path) -> None:
    """Remove the files of one segment, whatever its form. Remove the oldest first.

    The folder is synced, so that a crash cannot leave an earlier segment in place and a later one removed.
    """
    for suffix in _SUFFIXES:
        files.remove(rows.with_suffix(suffix))
    # unlink is durable only with the folder; without a sync the file system may persist removals in any order.
    files.sync_folder(rows.parent)
