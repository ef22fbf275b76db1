"""Conversion of the columns of a block to the canonical columns of readers.

Works on a range of rows, so that a large block is read in pieces, and on the requested columns, so that the others are
not even loaded. Text and payloads are views of the loaded bytes, not copies.

Scalars passed to Arrow always have a type: inferring one looks for optional packages each time, at 100 µs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from raceway.journal.format import PLAIN, RAMP, SCHEMA, Columns, Meta, StoredColumn, chosen_schema
from raceway.journal.write.columns import FEW, STORED_TYPES
from raceway.model.envelope import DELETED, TEXT_COLUMNS, decode_attributes, decode_hops
from raceway.model.topics import has_wildcard, matches

_TYPES: dict[str, pa.DataType] = {field.name: field.type for field in SCHEMA}
_TEXT = frozenset(TEXT_COLUMNS)
# Batches whose buffers are not larger than this are not measured exactly, which takes as long as decoding a row.
_SMALL = 65_536

# Returns `size` checked bytes of the body at a position.
Load: TypeAlias = Callable[[int, int], pa.Buffer]


def decode_rows(
    meta: Meta, first: int, count: int, load: Load, begin: int, end: int, columns: Columns = None
) -> pa.RecordBatch:
    """Decode rows `begin` to `end` of a block of `count` rows whose first sequence is `first`."""
    schema = chosen_schema(columns)
    block = _BlockRows(meta, first, count, load, begin, end)
    return pa.RecordBatch.from_arrays([block.canonical(name) for name in schema.names], schema=schema)


def of_topic(topics: pa.Array, pattern: str) -> pa.Array:
    """Return a mask of the rows of a topic, compared exactly, or of those that match a pattern with wildcards."""
    return of_topics(topics, [pattern]) if has_wildcard(pattern) else pc.equal(topics, pattern)


def is_deleted(errors: pa.Array) -> pa.Array:
    """Return a mask of the rows whose content was deleted, by their column `error`."""
    return pc.fill_null(pc.equal(errors, pa.scalar(DELETED, pa.string())), pa.scalar(False, pa.bool_()))


def of_topics(topics: pa.Array, patterns: Iterable[str]) -> pa.Array:
    """Return a mask of the rows whose topic is one of these, or matches one of these patterns."""
    wanted = list(patterns)
    # A batch has few distinct topics: match each once, then select rows by equality.
    known = [topic for topic in pc.unique(topics).to_pylist() if topic is not None]
    chosen = [topic for topic in known if any(topic == each or matches(each, topic) for each in wanted)]
    return pc.is_in(topics, pa.array(chosen, pa.string()))


def grouped(batches: Iterable[pa.RecordBatch], rows: int, size: int) -> Iterator[list[pa.RecordBatch]]:
    """Yield consecutive batches as lists of at least so many rows or bytes (the last one may have fewer), without empty
    batches.

    An idle bus has a block for every row, and a batch of one row costs as much as one of thousands.
    """
    waiting: list[pa.RecordBatch] = []
    count = held = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            count, held = count + batch.num_rows, held + batch.nbytes
        if count >= rows or held >= size:
            yield waiting
            waiting, count, held = [], 0, 0
    if waiting:
        yield waiting


class Budget:
    """Limits of a reader. `is_spent` once one was reached: rows that did not fit are left for the next call."""

    def __init__(self, rows: int, size: int) -> None:
        self.rows, self.size = rows, size
        self.is_spent = False

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the first rows of the batch that fit; at least one."""
        taken = batch.slice(0, self.rows)
        size = bytes_of(taken)
        # It includes the payloads: if all columns fit, so do they.
        if size > self.size and "payload" in taken.schema.names:
            totals = pc.cumulative_sum(pc.binary_length(taken.column("payload")).cast(pa.int64()))
            fitting = pc.sum(pc.less_equal(totals, pa.scalar(self.size, pa.int64()))).as_py() or 0
            # At least one row, or a reader could never pass a row larger than its limit.
            taken = taken.slice(0, max(1, fitting))
            size = taken.nbytes
        self.rows -= taken.num_rows
        self.size -= size
        self.is_spent = taken.num_rows < batch.num_rows or self.rows <= 0 or self.size <= 0
        return taken


