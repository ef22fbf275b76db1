"""Segment of blocks: read by position or by topic, through its index.

The index of the file being written is filled by the writer. That of a closed file is loaded from `.idx` on use and
cached for the few segments read last. Another process that follows a growing file extends the index by walking on.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from raceway.journal.contract import TOPIC_BYTES, TOPIC_ROWS, Damage
from raceway.journal.files import Files, FileSource, Source, maybe_read_file, write_file
from raceway.journal.format import HAS_CONTROL_ROWS, Batches, Columns
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.integrity.scan import FoundBlock, LostBytes, walk
from raceway.journal.read.blocks import HEAD_REPAIRED, StoredBlock, maybe_read_block, of_block
from raceway.journal.read.index import Index
from raceway.journal.read.rows import Budget

# At worst (a one-row block per sync) an index has 10 MB; footer, checksums and index of a sealed file about one.
_KEPT_SEGMENTS = 4


def first_of(path: Path) -> int:
    """Return the sequence in a segment's name."""
    return int(path.name.split(".", 1)[0].split("-")[1])


class StoredSegment(ABC):
    """Part that both kinds of segments share: place, log of damage, and the bound on what is cached.

    What was parsed is cached for the few segments of a kind that were read last, because a reader comes back for the
    next rows at once and a folder may hold thousands. The bound is on the memory of the process, not of one journal.
    """

    _lately_read: ClassVar[OrderedDict[StoredSegment, None]]
    _lately_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init_subclass__(cls) -> None:
        # A bound for each kind: readers of sealed files do not push out the indexes of blocks.
        cls._lately_read = OrderedDict()

    def __init__(self, path: Path, damage: DamageLog | None, files: Files | None, may_write: bool) -> None:
        self.path, self.first = path, first_of(path)
        self._log, self._files, self._may_write = damage or DamageLog(), files or Files(), may_write

    @property
    def damage(self) -> Sequence[Damage]:
        return self._log.reports

    def close(self) -> None:
        """Drop what is cached."""
        with self._lately_lock:
            if self in self._lately_read:
                del self._lately_read[self]
                self._forget()

    def _remember(self) -> None:
        """Mark the segment as used last, and drop what is cached of the one used longest ago."""
        with self._lately_lock:
            self._lately_read[self] = None
            self._lately_read.move_to_end(self)
            while len(self._lately_read) > _KEPT_SEGMENTS:
                self._lately_read.popitem(last=False)[0]._forget()

    @abstractmethod
    def _forget(self) -> None:
        """Drop what is cached; a read in progress keeps its own reference."""


class BlockSegment(StoredSegment):
    """Reading side of `segment-….blocks`.

    `index` and `source` are given for a file that is still written, and loaded from the folder otherwise. `may_write`:
    this process owns the folder, so an index that had to be rebuilt is also written to disk.
    """

    def __init__(
        self,
        path: Path,
        marker: bytes,
        damage: DamageLog | None = None,
        files: Files | None = None,
        *,
        index: Index | None = None,
        source: Source | None = None,
        may_write: bool = False,
    ) -> None:
        super().__init__(path, damage, files, may_write)
        # Whether the index is still being filled.
        self.is_growing = index is not None
        self._marker, self._index, self._source = marker, index, source
        self._lock = threading.Lock()
        self._recent: StoredBlock | None = None  # cached: a topic is read in small pieces, many from one block

    @property
    def index(self) -> Index:
        """Index of its rows so far."""
        if self.is_growing:
            assert self._index is not None
            return self._index
        with self._lock:
            index = self._index = self._index or self._load_index()
        self._remember()
        return index

    def maybe_index(self) -> Index:
        """Return the index; a file of blocks always has one."""
        return self.index

    @property
    def rows(self) -> int:
        return self.index.rows

    @property
    def last(self) -> int:
        return self.index.last

    @property
    def size(self) -> int:
        # Of a growing file only the accepted part counts: after it there may be bytes of a write in progress.
        return self.index.covered if self.is_growing else self.path.stat().st_size

    @property
    def time_range_us(self) -> tuple[int, int]:
        """`time_us` of the first and of the last row."""
        return self.index.first_time_us, self.index.last_time_us

    def read(self, start: int, stop: int, columns: Columns = None) -> Batches:
        """Yield rows with start <= sequence < stop, a block or a part of a large one at a time."""
        # Opened before the first row: a file that vanished is noticed while the caller can still list again.
        index, source = self.index, self._open()
        for chunk in range(index.chunk_at(start), len(index)):
            first = index.first_of(chunk)
            if first >= stop:
                return
            block = self._maybe_block(index, source, chunk)
            if block is not None:
                yield from block.read(max(start - first, 0), min(stop - first, block.prefix.rows), columns)

    def read_topic(
        self, topic: str, offset: int, max_rows: int = TOPIC_ROWS, max_bytes: int = TOPIC_BYTES, columns: Columns = None
    ) -> Batches:
        """Yield rows of `topic` from `offset` on until a limit, opening only blocks that hold the topic."""
        index, source, budget = self.index, self._open(), Budget(max_rows, max_bytes)
        for chunk in index.chunks_of(topic, offset):
            # Read once: another thread may replace it between the comparison and the use.
            recent = self._recent
            if recent is not None and recent.prefix.first == index.first_of(chunk):
                block: StoredBlock | None = recent
            else:
                block = self._recent = self._maybe_block(index, source, chunk)
            if block is not None:
                yield from block.read_topic(topic, offset, budget, columns)
            if budget.is_spent:
                return

    def read_control(self, start: int) -> Batches:
        """Yield kind and payload of rows from `start` on, from blocks that hold control rows."""
        index, source = self.index, self._open()
        for chunk in index.controls:
            block = self._maybe_block(index, source, chunk) if index.last_of(chunk) >= start else None
            if block is not None:
                yield from block.read(max(start - block.prefix.first, 0), block.prefix.rows, ["kind", "payload"])

    def topics(self) -> Mapping[str, tuple[int, int]]:
        return self.index.topics()

    def grow(self, limit: int | None) -> None:
        """Add the blocks that another process wrote, up to the position `limit`."""
        with self._lock:
            extend_index(self.index, self._open(), self._marker, self.path.name, self._log, limit)

    def close(self) -> None:
        super().close()
        if self._source is not None:
            self._source.close()

    def _open(self) -> Source:
        """Return the open file, or open it for one read."""
        return self._source or FileSource(self._files, self.path)

    def _maybe_block(self, index: Index, source: Source, chunk: int) -> StoredBlock | None:
        """Read the head of a chunk's block; report its rows as missing and return None if it is damaged."""
        position = index.positions[chunk]
        end = index.positions[chunk + 1] if chunk + 1 < len(index) else index.covered
        block = maybe_read_block(source, position, end - position, self._marker, self.path.name, self._log)
        # Also compared with the index: a block that is good but belongs elsewhere would give wrong rows.
        if block is not None and block.prefix.first == index.first_of(chunk):
            return block
        first, last = index.first_of(chunk), index.last_of(chunk)
        reason = "the head of the block is damaged"
        self._log.add(missing(self.path.name, position, end - position, first, last, reason))
        return None

    def _load_index(self) -> Index:
        """Load the saved index, or rebuild it if it does not describe the whole file."""
        with FileSource(self._files, self.path) as source:
            saved = maybe_load_index(self._files, self.path)
            if saved is not None and saved.covered == source.size:
                return saved
            # Unreadable bytes at the end show as positions missing before the next segment.
            index = Index(self.first)
            extend_index(index, source, self._marker, self.path.name, self._log)
            index.covered = source.size
        # An index of another size belongs to the sealed file, which uses the same name: it must not be overwritten. A
        # segment that was removed while it was read needs none.
        if saved is None and self.path.exists() and not self.path.with_suffix(".parquet").exists():
            self._log.add(rebuilt(self.path.with_suffix(".idx").name, len(index)))
            if self._may_write:
                self._save(index)
        return index

    def _save(self, index: Index) -> None:
        """Write a rebuilt index beside the segment."""
        target = self.path.with_suffix(".idx")
        with suppress(OSError):
            write_file(self._files, target, index.encode())
            if not self.path.exists() and not self.path.with_suffix(".parquet").exists():
                self._files.remove(target)  # the segment was removed meanwhile: leave no orphan

    def _forget(self) -> None:
        self._index = self._recent = None


