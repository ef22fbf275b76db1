"""A batch that comes again, or in another cut, changes nothing; buckets are replaced under the eyes of readers."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import Lake, ParquetLake, maybe_positions, range_name
from raceway.pipeline.staged import Staged
from raceway.pipeline.tables import MESSAGES, REJECTED_MESSAGES, Derived
from raceway.wires.captures.columns import BRONZE, REJECTED
from tests.pipeline.rows import bronze, message

BUCKETED = Derived(
    name="silver.bucketed",
    ddl="sequence bigint, value bigint, wait_us bigint",
    key=("sequence",),
    transform=lambda inputs: inputs[MESSAGES],
    looks_at={MESSAGES: ()},
    due="wait_us",
)


def stage(lake: Lake, lo: int, hi: int, files: int = 1) -> list[Staged]:
    """What the source hands over for the positions `lo` to `hi`."""
    edges = [lo + (hi + 1 - lo) * n // files for n in range(files + 1)]
    found = []
    for first, stop in pairwise(edges):
        path = lake.stage("batch") / "rows.parquet"
        pq.write_table(bronze(message(n) for n in range(first, stop)), path)
        found.append(Staged(str(path), first, stop - 1, stop - first, path.stat().st_size, 0, 0, "[]"))
    return found


def held(lake: ParquetLake) -> list[int]:
    """Positions as pyarrow finds them in the folder."""
    if not lake.path(MESSAGES).is_dir():
        return []
    return sorted(ds.dataset(lake.path(MESSAGES), partitioning="hive").to_table(["sequence"]).column(0).to_pylist())


@settings(max_examples=30)
@given(cuts=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30), st.integers(1, 3)), max_size=8))
def test_batches_that_overlap_leave_every_position_once(
    cuts: list[tuple[int, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Spark's checkpoint may send any range again; it never leaves one out."""
    lake = ParquetLake(None, Folders(tmp_path_factory.mktemp("overlap")))
    end = 0
    for back, size, files in cuts:
        lo = max(0, end - back)
        lake.append_batch(stage(lake, lo, lo + size - 1, files))
        end = max(end, lo + size)
        assert held(lake) == list(range(end))
        assert lake.end() == end


def test_all_readers_agree_on_what_is_there(any_lake: Lake) -> None:
    lake = any_lake
    assert lake.end() == 0
    assert lake.frame(MESSAGES).count() == 0
    assert lake.append_batch(stage(lake, 0, 9, 2)) == range_name(0, 9)
    assert lake.append_batch(stage(lake, 0, 9)) is None
    assert lake.append_batch(stage(lake, 5, 14, 2)) == range_name(10, 14)
    assert lake.append_batch([Staged("", 15, 19, 0, 0, 0, 0, "[]")]) is None, "only control rows"
    rows = lake.frame(MESSAGES)
    assert sorted(row.sequence for row in rows.collect()) == list(range(15))
    assert sorted(row.part for row in rows.select("part").distinct().collect()) == lake.parts(MESSAGES)
    assert lake.frame(MESSAGES, [range_name(10, 14)]).count() == 5
    assert lake.end() == 15
    assert rows.select(F.max("time")).first()[0].microsecond == 0  # type: ignore[index]
    if isinstance(lake, ParquetLake):
        assert held(lake) == list(range(15))
        sql = f"SELECT count(DISTINCT sequence), count(*), max(time)::VARCHAR FROM '{lake.path(MESSAGES)}/**/*.parquet'"
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        assert connection.execute(sql).fetchone() == (15, 15, "2023-11-14 22:13:34+00")
        assert pq.read_schema(lake.files(MESSAGES, range_name(0, 9))[0]).field("time").type == BRONZE.field("time").type


def test_what_a_killed_first_transaction_left_is_no_table(any_lake: Lake) -> None:
    left = Path(any_lake.folders.table(MESSAGES))
    (left / "_delta_log").mkdir(parents=True)
    assert any_lake.parts(MESSAGES) == []
    assert any_lake.frame(MESSAGES).count() == 0
    assert any_lake.append_batch(stage(any_lake, 0, 9)) == range_name(0, 9)
    assert any_lake.frame(MESSAGES).count() == 10


