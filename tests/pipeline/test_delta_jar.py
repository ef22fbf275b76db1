"""Spark with the official Delta jar reads the tables: as DataFrames, and by name in `spark-sql`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import MERGED, Lake
from raceway.pipeline.tables import MESSAGES
from raceway.pipeline.written import write_rows
from raceway.wires.captures.columns import BRONZE
from tests.pipeline import delta_readers
from tests.pipeline.delta_readers import DELTA, QUICK_DELTA
from tests.pipeline.java import needs_java
from tests.pipeline.lakes import append
from tests.pipeline.rows import START_US, bronze, message
from tools.jars import JarsError

DAY_US = 86_400_000_000
ROWS = [message(at, time_us=START_US + at % 2 * DAY_US, payload=f"№ {at}".encode()) for at in range(6)]
AS_FRAMES = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.jars", sys.argv[1])
for key, value in json.loads(sys.argv[2]).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
read = lambda **more: spark.read.format("delta").options(**more).load(sys.argv[3])
shown = ("sequence", "cast(payload as string)", "cast(day as string)")
rows = read().where("sequence >= 4").orderBy("sequence").selectExpr(*shown)
print(json.dumps([read().count(), read(versionAsOf="0").count(), [list(row) for row in rows.collect()]]))
"""


@pytest.fixture(scope="module")
def jars() -> str:
    try:
        return delta_readers.jars()
    except JarsError as error:
        pytest.skip(str(error))


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A table of two days whose files were merged: those of the earlier versions are still in the folder."""
    lake = Lake(None, Folders(tmp_path / "data"))
    append(lake, ROWS[:4])
    append(lake, ROWS[4:])
    merged = list(write_rows(lake.storage, MESSAGES, "time_us", BRONZE, bronze(ROWS).to_batches()))
    lake.commit(MESSAGES, merged, lake.paths(MESSAGES), kind=MERGED)
    return lake.storage.url(MESSAGES)


def ran(folder: Path, *command: str) -> list[str]:
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [line for line in done.stdout.splitlines() if line]


@needs_java
@pytest.mark.may_skip
@pytest.mark.timeout(600)
def test_spark_with_the_official_jar(jars: str, table: str, tmp_path: Path) -> None:
    told = json.loads(ran(tmp_path, sys.executable, "-c", AS_FRAMES, jars, json.dumps(DELTA | QUICK_DELTA), table)[-1])
    assert told == [6, 4, [[4, "№ 4", "2023-11-14"], [5, "№ 5", "2023-11-15"]]]


@needs_java
@pytest.mark.may_skip
@pytest.mark.timeout(600)
def test_spark_sql_by_name(jars: str, table: str, tmp_path: Path) -> None:
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    settings = [text for key, value in (DELTA | QUICK_DELTA).items() for text in ("--conf", f"{key}={value}")]
    sql = (
        f"CREATE TABLE messages USING delta LOCATION '{table}'; "
        "SELECT count(*), max(sequence), min(cast(payload AS string)) FROM messages;"
    )
    # The catalogue in memory: Hive's would be made anew for each call, which takes a minute.
    settings += ["--conf", "spark.sql.catalogImplementation=in-memory"]
    command = str(Path(spark.origin).parent / "bin" / "spark-sql")
    lines = ran(tmp_path, command, "--master", "local[1]", "--jars", jars, *settings, "-e", sql)
    assert "6\t5\t№ 0" in lines
