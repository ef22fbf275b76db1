"""The segments of a folder as one row of positions: which file holds a position, or an offset of a topic.

A segment's name says where it begins; it ends where the next one begins. Sealed files win over the blocks they were
made from. `held-…` files keep rows of single topics whose segment is gone: they count when reading by topic, not when
reading by position.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from raceway.errors import TrimmedError
from raceway.journal.contract import Segment
from raceway.journal.damage import DamageLog
from raceway.journal.files import Files
from raceway.journal.holes import report_end, report_gap, take_reports
from raceway.journal.mark import TRIMMED, maybe_read_position
from raceway.journal.segment import BlockSegment, first_of

BLOCKS, PARQUET = ".blocks", ".parquet"
SEGMENT, HELD = "segment-", "held-"

# A file that was listed and is not there was sealed or removed a moment ago: the folder is listed again, and not only
# once, because retention may remove several in a row.
_ATTEMPTS = 5
# Topics of closed segments looked at last; finding an offset asks a few segments again and again.
_KEPT_TOPICS = 8


def segment_path(folder: Path, first: int) -> Path:
    return folder / f"{SEGMENT}{first:020}{BLOCKS}"


class Listing(NamedTuple):
    """What is in the folder, in order. Replaced as a whole, so that readers in other threads see one or the other."""

    firsts: tuple[int, ...]
    segments: tuple[Segment, ...]
    held: tuple[Segment, ...]
    begin: int  # the first position that retention left


class Catalogue:
    """Reads over a listing of segments that somebody else keeps up to date."""

    def __init__(self, damage: DamageLog) -> None:
        self._damage = damage
        self._topics: OrderedDict[Path, Mapping[str, tuple[int, int]]] = OrderedDict()
        self._hints: dict[str, Path] = {}
        self._lock = threading.Lock()  # of the two above
        self.listing = Listing((), (), (), 0)

    def show(self, segments: Sequence[Segment], held: Sequence[Segment] = (), begin: int | None = None) -> None:
        """From now on these, oldest first. `begin`: where they ought to begin, if not where the first one does."""
        with self._lock:
            self._topics.clear()
            self._hints.clear()
        firsts = tuple(segment.first for segment in segments)
        oldest = firsts[0] if firsts else begin or 0
        self.listing = Listing(firsts, tuple(segments), tuple(held), oldest if begin is None else min(begin, oldest))

    def refresh(self) -> None:
        """Look again whether a file was replaced. In memory none is."""

    def read(self, start: int, stop: int, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Rows with start <= sequence < stop. TrimmedError where retention was quicker than the reader."""
        if start < min(stop, self.first_position()):
            raise TrimmedError(start, self.first_position())
        return self._read(start, stop, columns)

    def read_topic(
        self, topic: str, offset: int, max_rows: int, max_bytes: int, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Rows of `topic` from `offset` on until a limit. TrimmedError when `offset` is below the first one left."""
        self._check_offset(topic, offset)
        return self._read_topic(topic, offset, max_rows, max_bytes, columns)

    def first_position(self) -> int:
        """The first position that retention left. Its row may be lost: then reading begins with a gap."""
        return self.listing.begin

    def maybe_first_offset(self, topic: str) -> int | None:
        """The first offset of a topic that is left; None when there is none."""
        found = self._maybe_found(topic, oldest_first=True)
        return None if found is None else found[0]

    def maybe_next_offset(self, topic: str) -> int | None:
        """The offset behind the last one of a topic, going by the rows."""
        found = self._maybe_found(topic, oldest_first=False)
        return None if found is None else found[1]

    def close(self) -> None:
        for segment in (*self.listing.segments, *self.listing.held):
            segment.close()

    def _read(self, start: int, stop: int, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        position, attempts_left = start, _ATTEMPTS
        while position < stop:
            firsts, _, _, begin = self.listing
            oldest = min(firsts[0], stop) if firsts else stop
            if begin <= position < oldest:  # not retention's doing
                report_gap(begin, oldest, self._damage)
                position = oldest
                continue
            segment, end = self._segment_at(position)
            try:
                yield from segment.read(position, stop if end is None else min(stop, end), columns)
            except FileNotFoundError:  # files are opened first of all, so nothing was read of this one
                attempts_left -= 1
                if not attempts_left:
                    raise
                self.refresh()
                continue
            self._take_reports(segment, end)
            position, attempts_left = stop if end is None else end, _ATTEMPTS

    def _read_topic(
        self, topic: str, offset: int, max_rows: int, max_bytes: int, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Rows that two files hold are given once."""
        wanted = columns and [*columns, *({"offset"} - set(columns))]
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                self._check_offset(topic, offset)  # what vanished may have been removed, not sealed
                for segment in self._segments_from(topic, offset):
                    begun = offset
                    for batch in segment.read_topic(topic, offset, max_rows, max_bytes, wanted):
                        if batch.num_rows:
                            offset = pc.max(batch.column("offset")).as_py() + 1
                            max_rows, max_bytes = max_rows - batch.num_rows, max_bytes - batch.nbytes
                            yield batch if columns is None else batch.select(columns)
                    self._take_reports(segment)
                    # A segment that gave rows, and not its last one, had met a limit. (Or its last ones are lost: then
                    # the next call begins behind the last good one, gets nothing here and goes on.)
                    if max_rows <= 0 or max_bytes <= 0 or (offset > begun and self._reaches(segment, topic, offset)):
                        return
                return
            except FileNotFoundError:
                if not attempts_left:
                    raise
                self.refresh()

    def _check_offset(self, topic: str, offset: int) -> None:
        if self.first_position() > 0:  # something was removed
            first = self.maybe_first_offset(topic)
            if first is not None and offset < first:
                raise TrimmedError(offset, first, topic)

    def _maybe_found(self, topic: str, *, oldest_first: bool) -> tuple[int, int] | None:
        """(first, next) offset of the oldest or newest segment that has the topic."""
        for attempts_left in reversed(range(_ATTEMPTS)):
            segments = (*self.listing.held, *self.listing.segments)
            try:
                known = (self._maybe_offsets(s, topic) for s in (segments if oldest_first else reversed(segments)))
                return next((found for found in known if found is not None), None)
            except FileNotFoundError:
                if not attempts_left:
                    raise
                self.refresh()
        raise AssertionError("the last attempt returns or raises")

    def _segment_at(self, position: int) -> tuple[Segment, int | None]:
        """The segment that holds a position, and where it ends (None: it is the newest)."""
        firsts, segments = self.listing[:2]
        number = bisect_right(firsts, position) - 1
        if number < 0:
            raise TrimmedError(position, self.first_position())
        return segments[number], firsts[number + 1] if number + 1 < len(firsts) else None

    def _segments_from(self, topic: str, offset: int) -> Iterator[Segment]:
        """Segments that may hold the topic at or behind `offset`, beginning with the first that does."""
        yield from (segment for segment in self.listing.held if self._reaches(segment, topic, offset))
        segments = self.listing.segments
        at = self._first_reaching(segments, topic, offset)
        for segment in segments[at:]:
            if self._maybe_offsets(segment, topic) is not None:
                self._hints[topic] = segment.path
                yield segment

    def _first_reaching(self, segments: Sequence[Segment], topic: str, offset: int) -> int:
        """Bisection by the topic's offsets; segments without the topic are stepped over."""
        low, high = 0, len(segments)
        if segments and self._begins(segments[-1], topic, offset):
            return high - 1
        hint = self._hints.get(topic)
        at = next((n for n, segment in enumerate(segments) if segment.path == hint), None) if hint else None
        if at is not None and self._begins(segments[at], topic, offset):
            if self._reaches(segments[at], topic, offset):
                return at
            low = at + 1
        while low < high:
            middle = (low + high) // 2
            at = next((n for n in range(middle, high) if self._maybe_offsets(segments[n], topic)), None)
            if at is None or self._reaches(segments[at], topic, offset):
                high = middle
            else:
                low = at + 1
        return low

    def _begins(self, segment: Segment, topic: str, offset: int) -> bool:
        found = self._maybe_offsets(segment, topic)
        return found is not None and found[0] <= offset

    def _reaches(self, segment: Segment, topic: str, offset: int) -> bool:
        found = self._maybe_offsets(segment, topic)
        return found is not None and found[1] > offset

    def _maybe_offsets(self, segment: Segment, topic: str) -> tuple[int, int] | None:
        if isinstance(segment, BlockSegment):
            return segment.maybe_offsets(topic)
        with self._lock:
            topics = self._topics.get(segment.path)
        if topics is None:
            topics = segment.topics()
            with self._lock:
                self._topics[segment.path] = topics
                while len(self._topics) > _KEPT_TOPICS:
                    self._topics.popitem(last=False)
        return topics.get(topic)

    def _take_reports(self, segment: Segment, end: int | None = None) -> None:
        """Note what a segment met, and rows missing before `end`, where the next one begins."""
        take_reports(segment, self._damage)
        with suppress(FileNotFoundError):  # removed as soon as it was read
            report_end(segment, segment.first if end is None else end, self._damage)


class FolderCatalogue(Catalogue):
    """The segments of a folder.

    `open_blocks` makes the reading side of a `.blocks` file, told whether it is the newest segment. `active` is the
    segment being written, if this process writes it.

    Any thread may list the folder. They take turns (`turns`), or a slow one would put an older listing over a newer
    one, and rows of a segment that had just begun would not be seen. Whoever begins a segment makes its file and sets
    `active` in one turn, so that nobody takes it for a closed one; nothing slow, like a sync, belongs into a turn.
    """

    def __init__(
        self,
        folder: Path,
        damage: DamageLog,
        files: Files,
        open_blocks: Callable[[Path, bool], BlockSegment],
        *,
        may_write: bool = False,
    ) -> None:
        super().__init__(damage)
        self._folder, self._files, self._may_write = folder, files, may_write
        self._open_blocks = open_blocks
        self._known: dict[Path, Segment] = {}
        self._sizes: dict[Path, int] = {}
        self.turns = threading.Lock()
        self.active: BlockSegment | None = None

    def refresh(self) -> None:
        """List the folder anew; segments known already stay as they are."""
        with self.turns:
            self._refresh()

    def _refresh(self) -> None:
        names = self._files.names(self._folder)
        paths = {first_of(path): path for path in self._paths(names, SEGMENT, BLOCKS)}
        paths |= {first_of(path): path for path in self._paths(names, SEGMENT, PARQUET)}
        firsts = sorted(paths)
        segments = [self._segment(paths[first], first == firsts[-1]) for first in firsts]
        held = [self._segment(path, False) for path in sorted(self._paths(names, HELD, PARQUET))]
        self._known = {segment.path: segment for segment in (*segments, *held)}
        self._sizes = {path: self._size(segment) for path, segment in self._known.items() if segment is not self.active}
        self.show(segments, held, maybe_read_position(self._files, self._folder / TRIMMED))

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(self._sizes.values()) + (self.active.size if self.active else 0)

    def _size(self, segment: Segment) -> int:
        """Closed files do not change; one that vanished counts no more."""
        try:
            return self._sizes.get(segment.path) or segment.size
        except FileNotFoundError:
            return 0

    def _paths(self, names: list[str], prefix: str, suffix: str) -> Iterator[Path]:
        return (self._folder / name for name in names if name.startswith(prefix) and name.endswith(suffix))

    def _segment(self, path: Path, newest: bool) -> Segment:
        if self.active is not None and path == self.active.path:
            return self.active
        known = self._known.get(path)
        if known is not None and not (isinstance(known, BlockSegment) and known.is_growing and not newest):
            return known
        if path.suffix == BLOCKS:
            return self._open_blocks(path, newest)
        from raceway.journal.sealed import SealedSegment  # the Parquet library costs 30 ms; a young journal has none

        sealed = SealedSegment(path, may_write=self._may_write, files=self._files)
        blocks = path.with_suffix(BLOCKS)
        if not blocks.exists() or sealed.is_usable():
            return sealed
        self._take_reports(sealed)
        return self._open_blocks(blocks, False)
