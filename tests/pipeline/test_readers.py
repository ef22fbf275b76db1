"""Readers that nobody here wrote see the rows of the current version, and only these."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import MERGED, Lake
from raceway.pipeline.snapshot import Snapshot
from raceway.pipeline.tables import MESSAGES
from raceway.pipeline.written import write_rows
from raceway.wires.captures.columns import BRONZE
from tests.pipeline.lakes import append
from tests.pipeline.rows import START_US, bronze, message

DAY_US = 86_400_000_000
ROWS = [
    message(at, time_us=START_US + at % 2 * DAY_US, attributes={"n": str(at)}, payload=f"№ {at}".encode())
    for at in range(6)
]
EXPECTED = [(at, f"№ {at}".encode(), "2023-11-15" if at % 2 else "2023-11-14") for at in range(6)]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A table of two days whose files were merged: those of the earlier versions are still in the folder."""
    lake = Lake(None, Folders(tmp_path / "data"))
    append(lake, ROWS[:4])
    append(lake, ROWS[4:])
    old = lake.paths(MESSAGES)
    merged = list(write_rows(lake.storage, MESSAGES, "time_us", BRONZE, bronze(ROWS).to_batches()))
    lake.commit(MESSAGES, merged, old, kind=MERGED)
    assert len(old) == 4
    return lake


def in_order(rows: pa.Table) -> list[tuple[int, bytes, str]]:
    found = rows.select(["sequence", "payload", "day"]).sort_by("sequence").to_pylist()
    return [(row["sequence"], row["payload"], str(row["day"])) for row in found]


def test_deltalake_and_pyarrow(lake: Lake) -> None:
    table = DeltaTable(lake.storage.url(MESSAGES))
    assert in_order(table.to_pyarrow_table()) == EXPECTED
    dataset = table.to_pyarrow_dataset()
    assert isinstance(dataset, ds.Dataset)
    assert in_order(dataset.to_table(filter=ds.field("sequence") >= 4)) == EXPECTED[4:]


def test_polars(lake: Lake) -> None:
    found = pl.scan_delta(lake.storage.url(MESSAGES)).select("sequence", "payload", "day").sort("sequence").collect()
    assert [(at, payload, str(day)) for at, payload, day in found.rows()] == EXPECTED


def test_duckdb_gets_the_files_of_the_current_version(lake: Lake) -> None:
    """Its own extension for Delta is loaded from the network; the names of files and a dataset are not."""
    files = Snapshot(lake.storage, MESSAGES).locations()
    sql = "SELECT sequence, payload, CAST(day AS VARCHAR) FROM {} ORDER BY 1"
    assert duckdb.execute(sql.format(f"read_parquet({files}, hive_partitioning = true)")).fetchall() == EXPECTED
    with duckdb.connect() as connection:
        connection.register("messages", DeltaTable(lake.storage.url(MESSAGES)).to_pyarrow_dataset())
        assert connection.execute(sql.format("messages")).fetchall() == EXPECTED
