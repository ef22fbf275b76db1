"""Batch and live give the same tables, row by row, wherever batches have their borders.

Batch is every transform over everything at once. Live is what the runner does: batches one after the other, each
followed by a refresh, small files merged now and then.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from raceway.pipeline import keeping
from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import Lake
from raceway.pipeline.refreshing import refresh
from raceway.pipeline.registry import DERIVED
from raceway.pipeline.tables import HOUR_US, MINUTE_US, Inputs, Limits
from tests.pipeline.lakes import append, content
from tests.pipeline.rows import Row, inputs
from tests.pipeline.worlds import VERSIONS, worlds
from tests.rigs.rounds import SOAKING, rounds

# Short enough for the worlds: spans close, and traces roll.
LIMITS = Limits(2 * MINUTE_US, HOUR_US)


def in_batch(spark: SparkSession, rows: list[Row]) -> dict[str, list[str]]:
    given_rows = inputs(spark, rows, VERSIONS)
    frames = dict(given_rows.frames)
    found = {}
    for table in DERIVED:
        frames[table.name] = table.transform(Inputs(frames, given_rows.horizons, VERSIONS, LIMITS))
        found[table.name] = content(frames[table.name], table.ddl)
    return found


def live(lake: Lake, rows: list[Row], cuts: list[int], merged_after: int) -> dict[str, list[str]]:
    for version in VERSIONS:
        lake.book.learn(version)
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    for number, (first, last) in enumerate(pairwise(edges)):
        append(lake, rows[first:last])
        refresh(lake)
        if number == merged_after:
            keeping.compact(lake)
    return {table.name: content(lake.frame(table.name), table.ddl) for table in DERIVED}


# To shrink a failure takes hundreds of runs: `make soak` has the time.
_PHASES = [Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if SOAKING else [])]


@settings(max_examples=rounds(1), phases=_PHASES, suppress_health_check=list(HealthCheck))
@given(worlds(), st.lists(st.integers(1, 40), min_size=2, max_size=3, unique=True), st.integers(0, 2))
def test_batch_and_live_are_the_same_rows(
    spark: SparkSession, rows: list[Row], cuts: list[int], merged_after: int
) -> None:
    with TemporaryDirectory() as folder:
        found = live(Lake(spark, Folders(Path(folder)), limits=LIMITS), rows, cuts, merged_after)
    for name, expected in in_batch(spark, rows).items():
        assert found[name] == expected, name
