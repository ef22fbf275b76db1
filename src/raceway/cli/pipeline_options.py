"""Options shared by the commands of the pipeline, and their effective values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import typer

from raceway import config
from raceway.cli.output import ExitCode, fail
from raceway.pipeline.folders import Folders, maybe_kept_format

Master = Annotated[
    str | None, typer.Option(metavar="MASTER", help="Spark master: local[N], spark://HOST:PORT, or any other.")
]
Memory = Annotated[str | None, typer.Option(metavar="SIZE", help="Memory of Spark's driver, for example 2g.")]
Form = Annotated[str | None, typer.Option("--format", metavar="FORMAT", help="Format of the tables: parquet or delta.")]
TablesFolder = Annotated[
    str | None,
    typer.Option("--tables", metavar="PATH", help="Location of the tables. Default: in the data folder."),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="KEY=VALUE", help="Spark property; for object stores: spark.hadoop.fs.… May be repeated."
    ),
]


class Chosen(NamedTuple):
    """Effective values of options and settings."""

    folders: Folders
    settings: config.Pipeline
    extra: dict[str, str]
    config: config.Config


def choose(
    data: Path | None,
    config_file: Path | None,
    *,
    master: str | None = None,
    memory: str | None = None,
    form: str | None = None,
    tables: str | None = None,
    trigger_s: float | None = None,
    max_records: int | None = None,
    conf: list[str] | None = None,
) -> Chosen:
    """Merge options over settings; existing tables keep their format. Raises ConfigError."""
    flags = {
        "journal.folder": str(data) if data else None,
        "pipeline.master": master,
        "pipeline.memory": memory,
        "pipeline.format": form,
        "pipeline.tables": tables,
        "pipeline.trigger_s": trigger_s,
        "pipeline.max_records": max_records,
    }
    loaded = config.load(config_file, flags=flags)
    settings = loaded.config.pipeline
    folders = Folders(loaded.config.journal.folder, settings.tables or None)
    kept = maybe_kept_format(folders)
    if kept is not None and loaded.origins["pipeline.format"] == "default":
        settings = msgspec.structs.replace(settings, format=kept)
    return Chosen(folders, settings, _pairs(conf or []), loaded.config)


def check_tables(chosen: Chosen) -> None:
    if not chosen.folders.root.is_dir():
        fail(f"there are no tables in {chosen.folders.data}: create them with `raceway pipeline run --once`")


def _pairs(conf: list[str]) -> dict[str, str]:
    pairs = {}
    for text in conf:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            fail(f"--conf takes KEY=VALUE, not {text!r}", ExitCode.USAGE)
        pairs[key.strip()] = value.strip()
    return pairs
