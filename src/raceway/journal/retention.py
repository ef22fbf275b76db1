"""Which segments go, and what happens to those who still wanted them.

By default rows are kept for ever. With limits set, segments are *due* from the oldest on: those whose newest row is
over `max_age_s`, and those that bring the total over `max_bytes`. Walking from the oldest and stopping at the first one
that stays keeps positions, and the offsets of every topic, contiguous up to the tail.

A due segment stays while a durable cursor has not passed it. What cursors keep in this way is bounded by `max_pinned`:
beyond it the oldest due segment goes all the same, and its cursors move to the first offset left, loudly.

Topics that match a pattern of `hold_s` outlive their segment: their rows are first copied to `held-<first>-<last>`, a
sealed segment with gaps, which goes when its own time is over, by the same rules for cursors. A cursor whose rows are
held keeps its place. Held files do not count towards `max_bytes`.

The active segment never goes. Planning changes nothing; `remove_segment` does, one segment at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from raceway.config import Retention
from raceway.journal.files import Files
from raceway.model.topics import matches

# Rows first, then what describes them: side files without rows are swept away at the next start.
_SUFFIXES = (".parquet", ".blocks", ".sum", ".idx")


class Removable(Protocol):
    """What planning asks about a segment. `time_range_us` and `topics` are only asked of those that may be due."""

    @property
    def path(self) -> Path: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def time_range_us(self) -> tuple[int, int]: ...
    def topics(self) -> Mapping[str, tuple[int, int]]: ...


class CursorMove(NamedTuple):
    """The cursor `key` was at `offset` of `topic`; what it wanted goes, and `first_left` is where it goes on."""

    key: str
    topic: str
    offset: int
    first_left: int

    def __str__(self) -> str:
        return (
            f"cursor {self.key!r} was too far behind: moved from offset {self.offset} of topic {self.topic!r} "
            f"to {self.first_left}, the first one left; {self.first_left - self.offset} offsets are skipped"
        )


class Plan(NamedTuple):
    """What to do, in this order: move cursors, copy rows to hold, remove segments and held files (by `first`).

    A segment that has rows to hold is not in `remove` yet: it will be, once its held file exists.
    """

    moves: tuple[CursorMove, ...] = ()
    hold: Mapping[int, tuple[str, ...]] = {}
    remove: tuple[int, ...] = ()
    remove_held: tuple[int, ...] = ()
    pinned_bytes: int = 0


def plan(
    segments: Sequence[Removable],
    held: Sequence[Removable],
    cursors: Mapping[str, Mapping[str, Any]],
    now_us: int,
    retention: Retention,
) -> Plan:
    """Both lists oldest first; the last of `segments` is the active one. `cursors` is the state's section."""
    holding = _Holding(retention.hold_s, now_us)
    existing = {file.first for file in held}
    moves: dict[str, CursorMove] = {}
    hold: dict[int, tuple[str, ...]] = {}
    remove: list[int] = []
    due = _due_segments(segments, now_us, retention)
    pinned = sum(segment.size for segment in due)
    for segment, moved in _leaving(due, cursors, retention.max_pinned, holding.is_held):
        topics = () if segment.first in existing else holding.held_topics(segment)
        if topics:
            hold[segment.first] = topics
        if not hold:  # oldest first: nothing goes before what is older than it
            remove.append(segment.first)
            moves |= moved
        pinned -= segment.size
    remove_held: list[int] = []
    for file, moved in _leaving(
        [file for file in held if not holding.held_topics(file)], cursors, retention.max_pinned, _never
    ):
        remove_held.append(file.first)
        moves |= moved
    return Plan(tuple(moves.values()), hold, tuple(remove), tuple(remove_held), pinned)


def _due_segments(segments: Sequence[Removable], now_us: int, retention: Retention) -> list[Removable]:
    """The segments from the oldest on that are over a limit."""
    total = sum(segment.size for segment in segments) if retention.max_bytes else 0
    oldest_us = now_us - retention.max_age_s * 1e6
    due: list[Removable] = []
    for segment in segments[:-1]:
        too_much = retention.max_bytes and total > retention.max_bytes
        too_old = retention.max_age_s and segment.time_range_us[1] < oldest_us
        if not too_much and not too_old:
            break
        total -= segment.size
        due.append(segment)
    return due


class _IsHeld(Protocol):
    def __call__(self, topic: str, segment: Removable) -> bool: ...


def _leaving(
    due: Sequence[Removable], cursors: Mapping[str, Mapping[str, Any]], max_pinned: int, is_held: _IsHeld
) -> Iterator[tuple[Removable, dict[str, CursorMove]]]:
    """Due ones that no cursor needs, or that are too much to keep for cursors; each with the cursors that must move."""
    left = sum(segment.size for segment in due)
    moved: dict[str, CursorMove] = {}
    for segment in due:
        wanting = {m.key: m for m in _wanting(segment, cursors, moved) if not is_held(m.topic, segment)}
        if wanting and not (max_pinned and left > max_pinned):
            return
        moved |= wanting
        left -= segment.size
        yield segment, wanting


def _wanting(
    segment: Removable, cursors: Mapping[str, Mapping[str, Any]], moved: Mapping[str, CursorMove]
) -> Iterator[CursorMove]:
    """Cursors that have not passed the segment, as the moves that its removal would make of them."""
    topics = segment.topics() if cursors else {}
    for key, cursor in cursors.items():
        topic, offset = cursor["topic"], cursor["offset"]
        now_at = moved[key].first_left if key in moved else offset
        if topic in topics and now_at < topics[topic][1]:
            yield CursorMove(key, topic, offset, topics[topic][1])


def _never(topic: str, segment: Removable) -> bool:
    return False


class _Holding:
    """How long topics outlive their segment."""

    def __init__(self, hold_s: Mapping[str, float], now_us: int) -> None:
        self._hold_s = hold_s
        self._now_us = now_us

    def held_topics(self, segment: Removable) -> tuple[str, ...]:
        return tuple(topic for topic in segment.topics() if self.is_held(topic, segment)) if self._hold_s else ()

    def is_held(self, topic: str, segment: Removable) -> bool:
        """Are rows of `topic` in this segment still to be kept on their own account?"""
        longest = max((seconds for pattern, seconds in self._hold_s.items() if matches(pattern, topic)), default=0.0)
        return longest > 0 and segment.time_range_us[1] + longest * 1e6 > self._now_us


# ---- execution ------------------------------------------------------------------------------------------------------


def held_path(folder: Path, first: int, last: int) -> Path:
    return folder / f"held-{first:020}-{last:020}.parquet"


def remove_segment(files: Files, rows: Path) -> None:
    """Remove the files of one segment, whatever its form. Synced, so that a crash cannot leave a later one removed
    and an earlier one in place; remove the oldest first."""
    for suffix in _SUFFIXES:
        files.remove(rows.with_suffix(suffix))
    files.sync_folder(rows.parent)
