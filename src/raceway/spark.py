"""Spark for notebooks and programs of your own: a session that is ready for the journal and its tables.

    import raceway.spark

    spark = raceway.spark.session("raceway-data")
    spark.sql("SELECT topic, count(*) FROM silver_messages GROUP BY 1").show()
    spark.read.format("raceway").load("raceway-data")

The session is in UTC, its workers use this Python, `format("raceway")` is known, and every table is a view.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raceway import config, wires
from raceway.errors import ConfigError
from raceway.pipeline.folders import Folders
from raceway.pipeline.opening import open_lake
from raceway.pipeline.spark import TIME_ZONE, UTC, check_installed, check_time_zone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from raceway.pipeline.lake import Lake

# Options of `session`, each a setting of the section `pipeline`.
_OPTIONS = ("tables", "master", "memory")


def session(
    data: str | Path | None = None, conf: Mapping[str, str] | None = None, **options: str | None
) -> SparkSession:
    """Return a session with the tables of a data folder as views: `bronze.messages` is `bronze_messages`.

    `data` is the data folder, by default that of the settings. `conf` are properties of Spark. `options` are `tables`
    (where the tables are, if not in the data folder), `master` and `memory`, by default as the settings have them. A
    session that is there already is used as it is. Call `show_tables` to see tables as they are now.

    Raises ConfigError for an unknown option or a time zone other than UTC, PipelineError without Java or the extra.
    """
    for name in options:
        if name not in _OPTIONS:
            nearest = difflib.get_close_matches(name, _OPTIONS, 1)
            hint = f"; did you mean {nearest[0]}?" if nearest else f"; known: {', '.join(_OPTIONS)}"
            raise ConfigError(name, f"is no option of a session{hint}")
    for name in conf or {}:
        if not name.startswith("spark."):
            raise ConfigError(name, "is no property of Spark: their names begin with `spark.`")
    check_installed()
    _check_running()
    loaded = _loaded(data, options)
    folders = Folders(loaded.journal.folder, loaded.pipeline.tables or None, loaded.pipeline.journal or None)
    lake = open_lake(folders, loaded.pipeline, dict(conf or {}), storage=loaded.storage)
    _show(lake)
    return lake.spark


def show_tables(spark: SparkSession, data: str | Path | None = None, tables: str | None = None) -> list[str]:
    """Make views of the tables as they are now; return their names."""
    from raceway.pipeline.lake import Lake
    from raceway.pipeline.storage import storage_of

    loaded = _loaded(data, {"tables": tables})
    folders = Folders(loaded.journal.folder, loaded.pipeline.tables or None, loaded.pipeline.journal or None)
    return _show(Lake(spark, folders, storage_of(folders.tables, loaded.storage)))


def _show(lake: Lake) -> list[str]:
    shown = []
    for name in lake.names():
        view = name.replace(".", "_")
        lake.frame(name).createOrReplaceTempView(view)
        shown.append(view)
    return shown


def _check_running() -> None:
    """Raise ConfigError if there is a session in another time zone: changing it would change its other results."""
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        check_time_zone(running.conf.get(TIME_ZONE, UTC) or UTC)


def _loaded(data: str | Path | None, options: Mapping[str, Any]) -> config.Config:
    flags = {"journal.folder": None if data is None else str(data)}
    flags |= {f"pipeline.{name}": value for name, value in options.items()}
    return config.load(None, flags=flags, sections=wires.sections()).config
