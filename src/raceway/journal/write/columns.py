"""Conversion of batches to the columns of a block. Hot path of the writer: work per column and per batch, not per row.

Rows are touched by C code only (`list.extend`, `pyarrow.array`, `bytes.join`). A column that is a single value within
each batch (kind, topic, producer, time) is stored as runs, and as one constant when all batches agree; offsets of a
batch with one topic are a range, which is stored as a ramp. Together a block of 65,536 rows costs about 0.1 µs a row.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, islice
from operator import ne
from struct import Struct
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from raceway.journal.format import ALIGNMENT, PLAIN, RAMP, RUNS, StoredColumn
from raceway.model.envelope import COLUMNS, NUMBER_COLUMNS

# Type of each column within a block: text is stored as the bytes it came as; readers get it as strings.
STORED_TYPES: dict[str, pa.DataType] = {name: pa.int64() if name in NUMBER_COLUMNS else pa.binary() for name in COLUMNS}
# Below these, calling Arrow is most of the cost of a block (one request, one answer), so plain Python does the work.
FEW, FEW_BYTES = 64, 1024
# Number of lists from which `chain` joins them faster than `+=` in a loop.
_MANY = 1000
# Mean length of lists up to which it does so for any number of them.
_SHORT = 4
_NUMBERS = frozenset(NUMBER_COLUMNS)
# Offsets of a text column with one item.
_ONE_ITEM = Struct("=ii")
_PADDING = [bytes(size) for size in range(ALIGNMENT)]


class Layout:
    """Collects the columns of one block, then returns its body."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.columns: list[StoredColumn] = []
        self.constants: dict[str, bytes | int] = {}
        self._pieces: list[Any] = []
        self._size = 0

    def body(self) -> bytes:
        """Return all buffers with their padding."""
        return b"".join(self._pieces)

    def add_one(self, name: str, value: Any) -> None:
        """Add a column of the only batch: None, a value, a list or a range."""
        kind = type(value)
        if kind is list:
            self._store(name, PLAIN, value, None)
        elif kind is range:
            self._store(name, RAMP, [value.start], [self.rows])
        elif value is not None:
            self.constants[name] = value

    def add(self, name: str, values: list[Any], counts: Sequence[int]) -> None:
        """Add a column. `values` has per batch None, a value, a list or a range; `counts` the rows of each batch."""
        kinds = set(map(type, values))
        # Type checks per batch, never per row: `set(map(type, …))` runs in C.
        if list in kinds:
            self._store(name, PLAIN, _flat(values, counts, only_lists=len(kinds) == 1), None)
            return
        ramp = range in kinds
        if not ramp and values.count(values[0]) == len(values):
            if values[0] is not None:
                self.constants[name] = values[0]
            return
        # A run costs its value and a 4-byte end; with less than two rows per run a plain column is smaller.
        if not ramp and 2 * (_changes(values) + 1) > self.rows:
            self._store(name, PLAIN, _flat(values, counts), None)
            return
        items, ends = _ramps(values, counts) if ramp else _runs(values, counts)
        if 2 * len(items) <= self.rows or len(items) == 1:
            self._store(name, RAMP if ramp else RUNS, items, ends)
        else:
            self._store(name, PLAIN, _flat(values, counts), None)

    def _store(self, name: str, encoding: int, items: list[Any], ends: list[int] | None) -> None:
        """Place the buffers of a column in the body. A column of nulls only is left out."""
        buffers = _few(name, items) if len(items) <= FEW and None not in items else _many(name, items)
        if buffers is None:
            return
        parts = [self._place(buffer) for buffer in buffers]
        if ends is not None:
            parts.append(self._place(array("i", ends).tobytes()))
        self.columns.append(StoredColumn(name, encoding, len(items), parts))

    def _place(self, buffer: pa.Buffer | bytes | None) -> tuple[int, int]:
        """Append a buffer and its padding; return its position and size."""
        # Arrow has no validity bitmap where nothing is null.
        if buffer is None:
            return 0, 0
        position, size = self._size, len(buffer)
        self._pieces.append(buffer)
        # Arrow reads int64 buffers in place, which needs 8-byte alignment in memory, hence within the body.
        padding = -size % ALIGNMENT
        if padding:
            self._pieces.append(_PADDING[padding])
        self._size = position + size + padding
        return position, size


