"""Segments of a lane: where each block lies. Rows are fetched from the lane on demand, and kept in the local cache.

A segment is addressed like a file of its valid blocks, one after the other, so that it is read like one. Beside the
index, which has a position for each block, there is the block's offset in the lane.
"""

from __future__ import annotations

import threading
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

import msgspec

from raceway.config import MIB
from raceway.errors import AwayError, JournalError
from raceway.journal.files import Source
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.kafka.cache import BlockCache
from raceway.journal.kafka.lane import Lane
from raceway.journal.kafka.records import maybe_part
from raceway.journal.kafka.snapshots import SegmentEntry
from raceway.journal.read.catalogue import segment_path
from raceway.journal.read.index import Index
from raceway.journal.read.segment import BlockSegment
from raceway.journal.write.block import Frame

# Bytes that are fetched at a time, about: whoever reads a block usually reads the next one, too.
_AHEAD = 4 * MIB
# The owner thread must not wait for Kafka, and its rows come by `bring_back`: the name says which block.
_AT = "@"


class _PackedSegment(msgspec.Struct, array_like=True):
    """Value of a segment's key: its index, the offset of each of its blocks, and the one behind the last."""

    index: bytes
    offsets: bytes
    end: int


class LanePlace:
    """State that the segments of a lane share: the lane, the cache, the thread that must not wait."""

    def __init__(
        self,
        lane: Lane,
        cache: BlockCache,
        folder: Path,
        marker: bytes,
        damage: DamageLog,
    ) -> None:
        self.lane, self.cache, self.folder, self.marker, self.damage = lane, cache, folder, marker, damage
        self.owner: int | None = None  # nobody, while a bus starts


