"""The run itself: exactly once over restarts, damaged checkpoints, lost segments; a clear word for each."""

from __future__ import annotations

import shutil
import threading
import time
from copy import copy
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from raceway import config
from raceway.errors import LockedError, PipelineError, RacewayError
from raceway.journal.identity import maybe_read_identity, new_identity, write_identity
from raceway.journal.lock import FolderLock
from raceway.journal.read.catalogue import segment_path
from raceway.model.progress import PipelineProgress
from raceway.pipeline import jobs, progress, resetting
from raceway.pipeline.folders import Folders
from raceway.pipeline.jobs import Job, Order, check_version
from raceway.pipeline.lake import ParquetLake
from raceway.pipeline.notes import Note
from raceway.pipeline.tables import MESSAGES
from tests.pipeline.journals import add, expected_positions, journal
from tests.pipeline.test_lake import BUCKETED
from tests.rigs.journal import trim
from tests.rigs.journal_folder import UNSYNCED


@pytest.fixture(autouse=True)
def _bronze_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed from bronze has tests of its own."""
    monkeypatch.setattr("raceway.pipeline.registry.DERIVED", ())


def run(spark: SparkSession, folder: Path, *, max_records: int = 400, **parameters: Any) -> PipelineProgress:
    """One run over what is there."""
    return Job(ParquetLake(spark, Folders(folder)), order(max_records, **parameters)).run()


def order(max_records: int = 400, **parameters: Any) -> Order:
    settings = config.PipelineSettings(master="local[2]", max_records=max_records)
    return Order(settings, once=True, tables=(), **parameters)


def held(folder: Path) -> list[int]:
    """Positions in the table as DuckDB finds them."""
    glob = f"{Folders(folder).table(MESSAGES)}/**/*.parquet"
    return [row[0] for row in duckdb.connect().execute(f"SELECT sequence FROM '{glob}' ORDER BY 1").fetchall()]


def last(folder: Path, kind: str) -> Path:
    files = [path for path in (Folders(folder).checkpoint / kind).iterdir() if path.name.isdigit()]
    return max(files, key=lambda path: int(path.name))


def test_runs_take_in_what_is_new_and_tell_how_far_they_are(spark: SparkSession, tmp_path: Path) -> None:
    with journal(tmp_path / "data", 1000) as rig:
        first = run(spark, rig.folder)
        assert held(rig.folder) == expected_positions(rig.folder)
        assert (first.state, first.lag, first.batches) == ("stopped", 0, 3)
        assert first.tables[MESSAGES].rows == 1000
        add(rig, 500, 1000)
        told: list[PipelineProgress] = []
        Job(ParquetLake(spark, Folders(rig.folder)), order(), lambda now: told.append(copy(now))).run()
        assert held(rig.folder) == expected_positions(rig.folder)
        assert told[0].state == "starting"
        assert progress.maybe_read(Folders(rig.folder).progress) == told[-1]
        assert told[-1].rows == 500
        assert run(spark, rig.folder).batches == 0


def test_a_batch_and_its_follower_tell_the_progress_one_at_a_time(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both write the same file by way of the same temporary one."""
    monkeypatch.setattr(jobs, "_PROGRESS_S", 0)
    monkeypatch.setattr(jobs, "_LOOK_S", 0.01)
    telling, threads, overlaps = threading.Lock(), set[int](), 0

    def told(_: PipelineProgress) -> None:
        nonlocal overlaps
        threads.add(threading.get_ident())
        if telling.acquire(blocking=False):
            time.sleep(0.05)  # time for the other thread to come
            telling.release()
        else:
            overlaps += 1

    with journal(tmp_path / "data", 300) as rig:
        Job(ParquetLake(spark, Folders(rig.folder)), order(max_records=50), told).run()
        assert held(rig.folder) == expected_positions(rig.folder)
    assert (len(threads), overlaps) == (2, 0)


def test_a_run_that_is_far_behind_computes_after_several_batches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[int] = []
    monkeypatch.setattr("raceway.pipeline.jobs.refresh", lambda lake, *_: ends.append(lake.end()))
    with journal(tmp_path / "data", 1100) as rig:
        found = run(spark, rig.folder, max_records=200, ahead_rows=300)
    assert found.batches == 6
    assert ends == [0, 400, 800, 1000, found.committed + 1], "first what the run before left; at the end every batch"


