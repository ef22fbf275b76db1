"""Commits: whole or not at all, once, and by one writer at a time; every reader sees the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import duckdb
import polars as pl
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from raceway.errors import PipelineError
from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import DELETED, LANE, MERGED, WRITER, Lake
from raceway.pipeline.query import Tables
from raceway.pipeline.snapshot import Snapshot
from raceway.pipeline.storage import storage_of
from raceway.pipeline.tables import MESSAGES
from raceway.pipeline.written import Written, write_rows
from raceway.wires.captures.columns import BRONZE
from tests.pipeline.lakes import append
from tests.pipeline.object_store import in_bucket, object_store
from tests.pipeline.rows import START_US, bronze, message

HOUR_US = 3_600_000_000


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Three batches of ten rows, without Spark."""
    lake = Lake(None, Folders(tmp_path / "data"))
    for first in (0, 10, 20):
        append(lake, [message(n) for n in range(first, first + 10)])
    return lake


def stale(lake: Lake) -> Lake:
    """Another writer that knows the same version."""
    other = Lake(None, lake.folders)
    assert other.maybe_snapshot(MESSAGES) is not None
    return other


def new_file(lake: Lake, first: int = 30) -> list[Written]:
    rows = bronze(message(n) for n in range(first, first + 10)).to_batches()
    return list(write_rows(lake.storage, MESSAGES, "time_us", BRONZE, rows))


COMMITS: dict[str, Callable[[Lake], None]] = {
    "batch": lambda lake: lake.commit(MESSAGES, new_file(lake), progress={LANE: 40}),
    "slice": lambda lake: lake.commit(MESSAGES, new_file(lake, 10), lake.paths(MESSAGES, sequence=(10, 19))),
    "compaction": lambda lake: lake.commit(
        MESSAGES, new_file(lake, 0), lake.paths(MESSAGES, sequence=(0, 9)), kind=MERGED
    ),
    "deletion": lambda lake: lake.commit(MESSAGES, (), lake.paths(MESSAGES, sequence=(0, 9)), kind=DELETED),
    "progress": lambda lake: lake.commit(MESSAGES, progress={LANE: 40}),
}


@pytest.mark.parametrize("kind", COMMITS)
def test_of_two_writers_with_the_same_version_one_fails(lake: Lake, kind: str) -> None:
    first, second = stale(lake), stale(lake)
    COMMITS[kind](first)
    found = sorted(DeltaTable(lake.storage.url(MESSAGES)).to_pyarrow_table().column("sequence").to_pylist())
    with pytest.raises(PipelineError, match=r"^bronze\.messages: another process changed the table meanwhile"):
        COMMITS[kind](second)
    now = DeltaTable(lake.storage.url(MESSAGES))
    assert sorted(now.to_pyarrow_table().column("sequence").to_pylist()) == found
    assert (now.version(), now.transaction_version(WRITER)) == (3, 4)
    assert first.end() == (40 if kind in ("batch", "progress") else 30)


def test_two_writers_do_not_both_create_a_table(tmp_path: Path) -> None:
    first, second = Lake(None, Folders(tmp_path)), Lake(None, Folders(tmp_path))
    assert second.maybe_snapshot(MESSAGES) is None
    append(first, [message(0)])
    with (
        patch("raceway.pipeline.lake.maybe_snapshot", return_value=None),
        pytest.raises(PipelineError, match="already exists"),
    ):
        append(second, [message(0)])
    assert DeltaTable(first.storage.url(MESSAGES)).to_pyarrow_table().num_rows == 1


def test_readers_that_nobody_here_wrote_see_the_same(lake: Lake) -> None:
    url = lake.storage.url(MESSAGES)
    expected = list(range(30))
    assert sorted(DeltaTable(url).to_pyarrow_table().column("sequence").to_pylist()) == expected
    assert sorted(pl.scan_delta(url).select("sequence").collect().to_series().to_list()) == expected
    dataset = DeltaTable(url).to_pyarrow_dataset()
    assert sorted(dataset.to_table(["sequence"]).column(0).to_pylist()) == expected
    files = Snapshot(lake.storage, MESSAGES).locations()
    assert [
        row[0] for row in duckdb.execute(f"SELECT sequence FROM read_parquet({files}) ORDER BY 1").fetchall()
    ] == expected


def test_tables_say_what_they_are(lake: Lake) -> None:
    table = DeltaTable(lake.storage.url(MESSAGES))
    assert table.metadata().description == "All messages, as they are in the journal, and those of imported captures."
    assert table.metadata().partition_columns == ["day"]
    comments = {
        field["name"]: field["metadata"].get("comment") for field in json.loads(table.schema().to_json())["fields"]
    }
    assert comments["kind"] == "`publish`, `request` or `response`."
    assert all(comments.values())