def maybe_load_index(files: Files, path: Path) -> Index | None:
    """Load the `.idx` beside a segment; None if it is missing, unreadable or of another segment."""
    try:
        index = Index.maybe_decode(maybe_read_file(files, path.with_suffix(".idx")) or b"")
    except OSError:
        return None
    return index if index is not None and index.first == first_of(path) else None


def resumable_index(files: Files, path: Path, source: Source) -> Index:
    """Return the index of a growing file as far as it was saved; the rest is found by walking on."""
    index = maybe_load_index(files, path)
    # An index that covers more than the file is of before a cut: begin again.
    return index if index is not None and index.covered <= source.size else Index(first_of(path))


def extend_index(
    index: Index, source: Source, marker: bytes, file: str, damage: DamageLog, limit: int | None = None
) -> None:
    """Add the blocks after what `index` covers, up to the position `limit`. Losses between them are reported, not those
    at the end, where a write may be in progress."""
    pending: LostBytes | None = None
    reached = index.last
    blocks = walk(source, marker, file, index.covered, index.last + 1)
    # After the limit a write may be in progress: do not read there.
    while (limit is None or reached < limit) and (found := next(blocks, None)) is not None:
        # Something readable follows: these bytes are damage, not a write in progress.
        if pending is not None:
            damage.add(missing(file, pending.position, pending.size, pending.first, pending.last, pending.reason))
            pending = None
        if isinstance(found, LostBytes):
            pending, reached = found, found.last or reached
        elif limit is not None and found.prefix.last > limit:
            return
        else:
            add_found(index, found, file, damage)
            reached = index.last


def add_found(index: Index, found: FoundBlock, file: str, damage: DamageLog) -> None:
    """Add a block to the index, and report it if its head was repaired."""
    prefix = found.prefix
    if found.mended:
        damage.add(of_block("repaired", file, found.position, prefix, HEAD_REPAIRED))
    index.add(
        found.position, prefix.first, prefix.rows, found.meta.spans,
        covered=found.position + prefix.size, time_us=prefix.time_us,
        control=bool(prefix.flags & HAS_CONTROL_ROWS),
    )  # fmt: skip


def rebuilt(file: str, chunks: int) -> Damage:
    """Return the report of a rebuilt index."""
    return Damage(kind="rebuilt", file=file, rows=chunks, reason="missing or damaged; rebuilt from the blocks")


def missing(file: str, position: int, size: int, first: int, last: int | None, reason: str) -> Damage:
    """Return the report of lost rows; `last` is None if their number is unknown."""
    known = first - 1 if last is None else last
    return Damage(
        kind="missing", file=file, position=position, size=size, first=first, last=known, rows=known - first + 1,
        reason=reason,
    )  # fmt: skip
