"""A run on a standalone cluster whose workers share no folder with the bus or the driver: only URLs.

The journal's archive and all tables are on an S3 server. Each worker is in a mount namespace of its own, where the
folder of the test is empty; it has the installed Python and jars, and no data.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from raceway import config
from raceway.pipeline.folders import Folders
from raceway.pipeline.jobs import Job, Order
from raceway.pipeline.lake import Lake
from raceway.pipeline.storage import Storage, storage_of
from tests.pipeline.drivers import finished
from tests.pipeline.java import needs_java
from tests.pipeline.journals import append_rows
from tests.pipeline.object_store import BUCKET, object_store, settings_file
from tests.pipeline.quick_spark import QUICKLY
from tests.pipeline.schemas import V1, avro
from tests.pipeline.worlds import shop
from tests.rigs.archives import Place, archive_all, opened, seal
from tests.rigs.spark_cluster import can_be_apart, cluster, executors
from tools.jars import JarsError, fetch

LOCK = Path(__file__).parent.parent.parent / "tools" / "s3-jars.txt"
ROUNDS = 60
# The other kind of stream needs further jars.
STREAM = "spark.hadoop.fs.s3a.input.stream.type"


@pytest.fixture(scope="module")
def jars() -> str:
    try:
        return ",".join(map(str, fetch(LOCK)))
    except JarsError as error:
        pytest.skip(str(error))


def archived(folder: Path, store: config.StorageSettings) -> str:
    """The URL of an archive."""
    place = Place(f"s3a://{BUCKET}/archive", store)
    rig = opened(folder, place)
    version = avro(1, 1, V1)
    rig.journal.set_state("schemas", str(version.registry_id), msgspec.to_builtins(version))
    rows, positions = list(shop(ROUNDS)), dict[int, int]()
    for first in range(0, len(rows), 25):
        append_rows(rig, rows[first : first + 25], positions)
    seal(rig)
    assert archive_all(rig) > 2
    rig.close()
    return place.url


def contents(storage: Storage) -> dict[str, list[str]]:
    """All rows of every table, as another reader has them."""
    names = Lake(None, Folders("nowhere")).names()
    tables = {name: DeltaTable(storage.url(name), storage_options=storage.delta_options()) for name in names}
    return {name: sorted(map(str, table.to_pyarrow_table().to_pylist())) for name, table in tables.items()}


@needs_java
@pytest.mark.may_skip
@pytest.mark.timeout(600)  # six processes of Java on two cores
@pytest.mark.skipif(not can_be_apart(), reason="this system lets us make no mount namespaces")
def test_two_workers_without_a_folder_in_common_make_the_same_tables(
    jars: str, spark: SparkSession, tmp_path: Path
) -> None:
    shared, driver = tmp_path / "shared", tmp_path / "driver"
    shared.mkdir()
    with object_store() as store:
        archive = archived(shared / "bus", store)
        words = settings_file(tmp_path / "raceway.toml", store)
        with cluster(tmp_path, apart=True) as url:
            properties = executors() | {"spark.jars": jars, STREAM: "classic"}
            conf = [word for pair in properties.items() for word in ("--conf", "=".join(pair))]
            told = finished(
                driver, "run", "--once", "--json", "--config", str(words), "--journal", archive,
                "--tables", f"s3a://{BUCKET}/tables", *QUICKLY, "--master", url, *conf,
            )  # fmt: skip
        last = json.loads(told.stdout.splitlines()[-1])
        assert (last["lag"], last["error"]) == (0, "")
        assert not (driver / "pipeline" / "tables").exists()
        folders = Folders(tmp_path / "local", journal=archive)
        local = storage_of(folders.tables, store)
        Job(Lake(spark, folders, local), Order(config.PipelineSettings(master="local[2]"), once=True)).run()
        expected = contents(local)
        assert contents(storage_of(f"s3a://{BUCKET}/tables", store)) == expected
    assert min(len(rows) for rows in expected.values()) > 0
    assert len(expected["bronze.messages"]) > 4 * ROUNDS
    work = [os.listdir(tmp_path / f"work{number}") for number in (1, 2) if (tmp_path / f"work{number}").exists()]
    assert work == [], "what workers have is seen by nobody else"
