"""Filling a lake by hand, batch by batch, without a journal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from raceway.pipeline.lake import LANE, Lake
from raceway.pipeline.refreshing import refresh
from raceway.pipeline.registry import DERIVED
from raceway.pipeline.tables import MESSAGES, Derived
from raceway.pipeline.written import write_rows
from raceway.wires.captures.columns import BRONZE, columns_of
from tests.pipeline.rows import Row, bronze


def content(rows: DataFrame, ddl: str) -> list[str]:
    """Rows as text, in order; maps cannot be compared as they are."""
    names = [name for name, _ in columns_of(ddl)]
    shown = [
        F.sort_array(F.map_entries(name)).alias(name) if "map<int" in kind else F.col(name)
        for name, kind in columns_of(ddl)
    ]
    return sorted(row[0] for row in rows.select(*names).select(F.to_json(F.struct(*shown))).collect())


def append(lake: Lake, rows: Sequence[Row]) -> None:
    """Commit rows to `bronze.messages`, as a batch of the journal would."""
    files = list(write_rows(lake.storage, MESSAGES, "time_us", BRONZE, bronze(rows).to_batches()))
    lake.commit(MESSAGES, files, progress={LANE: rows[-1]["sequence"] + 1})


def fill(lake: Lake, rows: Sequence[Row], cuts: Sequence[int] = (), tables: Sequence[Derived] = DERIVED) -> None:
    """All rows, cut into batches behind the given numbers of rows; every table is brought up to date after each."""
    edges = sorted({0, len(rows), *(cut for cut in cuts if 0 < cut < len(rows))})
    for first, last in pairwise(edges):
        append(lake, rows[first:last])
        refresh(lake, tables)
