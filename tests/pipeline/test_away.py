"""An object store that is away: a run says so in a line, and the next one goes on where it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from raceway import config
from raceway.errors import RacewayError
from raceway.pipeline.folders import Folders
from raceway.pipeline.jobs import Job, Order
from raceway.pipeline.lake import Lake
from raceway.pipeline.storage import storage_of
from raceway.pipeline.tables import MESSAGES
from tests.pipeline.journals import add, expected_positions, journal
from tests.pipeline.object_store import BUCKET, Gate, object_store


def test_a_store_that_is_away_is_said_in_a_line_and_nothing_is_there_twice_once_it_is_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    with journal(tmp_path / "data", 300) as rig, object_store() as store, Gate(store.endpoint) as gate:
        settings = config.StorageSettings(endpoint=gate.url, access_key="test", secret_key="test-secret")
        folders = Folders(rig.folder, f"s3a://{BUCKET}/tables")

        def run() -> Lake:
            lake = Lake(spark, folders, storage_of(folders.tables, settings))
            Job(lake, Order(config.PipelineSettings(master="local[2]", max_records=200), once=True, tables=())).run()
            return lake

        before = run().end()
        add(rig, 300, 300)
        gate.shut()
        with pytest.raises(RacewayError) as failure:
            run()
        assert "\n" not in str(failure.value)
        assert "test-secret" not in str(failure.value)
        gate.open()
        lake = run()
        assert lake.end() > before
        table = DeltaTable(lake.storage.url(MESSAGES), storage_options=lake.storage.delta_options())
        found = table.to_pyarrow_table(columns=["sequence"]).column(0).to_pylist()
        assert sorted(found) == expected_positions(rig.folder)