def bytes_of(batch: pa.RecordBatch) -> int:
    """Return the bytes of a batch: of a small one those of its buffers, also of rows that were cut off."""
    most: int = batch.get_total_buffer_size()
    return most if most <= _SMALL else batch.nbytes


class _BlockRows:
    """Range of rows of one block."""

    def __init__(self, meta: Meta, first: int, count: int, load: Load, begin: int, end: int) -> None:
        self._meta, self._load = meta, load
        self._first, self._count, self._begin, self._end = first, count, begin, end
        self._columns = {column.name: column for column in meta.columns}

    def canonical(self, name: str) -> pa.Array:
        """Return a column in the type of SCHEMA."""
        rows = self._end - self._begin
        match name:
            case "partition":
                return _repeated(0, pa.int32(), rows)
            case "sequence":
                return counted_from(self._first + self._begin, self._begin, self._end)
            case "attributes":
                return _decoded(self._stored(name), _TYPES[name], decode_attributes)
            case "hops":
                return _decoded(self._stored(name), _TYPES[name], _hop_rows)
            case "payload":
                return _filled(self._stored(name), b"")
            case "topic":
                return _filled(self._plain(name), "")
            # A message that begins a chain stores no correlation id: it is its own root.
            case "correlation_id":
                own = self._plain(name)
                return pc.coalesce(own, self._plain("message_id")) if own.null_count else own
        return self._plain(name)

    def _plain(self, name: str) -> pa.Array:
        """Return a column of text or numbers, null where there is no value."""
        rows, kind = self._end - self._begin, _TYPES[name]
        value = self._meta.constants.get(name)
        if value is not None:
            return _repeated(value.decode("utf-8", "replace") if isinstance(value, bytes) else value, kind, rows)
        if name not in self._columns:
            return pa.nulls(rows, kind)
        stored = self._stored(name)
        return _text(stored) if name in _TEXT else stored

    def _stored(self, name: str) -> pa.Array:
        """Return the column as it lies in the block: bytes or numbers."""
        kind, rows = STORED_TYPES[name], self._end - self._begin
        if name in self._meta.constants:
            return _repeated(self._meta.constants[name], kind, rows)
        column = self._columns.get(name)
        if column is None:
            return pa.nulls(rows, kind)
        if column.encoding == PLAIN:
            return self._whole(column, kind) if rows == self._count else self._part(column, kind)
        if column.items == 1 and column.encoding == RAMP and not column.parts[0][1]:
            base = int.from_bytes(self._load(*column.parts[1]), "little", signed=True)
            return counted_from(base + self._begin, self._begin, self._end)
        runs = [self._numbers(column.parts[-1], pa.int32()), self._whole(column, kind)]
        # Same layout as Arrow's run-end encoding: int32 run ends, then one value per run.
        coded = pa.Array.from_buffers(pa.run_end_encoded(pa.int32(), kind), self._count, [None], children=runs)
        values = pc.run_end_decode(coded.slice(self._begin, rows))
        # RAMP stores value minus row number.
        return pc.add(values, counting(self._begin, self._end)) if column.encoding == RAMP else values

    def _whole(self, column: StoredColumn, kind: pa.DataType) -> pa.Array:
        """Return a whole column, without copying."""
        validity, *rest = column.parts[:3] if pa.types.is_binary(kind) else column.parts[:2]
        bits = self._load(*validity) if validity[1] else None
        return pa.Array.from_buffers(kind, column.items, [bits, *(self._load(*part) for part in rest)])

    def _part(self, column: StoredColumn, kind: pa.DataType) -> pa.Array:
        """Return the rows of this range of a column, loading only their bytes."""
        begin, end = self._begin, self._end
        validity, (position, _), *data = column.parts
        if data:
            # n items have n + 1 offsets; the first is subtracted, because the loaded bytes begin there.
            ends = self._numbers((position + 4 * begin, 4 * (end - begin + 1)), pa.int32())
            low, high = ends[0].as_py(), ends[-1].as_py()
            moved = pc.subtract(ends, ends[0])
            content = self._load(data[0][0] + low, high - low)
            array = pa.Array.from_buffers(kind, end - begin, [None, moved.buffers()[1], content])
        else:
            array = self._numbers((position + 8 * begin, 8 * (end - begin)), kind)
        if not validity[1]:
            return array
        # Validity has one bit per row, least significant first; the range may begin within a byte, hence
        # `offset`.
        bits = self._load(validity[0] + begin // 8, (end + 7) // 8 - begin // 8)
        present = pa.Array.from_buffers(pa.bool_(), end - begin, [None, bits], offset=begin % 8)
        return pc.if_else(present, array, pa.scalar(None, kind))

    def _numbers(self, part: tuple[int, int], kind: pa.DataType) -> pa.Array:
        """Return a buffer as an array of numbers."""
        return pa.Array.from_buffers(kind, part[1] // (kind.bit_width // 8), [None, self._load(*part)])


def counting(begin: int, end: int) -> pa.Array:
    """Return begin, begin + 1, … below end: a slice of a cached table, because Arrow has no kernel for it."""
    # Powers of two from 65,536 rows on: a handful of tables serve all blocks.
    size = 1 << max(16, (end - 1).bit_length())
    return _counting_table(size).slice(begin, end - begin)


@cache
def _counting_table(size: int) -> pa.Array:
    """Return 0 to `size` - 1."""
    return pa.array(range(size), pa.int64())


def counted_from(value: int, begin: int, end: int) -> pa.Array:
    """Return value, value + 1, … for the rows `begin` to `end`."""
    if end - begin <= FEW:  # calling a kernel of Arrow would take five times as long
        return pa.array(range(value, value + end - begin), pa.int64())
    return pc.add(counting(begin, end), pa.scalar(value - begin, pa.int64()))


def _repeated(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    """Return an array of `rows` times the same value."""
    return pa.repeat(pa.scalar(value, kind), rows)


def _filled(array: pa.Array, value: Any) -> pa.Array:
    """Replace nulls by a value."""
    return pc.fill_null(array, pa.scalar(value, array.type)) if array.null_count else array


def _text(array: pa.Array) -> pa.Array:
    """Convert bytes to strings; bytes that are not UTF-8 become U+FFFD."""
    if len(array) <= FEW and bytes(array.buffers()[2] or b"").isascii():
        return array.view(pa.string())  # the cast would look at the bytes again, in six times the time
    try:
        return array.cast(pa.string())
    # Rare: a peer sent invalid UTF-8. The cast above validates and copies nothing.
    except pa.ArrowInvalid:
        return pa.array([None if v is None else v.decode("utf-8", "replace") for v in array.to_pylist()], pa.string())


def _decoded(stored: pa.Array, kind: pa.DataType, decode: Callable[[bytes | None], Any]) -> pa.Array:
    """Decode JSON to maps or lists, each distinct text once; empty where there is none."""
    if stored.null_count == len(stored):
        return _empty(kind, len(stored))
    if len(stored) == 1:
        return pa.array([decode(stored[0].as_py())], kind)
    # Attributes repeat from row to row, so few texts have to be parsed.
    distinct = pc.dictionary_encode(stored, null_encoding="encode")
    values = pa.array([decode(text) for text in distinct.dictionary.to_pylist()], kind)
    return values.take(distinct.indices)


def _empty(kind: pa.DataType, rows: int) -> pa.Array:
    """Return `rows` empty lists or maps."""
    ends = pa.py_buffer(bytes(4 * (rows + 1)))
    return pa.Array.from_buffers(kind, rows, [None, ends], children=[_no_items(kind)])


@cache
def _no_items(kind: pa.DataType) -> pa.Array:
    """Return the items of empty lists or maps."""
    return pa.array([], kind.value_type if pa.types.is_list(kind) else pa.struct([kind.key_field, kind.item_field]))


def _hop_rows(text: bytes | None) -> list[dict[str, Any]]:
    """Decode the hops of one row."""
    return [{"sid": hop.sid, "rid": hop.rid, "mid": hop.mid, "tms": hop.tms} for hop in decode_hops(text)]
