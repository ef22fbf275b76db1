"""Filling a lake by hand, part by part, without a journal and without the streaming engine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pyarrow.parquet as pq

from raceway.pipeline.lake import Lake, range_name
from raceway.pipeline.notes import Note
from raceway.pipeline.recompute import refresh
from raceway.pipeline.registry import DERIVED
from raceway.pipeline.tables import MESSAGES, Derived
from raceway.wires.captures.columns import JOURNAL
from tests.pipeline.rows import Row, bronze


def append(lake: Lake, rows: Sequence[Row]) -> str:
    """One part of `bronze.messages`, as a batch of the journal would make it."""
    part = range_name(rows[0]["sequence"], rows[-1]["sequence"])
    file = lake.stage("test") / "rows.parquet"
    pq.write_table(bronze(rows), file)
    note = Note(rows=len(rows), source=JOURNAL, last_us=max(row["time_us"] for row in rows))
    lake.notes.put(MESSAGES, part, note)
    lake.append(MESSAGES, part, [file])
    return part


def fill(lake: Lake, rows: Sequence[Row], cuts: Sequence[int] = (), tables: Sequence[Derived] = DERIVED) -> None:
    """All rows, cut into parts behind the given numbers of rows; every table is brought up to date after each part."""
    edges = sorted({0, len(rows), *(cut for cut in cuts if 0 < cut < len(rows))})
    for first, last in pairwise(edges):
        append(lake, rows[first:last])
        refresh(lake, tables)
