"""Batch and live give the same tables, row by row, wherever batches and buckets have their borders.

Batch is every transform over everything at once. Live is what the runner does: parts one after the other, each followed
by a refresh of what it touches, small parts merged now and then.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from raceway.pipeline import compaction
from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import ParquetLake
from raceway.pipeline.recompute import refresh
from raceway.pipeline.registry import DERIVED
from raceway.pipeline.tables import MESSAGES, REJECTED_MESSAGES, Inputs
from raceway.pipeline.transforms.rejected import rejected
from tests.pipeline.lakes import append
from tests.pipeline.rows import Row, inputs
from tests.pipeline.worlds import VERSIONS, worlds
from tests.rigs.rounds import SOAKING, rounds

BUCKET_ROWS = 7


@pytest.fixture(autouse=True)
def _small_buckets() -> Iterator[None]:
    with patch("raceway.pipeline.tables.BUCKET_ROWS", BUCKET_ROWS):
        yield


def content(rows: DataFrame, ddl: str) -> list[str]:
    """Rows as text, in order; maps cannot be compared as they are."""
    names = [field.name for field in rows.sparkSession.createDataFrame([], ddl).schema.fields]
    return sorted(row[0] for row in rows.select(F.to_json(F.struct(*names))).collect())


def in_batch(spark: SparkSession, rows: list[Row]) -> dict[str, list[str]]:
    given_rows = inputs(spark, rows, VERSIONS)
    frames = dict(given_rows.frames)
    frames[REJECTED_MESSAGES] = rejected(frames[MESSAGES])
    found = {}
    for table in DERIVED:
        made = table.transform(Inputs(frames, given_rows.horizons, schemas=VERSIONS))
        frames[table.name] = made.withColumnRenamed("bucket", "part")
        found[table.name] = content(made, table.ddl)
    return found


def live(lake: ParquetLake, rows: list[Row], cuts: list[int], merged_after: int) -> dict[str, list[str]]:
    for version in VERSIONS:
        lake.book.learn(version)
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    for number, (first, last) in enumerate(pairwise(edges)):
        append(lake, rows[first:last])
        refresh(lake)
        if number == merged_after:
            compaction.compact(lake, full_rows=len(rows))
    return {table.name: content(lake.frame(table.name), table.ddl) for table in DERIVED}


# To shrink a failure takes hundreds of runs: `make soak` has the time.
_PHASES = [Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if SOAKING else [])]


@settings(max_examples=rounds(1), phases=_PHASES, suppress_health_check=list(HealthCheck))
@given(worlds(), st.lists(st.integers(1, 40), min_size=2, max_size=3, unique=True), st.integers(0, 2))
def test_batch_and_live_are_the_same_rows(
    spark: SparkSession, rows: list[Row], cuts: list[int], merged_after: int
) -> None:
    with TemporaryDirectory() as folder:
        found = live(ParquetLake(spark, Folders(Path(folder))), rows, cuts, merged_after)
    for name, expected in in_batch(spark, rows).items():
        assert found[name] == expected, name
