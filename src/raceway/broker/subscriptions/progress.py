"""Progress of a durable subscription, as stored in the journal's state.

    {"topic": "orders", "offset": 7, "requests": 0, "done": [2, 3, 1, 4], "stepped": 0, "failed": {"7": 2}}

Everything before `offset` is done. `done` is a run-length encoding from there on: two messages that are not done, three
that are, one that is not, four that are. The list has at most two entries per message that is not done, which the
window bounds, and is empty if the consumer acknowledges in order. `stepped` is how many of the offsets counted as done
are requests, and `failed` how often a message that is not done has failed. Rows of earlier releases have neither.

Where retention has moved the cursor, the row also has `begun`: the offset from which `done` counts. `requests` and
`stepped` are then those of the old place, and counted anew.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any


class Ahead:
    """Offsets after the cursor that were done before they were read again after a restart, in ascending order."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = (), requests: int = 0) -> None:
        self._ranges = deque(ranges)
        self._left = sum(stop - start for start, stop in self._ranges)
        self.publishes = max(self._left - requests, 0)

    @classmethod
    def restored(cls, kept: Mapping[str, Any], end: int) -> Ahead:
        """Restore from stored progress. Offsets from the topic's `end` on were lost and are ignored."""
        ranges, cursor, counts = [], kept["offset"], iter(kept.get("done", ()))
        place = kept.get("begun", cursor)
        for open_ones, done in zip(counts, counts, strict=False):
            start = place + open_ones
            place = start + done
            if max(start, cursor) < min(place, end):
                ranges.append((max(start, cursor), min(place, end)))
        return cls(ranges, kept.get("stepped", 0))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._ranges)

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __contains__(self, offset: int) -> bool:
        at = self._place_of(offset)
        return bool(at) and offset < self._ranges[at - 1][1]

    @property
    def requests(self) -> int:
        return self._left - self.publishes

    @property
    def ranges(self) -> int:
        """Number of ranges, each of which takes two counts in the stored row."""
        return len(self._ranges)

    def add(self, offset: int) -> None:
        """Note that the message at this offset is done."""
        if offset in self:
            return
        ranges, start, stop, at = self._ranges, offset, offset + 1, self._place_of(offset)
        if at < len(ranges) and ranges[at][0] == stop:
            stop = ranges[at][1]
            del ranges[at]
        if at and ranges[at - 1][1] == start:
            at -= 1
            start = ranges[at][0]
            del ranges[at]
        ranges.insert(at, (start, stop))
        self._left += 1
        self.publishes += 1

    def pass_publish(self, offset: int) -> bool:
        """Return whether the message at this offset is done. Must be called in ascending order, once per offset."""
        if not self._ranges:
            return False
        self._forget(offset)
        if not self._ranges or offset < self._ranges[0][0]:
            return False
        self.publishes = max(self.publishes - 1, 0)
        self._forget(offset + 1)
        return True

    def clear(self) -> None:
        self._ranges.clear()
        self._left = self.publishes = 0

    def _place_of(self, offset: int) -> int:
        """Return the number of ranges that begin at this offset or before it."""
        return bisect_right(self._ranges, offset, key=lambda each: each[0])

    def _forget(self, before: int) -> None:
        """Drop offsets before this one."""
        while self._ranges and self._ranges[0][0] < before:
            start, stop = self._ranges.popleft()
            self._left -= min(stop, before) - start
            if stop > before:
                self._ranges.appendleft((before, stop))
        self.publishes = min(self.publishes, self._left)


def done_counts(cursor: int, held: Iterable[int], following: int, ahead: Iterable[tuple[int, int]]) -> list[int]:
    """Encode what is done. `held`: offsets before `following` that are not done, ascending, from the cursor on."""
    counts: list[int] = []
    place = cursor
    for start, stop in chain(_gaps(cursor, held, following), ahead):
        counts += (start - place, stop - start)
        place = stop
    return counts


def _gaps(cursor: int, held: Iterable[int], following: int) -> Iterator[tuple[int, int]]:
    expected = cursor
    for offset in held:
        if offset > expected:
            yield expected, offset
        expected = offset + 1
    if following > expected:
        yield expected, following
