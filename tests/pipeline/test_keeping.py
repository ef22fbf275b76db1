"""The life of tables: merged, emptied of old days, cleaned up, reset; readers see the same rows throughout."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from raceway.errors import ConfigError
from raceway.pipeline import keeping
from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import Lake
from raceway.pipeline.query import Tables
from raceway.pipeline.refreshing import refresh
from raceway.pipeline.snapshot import Snapshot
from raceway.pipeline.tables import MESSAGES
from raceway.pipeline.transforms import exchanges, hops, traces
from raceway.pipeline.verify import check_table
from tests.pipeline.lakes import append, fill
from tests.pipeline.rows import START_US, answer, message, request

DAY_US = 86_400_000_000


def positions(lake: Lake) -> list[int]:
    return sorted(DeltaTable(lake.storage.url(MESSAGES)).to_pyarrow_table(columns=["sequence"]).column(0).to_pylist())


def days(lake: Lake, count: int) -> None:
    """Ten rows on each of the last days, today among them."""
    today = datetime.now(UTC).replace(hour=1)
    for number in range(count):
        time_us = int((today - timedelta(days=count - 1 - number)).timestamp() * 1_000_000)
        append(lake, [message(n, time_us=time_us + n) for n in range(10 * number, 10 * number + 10)])


def test_small_files_of_a_day_are_merged_and_nothing_else_changes(lake: Lake) -> None:
    for number in range(6):
        day_us = START_US + DAY_US * (number // 3)
        append(lake, [message(n, time_us=day_us + n) for n in range(10 * number, 10 * number + 10)])
    append(lake, [message(0, source="import:" + "ab" * 32)])
    refresh(lake, [hops.TABLE])
    (done,) = keeping.compact(lake)
    assert done == (MESSAGES, 7, 3, 60), "two days, and a capture that stays alone"
    assert positions(lake) == sorted([0, *range(60)])
    assert refresh(lake, [hops.TABLE]) == set(), "the same rows"
    assert keeping.compact(lake) == []
    assert keeping.compact(lake, full_bytes=1) == []


def test_files_whose_rows_may_change_soon_are_left_alone(lake: Lake) -> None:
    """Open requests with a deadline, and traces that are not silent for long enough."""
    rows = [request(0, 5000), answer(1, 0), request(2, 5000), message(3, correlation_id="m2")]
    fill(lake, rows, (2,), [exchanges.TABLE, traces.TABLE])
    assert keeping.compact(lake, full_bytes=10**9)[0].table == MESSAGES
    before = {name: lake.paths(name) for name in ("silver.exchanges", "gold.traces")}
    assert {name: lake.paths(name) for name in before} == before
    fill(lake, [message(4, time_us=START_US + DAY_US)], (), [exchanges.TABLE, traces.TABLE])
    assert {done.table for done in keeping.compact(lake)} == {"silver.exchanges", "gold.traces"}
    statuses = {row["sequence"]: row["status"] for row in lake.frame("silver.exchanges").collect()}
    assert statuses == {0: "answered", 2: "timeout"}


def test_old_days_are_removed_without_opening_a_file_and_come_back_to_no_table(lake: Lake) -> None:
    days(lake, 4)
    refresh(lake, [hops.TABLE, traces.TABLE])
    removed = keeping.retain(lake, 2)
    assert {(each.table, each.files, each.rows) for each in removed} == {(MESSAGES, 2, 20), ("gold.traces", 2, 20)}
    assert positions(lake) == list(range(20, 40))
    assert refresh(lake, [hops.TABLE, traces.TABLE]) == set()
    assert lake.frame("gold.traces").count() == 20
    assert lake.end() == 40
    verdict = check_table(lake, Tables(lake), "gold.traces")
    assert (verdict.is_good, verdict.explanation) == (True, "not compared: rows of old days were removed")
    assert keeping.retain(lake, 2) == []


def test_retention_of_one_table_leaves_the_others(tmp_path: Path) -> None:
    lake = Lake(None, Folders(tmp_path))
    days(lake, 3)
    with pytest.raises(ConfigError, match=r"gold\.nothing: is not a table"):
        keeping.retain(lake, 1, ["gold.nothing"])
    assert keeping.retain(lake, 1, ["gold.traces"]) == []
    assert [each.rows for each in keeping.retain(lake, 1, [MESSAGES])] == [20]


def test_vacuum_deletes_what_no_version_needs_and_what_failed_tasks_left(tmp_path: Path) -> None:
    lake = Lake(None, Folders(tmp_path))
    days(lake, 3)
    keeping.retain(lake, 1)
    left = Path(lake.storage.url(MESSAGES)) / "day=2020-01-01" / "0123.parquet"
    left.parent.mkdir()
    left.write_bytes(b"PAR1")
    assert keeping.vacuum(lake, 24) == [(MESSAGES, 0, 0)], "younger than a day"
    assert keeping.vacuum(lake, 0, dry_run=True) == [(MESSAGES, 3, 0)]
    assert left.exists()
    assert keeping.vacuum(lake, 0) == [(MESSAGES, 3, 0)]
    assert not left.exists()
    assert len(list(Path(lake.storage.url(MESSAGES)).glob("*/*.parquet"))) == 1
    assert positions(lake) == list(range(20, 30))
    append(lake, [message(30)])


def test_tables_are_listed_with_what_their_logs_say(tmp_path: Path) -> None:
    lake = Lake(None, Folders(tmp_path))
    days(lake, 2)
    first, *others = keeping.table_facts(lake)
    newest = max(row["time_us"] for row in Snapshot(lake.storage, MESSAGES).dataset().to_table().to_pylist())
    shown = datetime.fromtimestamp(newest / 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert (first.name, first.rows, first.files, first.version, first.newest) == (MESSAGES, 20, 2, 1, shown)
    assert first.bytes > 0
    assert [(each.rows, each.version) for each in others] == [(0, None)] * 8


def test_only_tables_can_be_reset(tmp_path: Path) -> None:
    lake = Lake(None, Folders(tmp_path))
    for name, said in (
        ("gold.nothing", "is not a table"),
        ("bronze.rejected", r"written together with bronze\.messages"),
    ):
        with pytest.raises(ConfigError, match=said):
            keeping.reset_table(lake, name)
