"""The driver of the pipeline is killed with SIGKILL at random moments, with its JVM and its workers, and started again.

After each kill whoever reads the table sees whole batches and no position twice; at the end it holds what the journal
holds, for deltalake, Polars and DuckDB alike; in `make soak` every table is also compared with what a computation
from scratch gives.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import Lake
from raceway.pipeline.query import Tables
from raceway.pipeline.tables import MESSAGES
from tests.pipeline.drivers import driver, finished_in_turn
from tests.pipeline.java import needs_java
from tests.pipeline.journals import add, converse, expected_positions, journal
from tests.pipeline.quick_spark import QUICKLY
from tests.rigs.rounds import SOAKING, rounds, seeded
from tests.rigs.server import wait_until

MESSAGES_AT_FIRST, MESSAGES_MORE, REQUESTS = 3000, 1000, 100
ROUNDS = rounds(2)


def deltalake_positions(folder: Path) -> list[int]:
    table = Folders(folder).table(MESSAGES)
    if not DeltaTable.is_deltatable(table):
        return []  # killed before the first commit: there is no table yet
    return sorted(DeltaTable(table).to_pyarrow_table(columns=["sequence"]).column(0).to_pylist())


def duckdb_positions(folder: Path) -> list[int]:
    return [
        row["sequence"]
        for row in Tables(Lake(None, Folders(folder))).select(f"SELECT sequence FROM {MESSAGES} ORDER BY 1").to_pylist()
    ]


def polars_positions(folder: Path) -> list[int]:
    return sorted(pl.scan_delta(Folders(folder).table(MESSAGES)).select("sequence").collect().to_series().to_list())


def versions(folder: Path) -> int:
    return len(list(Path(Folders(folder).table(MESSAGES)).glob("_delta_log/*.json")))


def wait_for_commit(process: subprocess.Popen[bytes], folder: Path) -> None:
    before = versions(folder)
    wait_until(lambda: versions(folder) > before or process.poll() is not None, 120, "a new version")


@pytest.mark.timeout(300 + 120 * ROUNDS)
@needs_java
def test_a_driver_killed_at_any_moment_leaves_every_row_once(tmp_path: Path) -> None:
    arguments = ("run", "--once", "--max-records", "1200", *QUICKLY)
    chosen, kills = seeded("pipeline kill"), 0
    with journal(tmp_path / "data", MESSAGES_AT_FIRST) as rig:
        waiting = converse(rig, REQUESTS)
        for number in range(ROUNDS):
            with driver(rig.folder, *arguments) as process:
                # Most of them are killed somewhere in the work, the others wherever the start is just then.
                if chosen.random() < 0.7:
                    wait_for_commit(process, rig.folder)
                    time.sleep(chosen.uniform(0, 3))
                else:
                    time.sleep(chosen.uniform(0, 12))
                kills += process.poll() is None
            if found := deltalake_positions(rig.folder):
                assert found == expected_positions(rig.folder)[: len(found)], f"after kill {number + 1}"
                assert found == duckdb_positions(rig.folder) == polars_positions(rig.folder)
            add(rig, MESSAGES_MORE, MESSAGES_AT_FIRST + number * MESSAGES_MORE)
            waiting = converse(rig, REQUESTS, waiting)
        verify = ("verify", "--json", *(("--full", *QUICKLY) if SOAKING else ()))
        verdict = json.loads(finished_in_turn(rig.folder, arguments, verify)[-1])
        expected = expected_positions(rig.folder)
        assert deltalake_positions(rig.folder) == expected
        assert duckdb_positions(rig.folder) == polars_positions(rig.folder) == expected
        assert verdict["good"], verdict
        assert verdict["journal"]["rows"] == verdict["journal"]["in_bronze"] == len(expected)
        assert verdict["journal"]["doubled"] == 0
        rows = {table["table"]: table["rows"] for table in verdict["tables"]}
        assert rows["silver.exchanges"] == rows["gold.traces"] == REQUESTS * (ROUNDS + 1)
    print(f"{kills} of {ROUNDS} drivers were killed while they ran, {len(expected):,} rows")