def test_an_hour_of_a_topic_opens_the_files_that_hold_it(tmp_path: Path) -> None:
    lake = Lake(None, Folders(tmp_path))
    for hour in range(24):
        for topic in ("a", "b"):
            at = 20 * hour + 10 * (topic == "b")
            append(lake, [message(at + n, topic=topic, time_us=START_US + hour * HOUR_US + n) for n in range(10)])
    dataset = Snapshot(lake.storage, MESSAGES).dataset()
    asked = (
        (pc.field("topic") == "a")
        & (pc.field("time_us") >= START_US + 7 * HOUR_US)
        & (pc.field("time_us") < START_US + 8 * HOUR_US)
    )
    assert len(list(dataset.get_fragments())) == 48
    assert len(list(dataset.get_fragments(asked))) == 1
    assert len({file.split("/")[-2] for file in DeltaTable(lake.storage.url(MESSAGES)).file_uris()}) == 2, "two days"


def test_a_reader_finds_rows_by_columns_without_statistics_too(lake: Lake) -> None:
    """The table says which columns have statistics: a reader must not conclude anything of the others."""
    append(lake, [message(30, correlation_id=None), message(31, message_id=None, correlation_id="c")])
    assert Tables(lake).number("SELECT count(*) FROM bronze.messages WHERE error IS NOT NULL") == 0
    assert Tables(lake).number("SELECT count(*) FROM bronze.messages WHERE correlation_id IS NULL") == 1
    assert Tables(lake).number("SELECT count(*) FROM bronze.messages WHERE kind = 'publish' AND wire = 'mb'") == 32
    assert Tables(lake).number("SELECT count(*) FROM bronze.messages WHERE topic = 'orders.created'") == 32


def test_what_changed_since_a_version_is_told_by_the_log(lake: Lake) -> None:
    every = lake.paths(MESSAGES)
    assert lake.changes(MESSAGES, None)[:3] == (2, every, [])
    assert lake.changes(MESSAGES, 2)[:3] == (2, [], [])
    first, last = lake.paths(MESSAGES, sequence=(0, 0)), lake.paths(MESSAGES, sequence=(29, 29))
    assert lake.changes(MESSAGES, 1).added == last
    lake.commit(MESSAGES, new_file(lake, 0), first, kind=MERGED)
    lake.commit(MESSAGES, (), lake.paths(MESSAGES, sequence=(10, 10)), kind=DELETED)
    assert lake.changes(MESSAGES, 2)[:3] == (4, [], []), "the same rows, and rows that are deleted everywhere"
    lake.commit(MESSAGES, new_file(lake, 20), last)
    assert lake.changes(MESSAGES, 4).removed == last
    assert lake.changes(MESSAGES, 1).removed == [], "came and went meanwhile"
    assert len(lake.changes(MESSAGES, 1).added) == 1
    (Path(lake.storage.url(MESSAGES)) / "_delta_log" / f"{2:020d}.json").unlink()
    with pytest.raises(PipelineError, match=r"^bronze\.messages: "):
        lake.changes(MESSAGES, 1)


def test_an_empty_last_entry_of_a_log_is_removed(lake: Lake) -> None:
    """As a power failure may leave it. The entry before holds, with the progress it has."""
    log = Path(lake.storage.url(MESSAGES)) / "_delta_log"
    entry = log / f"{2:020d}.json"
    for content in (b"", b'{"commitInfo":{"timest'):
        entry.write_bytes(content)
        again = Lake(None, lake.folders)
        assert again.mend() == [str(entry)]
        assert again.end() == 20
        append(again, [message(n) for n in range(20, 30)])
        assert Lake(None, lake.folders).mend() == []


def test_a_column_of_a_later_release_is_added_and_old_rows_have_none(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from raceway.pipeline import registry, tables
    from raceway.pipeline.words import COLUMNS

    monkeypatch.setitem(COLUMNS, "colour", "Of no importance.")
    longer = tables.Table(MESSAGES, f"{registry.columns(MESSAGES)}, colour string", ("sequence",))
    monkeypatch.setattr(registry, "BRONZE_TABLE", longer)
    version = lake.maybe_snapshot(MESSAGES).version  # type: ignore[union-attr]
    lake.evolve()
    lake.evolve()
    table = DeltaTable(lake.storage.url(MESSAGES))
    assert table.version() == version + 1, "once"
    assert table.to_pyarrow_table().column("colour").null_count == 30
    assert lake.changes(MESSAGES, version).added == []


def test_tables_in_a_bucket_are_committed_to_and_read(tmp_path: Path) -> None:
    with object_store() as settings:
        storage = in_bucket(settings, "tables")
        lake = Lake(None, Folders(tmp_path), storage)
        for first in (0, 10):
            append(lake, [message(n) for n in range(first, first + 10)])
        other = Lake(None, Folders(tmp_path), storage)
        assert other.end() == 20
        append(lake, [message(20)])
        with pytest.raises(PipelineError, match="another process changed the table"):
            append(other, [message(20)])
        assert Snapshot(storage, MESSAGES).dataset().count_rows() == 21
        lake.remove(MESSAGES)
        assert Lake(None, Folders(tmp_path), storage).end() == 0


def test_a_table_whose_first_commit_never_came_is_none(tmp_path: Path) -> None:
    lake = Lake(None, Folders(tmp_path), storage_of(str(tmp_path / "tables")))
    new_file(lake)
    assert lake.paths(MESSAGES) == []
    assert lake.counts(MESSAGES) == (0, 0)
    append(lake, [message(n) for n in range(10)])
    assert lake.counts(MESSAGES) == (10, 1)
    shutil.rmtree(tmp_path / "tables")
