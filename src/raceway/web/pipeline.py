"""Progress and tables of the pipeline, read from its folder next to the journal.

The pipeline is another process, if it runs at all; only its files are used here. Tables are Parquet files below
`DATA/pipeline/tables/<schema>/<table>/`; names come from the listing of that folder, never from the URL.
"""

from __future__ import annotations

import base64
from datetime import date, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow.parquet as pq
from msgspec import Meta

from raceway.errors import UnknownTableError
from raceway.journal.lock import is_alive
from raceway.model.progress import PipelineProgress
from raceway.web.routing import CONSUME_ALL, LOOKUP, SiteRoutes, get

# Maximum length of a cell in a preview.
CELL = 500
# Parts that are counted; a table that was never compacted may have thousands.
PARTS = 10_000


class TableRow(msgspec.Struct, frozen=True):
    name: str
    parts: int
    bytes: int
    rows: int | None


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """State of the pipeline. `progress` is null if it never ran here. `behind` counts the positions of the journal that
    are not in the tables yet."""

    progress: PipelineProgress | None
    is_running: bool
    behind: int
    tables: list[TableRow]


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
    return Pipeline(progress=progress, is_running=is_running, behind=behind, tables=tables)


def _maybe_progress(data: Path | None) -> PipelineProgress | None:
    if data is None:
        return None
    try:
        return msgspec.json.decode((data / "pipeline" / "progress.json").read_bytes(), type=PipelineProgress)
    except (OSError, msgspec.DecodeError):  # missing, or not written by a pipeline
        return None


def table_folders(data: Path | None) -> dict[str, Path]:
    """Return the folders of the tables by name."""
    root = data / "pipeline" / "tables" if data is not None else None
    if root is None or not root.is_dir():
        return {}
    return {f"{folder.parent.name}.{folder.name}": folder for folder in root.glob("*/*") if folder.is_dir()}


def table_parts(folder: Path) -> list[Path]:
    """Return the files of a table sorted by name, newest last."""
    return sorted(islice(folder.glob("*/*.parquet"), PARTS))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # being replaced
        return 0


def _preview(data: Path | None, name: str, limit: int) -> Preview:
    folder = table_folders(data).get(name)
    if folder is None:
        raise UnknownTableError(name)
    if (folder / "_delta_log").is_dir():
        return Preview(name, "", [], [], "stored as Delta: use `raceway pipeline query`")
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
    return Preview(name, f"{part.parent.name}/{part.name}", columns, rows, "")


def shown_cell(cell: Any) -> Any:
    """Return a value that JSON can represent, truncated."""
    if isinstance(cell, bytes):
        try:
            return cell.decode()[:CELL]
        except UnicodeDecodeError:
            return base64.b64encode(cell[:CELL]).decode()
    if isinstance(cell, datetime | date):
        return cell.isoformat()
    if isinstance(cell, bool | int) or cell is None:
        return cell
    if isinstance(cell, float):
        return cell if cell == cell and abs(cell) != float("inf") else str(cell)
    return str(cell)[:CELL]