class LaneSegment(BlockSegment):
    """Segment that is written (`packed` is None), or was."""

    def __init__(self, place: LanePlace, entry: SegmentEntry, packed: bytes | None = None) -> None:
        self._place, self.entry, self._packed = place, entry, packed
        # Filled by `_load_index` if the segment is packed.
        self._offsets, self._end = array("Q"), entry.offset
        path = segment_path(place.folder, entry.first)
        index = Index(entry.first) if packed is None else None
        super().__init__(path, place.marker, place.damage, index=index)
        if packed is not None:
            self._note_facts()

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def size(self) -> int:
        return self.index.covered if self.is_growing else self._facts[0]

    @property
    def last(self) -> int:
        return self.index.last if self.is_growing else self._facts[1]

    @property
    def rows(self) -> int:
        return self.index.rows if self.is_growing else self._facts[2]

    @property
    def time_range_us(self) -> tuple[int, int]:
        return (self.index.first_time_us, self.index.last_time_us) if self.is_growing else self._times

    def accept(self, frame: Frame, offset: int, end: int) -> None:
        """Add a committed block, which lies in the lane from `offset` until `end`."""
        # First of all: a reader that finds the block in the index finds it in the cache, too.
        self._place.cache.keep(self.name, self.index.covered, frame.head + frame.body)
        # Before the index: readers go by its length.
        self._offsets.append(offset)
        self._end = end
        frame.add_to(self.index)

    def pack(self) -> bytes:
        """Return the value of the segment's key, as it is now."""
        if self._packed is not None:
            return self._packed
        # Quick rather than small: this runs in the writer's thread, and blocks wait meanwhile.
        return zlib.compress(
            msgspec.msgpack.encode(_PackedSegment(self.index.encode(), self._offsets.tobytes(), self._end)), level=1
        )

    def finish(self) -> None:
        """Take no more blocks."""
        packed = self.pack()
        self._note_facts()
        self._packed, self.is_growing = packed, False

    def _note_facts(self) -> None:
        # Kept apart from the index: retention and health ask all segments, and unpacking each would take long.
        index = self.index
        self._facts = index.covered, index.last, index.rows
        self._times = index.first_time_us, index.last_time_us

    def fetch(self, chunk: int) -> None:
        """Bring a block, and some behind it, into the cache. Raises UnavailableError, JournalError."""
        # The index first: loading it sets the other two. Of a growing segment they may be a block ahead of it, which
        # does no harm: only wanted offsets are taken.
        index = self.index
        offsets, end = self._offsets, self._end
        last = chunk
        while last + 1 < len(index) and index.positions[last + 1] - index.positions[chunk] < _AHEAD:
            last += 1
        stop = offsets[last + 1] if last + 1 < len(index) else end
        wanted = {offsets[each]: index.positions[each] for each in range(chunk, last + 1)}
        for offset, data in _blocks(self._place.lane, offsets[chunk], stop, set(wanted)):
            self._place.cache.keep(self.name, wanted.pop(offset), data)
        # The blocks behind it are read ahead: they may be missing.
        if offsets[chunk] in wanted:
            raise JournalError(
                f"the lane {self._place.lane.name} does not have the block at offset {offsets[chunk]} any more"
            )

    def close(self) -> None:
        super().close()
        self._place.cache.drop(self.name)

    def _open(self) -> Source:
        return _LaneSource(self)

    def _load_index(self) -> Index:
        assert self._packed is not None
        packed = msgspec.msgpack.decode(zlib.decompress(self._packed), type=_PackedSegment)
        index = Index.maybe_decode(packed.index)
        if index is None:
            raise JournalError(f"the index of {self.name} is damaged beyond repair")
        offsets = array("Q")
        offsets.frombytes(packed.offsets)
        self._offsets, self._end = offsets, packed.end
        return index

    def _forget(self) -> None:
        # The index of a growing segment is in memory alone: there is nothing to load it from.
        if not self.is_growing:
            super()._forget()

    def read_cached(self, size: int, position: int) -> bytes:
        """Return bytes of one block. Raises AwayError on the owner thread if it is not in the cache."""
        index = self.index
        # The block with this byte; reads never span two, because a block is read by its own position and size.
        chunk = bisect_right(index.positions, position, 0, len(index)) - 1
        block, place = index.positions[chunk], self._place
        found = place.cache.maybe_read(self.name, block, position - block, size)
        if found is None:
            # The owner thread serves all connections. Who asked there is answered after `bring_back` in another thread.
            if threading.get_ident() == place.owner:
                raise AwayError(f"{self.name}{_AT}{chunk}")
            self.fetch(chunk)
            found = place.cache.maybe_read(self.name, block, position - block, size)
        if found is None:
            raise JournalError(f"the cache of blocks lost one of {self.name} while it was read")
        return found


class _LaneSource:
    """The valid blocks of a segment, addressed like the bytes of a file."""

    def __init__(self, segment: LaneSegment) -> None:
        self._segment = segment

    @property
    def size(self) -> int:
        return self._segment.size

    def read(self, size: int, position: int) -> bytes:
        return self._segment.read_cached(size, position)

    def close(self) -> None:
        """Nothing is held."""


def chunk_of(away: str) -> tuple[str, int]:
    """Return the name of the segment and the number of the block in the text of an AwayError."""
    name, _, chunk = away.rpartition(_AT)
    return name, int(chunk)


def _blocks(lane: Lane, start: int, stop: int, wanted: set[int]) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of the blocks that begin at these offsets, which are valid."""
    # Without `ClaimRule`, which needs the claim before them: that they are valid was found when they were indexed.
    begun: list[bytes] = []
    at, block = -1, (-1, -1)
    for record in lane.read(start, stop):
        part = maybe_part(record)
        if part is None:
            continue
        if record.offset in wanted:
            at, block, begun = record.offset, (part.epoch, part.number), []
        if (part.epoch, part.number) != block or part.part != len(begun):
            continue  # void
        begun.append(record.value)
        if part.part + 1 == part.parts:
            yield at, b"".join(begun)
            block = (-1, -1)
