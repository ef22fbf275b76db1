"""Catalogue of a folder's segments: which file holds a position, or an offset of a topic.

A segment's name says where it begins; it ends where the next one begins. Sealed files take precedence over the blocks
they were made from. `held-…` files keep rows of single topics whose segment was removed: they count when reading by
topic, not when reading by position.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from raceway.errors import TrimmedError
from raceway.journal.contract import Segment
from raceway.journal.files import Files
from raceway.journal.format import Batches, Columns
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.integrity.holes import report_end, report_gap
from raceway.journal.read.rows import bytes_of
from raceway.journal.read.segment import BlockSegment, first_of
from raceway.journal.write.mark import TRIMMED, maybe_read_position

BLOCKS, PARQUET = ".blocks", ".parquet"
SEGMENT, HELD = "segment-", "held-"
# Folder within the data folder: what is known here of the archive.
ARCHIVE = "archive"

# A file that was listed and is not there was sealed or removed a moment ago: the folder is listed again, and not only
# once, because retention may remove several in a row.
_ATTEMPTS = 5
# Topics of the closed segments used last: finding an offset asks the same few segments repeatedly.
_KEPT_TOPICS = 8


def segment_path(folder: Path, first: int) -> Path:
    """Return the path of the segment of blocks that begins with `first`."""
    # Twenty digits hold any 63-bit sequence, so that names sort like numbers.
    return folder / f"{SEGMENT}{first:020}{BLOCKS}"


class Listing(NamedTuple):
    """Segments of the folder in order. Immutable and replaced as a whole: readers in other threads see the old or the
    new."""

    firsts: tuple[int, ...]
    segments: tuple[Segment, ...]
    held: tuple[Segment, ...]
    begin: int  # the first position that retention kept; if its row is lost, reading begins with a gap


class Catalogue:
    """Reads over a listing of segments, which the owner keeps up to date with `show`."""

    def __init__(self, damage: DamageLog) -> None:
        self._damage = damage
        # It may read files. Two threads may both do it at once; the result is the same.
        self._topics = lru_cache(_KEPT_TOPICS)(_topics_of)
        self._hints: dict[str, Path] = {}
        self.listing = Listing((), (), (), 0)

    def show(self, segments: Sequence[Segment], held: Sequence[Segment] = (), begin: int | None = None) -> None:
        """Replace the listing; segments are given oldest first.

        `begin` is the first position that retention kept, if rows are lost between it and the first segment.
        """
        self._topics.cache_clear()
        self._hints.clear()
        firsts = tuple(segment.first for segment in segments)
        oldest = firsts[0] if firsts else begin or 0
        # One assignment: atomic for readers, who take the tuple once and use nothing else.
        self.listing = Listing(firsts, tuple(segments), tuple(held), oldest if begin is None else min(begin, oldest))

    def refresh(self) -> None:
        """List the segments again. No-op in memory, where no file is replaced."""

    def read(self, start: int, stop: int, columns: Columns) -> Batches:
        """Yield rows with start <= sequence < stop. Raises TrimmedError if retention has removed `start`."""
        if start < min(stop, self.listing.begin):
            raise TrimmedError(start, self.listing.begin)
        # A generator runs on first use; the check above must raise in the call itself.
        return self._read(start, stop, columns)

    def read_topic(self, topic: str, offset: int, max_rows: int, max_bytes: int, columns: Columns) -> Batches:
        """Yield rows of `topic` from `offset` on until a limit. Raises TrimmedError if `offset` is below the first one
        left."""
        self._check_offset(topic, offset)
        return self._read_topic(topic, offset, max_rows, max_bytes, columns)

    def maybe_first_offset(self, topic: str, attempts: int = _ATTEMPTS) -> int | None:
        """Return the first offset left of a topic; None if there is none."""
        try:
            known = (self._maybe_offsets(s, topic) for s in (*self.listing.held, *self.listing.segments))
            return next((found[0] for found in known if found is not None), None)
        except FileNotFoundError:
            if attempts == 1:
                raise
            self.refresh()
            return self.maybe_first_offset(topic, attempts - 1)

    def close(self) -> None:
        """Close all segments."""
        for segment in (*self.listing.segments, *self.listing.held):
            segment.close()

    def _read(self, start: int, stop: int, columns: Columns) -> Batches:
        """Yield rows segment by segment, listing again where a file was replaced meanwhile."""
        position, attempts_left = start, _ATTEMPTS
        while position < stop:
            firsts, _, _, begin = self.listing
            oldest = min(firsts[0], stop) if firsts else stop
            if begin <= position < oldest:  # a loss: retention removes nothing above `begin`
                report_gap(begin, oldest, self._damage)
                position = oldest
                continue
            segment, end = self._segment_at(position)
            try:
                yield from segment.read(position, stop if end is None else min(stop, end), columns)
            except FileNotFoundError:  # raised on open, before the first batch, so nothing is repeated
                attempts_left -= 1
                if not attempts_left:
                    raise
                self.refresh()
                continue
            if end is not None:
                with suppress(FileNotFoundError):  # removed as soon as it was read
                    report_end(segment, end, self._damage)
            # The whole range of the segment counts as read, also where rows of it are lost: readers skip over
            # damage.
            position, attempts_left = stop if end is None else end, _ATTEMPTS

    def _read_topic(self, topic: str, offset: int, max_rows: int, max_bytes: int, columns: Columns) -> Batches:
        """Yield rows of a topic segment by segment. Rows that are in two files (held and sealed) are yielded once."""
        wanted = columns and [*columns, *({"offset"} - set(columns))]
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                self._check_offset(topic, offset)  # the file that vanished may have been removed, not sealed
                for segment in self._segments_from(topic, offset):
                    begun = offset
                    for batch in segment.read_topic(topic, offset, max_rows, max_bytes, wanted):
                        if batch.num_rows:
                            # Advanced with each batch, so that after a file vanished the retry goes on and
                            # repeats nothing.
                            offset = batch.column("offset")[-1].as_py() + 1
                            max_rows, max_bytes = max_rows - batch.num_rows, max_bytes - bytes_of(batch)
                            yield batch if columns is None else batch.select(columns)
                    # A segment that yielded rows, but not its last one, met a limit. (Or its last rows are lost: then
                    # the next call begins after the last good one, gets nothing here and goes on.)
                    if max_rows <= 0 or max_bytes <= 0 or (offset > begun and self._reaches(segment, topic, offset)):
                        return
                return
            except FileNotFoundError:
                if not attempts_left:
                    raise
                self.refresh()

    def _check_offset(self, topic: str, offset: int) -> None:
        """Raise TrimmedError if the offset was removed by retention."""
        if self.listing.begin > 0:  # something was removed
            first = self.maybe_first_offset(topic)
            if first is not None and offset < first:
                raise TrimmedError(offset, first, topic)

    def _segment_at(self, position: int) -> tuple[Segment, int | None]:
        """Return the segment that holds a position and where it ends (None: it is the newest)."""
        firsts, segments = self.listing[:2]
        number = bisect_right(firsts, position) - 1
        if number < 0:
            raise TrimmedError(position, self.listing.begin)
        return segments[number], firsts[number + 1] if number + 1 < len(firsts) else None

    def _segments_from(self, topic: str, offset: int) -> Iterator[Segment]:
        """Yield segments that may hold the topic at or after `offset`, from the first that does."""
        yield from (segment for segment in self.listing.held if self._reaches(segment, topic, offset))
        segments = self.listing.segments
        at = self._first_reaching(segments, topic, offset)
        for segment in segments[at:]:
            if self._maybe_offsets(segment, topic) is not None:
                self._hints[topic] = segment.path
                yield segment

    def _first_reaching(self, segments: Sequence[Segment], topic: str, offset: int) -> int:
        """Bisect for the first segment that reaches `offset`; segments without the topic are skipped."""
        low, high = 0, len(segments)
        # Most readers are at the tail, and most others go on where they were: both are answered without
        # bisecting.
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
            # A segment without the topic says nothing about the direction: ask the next one that has it.
            at = next((n for n in range(middle, high) if self._maybe_offsets(segments[n], topic)), None)
            if at is None or self._reaches(segments[at], topic, offset):
                high = middle
            else:
                low = at + 1
        return low

    def _begins(self, segment: Segment, topic: str, offset: int) -> bool:
        """Return whether the topic's first offset in the segment is at or below `offset`."""
        found = self._maybe_offsets(segment, topic)
        return found is not None and found[0] <= offset

    def _reaches(self, segment: Segment, topic: str, offset: int) -> bool:
        """Return whether the segment has offsets of the topic at or above `offset`."""
        found = self._maybe_offsets(segment, topic)
        return found is not None and found[1] > offset

    def _maybe_offsets(self, segment: Segment, topic: str) -> tuple[int, int] | None:
        """Return (first, next) offset of a topic in a segment, from the cache if it is sealed."""
        if isinstance(segment, BlockSegment):
            return segment.index.maybe_offsets(topic)
        return self._topics(segment).get(topic)  # type: ignore[arg-type]  # every object can be hashed


