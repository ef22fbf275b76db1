"""Sealed segment: `<name>.parquet` with its checksums (`.sum`) and its index (`.idx`).

The three are staged under temporary names, synced, checked and renamed, the Parquet file last: if it exists, it is
complete. Of the three only the Parquet file cannot be rebuilt:

    flipped bit anywhere      repaired while reading; with `may_write` also on disk
    footer destroyed          restored from `.sum`
    page destroyed            the row groups in it are left out and reported; everything after them is read.
                              While the blocks still exist (15 minutes), the rows are read from them
    `.sum` lost               rebuilt from row groups whose own page checksums are right
    `.idx` lost               rebuilt from the rows
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raceway.errors import JournalError
from raceway.journal import parquet
from raceway.journal.contract import TOPIC_BYTES, TOPIC_ROWS, Damage, DamageKind
from raceway.journal.files import Files, maybe_read_file, write_file
from raceway.journal.format import Batches, Columns, chosen_schema
from raceway.journal.identity import maybe_find_marker
from raceway.journal.integrity.checksum import STRIPE, maybe_unprotect, protect
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.integrity.stripes import CheckedFile, Sums, encode_sums, maybe_parse_sums, measure
from raceway.journal.read.index import Index
from raceway.journal.read.rows import Budget
from raceway.journal.read.segment import BlockSegment, StoredSegment, missing
from raceway.journal.write.staging import files_of

T = TypeVar("T")


@dataclass(frozen=True)
class _Parts:
    """Parsed side files of a segment."""

    sums: Sums
    metadata: pq.FileMetaData
    index: Index


class SealedSegment(StoredSegment):
    """Reading side of a sealed segment; thread-safe.

    `may_write`: this process owns the folder, so what was repaired or rebuilt is also written to disk.
    """

    def __init__(
        self,
        path: Path,
        damage: DamageLog | None = None,
        files: Files | None = None,
        *,
        may_write: bool = False,
    ) -> None:
        super().__init__(path, damage, files, may_write)
        self._lock = threading.RLock()
        self._parts: _Parts | None = None
        self._kept_rows: tuple[tuple[int, str, tuple[str, ...] | None], pa.Table] | None = None
        # Remembered: otherwise each read would measure the whole file again.
        self._is_unusable = False

    # A sealed segment does not change: these are computed once, and stay known after retention has removed the file.

    @cached_property
    def last(self) -> int:
        """Sequence of the last row that was ever in this segment, even if it was lost before sealing."""
        parts = self._maybe_parts()
        if parts is None:
            # Known without the rows: so the loss can be reported with its positions.
            index = self._maybe_saved_index()
            return self.first - 1 if index is None else index.last
        return max([parts.index.last, *(last for _, last in parquet.missing_of(parts.metadata))])

    @cached_property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(path.stat().st_size for path in files_of(self.path) if path.exists())

    @cached_property
    def rows(self) -> int:
        """Number of rows present."""
        parts = self._maybe_parts()
        return 0 if parts is None else int(parts.metadata.num_rows)

    @cached_property
    def time_range_us(self) -> tuple[int, int]:
        """`time_us` of the first and of the last row."""
        parts = self._maybe_parts()
        return (0, 0) if parts is None else (parts.index.first_time_us, parts.index.last_time_us)

    def is_usable(self) -> bool:
        """Return whether anything can be read from the file. If not, the blocks are needed."""
        return self._maybe_parts() is not None

    def maybe_index(self) -> Index | None:
        """Return the index; None if nothing of the file can be used."""
        parts = self._maybe_parts()
        return None if parts is None else parts.index

    def topics(self) -> Mapping[str, tuple[int, int]]:
        parts = self._maybe_parts()
        return {} if parts is None else parts.index.topics()

    def read(self, start: int, stop: int, columns: Columns = None) -> Batches:
        """Yield rows with start <= sequence < stop, a row group at a time."""

        def chosen(index: Index) -> Iterable[int]:
            return takewhile(lambda chunk: index.first_of(chunk) < stop, range(index.chunk_at(start), len(index)))

        # Sequences are needed to cut the first and the last row group to size.
        for first, last, group in self._groups(chosen, None if columns is None else [*columns, "sequence"]):
            rows = _between(group, start, stop) if first < start or last >= stop else group
            yield from (rows if columns is None else rows.select(columns)).to_batches()

    def read_topic(
        self, topic: str, offset: int, max_rows: int = TOPIC_ROWS, max_bytes: int = TOPIC_BYTES, columns: Columns = None
    ) -> Batches:
        """Yield rows of `topic` from `offset` on until a limit, opening only row groups that hold the topic."""
        parts, budget = self._maybe_parts(), Budget(max_rows, max_bytes)
        if parts is None:
            return
        with self._open(parts) as file:
            for chunk in parts.index.chunks_of(topic, offset):
                rows = self._maybe_topic_rows(file, parts, chunk, topic, columns)
                if rows is None:
                    continue
                chosen = rows.filter(pc.greater_equal(rows["offset"], offset))
                for batch in (chosen if columns is None else chosen.select(columns)).to_batches():
                    yield budget.take(batch)
                    if budget.is_spent:
                        return

    def read_control(self, start: int) -> Batches:
        """Yield kind and payload of rows from `start` on, from row groups that hold control rows."""

        def chosen(index: Index) -> Iterable[int]:
            return (chunk for chunk in index.controls if index.last_of(chunk) >= start)

        for _, last, group in self._groups(chosen, ["sequence", "kind", "payload"]):
            yield from _between(group, start, last + 1).select(["kind", "payload"]).to_batches()

    def check_bytes(self) -> None:
        """Compare every byte with its checksum; repairs are in `damage` afterwards.

        Damage that cannot be repaired is reported when its rows are read.
        """
        parts = self._maybe_parts()
        if parts is not None:
            self._check_stripes(parts.sums, 0)

    # ---- row groups -------------------------------------------------------------------------------------------------

    def _open(self, parts: _Parts) -> AbstractContextManager[pq.ParquetFile]:
        """Open the Parquet file for one read, through its checksums."""
        return parquet.open_parquet(self._checked_file(parts.sums), parts.metadata)

    def _checked_file(self, sums: Sums) -> CheckedFile:
        return CheckedFile(self.path, sums, self._note_mended, self._may_write, self._files)

    def _groups(
        self, chosen: Callable[[Index], Iterable[int]], columns: Columns
    ) -> Iterator[tuple[int, int, pa.Table]]:
        """Yield the first and last position and the rows of some row groups, without damaged ones."""
        parts = self._maybe_parts()
        if parts is None:
            return
        with self._open(parts) as file:
            for chunk in chosen(parts.index):
                group = self._maybe_group(file, parts, chunk, columns)
                if group is not None:
                    yield parts.index.first_of(chunk), parts.index.last_of(chunk), group

    def _maybe_group(self, file: pq.ParquetFile, parts: _Parts, chunk: int, columns: Columns) -> pa.Table | None:
        """Read a row group; if it is damaged, its rows from the blocks, or None."""
        number = parts.index.positions[chunk]
        # Arrow's allocator keeps the memory of the last row group in pieces that do not fit this one: without this call
        # a reader that lags far behind grows to twice its size. It takes half a millisecond.
        pa.default_memory_pool().release_unused()
        try:
            return parquet.read_group(file, number, columns)
        except JournalError as error:
            rows = self._maybe_from_blocks(parts.index.first_of(chunk), parts.index.last_of(chunk), columns)
            reason = str(error) if rows is None else f"{error}; its rows are read from the .blocks file"
            self._note_bad_group("quarantined" if rows is None else "repaired", parts.metadata, number, reason)
            return rows

    def _maybe_topic_rows(
        self, file: pq.ParquetFile, parts: _Parts, chunk: int, topic: str, columns: Columns
    ) -> pa.Table | None:
        """Return the rows of a topic in a row group. The last result is cached: readers come back for more."""
        wanted = None if columns is None else (*columns, "topic", "offset")
        key = (chunk, topic, wanted)
        # One attribute read, so that another thread may replace it meanwhile without a lock.
        kept = self._kept_rows
        if kept is not None and kept[0] == key:
            return kept[1]
        group = self._maybe_group(file, parts, chunk, wanted)
        if group is None:
            return None
        rows = group.filter(pc.and_(pc.equal(group["topic"], topic), pc.is_valid(group["offset"])))
        self._kept_rows = (key, rows)
        return rows

    def _maybe_from_blocks(self, first: int, last: int, columns: Columns) -> pa.Table | None:
        """Read the rows from the `.blocks` file that this segment was made from; None if it no longer exists."""
        path = self.path.with_suffix(".blocks")
        # From the file itself: a sealed segment is also read where the file `identity` is lost.
        marker = maybe_find_marker(self._files, [path]) if path.exists() else None
        if marker is None:
            return None
        # Each once: `_maybe_topic_rows` adds columns that the caller may have asked for, too.
        names = None if columns is None else list(dict.fromkeys(columns))
        blocks = BlockSegment(path, marker, files=self._files)
        return pa.Table.from_batches(list(blocks.read(first, last + 1, names)), chosen_schema(names))

    # ---- side files -------------------------------------------------------------------------------------------------

    def _maybe_parts(self) -> _Parts | None:
        """Return the parsed side files; None if nothing of the file can be used.

        Raises FileNotFoundError if retention has removed it.
        """
        with self._lock:
            parts = self._parts
            if parts is None and not self._is_unusable:
                parts = self._parts = self._maybe_load()
                self._is_unusable = parts is None
        if parts is not None:
            self._remember()
        return parts

    def _forget(self) -> None:
        self._parts = self._kept_rows = None

    def _maybe_load(self) -> _Parts | None:
        """Load or rebuild the side files; None if nothing of the file can be used."""
        name = self.path.with_suffix(".sum").name
        sums = self._maybe_side_file(".sum", lambda body: maybe_parse_sums(body, name)) or self._maybe_remade_sums()
        if sums is None:
            self._note_unusable()
            return None
        # From the copy in `.sum`, which is checked, not from the Parquet file.
        metadata = parquet.parse_footer(sums.footer)
        for first, last in parquet.missing_of(metadata):
            self._note_missing(first, last, "lost before the segment was sealed")
        # The footer is repaired on disk, where other tools need it; readers here use the copy.
        self._check_stripes(sums, sums.size - len(sums.footer))
        return _Parts(sums, metadata, self._index(sums, metadata))

    def _maybe_remade_sums(self) -> Sums | None:
        """Compute the checksums of the file as it is, after verifying the page checksums of every row group."""
        try:
            sums = measure(self.path, self._files)
            metadata = parquet.parse_footer(sums.footer)
        # Removed by retention, which is no damage: the catalogue lists the folder again.
        except FileNotFoundError:
            raise
        except (JournalError, OSError):
            return None
        if not parquet.is_plausible(metadata):
            return None
        with parquet.open_parquet(self._checked_file(sums), metadata) as file:
            # New checksums would vouch for damaged bytes, too: every group is verified now and reported if it
            # is bad.
            for number in range(metadata.num_row_groups):
                try:
                    parquet.read_group(file, number)
                except JournalError as error:
                    self._note_bad_group("quarantined", metadata, number, str(error))
        self._replace(self.path.with_suffix(".sum"), encode_sums(sums), "rebuilt", "missing or damaged")
        return sums

    def _check_stripes(self, sums: Sums, begin: int) -> None:
        """Compare the file from byte `begin` on with its checksums, repairing what can be."""
        with self._checked_file(sums) as file:
            for number in range(begin // STRIPE, len(sums.crcs)):
                file.try_stripe(number)

    def _index(self, sums: Sums, metadata: pq.FileMetaData) -> Index:
        """Load the index, or rebuild it if it does not belong to this file."""
        found = self._maybe_saved_index()
        # The blocks' index has the same name: after a crash between the renames it may lie here.
        if found is not None and found.covered == sums.size and len(found) == metadata.num_row_groups:
            return found
        index = self._remade_index(sums, metadata)
        self._replace(self.path.with_suffix(".idx"), index.encode(), "rebuilt", "missing or damaged")
        return index

    def _maybe_saved_index(self) -> Index | None:
        """Load `.idx`; None if it is missing or damaged."""
        return self._maybe_side_file(".idx", Index.maybe_parse)

    def _maybe_side_file(self, suffix: str, parse: Callable[[bytes], T | None]) -> T | None:
        """Load a side file, repairing one flipped bit; None if it is missing, unreadable or damaged."""
        path = self.path.with_suffix(suffix)
        try:
            opened = maybe_unprotect(maybe_read_file(self._files, path) or b"")
        except OSError:  # unreadable: rebuilt like a missing one
            return None
        found = None if opened is None else parse(opened[0])
        if found is not None and opened is not None and opened[1]:
            self._replace(path, protect(opened[0]), "repaired", "one flipped bit")
        return found

    def _remade_index(self, sums: Sums, metadata: pq.FileMetaData) -> Index:
        """Rebuild the index from the rows."""
        index = Index(self.first)
        with parquet.open_parquet(self._checked_file(sums), metadata) as file:
            for number in range(metadata.num_row_groups):
                try:
                    parquet.add_group(index, number, parquet.read_group(file, number, parquet.INDEXED))
                except JournalError as error:
                    first, last = self._note_bad_group("quarantined", metadata, number, str(error))
                    # A damaged group keeps its entry, so that positions still lead to the right groups after
                    # it.
                    index.add(number, first, last - first + 1, (), covered=0, time_us=index.last_time_us)
        index.covered, index.is_broken = sums.size, bool(parquet.missing_of(metadata))
        return index

    # ---- damage -----------------------------------------------------------------------------------------------------

    def _note_mended(self, stripe: int) -> None:
        """Report a repaired stripe."""
        reason = "one flipped bit, or a footer that was restored from its copy"
        where = stripe * STRIPE
        self._log.add(Damage(kind="repaired", file=self.path.name, position=where, size=STRIPE, reason=reason))

    def _note_bad_group(self, kind: DamageKind, metadata: pq.FileMetaData, number: int, reason: str) -> tuple[int, int]:
        """Report a damaged row group; return its first and last position."""
        first, last = parquet.sequence_range(metadata, number)
        group = metadata.row_group(number)
        position = group.column(0).data_page_offset
        rows, size = group.num_rows, group.total_byte_size
        where = {"position": position, "size": size, "first": first, "last": last, "rows": rows}
        self._log.add(Damage(kind=kind, file=self.path.name, reason=reason, **where))
        return first, last

    def _note_unusable(self) -> None:
        """Report that nothing of the file can be used."""
        reason = "the file has no readable footer, and there is no .sum to restore it from"
        if self.path.with_suffix(".blocks").exists():
            reason += "; its rows are read from the .blocks file"
            self._log.add(Damage(kind="repaired", file=self.path.name, reason=reason))
            return
        index = self._maybe_saved_index()
        self._note_missing(self.first, self.first - 1 if index is None else index.last, reason)

    def _note_missing(self, first: int, last: int, reason: str) -> None:
        """Report lost rows."""
        self._log.add(missing(self.path.name, first, 0, first, last, reason))

    def _replace(self, path: Path, content: bytes, kind: DamageKind, reason: str) -> None:
        """Report a side file that was repaired or rebuilt, and write it if this process owns the folder."""
        self._log.add(Damage(kind=kind, file=path.name, size=len(content), reason=reason))
        if self._may_write:
            write_file(self._files, path, content)


def _between(group: pa.Table, start: int, stop: int) -> pa.Table:
    """Return the rows with start <= sequence < stop; sequences rise, with or without gaps."""
    sequences = group["sequence"]
    # Bisection looks at a few values; a filter would copy the whole group.
    first = bisect_left(range(len(sequences)), start, key=lambda row: sequences[row].as_py())
    last = bisect_left(range(len(sequences)), stop, key=lambda row: sequences[row].as_py())
    return group.slice(first, last - first)
