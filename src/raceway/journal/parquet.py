"""Rows as a Parquet file: how they are cut into row groups, encoded, and described by an index.

A row group is what a reader holds in memory and what a damaged page costs, so it is bounded twice: by rows (16,384
unless set otherwise) and by bytes, for topics with large payloads. Pages carry their own checksums, which pyarrow
verifies on reading: they take the place of `.sum` if that is lost.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raceway.config import MIB
from raceway.errors import JournalError
from raceway.journal.format import SCHEMA, Columns
from raceway.journal.integrity.stripes import PARQUET_MAGIC, CheckedFile
from raceway.journal.read.index import Index

# Arrow bytes of a row group. Reading one costs about three times as much for a moment (compressed, decompressed,
# decoded), which keeps a reader that lags far behind well under 64 MiB.
GROUP_BYTES = 8 * MIB

# Few distinct values each. Ids and payloads are all different: a dictionary of them would be filled and discarded.
_DICTIONARY = [
    "partition", "topic", "wire", "kind", "reply_to", "version", "producer", "routing_key", "encoding", "error",
    "attributes.key_value.key", "hops.list.element.sid", "hops.list.element.rid",
]  # fmt: skip
# Rising numbers: the differences of neighbours need few bits.
_DELTA = dict.fromkeys(("sequence", "offset", "time_us", "sent_ms", "answers"), "DELTA_BINARY_PACKED")
# Minimum and maximum per row group: other tools skip by them, and they name the rows of a group that is damaged.
_STATISTICS = ["sequence", "offset", "time_us", "topic", "wire", "kind"]
_MISSING_KEY = "raceway.missing"


def row_groups(batches: Iterable[pa.RecordBatch], rows: int, size: int = GROUP_BYTES) -> Iterator[pa.Table]:
    """Cut rows again into tables of at most `rows` rows and `size` bytes and one chunk; a larger row gets its own
    table."""
    pending: list[pa.RecordBatch] = []
    count = held = 0
    for batch in batches:
        while batch.num_rows:
            piece, taken = _fitting(batch.slice(0, rows - count), size - held)
            # A row larger than `size` fits into an empty group only, and then fills it.
            fits = taken <= size - held or not pending
            if fits:
                pending.append(piece)
                count, held = count + piece.num_rows, held + taken
                batch = batch.slice(piece.num_rows)
            if not fits or count == rows:
                yield pa.Table.from_batches(pending).combine_chunks()
                pending, count, held = [], 0, 0
    if pending:
        yield pa.Table.from_batches(pending).combine_chunks()


def _fitting(batch: pa.RecordBatch, room: int) -> tuple[pa.RecordBatch, int]:
    """Return the first rows that fit into `room` bytes, estimated by their mean size, and their bytes; at least one
    row."""
    size = batch.nbytes
    # Rows differ in size, so the estimate is repeated; each turn takes at least one row off.
    while batch.num_rows > 1 and size > room:
        fewer = batch.num_rows * max(room, 0) // size
        batch = batch.slice(0, max(1, min(fewer, batch.num_rows - 1)))
        size = batch.nbytes
    return batch, size


class ParquetSink(AbstractContextManager["ParquetSink"]):
    """Writes row groups of SCHEMA and keeps the index of what was written. Sequences must rise.

    A context manager: left without `finish`, it closes the file, whose content is then unusable.
    """

    def __init__(self, file: io.RawIOBase, first: int, *, sparse: bool = False) -> None:
        """Begin a file at position `first`. `sparse`: gaps between sequences are intended, not losses."""
        self.index = Index(first)
        self.rows = 0
        self.missing: list[tuple[int, int]] = []
        self._sparse = sparse
        self._next = first
        self._writer = pq.ParquetWriter(
            # zstd: about the ratio of gzip at several times its speed.
            file, SCHEMA, compression="zstd", use_dictionary=_DICTIONARY, column_encoding=_DELTA,
            write_statistics=_STATISTICS, write_page_checksum=True,
        )  # fmt: skip

    def write(self, group: pa.Table) -> None:
        """Write a table as one row group and add it to the index."""
        if not self._sparse:
            self.missing += gaps(group["sequence"], self._next)
        self._next = group["sequence"][-1].as_py() + 1
        # Given explicitly: by default pyarrow would split a table into groups of its own choice.
        self._writer.write_table(group, row_group_size=group.num_rows)
        add_group(self.index, len(self.index), group)
        self.rows += group.num_rows

    def finish(self, last: int | None = None) -> None:
        """Write the footer. Positions up to `last` that were not written are recorded as missing."""
        if last is not None and not self._sparse and self._next <= last:
            self.missing.append((self._next, last))
        if self.missing:
            self.index.is_broken = True
            # In the footer itself, so that the losses are known wherever the file is copied to.
            self._writer.add_key_value_metadata({_MISSING_KEY: msgspec.json.encode(self.missing).decode()})
        self._writer.close()

    def __exit__(self, *_: object) -> None:
        if self._writer.is_open:
            with suppress(OSError):
                self._writer.close()


def missing_of(metadata: pq.FileMetaData) -> list[tuple[int, int]]:
    """Return the position ranges that were already lost when the file was sealed."""
    found = (metadata.metadata or {}).get(_MISSING_KEY.encode())
    return msgspec.json.decode(found, type=list[tuple[int, int]]) if found else []


def gaps(sequences: pa.ChunkedArray, expected: int) -> list[tuple[int, int]]:
    """Return the ranges left out from `expected` to the last of these rising sequences."""
    first, last = sequences[0].as_py(), sequences[-1].as_py()
    found = [(expected, first - 1)] if first > expected else []
    # Dense, as nearly always: no need to look at each one.
    if last - first + 1 == len(sequences):
        return found
    steps = pc.pairwise_diff(sequences.combine_chunks())
    behind = pc.indices_nonzero(pc.greater(steps, 1)).to_pylist()
    return found + [(sequences[at - 1].as_py() + 1, sequences[at].as_py() - 1) for at in behind]


# ---- index ----------------------------------------------------------------------------------------------------------

# Columns that an index is built from.
INDEXED = ("sequence", "topic", "offset", "time_us", "kind")


def add_group(index: Index, number: int, group: pa.Table) -> None:
    """Add row group `number` to the index. A chunk's count is its range of positions: in a sparse file more than its
    rows."""
    first, last = group["sequence"][0].as_py(), group["sequence"][-1].as_py()
    empty = len(index) == 0
    index.add(
        number,
        first,
        last - first + 1,
        spans_of(group),
        covered=0,
        time_us=group["time_us"][-1].as_py(),
        control=pc.index(group["kind"], "control").as_py() >= 0,
    )
    if empty:
        index.first_time_us = group["time_us"][0].as_py()


def spans_of(group: pa.Table) -> list[tuple[str, int, int]]:
    """Return (topic, first offset, count) for each run of consecutive offsets; rows without an offset are left out."""
    rows = group.select(["topic", "offset"]).filter(pc.is_valid(group["offset"]))
    # use_threads=False keeps the order of topics stable, so that the same rows give the same index.
    by_topic = rows.group_by("topic", use_threads=False).aggregate(
        [("offset", "min"), ("offset", "max"), ("offset", "count")]
    )
    spans: list[tuple[str, int, int]] = []
    columns = (by_topic[name].to_pylist() for name in ("topic", "offset_min", "offset_max", "offset_count"))
    for topic, lowest, highest, count in zip(*columns, strict=True):
        # Offsets are unique, so a count that fills the range means that none is missing.
        if highest - lowest + 1 == count:
            spans.append((topic, lowest, count))
        else:
            spans += _runs(topic, rows.filter(pc.equal(rows["topic"], topic))["offset"].to_pylist())
    return spans


def _runs(topic: str, offsets: list[int]) -> list[tuple[str, int, int]]:
    """Return the spans of one topic whose offsets have gaps."""
    runs: list[tuple[str, int, int]] = []
    begin = 0
    for at in range(1, len(offsets) + 1):
        if at == len(offsets) or offsets[at] != offsets[at - 1] + 1:
            runs.append((topic, offsets[begin], at - begin))
            begin = at
    return runs


# ---- reading --------------------------------------------------------------------------------------------------------


# Errors that the Parquet library raises for damaged bytes: invalid UTF-8 is a ValueError.
_LIBRARY_ERRORS = (OSError, ValueError, LookupError, pa.ArrowException)


def parse_footer(footer: bytes) -> pq.FileMetaData:
    """Parse a footer without the file it belongs to. Raises JournalError if it is malformed."""
    try:
        # A file of magic and footer only is enough for the parser: it reads backwards from the end.
        return pq.read_metadata(pa.BufferReader(PARQUET_MAGIC + footer))
    except _LIBRARY_ERRORS as error:
        raise JournalError(f"the footer cannot be read: {error}") from error


def is_plausible(metadata: pq.FileMetaData) -> bool:
    """Return whether this footer, which has no checksum, can be one of ours. Used if `.sum` cannot vouch for it."""
    try:
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        known = metadata.schema.to_arrow_schema().equals(SCHEMA)
        rows = sum(group.num_rows for group in groups)
        ranges = [sequence_range(metadata, number) for number in range(len(groups))]
    except _LIBRARY_ERRORS:
        return False
    ends = [last for _, last in ranges]
    # Flipped bits in a footer that still parses show as row counts or ranges that contradict each other.
    rising = all(first > before for before, (first, _) in zip([-1, *ends], ranges, strict=False))
    return known and rows == metadata.num_rows and rising


@contextmanager
def open_parquet(file: CheckedFile, metadata: pq.FileMetaData) -> Iterator[pq.ParquetFile]:
    """Open row groups through a checked file; closes both in the end.

    Nothing is read ahead: a reader needs the memory of one row group.
    """
    with file, pq.ParquetFile(
        file, metadata=metadata, pre_buffer=False, buffer_size=0, page_checksum_verification=True
    ) as parquet:  # fmt: skip
        yield parquet


def read_group(file: pq.ParquetFile, number: int, columns: Columns = None) -> pa.Table:
    """Read one row group and verify its page checksums. Raises JournalError if it is damaged."""
    try:
        return file.read_row_group(number, columns=columns, use_threads=False)
    except _LIBRARY_ERRORS as error:
        raise JournalError(str(error)) from error


def sequence_range(metadata: pq.FileMetaData, number: int) -> tuple[int, int]:
    """Return first and last position of a row group, from the footer alone; (-1, -1) if it has no statistics."""
    column = metadata.row_group(number).column(_SEQUENCE)
    statistics: Any = column.statistics
    return (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else (-1, -1)


_SEQUENCE = SCHEMA.get_field_index("sequence")
