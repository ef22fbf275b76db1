"""Positions in a topic, and rows read from there: for new subscriptions and queues, and for readers.

Safe in any thread, because much may have to be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from raceway.errors import TrimmedError
from raceway.journal.contract import Journal
from raceway.model.envelope import REQUEST
from raceway.model.subscriptions import Start


class Place(NamedTuple):
    """An offset, and the number of requests among the rows from there to `end`."""

    offset: int
    requests: int
    end: int


def find_place(journal: Journal, topic: str, start: Start) -> Place:
    offset = find_offset(journal, topic, start)
    end = journal.offsets(topic)[1]
    return Place(offset, count_requests(journal, topic, offset, end), end)


def find_offset(journal: Journal, topic: str, start: Start) -> int:
    """Return the offset of a start position, between the first remaining offset and the end."""
    first, end = journal.offsets(topic)
    if start.at == "first":
        return first
    if start.at == "offset":
        return min(max(start.value, first), end)
    return offset_at(journal, topic, "time_us", start.value, first, end) if start.at == "time" else end


def count_requests(journal: Journal, topic: str, begin: int, end: int) -> int:
    """Return how many rows between two offsets are requests."""
    count = 0
    while begin < end:
        rows = rows_of(journal.read_topic(topic, begin, columns=("offset", "kind")))
        if not rows:
            break
        count += sum(row["kind"] == REQUEST.decode() and row["offset"] < end for row in rows)
        begin = rows[-1]["offset"] + 1
    return count


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Return rows of the journal as mappings by column."""
    rows: list[dict[str, Any]] = [row for batch in batches for row in batch.to_pylist()]
    for row in rows:
        # Arrow would make the mapping itself, but then takes eight times as long for all columns.
        if "attributes" in row:
            row["attributes"] = dict(row["attributes"])
    return rows


def offset_at(journal: Journal, topic: str, column: str, value: int, first: int, end: int) -> int:
    """Return the offset of the first row with this time or sequence or a later one, by binary search: both ascend
    within a topic."""
    while first < end:
        middle = (first + end) // 2
        try:
            row = next(iter(rows_of(journal.read_topic(topic, middle, 1, columns=("offset", column)))), None)
        except TrimmedError:
            first = max(middle + 1, journal.offsets(topic)[0])
            continue
        if row is not None and row[column] < value:
            first = row["offset"] + 1
        else:
            end = middle
    return end
