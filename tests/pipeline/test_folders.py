from __future__ import annotations

from pathlib import Path

import pytest

from raceway import config
from raceway.errors import ConfigError
from raceway.pipeline.folders import Folders, maybe_kept_format
from raceway.pipeline.opening import check_format, keep_format


def test_everything_lies_in_the_data_folder_unless_told_otherwise(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    assert folders.table("silver.hops") == f"{tmp_path}/pipeline/tables/silver/hops"
    assert folders.checkpoint == tmp_path / "pipeline" / "checkpoint" / "v1"
    assert Folders(tmp_path, "s3a://lake/raceway/").table("gold.traces") == "s3a://lake/raceway/gold/traces"
    assert Folders(tmp_path, "file:///lake").table("gold.traces") == "/lake/gold/traces"
    assert Folders("relative").data.is_absolute()


def test_how_tables_are_kept_is_told_before_there_are_any(tmp_path: Path) -> None:
    """A killed first transaction of Delta leaves what looks like a part of Parquet."""
    folders = Folders(tmp_path)
    assert maybe_kept_format(folders) is None
    (Path(folders.table("bronze.messages")) / "range=0-9").mkdir(parents=True)
    keep_format(folders, "delta")
    assert maybe_kept_format(folders) == "delta"
    keep_format(folders, "parquet")
    assert maybe_kept_format(folders) == "delta", "tables stay as they are kept"


def test_tables_are_not_mixed_and_object_stores_need_delta(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    folders.root.mkdir()
    check_format(folders, config.PipelineSettings(tables="s3a://lake", format="delta"))
    keep_format(folders, "parquet")
    check_format(folders, config.PipelineSettings())
    with pytest.raises(ConfigError, match="are in the format parquet: use --format parquet"):
        check_format(folders, config.PipelineSettings(format="delta"))
    with pytest.raises(ConfigError, match="use --format delta"):
        check_format(folders, config.PipelineSettings(tables="s3a://lake"))