def _few(name: str, items: list[Any]) -> list[bytes | None]:
    """Return the Arrow buffers of a few items without None. Calling Arrow for each column would take three times as
    long."""
    if name in _NUMBERS:
        return [None, array("q", items).tobytes()]
    # Arrow's binary layout: int32 offsets, one more than items, then the bytes of all items.
    if len(items) == 1:
        return [None, _ONE_ITEM.pack(0, len(items[0])), items[0]]
    return [None, array("i", accumulate(map(len, items), initial=0)).tobytes(), b"".join(items)]


def _many(name: str, items: list[Any]) -> list[pa.Buffer | None] | None:
    """Return the Arrow buffers of many items; None if all of them are null."""
    column = pa.array(items, STORED_TYPES[name])
    return None if column.null_count == len(column) else column.buffers()


def lay_out(batches: Sequence[Mapping[str, Any]], counts: Sequence[int]) -> Layout:
    """Return the layout of these batches, one after the other. Each batch maps column names to values."""
    layout = Layout(sum(counts))
    # Columns in the fixed order of COLUMNS: the same rows always give the same bytes.
    if len(batches) == 1:
        (batch,) = batches
        for name in COLUMNS:
            if name in batch:
                layout.add_one(name, batch[name])
        return layout
    used = set().union(*batches)
    for name in COLUMNS:
        if name in used:
            layout.add(name, [batch.get(name) for batch in batches], counts)
    return layout


def word_sum(body: bytes) -> int:
    """Return the sum of the 32-bit words of a body: exact in 64 bits, as a body has less than 2^32 words."""
    if len(body) <= FEW_BYTES:
        return sum(memoryview(body).cast("I"))
    words = pa.Array.from_buffers(pa.uint32(), len(body) // 4, [None, pa.py_buffer(body)])
    return int(pc.sum(words).as_py())


def _flat(values: Sequence[Any], counts: Sequence[int], only_lists: bool = False) -> list[Any]:
    """Return a list with one item per row."""
    if only_lists and len(values) == 1:
        found: list[Any] = values[0]
        return found
    rows = sum(counts)
    if only_lists and (len(values) > _MANY or rows <= _SHORT * len(values)):
        return list(chain.from_iterable(values))  # quicker for lists of few items, slower for long ones
    if rows == len(values) and not {list, range} & set(map(type, values)):
        return list(values)
    flat: list[Any] = []
    for value, count in zip(values, counts, strict=True):
        if type(value) is list or type(value) is range:
            flat += value
        else:
            flat += [value] * count
    return flat


def _changes(values: Sequence[Any]) -> int:
    """Return how often a value differs from the one before it."""
    return sum(map(ne, values, islice(values, 1, None)))


def _runs(values: Sequence[Any], counts: Sequence[int]) -> tuple[list[Any], list[int]]:
    """Return the values without repetition of neighbours, and the row where each run ends."""
    items: list[Any] = []
    ends: list[int] = []
    row = 0
    for value, count in zip(values, counts, strict=True):
        row += count
        if items and items[-1] == value:
            ends[-1] = row
        else:
            items.append(value)
            ends.append(row)
    return items, ends


def _ramps(values: Sequence[range | None], counts: Sequence[int]) -> tuple[list[int | None], list[int]]:
    """Return runs of value minus row, which is constant while a topic's offsets continue from batch to batch."""
    bases: list[int | None] = []
    row = 0
    for value, count in zip(values, counts, strict=True):
        bases.append(None if value is None else value.start - row)
        row += count
    return _runs(bases, counts)
