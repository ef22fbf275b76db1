"""Progress and tables of the pipeline, read from its folder next to the journal.

The pipeline is another process, if it runs at all; only its files are used here. Tables are Delta tables below
`DATA/pipeline/tables/<schema>/<table>/`; names come from the listing of that folder, never from the URL. Which files a
table has, its log tells, to a library of the extra `spark`.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Meta

from raceway.errors import UnknownTableError
from raceway.journal.lock import is_alive
from raceway.model.progress import PipelineProgress
from raceway.model.sql import shown_cell
from raceway.web.routing import CONSUME_ALL, LOOKUP, SiteRoutes, get

TABLES = Path("pipeline") / "tables"
# What the process that runs SQL imports; the bus itself does not.
SQL_PACKAGES = ("duckdb", "deltalake")
TO_INSTALL = "SQL over the tables needs DuckDB: install the extra with `pip install 'raceway[spark]'`"


class TableRow(msgspec.Struct, frozen=True):
    name: str
    parts: int
    bytes: int
    rows: int | None


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """State of the pipeline. `progress` is null if it never ran here. `behind` counts the positions of the journal that
    are not in the tables yet. `no_sql` says what to install for SQL over them; empty if nothing is missing."""

    progress: PipelineProgress | None
    is_running: bool
    behind: int
    tables: list[TableRow]
    no_sql: str


class TableQuery(msgspec.Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(description="Maximum number of rows.", ge=1, le=200)] = 50


class Preview(msgspec.Struct, frozen=True):
    """Rows of the newest part. Long cells are truncated; bytes that are not text are base64."""

    name: str
    part: str
    columns: list[dict[str, str]]
    rows: list[list[Any]]
    note: str


class PipelineRoutes(SiteRoutes):
    @get("/api/pipeline", LOOKUP, "pipeline")
    async def progress(self) -> Pipeline:
        """Progress of the pipeline, and its tables."""
        return await self._site.desk.run(partial(_pipeline, self._site.data, self._view.health.now().committed + 1))

    @get("/api/tables/{name}", CONSUME_ALL, "pipeline")
    async def preview(self, name: str, query: TableQuery) -> Preview:
        """Rows of a table."""
        return await self._site.desk.run(partial(_preview, self._site.data, name, query.limit))


def _pipeline(data: Path | None, end: int) -> Pipeline:
    progress = _maybe_progress(data)
    counted = progress.tables if progress else {}
    tables = []
    for name, folder in sorted(table_folders(data).items()):
        parts = table_parts(folder)
        rows = counted[name].rows if name in counted else None
        tables.append(TableRow(name, len(parts), sum(_size(part) for part in parts), rows))
    behind = max(0, end - progress.position) if progress else end
    is_running = progress is not None and progress.state not in ("stopped", "failed") and is_alive(progress.pid)
    return Pipeline(
        progress=progress, is_running=is_running, behind=behind, tables=tables, no_sql=maybe_missing() or ""
    )


def maybe_missing() -> str | None:
    """Return what must be installed before SQL can be run, in a sentence; None if nothing is missing."""
    return None if all(find_spec(name) is not None for name in SQL_PACKAGES) else TO_INSTALL


def _maybe_progress(data: Path | None) -> PipelineProgress | None:
    if data is None:
        return None
    try:
        return msgspec.json.decode((data / "pipeline" / "progress.json").read_bytes(), type=PipelineProgress)
    except (OSError, msgspec.DecodeError):  # missing, or not written by a pipeline
        return None


def table_folders(data: Path | None) -> dict[str, Path]:
    """Return the folders of the tables by name, without those of the pipeline's own state."""
    root = data / TABLES if data is not None else None
    if root is None or not root.is_dir():
        return {}
    folders = (folder for folder in root.glob("*/*") if folder.is_dir() and folder.parent.name != "state")
    return {f"{folder.parent.name}.{folder.name}": folder for folder in folders}


def table_parts(folder: Path) -> list[Path]:
    """Return the files of the current version of a table, newest last; none if its log cannot be read."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError:
        return []
    try:
        files = pa.table(DeltaTable(str(folder)).get_add_actions(flatten=True))
    except (DeltaError, OSError):  # not complete yet
        return []
    return [folder / path for path in files.sort_by("modification_time").column("path").to_pylist()]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # being replaced
        return 0


def _preview(data: Path | None, name: str, limit: int) -> Preview:
    folder = table_folders(data).get(name)
    if folder is None:
        raise UnknownTableError(name)
    for part in reversed(table_parts(folder)):
        try:
            return _read_part(name, part, limit)
        except (OSError, ValueError):  # being replaced; pyarrow's errors are subclasses
            continue
    return Preview(name, "", [], [], "no rows yet")


def _read_part(name: str, part: Path, limit: int) -> Preview:
    with pq.ParquetFile(part) as file:
        columns = [{"name": field.name, "type": str(field.type)} for field in file.schema_arrow]
        batch = next(file.iter_batches(batch_size=limit), None)
        # Maps are returned as lists of pairs; cells keep the order of columns.
        rows = [[shown_cell(cell) for cell in row.values()] for row in (batch.to_pylist() if batch else [])]
    return Preview(name, part.name, columns, rows, "")