def damage(folder: Path, kind: str) -> None:
    match kind:
        case "no commit":
            last(folder, "commits").unlink()
        case "cut offsets":
            last(folder, "offsets").write_text('v1\n{"batchWa')
        case "no offsets":
            last(folder, "offsets").unlink()
        case "empty commit":
            last(folder, "commits").write_text("")
        case "no metadata":
            (Folders(folder).checkpoint / "metadata").unlink()
    for crc in Folders(folder).checkpoint.rglob("*.crc"):
        crc.unlink()


def test_a_damaged_checkpoint_is_named_and_the_way_out_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    with journal(tmp_path / "data", 600) as rig:
        run(spark, rig.folder)
        for number, kind in enumerate(["no commit", "cut offsets", "no offsets", "empty commit", "no metadata"]):
            damage(rig.folder, kind)
            add(rig, 100, 600 + number)
            if kind != "no commit":
                with pytest.raises(
                    PipelineError,
                    match="run `raceway pipeline reset checkpoint`: the next run continues from the tables",
                ):
                    run(spark, rig.folder)
                told = progress.maybe_read(Folders(rig.folder).progress)
                assert told is not None
                assert told.state == "failed"
                assert "reset checkpoint" in told.error
                resetting.reset_checkpoint(Folders(rig.folder))
            run(spark, rig.folder)
            assert held(rig.folder) == expected_positions(rig.folder), kind


def test_a_run_merges_small_parts_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    with journal(tmp_path / "data", 500) as rig:
        settings = config.PipelineSettings(master="local[2]", max_records=100, compact_parts=3)
        Job(ParquetLake(spark, Folders(rig.folder)), Order(settings, once=True, tables=())).run()
        assert len(ParquetLake(None, Folders(rig.folder)).parts(MESSAGES)) < 4
        assert held(rig.folder) == expected_positions(rig.folder)


def test_a_checkpoint_from_another_time_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """An old copy put back, and batches of another size: the same batch ids with other borders."""
    with journal(tmp_path / "data", 600) as rig:
        run(spark, rig.folder)
        shutil.copytree(Folders(rig.folder).checkpoint, tmp_path / "old")
        add(rig, 600, 600)
        run(spark, rig.folder, max_records=250)
        shutil.rmtree(Folders(rig.folder).checkpoint)
        shutil.copytree(tmp_path / "old", Folders(rig.folder).checkpoint)
        add(rig, 100, 1200)
        run(spark, rig.folder, max_records=333)
        assert held(rig.folder) == expected_positions(rig.folder)


def test_a_removed_segment_stops_the_run_until_the_loss_is_accepted(spark: SparkSession, tmp_path: Path) -> None:
    with journal(tmp_path / "data", 3000) as rig:
        every = expected_positions(rig.folder)
        firsts = sorted(int(path.stem.split("-")[1]) for path in rig.folder.glob("*.blocks"))
    segment_path(tmp_path / "data", firsts[1]).unlink()
    with pytest.raises(RacewayError) as failure:
        run(spark, tmp_path / "data", max_records=2000)
    assert str(failure.value).startswith(f"positions {firsts[1]} to {firsts[2] - 1} are missing from the journal")
    before = segment_path(tmp_path / "data", firsts[0]).name
    assert f": the file that followed {before} is missing, or {before} was truncated; " in str(failure.value)
    assert "raceway pipeline run --accept-loss" in str(failure.value)
    assert "\n" not in str(failure.value)
    done = run(spark, tmp_path / "data", accept_loss=True, max_records=2000)
    assert held(tmp_path / "data") == [p for p in every if not firsts[1] <= p < firsts[2]]
    assert done.lost_rows == firsts[2] - firsts[1]


def test_what_retention_was_quicker_to_remove_is_said(spark: SparkSession, tmp_path: Path) -> None:
    with journal(tmp_path / "data", 800) as rig:
        run(spark, rig.folder)
        seen = rig.journal.committed + 1  # control rows behind the last message were seen, too
        add(rig, 3000, 800)
        firsts = sorted(int(path.stem.split("-")[1]) for path in rig.folder.glob("*.blocks"))
        trim(rig.journal, firsts[2])
        rig.pump(lambda: not any(segment_path(rig.folder, first).exists() for first in firsts[:2]))
        with pytest.raises(RacewayError, match=f"removed by retention; the first one left is {firsts[2]}") as failure:
            run(spark, rig.folder)
        assert "--accept-loss" in str(failure.value)
        before = held(rig.folder)
        done = run(spark, rig.folder, accept_loss=True, max_records=600)
        assert held(rig.folder) == [*before, *(p for p in expected_positions(rig.folder) if p >= firsts[2])]
        assert done.lost_rows == firsts[2] - seen


