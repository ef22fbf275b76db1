"""Layout of DATA/pipeline.

tables/bronze/messages/day=…/      Delta tables, or wherever `pipeline.tables` says; `_delta_log` in each is its log
tables/state/…                     tables of the pipeline itself: ids for deduplication, captures, losses
staging/                           files of an import that is in progress; deleted at each start
schemas.json                       all schema versions the bus has had (see `schema_book`)
deleting.parquet                   the messages of a deletion that is in progress (see `forgetting`)
version  journal                   version of the tables (`registry`), identity of their journal
progress.json  lock  log/  spark/  progress, lock, log4j file, Spark's temporary files
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from raceway.errors import PipelineError


class Folders:
    """The paths of one data folder. `tables` may be elsewhere, and `journal`, the archive that rows are taken from."""

    def __init__(self, data: str | Path, tables: str | None = None, journal: str | None = None) -> None:
        # Spark resolves relative paths in its own processes, which may have another working directory.
        self.data = Path(data).absolute()
        # Workers get this name, too.
        self.journal = journal if journal and "://" in journal else str(Path(journal or self.data).absolute())
        self.root = self.data / "pipeline"
        self.tables = (tables or str(self.root / "tables")).removeprefix("file://").rstrip("/")
        self.staging = self.root / "staging"
        self.former = self.root / "former"
        self.schemas = self.root / "schemas.json"
        self.progress = self.root / "progress.json"
        self.deleting = self.root / "deleting.parquet"
        self.version = self.root / "version"
        self.log = self.root / "log"
        self.spark = self.root / "spark"

    def table(self, name: str) -> str:
        """The folder of a table: `bronze.messages` is bronze/messages."""
        return f"{self.tables}/{name.replace('.', '/')}"

    def check_deleted(self) -> None:
        """Raise PipelineError if a deletion was interrupted: what it was to delete must not be copied on."""
        if self.deleting.exists():
            raise PipelineError(
                f"a deletion in {self.data} was interrupted: stop the bus, then `raceway pipeline delete` completes it"
            )

    def stage(self, name: str) -> Path:
        """Create a folder in staging. Names are unique: workers of a killed driver may still write to old ones."""
        folder = self.staging / f"{name}-{uuid.uuid4().hex}"
        folder.mkdir(parents=True)
        return folder

    def sweep(self) -> None:
        """Remove leftovers of earlier runs from staging."""
        shutil.rmtree(self.staging, ignore_errors=True)
        self.staging.mkdir(parents=True, exist_ok=True)
