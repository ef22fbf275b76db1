"""The driver of the pipeline is killed with SIGKILL at random moments, with its JVM and its workers, and started again.

After each kill whoever reads the files sees whole batches and no position twice; at the end the table holds what the
journal holds, for Spark, DuckDB and pyarrow alike; in `make soak` every table is also compared with what a computation
from scratch gives.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import duckdb
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from raceway.pipeline.folders import Folders
from raceway.pipeline.tables import MESSAGES
from tests.pipeline.delta import skip_without_delta
from tests.pipeline.drivers import driver, finished_in_turn
from tests.pipeline.journals import add, converse, expected_positions, journal
from tests.pipeline.quick_spark import QUICKLY
from tests.rigs.rounds import SOAKING, rounds, seeded
from tests.rigs.server import wait_until

MESSAGES_AT_FIRST, MESSAGES_MORE, REQUESTS = 3000, 1000, 100
ROUNDS = rounds(2)


def duckdb_positions(folder: Path) -> list[int]:
    glob = f"{Folders(folder).table(MESSAGES)}/**/*.parquet"
    return [row[0] for row in duckdb.connect().execute(f"SELECT sequence FROM '{glob}' ORDER BY 1").fetchall()]


def pyarrow_positions(folder: Path) -> list[int]:
    rows = ds.dataset(Folders(folder).table(MESSAGES), partitioning="hive").to_table(["sequence"])
    return sorted(rows.column(0).to_pylist())


def spark_positions(spark: SparkSession, folder: Path, form: str) -> list[int]:
    table = Path(Folders(folder).table(MESSAGES))
    if form == "delta" and not list(table.glob("_delta_log/*.json")):
        return []  # killed before the first transaction: there is no table yet
    rows = spark.read.format(form).load(str(table))
    return sorted(row[0] for row in rows.select("sequence").collect())


def parts(folder: Path) -> int:
    table = Path(Folders(folder).table(MESSAGES))
    return len(list(table.glob("range=*"))) if table.is_dir() else 0


def wait_for_part(process: subprocess.Popen[bytes], folder: Path) -> None:
    before = parts(folder)
    wait_until(lambda: parts(folder) > before or process.poll() is not None, 120, "a new part")


# A Delta run is killed in `make soak` only: a round takes half a minute.
@pytest.mark.timeout(300 + 120 * ROUNDS)
@pytest.mark.parametrize("form", ["parquet", *(["delta"] if SOAKING else [])])
def test_a_driver_killed_at_any_moment_leaves_every_row_once(spark: SparkSession, tmp_path: Path, form: str) -> None:
    if form == "delta":
        skip_without_delta()
    arguments = ("run", "--once", "--max-records", "1200", "--format", form, *QUICKLY)
    chosen, kills = seeded("pipeline kill"), 0
    with journal(tmp_path / "data", MESSAGES_AT_FIRST) as rig:
        waiting = converse(rig, REQUESTS)
        for number in range(ROUNDS):
            with driver(rig.folder, *arguments) as process:
                # Most of them are killed somewhere in the work, the others wherever the start is just then.
                if chosen.random() < 0.7:
                    wait_for_part(process, rig.folder)
                    time.sleep(chosen.uniform(0, 3))
                else:
                    time.sleep(chosen.uniform(0, 12))
                kills += process.poll() is None
            if parts(rig.folder):
                found = spark_positions(spark, rig.folder, form)
                assert found == expected_positions(rig.folder)[: len(found)], f"after kill {number + 1}"
                if form == "parquet":
                    assert found == duckdb_positions(rig.folder) == pyarrow_positions(rig.folder)
            add(rig, MESSAGES_MORE, MESSAGES_AT_FIRST + number * MESSAGES_MORE)
            waiting = converse(rig, REQUESTS, waiting)
        verify = ("verify", "--json", *(("--full", *QUICKLY) if SOAKING else ()))
        verdict = json.loads(finished_in_turn(rig.folder, arguments, verify)[-1])
        expected = expected_positions(rig.folder)
        assert spark_positions(spark, rig.folder, form) == expected
        if form == "parquet":
            assert duckdb_positions(rig.folder) == pyarrow_positions(rig.folder) == expected
        assert verdict["good"], verdict
        assert verdict["journal"]["rows"] == verdict["journal"]["in_bronze"] == len(expected)
        assert verdict["journal"]["doubled"] == 0
        rows = {table["table"]: table["rows"] for table in verdict["tables"]}
        assert rows["silver.exchanges"] == rows["gold.traces"] == REQUESTS * (ROUNDS + 1)
    print(f"{form}: {kills} of {ROUNDS} drivers were killed while they ran, {len(expected):,} rows")