def test_tables_of_another_journal_are_not_added_to(spark: SparkSession, tmp_path: Path) -> None:
    with journal(tmp_path / "data", 300) as rig:
        run(spark, rig.folder)
    known = maybe_read_identity(UNSYNCED, tmp_path / "data")
    assert known is not None
    write_identity(UNSYNCED, tmp_path / "data", new_identity(known.marker_bytes))
    with pytest.raises(PipelineError, match="were computed from another journal"):
        run(spark, tmp_path / "data")


def test_tables_that_are_ahead_of_the_journal_are_not_added_to(spark: SparkSession, tmp_path: Path) -> None:
    with journal(tmp_path / "data", 300) as rig:
        run(spark, rig.folder)
        lake = ParquetLake(spark, Folders(rig.folder))
        table = lake.path(MESSAGES)
        part = lake.parts(MESSAGES)[-1]
        (table / f"range={part}").rename(table / f"range={part[:21]}{99999:020d}")
        with pytest.raises(PipelineError, match="the tables hold positions up to 99999"):
            run(spark, rig.folder)


def test_two_runs_at_a_time_exclude_one_another(spark: SparkSession, tmp_path: Path) -> None:
    with journal(tmp_path / "data", 100) as rig:
        folders = Folders(rig.folder)
        folders.root.mkdir()
        lock = FolderLock(folders.root)
        with pytest.raises(LockedError):
            run(spark, rig.folder)
        lock.release()


def test_tables_of_another_release_are_computed_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raceway.pipeline.registry.DERIVED", (BUCKETED,))
    lake = ParquetLake(spark, Folders(tmp_path / "data"))
    lake.folders.root.mkdir(parents=True)
    lake.path(BUCKETED.name).mkdir(parents=True)
    lake.notes.put(MESSAGES, "0-9", Note(rows=1, feeds={BUCKETED.name: ["a"]}))
    check_version(lake)
    assert lake.notes.of(MESSAGES, "0-9").feeds == {BUCKETED.name: ["a"]}
    monkeypatch.setattr("raceway.pipeline.registry.VERSION", 1_000)
    check_version(lake)
    assert lake.notes.of(MESSAGES, "0-9").feeds == {}
    assert not lake.path(BUCKETED.name).exists()
    assert lake.folders.version.read_text() == "1000"


def test_a_note_of_a_part_that_never_came_is_dropped(spark: SparkSession, tmp_path: Path) -> None:
    with journal(tmp_path / "data", 100) as rig:
        lake = ParquetLake(spark, Folders(rig.folder))
        lake.notes.put(MESSAGES, f"{0:020d}-{9:020d}", Note(rows=10, source="journal"))
        assert run(spark, rig.folder).tables[MESSAGES].rows == 100


def test_resetting_bronze_needs_force_where_rows_would_be_lost(spark: SparkSession, tmp_path: Path) -> None:
    with journal(tmp_path / "data", 2000) as rig:
        run(spark, rig.folder, max_records=5000)
        every = held(rig.folder)
        lake = ParquetLake(spark, Folders(rig.folder))
        resetting.reset_table(lake, MESSAGES)
        assert lake.parts(MESSAGES) == []
        run(spark, rig.folder, max_records=5000)
        assert held(rig.folder) == every
        firsts = sorted(int(path.stem.split("-")[1]) for path in rig.folder.glob("*.blocks"))
        trim(rig.journal, firsts[1])
        rig.pump(lambda: not segment_path(rig.folder, 0).exists())
        lake = ParquetLake(spark, Folders(rig.folder))
        with pytest.raises(PipelineError, match="would lose 1 parts with positions below"):
            resetting.reset_table(lake, MESSAGES)
        assert held(rig.folder) == every
        resetting.reset_table(lake, MESSAGES, force=True)
        assert lake.parts(MESSAGES) == []
