"""One Spark session for all tests of the pipeline: starting one takes seconds, the first query of each kind as well."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import ParquetLake
from raceway.pipeline.spark import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with tempfile.TemporaryDirectory(prefix="raceway-spark-") as folder:
        started = session(Folders(folder), master="local[2]", memory="1g", quick=True)
        yield started
        started.stop()


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> ParquetLake:
    """An empty lake."""
    return ParquetLake(spark, Folders(tmp_path / "data"))
