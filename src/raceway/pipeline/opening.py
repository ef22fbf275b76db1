"""Opening the tables of a data folder in their format, with or without a Spark session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from raceway import config
from raceway.errors import ConfigError
from raceway.journal.files import Files, write_file
from raceway.pipeline.folders import Folders, maybe_kept_format
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
    check_format(folders, settings)
    delta = settings.format == "delta"
    spark = session(folders, master=settings.master, memory=settings.memory, delta=delta, quick=quick, extra=chosen)
    return _opened(spark, folders, settings, place)


def open_files(
    folders: Folders,
    settings: config.PipelineSettings,
    extra: Mapping[str, str] | None = None,
    storage: config.StorageSettings | None = None,
) -> Lake:
    """Open the tables without Spark: to read them, or to remove them."""
    check_installed()
    check_format(folders, settings)
    return _opened(None, folders, settings, storage_of(folders.tables, storage, extra))


def _opened(spark: SparkSession | None, folders: Folders, settings: config.PipelineSettings, storage: Storage) -> Lake:
    from raceway.pipeline.delta_lake import DeltaLake
    from raceway.pipeline.lake import ParquetLake

    return DeltaLake(spark, folders, storage) if settings.format == "delta" else ParquetLake(spark, folders)


def keep_format(folders: Folders, form: str) -> None:
    """Record the format of the tables, earlier than the first table is written."""
    if maybe_kept_format(folders) is None:
        write_file(Files(), folders.format, form.encode())


def check_format(folders: Folders, settings: config.PipelineSettings) -> None:
    """Raise ConfigError if the existing tables have another format, or if the location cannot hold this one."""
    kept = maybe_kept_format(folders)
    if kept is not None and kept != settings.format:
        raise ConfigError(
            "pipeline.format",
            f"the tables in {folders.root} are in the format {kept}: use --format {kept}, or remove the folder",
        )
    if settings.format == "parquet" and "://" in settings.tables and not settings.tables.startswith("file://"):
        raise ConfigError(
            "pipeline.tables",
            "renaming a folder is not atomic there, and readers would see half of a batch: use --format delta",
        )