def _topics_of(segment: Segment) -> Mapping[str, tuple[int, int]]:
    """Return the offsets of each topic in a segment."""
    return segment.topics()


class FolderCatalogue(Catalogue):
    """Segments of a folder, and behind them those that `archived` returns.

    `open_blocks` opens a `.blocks` file for reading; it is told whether that is the newest segment. `active` is the
    segment being written, if this process writes it.

    Any thread may list the folder, one at a time (`turns`): otherwise a slow thread could replace a newer listing with
    an older one and hide a segment that has just begun. A new segment is created and set as `active` within one turn,
    so that no thread takes it for a closed one. Nothing slow, such as a sync, may run within a turn.
    """

    def __init__(
        self,
        folder: Path,
        damage: DamageLog,
        files: Files,
        open_blocks: Callable[[Path, bool], BlockSegment],
        *,
        may_write: bool = False,
        archived: Callable[[], Iterable[Segment]] = tuple,
    ) -> None:
        super().__init__(damage)
        self._folder, self._files, self._may_write, self._archived = folder, files, may_write, archived
        self._open_blocks = open_blocks
        self._known: dict[Path, Segment] = {}
        self._sizes: dict[Path, int] = {}
        self.turns = threading.Lock()
        self.active: BlockSegment | None = None

    def refresh(self) -> None:
        """List the folder again. Segments that are already open are kept."""
        with self.turns:
            self._refresh()

    def _refresh(self) -> None:
        """List the folder; the caller holds `turns`."""
        names = self._files.names(self._folder)
        paths = {first_of(path): path for path in self._paths(names, SEGMENT, BLOCKS)}
        # Parquet over blocks of the same name: a sealed file is complete as soon as it is visible.
        paths |= {first_of(path): path for path in self._paths(names, SEGMENT, PARQUET)}
        # The archive also stands in for a file of the folder that was lost.
        archived = {segment.first: segment for segment in self._archived()}
        newest = max(paths, default=-1)
        segments = [
            self._segment(paths[first], first == newest) if first in paths else archived[first]
            for first in sorted({*archived, *paths})
        ]
        held = [self._segment(path, False) for path in sorted(self._paths(names, HELD, PARQUET))]
        if archived:  # what the archive has need not be held: rows are read in the order of their offsets
            held = [segment for segment in held if segment.first < segments[0].first]
        self._known = {segment.path: segment for segment in (*segments, *held)}
        # Sizes are remembered, because asking thousands of files for each health check would take long.
        self._sizes = {
            path: self._size(segment)
            for path, segment in self._known.items()
            if segment is not self.active and self.is_local(segment)
        }
        self.show(segments, held, maybe_read_position(self._files, self._folder / TRIMMED))

    def is_local(self, segment: Segment) -> bool:
        """Return whether a segment lies in the folder, not in the archive."""
        return segment.path.parent == self._folder

    def local(self) -> list[Segment]:
        """Return the segments of the folder, oldest first."""
        return [segment for segment in self.listing.segments if self.is_local(segment)]

    @property
    def size(self) -> int:
        """Bytes of all segments of the folder."""
        return sum(self._sizes.values()) + (self.active.size if self.active else 0)

    def _size(self, segment: Segment) -> int:
        """Return the bytes of a closed segment, which do not change; 0 if it was removed meanwhile."""
        try:
            return self._sizes.get(segment.path) or segment.size
        except FileNotFoundError:
            return 0

    def _paths(self, names: list[str], prefix: str, suffix: str) -> Iterator[Path]:
        """Yield the paths of names with this prefix and suffix."""
        return (self._folder / name for name in names if name.startswith(prefix) and name.endswith(suffix))

    def _segment(self, path: Path, newest: bool) -> Segment:
        """Return the segment of a path, opening it if it is new."""
        if self.active is not None and path == self.active.path:
            return self.active
        known = self._known.get(path)
        # A segment that was growing when it was listed last is closed now: open it again, with its saved index.
        if known is not None and not (isinstance(known, BlockSegment) and known.is_growing and not newest):
            return known
        if path.suffix == BLOCKS:
            return self._open_blocks(path, newest)
        # Imported on use: the Parquet library costs 30 ms, and a young journal needs none.
        from raceway.journal.read.sealed import SealedSegment

        sealed = SealedSegment(path, self._damage, self._files, may_write=self._may_write)
        blocks = path.with_suffix(BLOCKS)
        # A Parquet file beyond repair does not hide the blocks it was made from, as long as those are kept.
        return sealed if not blocks.exists() or sealed.is_usable() else self._open_blocks(blocks, False)
