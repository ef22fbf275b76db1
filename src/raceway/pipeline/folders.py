"""Layout of DATA/pipeline.

    tables/bronze/messages/range=<first>-<last>/      a folder per batch; `range=import-<sha256>` per capture
    tables/bronze/rejected/range=…/                   the same names, where there are rows
    tables/silver/…/bucket=<bucket>/data.parquet      one file per bucket, replaced atomically; gold, too
    staging/                                          files not yet in a table; deleted at each start
    notes/  links/  active/                           metadata of parts and buckets (see `notes`, `recompute`)
    schemas.json                                      all schema versions the bus has had (see `schema_book`)
    checkpoint/v1/                                    Spark's; may be deleted: a run continues from the tables
    version  journal  format                          version of the tables (`registry`), identity of their journal, and
                                                      their format, written earlier than the first file: a killed run
                                                      may leave files of either format
    progress.json  lock  log/  spark/                 progress, lock, log4j file, Spark's temporary files

Staging is outside of every table, because readers search folders of any name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

# Version of the streaming query and of what it passes to `foreachBatch`. A change that is incompatible with an old
# checkpoint needs the next number; the new checkpoint begins at the end of the tables.
CHECKPOINT_VERSION = 1


class Folders:
    """The paths of one data folder. `tables` may be elsewhere."""

    def __init__(self, data: str | Path, tables: str | None = None) -> None:
        # Spark resolves relative paths in its own processes, which may have another working directory.
        self.data = Path(data).absolute()
        self.root = self.data / "pipeline"
        self.tables = (tables or str(self.root / "tables")).removeprefix("file://").rstrip("/")
        self.staging = self.root / "staging"
        self.notes = self.root / "notes"
        self.links = self.root / "links"
        self.active = self.root / "active"
        self.compacting = self.root / "compacting"
        self.checkpoints = self.root / "checkpoint"
        self.checkpoint = self.checkpoints / f"v{CHECKPOINT_VERSION}"
        self.schemas = self.root / "schemas.json"
        self.progress = self.root / "progress.json"
        self.version = self.root / "version"
        self.format = self.root / "format"
        self.log = self.root / "log"
        self.spark = self.root / "spark"

    def table(self, name: str) -> str:
        """The folder of a table: `bronze.messages` is bronze/messages."""
        return f"{self.tables}/{name.replace('.', '/')}"


def maybe_kept_format(folders: Folders) -> Literal["parquet", "delta"] | None:
    """The format of the tables of this folder; None if there are none."""
    told = folders.format.read_text("utf-8", "replace").strip() if folders.format.is_file() else ""
    return "delta" if told == "delta" else "parquet" if told == "parquet" else None
