"""Opening the tables of a data folder, with or without a Spark session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from raceway import config
from raceway.pipeline.folders import Folders
from raceway.pipeline.spark import check_installed, session
from raceway.pipeline.storage import Storage, storage_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from raceway.pipeline.lake import Lake


def open_lake(
    folders: Folders,
    settings: config.PipelineSettings,
    extra: Mapping[str, str] | None = None,
    *,
    quick: bool = False,
    storage: config.StorageSettings | None = None,
) -> Lake:
    """Open the tables with a new Spark session; a `quick` one starts faster and computes slower."""
    place = storage_of(folders.tables, storage, extra)
    chosen = place.hadoop_options() | dict(extra or {})
    spark = session(folders, master=settings.master, memory=settings.memory, quick=quick, extra=chosen)
    return _opened(spark, folders, settings, place)


def open_files(
    folders: Folders,
    settings: config.PipelineSettings,
    extra: Mapping[str, str] | None = None,
    storage: config.StorageSettings | None = None,
) -> Lake:
    """Open the tables without Spark: to read them, or to remove them."""
    check_installed()
    return _opened(None, folders, settings, storage_of(folders.tables, storage, extra))


def _opened(spark: SparkSession | None, folders: Folders, settings: config.PipelineSettings, storage: Storage) -> Lake:
    from raceway.pipeline.lake import Lake
    from raceway.pipeline.tables import HOUR_US, MINUTE_US, Limits

    return Lake(spark, folders, storage, Limits(settings.close_minutes * MINUTE_US, settings.trace_hours * HOUR_US))