def test_buckets_are_replaced_and_say_when_they_are_due(any_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = any_lake
    monkeypatch.setattr("raceway.pipeline.registry.DERIVED", (BUCKETED,))
    rows = lake.spark.createDataFrame(
        [(1, 10, None, "a"), (2, 20, 7, "a"), (3, 30, 5, "b"), (4, 40, 3, "other")],
        "sequence bigint, value bigint, wait_us bigint, bucket string",
    )
    written = lake.replace(BUCKETED, ["a", "b", "empty"], rows)
    assert {bucket: tuple(found) for bucket, found in written.items()} == {"a": (2, 7), "b": (1, 5)}
    assert lake.parts("silver.bucketed") == ["a", "b"]
    again = lake.replace(BUCKETED, ["a", "b"], rows.where("sequence = 1").withColumn("value", F.lit(11).cast("bigint")))
    assert {bucket: tuple(found) for bucket, found in again.items()} == {"a": (1, None)}
    assert [tuple(row) for row in lake.frame("silver.bucketed").collect()] == [(1, 11, None, "a")]
    lake.remove("silver.bucketed")
    assert lake.parts("silver.bucketed") == []
    assert lake.frame("silver.bucketed").count() == 0


def test_a_capture_is_added_once_whatever_was_left_of_an_earlier_try(any_lake: Lake) -> None:
    lake, digest = any_lake, "ab" * 32
    source = f"import:{digest}"

    def staged(rows: pa.Table) -> list[Path]:
        file = lake.stage("capture") / "rows.parquet"
        pq.write_table(rows, file)
        return [file]

    def good() -> list[Path]:
        return staged(bronze([message(0, source=source), message(2, source=source)]))

    def bad() -> list[Path]:
        refused = {"source": source, "partition": 0, "sequence": 1, "time_us": 5, "wire": "mb", "code": "broken"}
        return staged(pa.Table.from_pylist([refused | {"attributes": [], "payload": b"x"}], schema=REJECTED))

    assert lake.append_capture(digest, good(), bad())
    assert not lake.append_capture(digest, good(), bad())
    assert sorted(row.sequence for row in lake.frame(MESSAGES).collect()) == [0, 2]
    assert [row.code for row in lake.frame(REJECTED_MESSAGES).collect()] == ["broken"]
    assert lake.end() == 0, "captures have no positions of the journal"
    assert lake.append_capture("cd" * 32, [], bad()), "nothing but refused messages"
    assert not lake.append_capture("cd" * 32, [], bad())
    note = lake.notes.of(MESSAGES, f"import-{digest}")
    assert (note.rows, note.source, note.last_us) == (2, source, 1_700_000_002_000_000)
    for table in (REJECTED_MESSAGES, MESSAGES):
        lake.drop(table, f"import-{digest}")
        lake.drop(table, "import-" + "00" * 32)
    assert not lake.has_capture(digest)
    assert lake.has_capture("cd" * 32)
    assert lake.frame(MESSAGES).count() == 0
    assert lake.frame(REJECTED_MESSAGES).count() == 1


def test_readers_never_see_a_mixture_while_buckets_are_replaced(spark: SparkSession, lake: ParquetLake) -> None:
    """Every version of the table has 300 rows with one value; whoever reads meanwhile sees whole buckets."""
    base = spark.range(300).selectExpr("id AS sequence", "NULL::bigint AS wait_us", "concat('b', id % 3) AS bucket")
    lake.replace(BUCKETED, ["b0", "b1", "b2"], base.withColumn("value", F.lit(0).cast("bigint")))
    seen: list[tuple[int, int]] = []
    stop = threading.Event()
    glob = f"{lake.path('silver.bucketed')}/*/*.parquet"

    def look() -> None:
        connection = duckdb.connect()
        while not stop.is_set():
            found = connection.execute(f"SELECT count(*), count(DISTINCT sequence) FROM '{glob}'").fetchone()
            assert found is not None
            seen.append(found)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for version in range(1, 5):
            lake.replace(BUCKETED, ["b0", "b1", "b2"], base.withColumn("value", F.lit(version).cast("bigint")))
    finally:
        stop.set()
        watcher.join()
    assert len(seen) > 10
    assert set(seen) == {(300, 300)}


def test_staging_is_swept_and_is_in_no_table(lake: ParquetLake) -> None:
    staged = stage(lake, 0, 9)
    assert not any(Path(each.file).is_relative_to(lake.folders.tables) for each in staged)
    lake.sweep()
    assert os.listdir(lake.folders.staging) == []


@pytest.mark.parametrize(
    ("part", "positions"),
    [(range_name(7, 12), (7, 12)), ("import-" + "ab" * 32, None), ("import-" + "12" * 32, None), ("", None)],
)
def test_names_of_parts_tell_positions(part: str, positions: tuple[int, int] | None) -> None:
    assert maybe_positions(part) == positions


@pytest.fixture(autouse=True)
def _cleared_views(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark").catalog.clearCache()
