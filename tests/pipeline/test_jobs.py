"""The run itself: exactly once over restarts, damaged checkpoints, lost segments; a clear word for each."""

from __future__ import annotations

import shutil
from copy import copy
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from raceway import config
from raceway.errors import LockedError, PipelineError, RacewayError
from raceway.journal.identity import maybe_read_identity, new_identity, write_identity
from raceway.journal.lock import FolderLock
from raceway.journal.read.catalogue import segment_path
from raceway.model.progress import PipelineProgress
from raceway.pipeline import keeping, progress
from raceway.pipeline.folders import Folders
from raceway.pipeline.jobs import Job, Order
from raceway.pipeline.lake import LANE, Lake
from raceway.pipeline.query import Tables
from raceway.pipeline.tables import MESSAGES
from raceway.pipeline.verify import verify
from tests.pipeline.journals import add, expected_positions, journal
from tests.rigs.archives import Place, archive_all, fill, opened
from tests.rigs.journal import trim
from tests.rigs.journal_folder import UNSYNCED


def run(spark: SparkSession, folder: Path, *, max_records: int = 400, **parameters: Any) -> PipelineProgress:
    """One run over what is there."""
    return Job(Lake(spark, Folders(folder)), order(max_records, **parameters)).run()


def order(max_records: int = 400, **parameters: Any) -> Order:
    settings = config.PipelineSettings(master="local[2]", max_records=max_records)
    return Order(settings, once=True, tables=(), **parameters)


def held(folder: Path) -> list[int]:
    """Positions in the table as another reader finds them."""
    rows = DeltaTable(Folders(folder).table(MESSAGES)).to_pyarrow_table(columns=["sequence"])
    return sorted(rows.column("sequence").to_pylist())


def test_runs_take_in_what_is_new_and_tell_how_far_they_are(spark: SparkSession, tmp_path: Path) -> None:
    with journal(tmp_path / "data", 1000) as rig:
        first = run(spark, rig.folder)
        assert held(rig.folder) == expected_positions(rig.folder)
        assert (first.state, first.lag, first.batches) == ("stopped", 0, 3)
        assert first.tables[MESSAGES].rows == 1000
        add(rig, 500, 1000)
        told: list[PipelineProgress] = []
        Job(Lake(spark, Folders(rig.folder)), order(), lambda now: told.append(copy(now))).run()
        assert held(rig.folder) == expected_positions(rig.folder)
        assert [(each.state, each.batches) for each in told[:2]] == [("starting", 0), ("running", 0)]
        assert progress.maybe_read(Folders(rig.folder).progress) == told[-1]
        assert told[-1].rows == 500
        assert run(spark, rig.folder).batches == 0


def test_a_run_that_is_far_behind_computes_after_several_batches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[int] = []
    monkeypatch.setattr("raceway.pipeline.jobs.refresh", lambda lake, *_: ends.append(lake.end()))
    with journal(tmp_path / "data", 1100) as rig:
        found = run(spark, rig.folder, max_records=200, ahead_rows=300)
    assert found.batches == 6
    assert ends == [0, 400, 800, 1000, found.committed + 1], "first what the run before left; at the end every batch"


def test_a_killed_batch_is_taken_again_whatever_its_borders_are_then(spark: SparkSession, tmp_path: Path) -> None:
    """Files that were written and not committed are no rows; the next run cuts its batches elsewhere."""
    with journal(tmp_path / "data", 600) as rig:
        run(spark, rig.folder)
        add(rig, 600, 600)
        with patch.object(Lake, "commit", side_effect=SystemExit), pytest.raises(SystemExit):
            run(spark, rig.folder, max_records=250)
        left = set(Path(Folders(rig.folder).table(MESSAGES)).glob("*/*.parquet"))
        assert len(left) > len(DeltaTable(Folders(rig.folder).table(MESSAGES)).file_uris())
        add(rig, 100, 1200)
        run(spark, rig.folder, max_records=333)
        assert held(rig.folder) == expected_positions(rig.folder)


def test_a_log_entry_without_content_is_removed_and_its_batch_taken_again(spark: SparkSession, tmp_path: Path) -> None:
    """A power failure may leave the newest file of a log empty."""
    with journal(tmp_path / "data", 600) as rig:
        run(spark, rig.folder)
        log = Path(Folders(rig.folder).table(MESSAGES)) / "_delta_log"
        max(log.glob("*.json")).write_bytes(b"")
        assert 200 <= run(spark, rig.folder).rows < 400, "the last batch, and no other"
        assert held(rig.folder) == expected_positions(rig.folder)


def test_a_run_merges_small_files_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    with journal(tmp_path / "data", 500) as rig:
        settings = config.PipelineSettings(master="local[2]", max_records=100, compact_parts=3)
        Job(Lake(spark, Folders(rig.folder)), Order(settings, once=True, tables=(), ahead_rows=1)).run()
        assert len(Lake(None, Folders(rig.folder)).paths(MESSAGES)) < 4
        assert held(rig.folder) == expected_positions(rig.folder)


def archived(folder: Path, name: str) -> str:
    """The URL of an archive, which is all that is left of its journal."""
    place = Place(str(folder / f"{name}-archive"))
    rig = opened(folder / name, place)
    fill(rig, 60)
    archive_all(rig)
    rig.close()
    shutil.rmtree(rig.folder)
    return place.url


def test_rows_of_an_archive_are_taken_without_a_folder_of_the_bus(spark: SparkSession, tmp_path: Path) -> None:
    folders = Folders(tmp_path / "data", journal=archived(tmp_path, "bus"))
    lake = Lake(spark, folders)
    done = Job(lake, order(20)).run()
    found = held(folders.data)
    assert (found, done.lag, done.batches) == (list(range(len(found))), 0, 3)
    assert verify(lake, Tables(lake)).is_good
    with pytest.raises(PipelineError, match="computed from another journal"):
        Job(Lake(spark, Folders(folders.data, journal=archived(tmp_path, "another"))), order()).run()


def test_a_run_that_is_told_to_stop_ends_and_the_next_one_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    with journal(tmp_path / "data", 600) as rig:
        lake = Lake(spark, Folders(rig.folder))
        settings = config.PipelineSettings(master="local[2]", max_records=100, trigger_s=0.1)
        job = Job(lake, Order(settings, tables=()), lambda told: job.stop() if told.batches == 2 else None)
        assert job.run().state == "stopped"
        assert 0 < len(held(rig.folder)) < 600
        run(spark, rig.folder)
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
        Lake(None, Folders(rig.folder)).commit(MESSAGES, progress={LANE: 100_000})
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


def test_resetting_bronze_needs_force_where_rows_would_be_lost(spark: SparkSession, tmp_path: Path) -> None:
    with journal(tmp_path / "data", 2000) as rig:
        run(spark, rig.folder, max_records=5000)
        every = held(rig.folder)
        lake = Lake(spark, Folders(rig.folder))
        keeping.reset_table(lake, MESSAGES)
        assert lake.paths(MESSAGES) == []
        run(spark, rig.folder, max_records=5000)
        assert held(rig.folder) == every
        firsts = sorted(int(path.stem.split("-")[1]) for path in rig.folder.glob("*.blocks"))
        trim(rig.journal, firsts[1])
        rig.pump(lambda: not segment_path(rig.folder, 0).exists())
        lake = Lake(spark, Folders(rig.folder))
        with pytest.raises(PipelineError, match="would lose 1 files with positions below"):
            keeping.reset_table(lake, MESSAGES)
        assert held(rig.folder) == every
        keeping.reset_table(lake, MESSAGES, force=True)
        assert lake.paths(MESSAGES) == []
