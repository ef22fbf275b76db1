"""Where the pipeline keeps what: every path under DATA/pipeline.

    tables/bronze/messages/range=<first>-<last>/      appended, a folder per batch; `range=import-<sha256>` per capture
    tables/bronze/rejected/range=…/                   the same names, where there are rows
    tables/silver/…/bucket=<bucket>/data.parquet      replaced as a whole, one file each; gold likewise
    staging/                                          files that are not part of a table yet; swept at each start
    notes/  links/  active/                           what is known of parts and buckets (see `notes`, `recompute`)
    schemas.json                                      every schema version the bus has had (see `schema_book`)
    checkpoint/v1/                                    Spark's own; may be deleted, the tables say where to go on
    version  journal  format                          of the tables (`registry`); whose journal they are made from; how
                                                      they are kept, told before the first file: a run that was killed
                                                      may have left files of either kind
    progress.json  lock  log/  spark/                 for people and other processes; log4j file, Spark's scratch

Staging lies outside every table, because readers walk into folders of any name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

# Of the streaming query and what it hands to `foreachBatch`; a change that an old checkpoint would not understand
# takes the next number, and the tables' end decides where the new one begins.
CHECKPOINT_VERSION = 1


class Folders:
    """The paths of one data folder. `tables` may lie elsewhere."""

    def __init__(self, data: str | Path, tables: str | None = None) -> None:
        # Spark resolves relative paths in its own processes, which may run elsewhere.
        self.data = Path(data).absolute()
        self.root = self.data / "pipeline"
        self.tables = (tables or str(self.root / "tables")).removeprefix("file://").rstrip("/")
        self.staging = self.root / "staging"
        self.notes = self.root / "notes"
        self.links = self.root / "links"
        self.active = self.root / "active"
        self.checkpoints = self.root / "checkpoint"
        self.checkpoint = self.checkpoints / f"v{CHECKPOINT_VERSION}"
        self.schemas = self.root / "schemas.json"
        self.progress = self.root / "progress.json"
        self.version = self.root / "version"
        self.format = self.root / "format"
        self.lock = self.root / "lock"
        self.log = self.root / "log"
        self.spark = self.root / "spark"

    def table(self, name: str) -> str:
        """The folder of a table: `bronze.messages` is bronze/messages."""
        return f"{self.tables}/{name.replace('.', '/')}"


def maybe_kept_format(folders: Folders) -> Literal["parquet", "delta"] | None:
    """How the tables of this folder are kept; None when there are none."""
    told = folders.format.read_text("utf-8", "replace").strip() if folders.format.is_file() else ""
    return "delta" if told == "delta" else "parquet" if told == "parquet" else None
