"""Salvage of a damaged block: rows are good if their bytes, in every column, lie in good stripes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from struct import unpack_from

from raceway.journal.format import PLAIN, Meta, StoredColumn
from raceway.journal.integrity.checksum import STRIPE


def good_ranges(meta: Meta, rows: int, body: bytes, bad: Collection[int], names: Iterable[str]) -> list[range]:
    """Return runs of good rows, judged by the columns `names`; `bad` are the numbers of the damaged stripes."""
    # One byte per row: marking a range is a slice assignment, in C.
    good = bytearray(b"\1") * rows
    wanted = set(names)
    for column in meta.columns:
        if column.name in wanted:
            for spoiled in _spoiled(column, rows, body, bad):
                good[spoiled.start : spoiled.stop] = bytes(len(spoiled))
    return list(_runs_of_ones(good))


def _spoiled(column: StoredColumn, rows: int, body: bytes, bad: Collection[int]) -> Iterator[range]:
    """Yield runs of rows that have a byte of this column in a bad stripe."""
    if column.encoding != PLAIN:
        # If the value or the end of a run is damaged, its rows are unknown: all rows are given up. Such columns are
        # small, so a bad stripe rarely hits them.
        if any(True for part in column.parts for _ in _holes(part, bad)):
            yield range(rows)
        return
    validity, numbers, *data = column.parts
    for hole in _holes(validity, bad):
        # Validity bitmap: one byte covers eight rows.
        yield _clipped(hole.start * 8, hole.stop * 8, rows)
    width = 4 if data else 8
    for hole in _holes(numbers, bad):
        # Offsets of a binary column: a row needs the one before it too.
        yield _clipped(hole.start // width - (1 if data else 0), -(-hole.stop // width), rows)
    for hole in _holes(data[0], bad) if data else ():
        yield from _touching(hole, body, numbers[0], rows)


def _holes(part: tuple[int, int], bad: Collection[int]) -> Iterator[range]:
    """Yield the ranges of bad bytes of a part, counted from its beginning."""
    position, size = part
    for stripe in sorted(bad):
        low, high = max(position, stripe * STRIPE), min(position + size, (stripe + 1) * STRIPE)
        if low < high:
            yield range(low - position, high - position)


def _touching(hole: range, body: bytes, ends_at: int, rows: int) -> Iterator[range]:
    """Yield rows whose item reaches into the hole. Damaged offsets have spoiled their rows already."""
    # The body is truncated before the end of the offsets: their stripes are bad, too.
    if len(body) < ends_at + 4 * (rows + 1):
        return
    ends = unpack_from(f"<{rows + 1}i", body, ends_at)
    for row in range(rows):
        # Empty items touch nothing, wherever they lie.
        if ends[row] < hole.stop and ends[row + 1] > hole.start and ends[row] < ends[row + 1]:
            yield range(row, row + 1)


def _clipped(start: int, stop: int, rows: int) -> range:
    """Return the range within 0 and `rows`."""
    return range(max(0, start), min(rows, max(0, stop)))


def _runs_of_ones(flags: bytearray) -> Iterator[range]:
    """Yield the runs of rows whose flag is set."""
    at = 0
    for value, group in groupby(flags):
        size = sum(1 for _ in group)
        if value:
            yield range(at, at + size)
        at += size
