"""Tables of the former version: their bronze rows are brought over once, captures and losses with them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from raceway.errors import PipelineError
from raceway.pipeline import keeping, migrating
from raceway.pipeline.folders import Folders
from raceway.pipeline.imports.imported import known_captures
from raceway.pipeline.lake import Lake
from raceway.pipeline.storage import storage_of
from raceway.pipeline.tables import MESSAGES, REJECTED_MESSAGES
from tests.pipeline.formers import DIGEST, former
from tests.pipeline.lakes import append
from tests.pipeline.rows import message


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_rows_captures_and_losses_are_brought_over(spark: SparkSession, tmp_path: Path, form: str) -> None:
    lake = Lake(spark, former(tmp_path, form))
    commit = Lake.commit

    def killed(self: Lake, table: str, *args: object, **options: object) -> None:
        if table == MESSAGES:
            raise SystemExit
        commit(self, table, *args, **options)  # type: ignore[arg-type]

    with patch.object(Lake, "commit", killed), pytest.raises(SystemExit):
        migrating.check_version(lake)
    again = Lake(spark, lake.folders)
    assert migrating.is_former(again)
    said: list[str] = []
    migrating.check_version(again, said.append)
    assert said == [
        "the tables are of a former version: their messages are brought over, the other tables computed anew",
        "21 rows brought over",
    ]
    assert not migrating.is_former(again)
    assert (again.counts(MESSAGES)[0], again.counts(REJECTED_MESSAGES)[0], again.end()) == (21, 1, 20)
    assert [(each.sha256, each.wire, each.path, each.rejected) for each in known_captures(again)] == [
        (DIGEST, "mb", "/a", 1)
    ]
    assert keeping.losses(again) == [(3, 4)]
    assert {path.name for path in again.folders.root.iterdir()} <= {"tables", "version", "spark", "log", "staging"}
    append(again, [message(20)])
    migrating.check_version(again)
    assert again.end() == 21


def test_what_an_interrupted_migration_left_is_not_taken_for_former_tables(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, former(tmp_path, "delta"))
    remove = shutil.rmtree

    def killed(path: Path, **options: Any) -> None:
        remove(path, **options)
        if not lake.folders.former.exists():
            raise SystemExit

    with patch.object(shutil, "rmtree", killed), pytest.raises(SystemExit):
        migrating.check_version(lake)
    again = Lake(spark, lake.folders)
    migrating.check_version(again)
    assert (again.counts(MESSAGES)[0], again.end()) == (21, 20)


def test_tables_that_another_release_computed_are_computed_anew(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, Folders(tmp_path))
    append(lake, [message(0)])
    lake.commit("silver.hops")
    said: list[str] = []
    migrating.check_version(lake, said.append)
    assert lake.maybe_snapshot("silver.hops") is not None
    assert said == []
    lake.folders.version.write_text("2")
    migrating.check_version(lake, said.append)
    assert said == ["another release computed the tables differently: they are computed anew from bronze.messages"]
    assert lake.maybe_snapshot("silver.hops") is None
    assert (lake.end(), lake.folders.version.read_text()) == (1, "3")


def test_tables_on_an_object_store_are_not_migrated(tmp_path: Path) -> None:
    lake = Lake(None, former(tmp_path, "delta"), storage_of("s3://lake/raceway"))
    with pytest.raises(PipelineError, match="are of a former version: remove them"):
        migrating.check_version(lake)
