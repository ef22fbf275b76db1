from __future__ import annotations

from pathlib import Path

from raceway import config
from raceway.pipeline.folders import Folders
from raceway.pipeline.opening import open_files
from raceway.pipeline.tables import Limits


def test_everything_lies_in_the_data_folder_unless_told_otherwise(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    assert folders.table("silver.hops") == f"{tmp_path}/pipeline/tables/silver/hops"
    assert Folders(tmp_path, "s3a://lake/raceway/").table("gold.traces") == "s3a://lake/raceway/gold/traces"
    assert Folders(tmp_path, "file:///lake").table("gold.traces") == "/lake/gold/traces"
    assert Folders("relative").data.is_absolute()


def test_rows_are_taken_from_the_journal_in_the_folder_or_from_an_archive(tmp_path: Path) -> None:
    assert Folders(tmp_path).journal == str(tmp_path)
    assert Folders(tmp_path, journal="s3://lake/archive").journal == "s3://lake/archive"
    assert Path(Folders(tmp_path, journal="archive").journal).is_absolute()


def test_staging_is_swept_and_is_in_no_table(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    staged = folders.stage("import")
    assert staged != folders.stage("import")
    assert not staged.is_relative_to(folders.tables)
    folders.sweep()
    assert list(folders.staging.iterdir()) == []


def test_the_settings_say_when_spans_close_and_traces_roll(tmp_path: Path) -> None:
    settings = config.PipelineSettings(close_minutes=3, trace_hours=2)
    assert open_files(Folders(tmp_path), settings).limits == Limits(180_000_000, 7_200_000_000)
