"""All rows of a table as readers have them that nobody here wrote, in a form in which they can be compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from raceway.pipeline.spark import QUICK, QUICK_JAVA
from tools.jars import fetch

ROOT = Path(__file__).parent.parent.parent
LOCK = ROOT / "tools" / "delta-jars.txt"
JAR_S = 300
# What the manual says to tell Spark for Delta's own jar.
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
# For tables of a few rows: their log is read in one task instead of fifty.
QUICK_DELTA = {
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    **QUICK,
}
_OFFICIAL = """
import json, sys
from pyspark.sql import SparkSession
from tests.pipeline.delta_readers import plain_rows
builder = SparkSession.builder.master("local[2]").config("spark.jars", sys.argv[1])
for key, value in json.loads(sys.argv[2]).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
for table in sys.stdin.read().splitlines():
    print(json.dumps(plain_rows(spark.read.format("delta").load(table).toArrow())), flush=True)
"""


def jars() -> str:
    """The official jar and what it needs, for `spark.jars`. Raises JarsError."""
    return ",".join(map(str, fetch(LOCK)))


def by_deltalake(table: str) -> list[str]:
    return plain_rows(DeltaTable(table).to_pyarrow_table())


def by_pyarrow(table: str) -> list[str]:
    """The files of the current version as a dataset of Parquet files, without Delta."""
    files = DeltaTable(table).file_uris()
    return plain_rows(ds.dataset(files, partitioning="hive", partition_base_dir=table).to_table()) if files else []


def by_polars(table: str) -> list[str]:
    return plain_rows(pl.scan_delta(table).collect().to_arrow())


def by_duckdb(table: str) -> list[str]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("files", DeltaTable(table).to_pyarrow_dataset())
        return plain_rows(connection.sql("SELECT * FROM files").to_arrow_table())


READERS: tuple[Callable[[str], list[str]], ...] = (by_deltalake, by_pyarrow, by_polars, by_duckdb)


def by_official_jar(tables: Sequence[str], folder: Path) -> list[list[str]]:
    """The rows of each of these tables, by one session of Spark with Delta's own jar; it works in this folder."""
    done = subprocess.run(
        [sys.executable, "-c", _OFFICIAL, jars(), json.dumps(DELTA | QUICK_DELTA)],
        input="\n".join(tables), cwd=folder, capture_output=True, text=True, timeout=JAR_S, check=False,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[list[str]] = [json.loads(line) for line in done.stdout.splitlines()]
    return found


def plain_rows(rows: pa.Table) -> list[str]:
    """Rows in order, each as text: every reader has types of its own for times, maps and partitions."""
    return sorted(json.dumps(_plain(row), sort_keys=True) for row in rows.to_pylist())


def _plain(value: Any) -> Any:
    match value:
        case bool():
            return str(value).lower()  # as a folder of a partition is named
        case bytes():
            return value.hex()
        case datetime():
            return value.astimezone(UTC).isoformat()
        case date():
            return value.isoformat()
        case dict():
            return [list(map(_plain, pair)) for pair in sorted(value.items())]
        case list() | tuple():
            return _plain_items(value)
        case _:
            return value


def _plain_items(values: Sequence[Any]) -> list[Any]:
    """Items of a list in order; those of a map, which some readers have as a list of pairs or of entries, by key."""
    entries = [
        (value["key"], value["value"]) if isinstance(value, dict) and value.keys() == {"key", "value"} else value
        for value in values
    ]
    if entries and all(isinstance(each, tuple) and len(each) == 2 for each in entries):
        return [list(map(_plain, pair)) for pair in sorted(entries)]
    return [_plain(each) for each in entries]
