"""SQL over the pipeline's tables: `GET /api/sql?sql=SELECT …`, as JSON, CSV or Parquet.

Each query runs in a process of its own (`raceway.pipeline.sandbox`), which has the tables that the caller may read and
nothing else. It is killed when its time or its output is too much; a few run at once, others wait for their turn.

Whoever may look at the bus (`Lookup`) reads the tables of figures; the others have messages in them, and take `Consume`
on all topics.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from raceway import errors
from raceway.model.envelope import encode_json
from raceway.model.security import OWNER
from raceway.model.sql import SqlAsked, SqlForm, SqlTold
from raceway.web.answers import NotInstalledError, principal_of
from raceway.web.pipeline import TABLES, maybe_missing, table_folders
from raceway.web.routing import JSON, LOOKUP, Site, SiteRoutes, get

SANDBOX = "raceway.pipeline.sandbox"
# Tables of figures: names of topics and services, counts and times, but no messages.
FIGURES = frozenset(("gold.topic_stats", "gold.service_graph", "gold.schema_usage"))
# Queries that may wait for their turn.
MOST_WAITING = 8
MEDIA_TYPES: dict[SqlForm, str] = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}


class SqlRefusedError(errors.PeerError, code="sql"):
    """The engine refused a query; the text is what it says."""


class SqlLimitError(errors.PeerError, code="sql_limit"):
    """A query took more time, memory or room than one may take."""


class SqlQuery(msgspec.Struct, frozen=True, kw_only=True, rename={"form": "format"}):
    sql: Annotated[str, Meta(description="A single statement, which only reads.", min_length=1, max_length=20_000)]
    at: Annotated[str, Meta(description="Tables as they were: a version, or a time (UTC).", max_length=64)] = ""
    form: Annotated[SqlForm, Meta(description="Format of the answer.")] = "json"
    limit: Annotated[int, Meta(description="Maximum number of rows; `sql.max_rows` if that is less.", ge=1)] = 1000


class SqlRows(msgspec.Struct, frozen=True):
    """Rows of a query. Long cells are truncated; bytes that are not text are base64. `is_cut`: there were more rows."""

    columns: list[dict[str, str]]
    rows: list[list[Any]]
    is_cut: bool
    took_ms: int


class SqlRoutes(SiteRoutes):
    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._settings = site.sql
        self._turns = asyncio.Semaphore(self._settings.max_running)
        self._waiting = 0

    @get("/api/sql", LOOKUP, "pipeline")
    async def select(self, request: Request, query: SqlQuery) -> SqlRows | Response:
        """Run SQL over the pipeline's tables, in a process of its own."""
        if (missing := maybe_missing()) is not None:
            raise NotInstalledError(missing)
        if self._waiting >= MOST_WAITING:
            raise errors.BusyError(f"{MOST_WAITING} queries are waiting already")
        self._waiting += 1
        try:
            asked = await self._site.desk.run(lambda: self._asked(request, query))
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        try:
            began_s = time.monotonic()
            told, body = await self._run(asked)
            took_ms = round((time.monotonic() - began_s) * 1000)
        finally:
            self._turns.release()
        if query.form == "json":
            # The rows are JSON already: a large result decoded and encoded again would hold up the bus.
            found = {"columns": told.columns, "rows": msgspec.Raw(body), "is_cut": told.is_cut, "took_ms": took_ms}
            return Response(encode_json(found), media_type=JSON)
        headers = {"content-disposition": f'attachment; filename="result.{query.form}"', "x-cut": str(told.is_cut)}
        return Response(body, media_type=MEDIA_TYPES[query.form], headers=headers)

    def _asked(self, request: Request, query: SqlQuery) -> SqlAsked:
        folders, settings = table_folders(self._site.data), self._settings
        tables = sorted(name for name in folders if self._may_read_all(request) or name in FIGURES)
        root = "" if self._site.data is None else str((self._site.data / TABLES).resolve())
        return SqlAsked(
            sql=query.sql, root=root, tables=tables, form=query.form, rows=min(query.limit, settings.max_rows),
            memory_bytes=settings.memory_bytes, timeout_s=settings.timeout_s, at=query.at.strip(),
        )  # fmt: skip

    def _may_read_all(self, request: Request) -> bool:
        permissions = self._view.permissions
        if permissions.enabled:
            return permissions.allows(principal_of(request), "Consume", None)
        return not self._site.admin_token or principal_of(request) == OWNER

    async def _run(self, asked: SqlAsked) -> tuple[SqlTold, bytes]:
        """Raises SqlRefusedError, SqlLimitError."""
        # An environment of its own: the bus's may have secrets. One arena a thread would use up the address space.
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", SANDBOX, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, env={"MALLOC_ARENA_MAX": "2", "TZ": "UTC"}, cwd="/",
        )  # fmt: skip
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                line, body = await _talk(child, msgspec.json.encode(asked), self._settings.max_bytes)
        except TimeoutError as error:
            raise SqlLimitError(f"the query took longer than {self._settings.timeout_s:g} s (sql.timeout_s)") from error
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if not line:  # killed by the kernel, or out of memory before it could report an error
            raise SqlLimitError(f"the query needed more memory or time than it may take (exit {child.returncode})")
        told = msgspec.json.decode(line, type=SqlTold)
        if told.error:
            raise SqlRefusedError(told.error)
        return told, body


async def _talk(child: asyncio.subprocess.Process, sent: bytes, most: int) -> tuple[bytes, bytes]:
    """Write to a process; return the line that it writes first, and what follows. Raises SqlLimitError."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(sent)
    child.stdin.close()
    line, pieces, size = b"", list[bytes](), 0
    while piece := await child.stdout.read(1 << 20):
        pieces.append(piece)
        size += len(piece)
        if size > most:
            raise SqlLimitError(
                f"the result is larger than {most:,} bytes (sql.max_bytes): ask for fewer rows or columns"
            )
        if not line and b"\n" in piece:
            line, _, rest = b"".join(pieces).partition(b"\n")
            pieces = [rest]
    await child.wait()
    return line, b"".join(pieces)
