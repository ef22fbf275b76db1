"""One Spark session for all tests of the pipeline: starting one takes seconds, the first query of each kind as well."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import Lake
from raceway.pipeline.spark import session
from tests.pipeline.java import maybe_missing
from tests.pipeline.quick_spark import quick_java

# A time-out interrupts the conversation with Spark's one session, and every later test would fail too.
TIMEOUT_S = 600
# Of an object store that nobody asks.
SECRET = {"spark.hadoop.fs.s3a.secret.key": "hush-hush"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    if missing := maybe_missing():
        pytest.skip(missing)
    os.environ["SPARK_SUBMIT_OPTS"] = quick_java()
    with tempfile.TemporaryDirectory(prefix="raceway-spark-") as folder:
        started = session(Folders(folder), master="local[2]", memory="1g", quick=True, extra=SECRET)
        yield started
        started.stop()


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """An empty lake."""
    return Lake(spark, Folders(tmp_path / "data"))
