"""Operations on many parts of one run of bytes at a time: positions (NumPy) and parts (Arrow), without a Python loop.

Places are offsets into the bytes, in ascending order. Parts are given by where they start and stop; they must not
overlap and must come in order, because consecutive cuts *are* the offsets of an Arrow array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raceway.model.text import is_utf8

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Places = NDArray[np.int64]
    Mask = NDArray[np.bool_]


class Bytes:
    """Run of bytes; `codes` are the bytes as numbers."""

    def __init__(self, data: bytes | NDArray[np.uint8]) -> None:
        self.codes = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
        self._buffer = pa.py_buffer(self.codes)

    def places_of(self, byte: bytes, other: bytes | None = None) -> Places:
        """Return where this byte occurs, or one of two: searching for both takes little longer than for one."""
        found = self.codes == byte[0]
        if other is not None:
            found |= self.codes == other[0]
        return np.flatnonzero(found)

    def places_in(self, table: Mask) -> Places:
        """Return where bytes occur that are marked in a table of 256."""
        return np.flatnonzero(table[self.codes])

    def parts(self, starts: Places, stops: Places) -> pa.Array:
        """Return the parts as an array of `binary`."""
        if not len(starts):
            return pa.array([], pa.binary())
        # Parts and the gaps between them alternate in one array over the same buffer; every second item is a
        # part.
        cuts = np.empty(2 * len(starts) + 1, np.int32)
        cuts[:-1:2], cuts[1::2], cuts[-1] = starts, stops, stops[-1]
        both = pa.Array.from_buffers(pa.binary(), len(cuts) - 1, [None, pa.py_buffer(cuts), self._buffer])
        return both.take(pa.array(np.arange(0, len(cuts) - 1, 2)))

    def stripped(self, starts: Places, stops: Places, blanks: bytes = b" \t") -> tuple[Places, Places]:
        """Return the borders without blanks at both ends. Each step looks only at parts that still have one."""
        is_blank = np.zeros(256, np.bool_)
        is_blank[list(blanks)] = True
        starts, stops = starts.copy(), stops.copy()
        for edge, step, place in ((starts, 1, 0), (stops, -1, -1)):
            rows = np.flatnonzero(starts < stops)
            while len(rows := rows[is_blank[self.codes[edge[rows] + place]]]):
                edge[rows] += step
                rows = rows[starts[rows] < stops[rows]]
        return starts, stops


def first_from(places: Places, starts: Places, none: int) -> Places:
    """Return the first of these places at or after each start; `none` if there is none."""
    return np.append(places, none)[np.searchsorted(places, starts)]


def count_between(places: Places, starts: Places, stops: Places) -> Places:
    """Return how many of these places lie in each part."""
    return np.searchsorted(places, stops) - np.searchsorted(places, starts)


def matches(values: pa.Array, pattern: str) -> Mask:
    """Return a mask of the values in which the pattern (RE2, one character for each byte) matches."""
    return as_mask(pc.match_substring_regex(values, pattern))


def as_mask(values: pa.Array) -> Mask:
    """Return booleans for NumPy; NULL is false."""
    found: Mask = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return found


def coded(codes: NDArray[np.int32], values: pa.Array) -> pa.Array:
    """Return few values in many rows as a dictionary array. Values must be distinct."""
    return pa.DictionaryArray.from_arrays(pa.array(codes), values)


def is_text(values: pa.Array) -> Mask:
    """Return a mask of the values that are UTF-8. Checked one by one only if not all are."""
    try:
        values.cast(pa.string())
        return np.ones(len(values), np.bool_)
    except pa.ArrowInvalid:
        return np.array([is_utf8(value) for value in values.to_pylist()], np.bool_)


def replaced_text(values: pa.Array) -> pa.Array:
    """Return values as `string`; invalid UTF-8 becomes replacement characters, as in the sentences of the codecs."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if value is None else value.decode("utf-8", "replace") for value in values.to_pylist()]
        return pa.array(texts, pa.string())


def sentence(start: str, middle: pa.Array, end: str = "") -> pa.Array:
    """Return each text with `start` and `end` around it."""
    return pc.binary_join_element_wise(start, middle, end, "")
