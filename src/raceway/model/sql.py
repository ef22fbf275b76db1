"""What the console port and the process that runs SQL over the tables say to each other.

`SqlAsked` is what is written to that process; its answer is a line with `SqlTold`, and behind it the rows: a list of
lists as JSON, or the contents of a CSV or Parquet file.
"""

from __future__ import annotations

import base64
from datetime import date, datetime
from typing import Any, Literal

import msgspec

SqlForm = Literal["json", "csv", "parquet"]
# Maximum length of a cell that is shown.
CELL = 500


class SqlAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A query over `tables`, whose folders are below `root`, as they are or as they were `at` a version or a time:
    `rows` of its result at most, within a memory in bytes and a time in seconds."""

    sql: str
    root: str
    tables: list[str]
    form: SqlForm
    rows: int
    memory_bytes: int
    timeout_s: float
    at: str = ""


class SqlTold(msgspec.Struct, frozen=True):
    """How it went. `error` is what the engine says if it refused; `is_cut`: there were more rows."""

    columns: list[dict[str, str]] = []
    is_cut: bool = False
    error: str = ""


def shown_cell(cell: Any, most: int = CELL) -> Any:
    """Return a value that JSON can represent, truncated. Bytes that are not text are base64."""
    if isinstance(cell, bytes):
        try:
            return cell.decode()[:most]
        except UnicodeDecodeError:
            return base64.b64encode(cell[:most]).decode()
    if isinstance(cell, datetime | date):
        return cell.isoformat()
    if isinstance(cell, bool | int) or cell is None:
        return cell
    if isinstance(cell, float):
        return cell if cell == cell and abs(cell) != float("inf") else str(cell)
    return str(cell)[:most]
