"""Options shared by the commands of the pipeline, and their effective values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

from raceway import config, wires
from raceway.cli import bus, options
from raceway.cli.output import fail, misuse
from raceway.pipeline.folders import Folders
from raceway.pipeline.opening import open_files, open_lake
from raceway.pipeline.spark import check_installed

if TYPE_CHECKING:
    from raceway.journal.archive.reader import AnyReader
    from raceway.pipeline.lake import Lake


class Chosen(NamedTuple):
    """Effective values of options and settings."""

    folders: Folders
    settings: config.PipelineSettings
    extra: dict[str, str]
    config: config.Config

    def open_journal(self) -> AnyReader:
        """Open the journal, or its archive, that rows are taken from. Ends the command if there is none."""
        from raceway.journal.archive.reader import open_reader

        if self.settings.journal:
            return open_reader(self.folders.journal, self.config.storage)
        return bus.open_journal(self.folders.data)

    def files(self) -> Lake:
        """Open the tables without Spark."""
        return open_files(self.folders, self.settings, self.extra, self.config.storage)

    def lake(self) -> Lake:
        """Open the tables with a new Spark session."""
        return open_lake(self.folders, self.settings, self.extra, storage=self.config.storage)


class OnTables(options.WithSettings):
    """Where the tables are."""

    tables: Annotated[
        str | None, "--tables PLACE", "Location of the tables, a folder or a URL. Default: in the data folder."
    ] = None
    journal: Annotated[
        str | None,
        "--journal PLACE",
        "Archive that rows are taken from, a folder or a URL. Default: the journal in the data folder.",
    ] = None
    conf: Annotated[
        list[str] | None, "--conf KEY=VALUE", "Spark property, for example spark.executor.memory=4g. May be repeated."
    ] = None

    def choose(self, **flags: object) -> Chosen:
        """Merge options over settings, as `choose` does. `flags` are settings of the section `pipeline`.

        Raises PipelineError without the extra `spark`, before a command imports any of it.
        """
        check_installed()
        return choose(self, _pairs(self.conf or []), tables=self.tables, journal=self.journal, **flags)


class WithSpark(OnTables):
    """Where Spark runs."""

    master: Annotated[str | None, "--master MASTER", "Spark master: local[N], spark://HOST:PORT, or any other."] = None
    memory: Annotated[str | None, "--memory SIZE", "Memory of Spark's driver, for example 2g."] = None

    def choose(self, **flags: object) -> Chosen:
        return super().choose(master=self.master, memory=self.memory, **flags)


def choose(cli: options.WithSettings, extra: dict[str, str] | None = None, **flags: object) -> Chosen:
    """Merge options over settings. Raises ConfigError."""
    of_pipeline = {f"pipeline.{name}": value for name, value in flags.items()}
    loaded = config.load(
        cli.config_file, flags={"journal.folder": cli.data and str(cli.data), **of_pipeline}, sections=wires.sections()
    )
    settings = loaded.config.pipeline
    folders = Folders(loaded.config.journal.folder, settings.tables or None, settings.journal or None)
    return Chosen(folders, settings, extra or {}, loaded.config)


def check_tables(chosen: Chosen) -> None:
    if not chosen.folders.root.is_dir():
        fail(f"there are no tables in {chosen.folders.data}: create them with `raceway pipeline run --once`")


def _pairs(conf: list[str]) -> dict[str, str]:
    pairs = {}
    for text in conf:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            misuse(f"--conf takes KEY=VALUE, not {text!r}")
        pairs[key.strip()] = value.strip()
    return pairs
