"""The driver of the pipeline is killed with SIGKILL at random moments, with its JVM and its workers, and started again.

After each kill whoever reads the files sees whole batches and no position twice; at the end the table holds what the
journal holds, for Spark, DuckDB and pyarrow alike; in `make soak` every table is also compared with what a computation
from scratch gives.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pyarrow.dataset as ds
import pytest

from raceway.pipeline.folders import Folders
from raceway.pipeline.tables import MESSAGES
from tests.pipeline.drivers import driver, environment, finished
from tests.pipeline.java import needs_java
from tests.pipeline.journals import add, expected_positions, journal
from tests.rounds import SOAKING, rounds, seeded
from tests.server import wait_until

MESSAGES_AT_FIRST, MESSAGES_MORE = 3000, 1000
ARGUMENTS = ("run", "--once", "--master", "local[2]", "--memory", "1g", "--max-records", "1200")

SPARK_POSITIONS = """
import json, sys
from raceway.pipeline.folders import Folders
from raceway.pipeline.spark import session
folders = Folders(sys.argv[1])
spark = session(folders, master="local[2]", memory="1g", quick=True, delta=sys.argv[2] == "delta")
rows = spark.read.format(sys.argv[2]).load(folders.table("bronze.messages"))
print(json.dumps(sorted(row[0] for row in rows.select("sequence").collect())))
spark.stop()
"""


def duckdb_positions(folder: Path) -> list[int]:
    glob = f"{Folders(folder).table(MESSAGES)}/**/*.parquet"
    return [row[0] for row in duckdb.connect().execute(f"SELECT sequence FROM '{glob}' ORDER BY 1").fetchall()]


def pyarrow_positions(folder: Path) -> list[int]:
    rows = ds.dataset(Folders(folder).table(MESSAGES), partitioning="hive").to_table(["sequence"])
    return sorted(rows.column(0).to_pylist())


def spark_positions(folder: Path, form: str) -> list[int]:
    command = [sys.executable, "-c", SPARK_POSITIONS, str(folder), form]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    found: list[int] = json.loads(done.stdout.splitlines()[-1])
    return found


def parts(folder: Path) -> int:
    table = Path(Folders(folder).table(MESSAGES))
    return len(list(table.glob("range=*"))) if table.is_dir() else 0


def wait_for_part(process: subprocess.Popen[bytes], folder: Path) -> None:
    before = parts(folder)
    wait_until(lambda: parts(folder) > before or process.poll() is not None, 120, "a new part")


# A Delta run is killed in `make soak` only: a round takes half a minute.
@needs_java
@pytest.mark.timeout(200 + 90 * rounds(2))
@pytest.mark.parametrize("form", ["parquet", *(["delta"] if SOAKING else [])])
def test_a_driver_killed_at_any_moment_leaves_every_row_once(tmp_path: Path, form: str) -> None:
    chosen, kills = seeded("pipeline kill"), 0
    with journal(tmp_path / "data", MESSAGES_AT_FIRST) as rig:
        for number in range(rounds(2)):
            with driver(rig.folder, *ARGUMENTS, "--format", form) as process:
                # Most of them are killed somewhere in the work, the others wherever the start is just then.
                if chosen.random() < 0.7:
                    wait_for_part(process, rig.folder)
                    time.sleep(chosen.uniform(0, 3))
                else:
                    time.sleep(chosen.uniform(0, 12))
                kills += process.poll() is None
            if form == "parquet" and parts(rig.folder):
                found = duckdb_positions(rig.folder)
                assert found == pyarrow_positions(rig.folder)
                assert found == expected_positions(rig.folder)[: len(found)], f"after kill {number + 1}"
            add(rig, MESSAGES_MORE, MESSAGES_AT_FIRST + number * MESSAGES_MORE)
        finished(rig.folder, *ARGUMENTS, "--format", form)
        expected = expected_positions(rig.folder)
        assert spark_positions(rig.folder, form) == expected
        if form == "parquet":
            assert duckdb_positions(rig.folder) == pyarrow_positions(rig.folder) == expected
        full = ("--full", "--master", "local[2]") if SOAKING else ()
        verdict = json.loads(finished(rig.folder, "verify", *full, "--json").stdout)
        assert verdict["good"], verdict
        assert verdict["journal"]["rows"] == verdict["journal"]["in_bronze"] == len(expected)
    print(f"{kills} of {rounds(2)} drivers were killed while they ran, {len(expected):,} rows")
