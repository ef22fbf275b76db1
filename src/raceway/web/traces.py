"""`GET /api/traces/{id}`: the trace of a correlation id, or of any message's id, as a tree.

A search reads the journal in another process, one at a time, so that it does not delay messages. A caller without
permission to consume anywhere is refused by the doorman before anything is read. Only messages of topics from which the
caller may consume are shown; how much was searched is shown only with permission to consume from all topics.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request

from raceway import config
from raceway.broker.broker import Broker
from raceway.errors import UnknownError
from raceway.journal.query.search import Rows
from raceway.journal.query.traces import maybe_trace, search_of
from raceway.model.security import Principal
from raceway.model.traces import Trace
from raceway.web.answers import principal_of
from raceway.web.asking import Desk
from raceway.web.inputs import CLAMPED
from raceway.web.routing import CONSUME, Routes, get


class UnknownTraceError(UnknownError):
    """No message with this id was found in the rows searched."""

    code = "unknown_trace"
    kind = "message"


class TraceQuery(msgspec.Struct, frozen=True, kw_only=True):
    topic: Annotated[str, Meta(description="The topic of the message; makes the search much faster.")] | None = None
    since_us: Annotated[int, Meta(description="Only messages at or after this time.", ge=0, extra=CLAMPED)] | None = (
        None
    )
    until_us: Annotated[int, Meta(description="Only messages before this time.", ge=0, extra=CLAMPED)] | None = None
    rows: Annotated[int, Meta(description="Maximum number of rows to read.", ge=0, extra=CLAMPED)] | None = None


class TraceRoutes(Routes):
    def __init__(self, broker: Broker, settings: config.HttpDoor, desk: Desk) -> None:
        self._broker, self._settings, self._desk = broker, settings, desk

    @get("/api/traces/{id:path}", CONSUME, "messages")
    async def trace(self, request: Request, id: str, query: TraceQuery) -> Trace:
        """The trace that a message belongs to, as a tree."""
        topic, limit = query.topic, self._settings.trace_rows
        trace, searched = await self._desk.look(
            _search, id, min(query.rows or limit, limit), query.since_us, query.until_us,
            None if topic is None else (topic, self._broker.journal.offsets(topic)[1]),
        )  # fmt: skip
        principal = principal_of(request)
        if trace is not None:
            trace = self._allowed(principal, trace)
        if trace is None:
            sees_all = not self._broker.security.enabled or self._broker.security.allows(principal, "Consume", None)
            raise UnknownTraceError(f"{id} ({searched:,} rows searched)" if sees_all else id)
        return trace

    def _allowed(self, principal: Principal, trace: Trace) -> Trace | None:
        security = self._broker.security
        if not security.enabled:
            return trace
        spans = [span for span in trace.spans if security.allows(principal, "Consume", span.topic)]
        return msgspec.structs.replace(trace, spans=spans, messages=len(spans)) if spans else None


def _search(
    journal: Rows, wanted: str, rows: int, since_us: int | None, until_us: int | None, topic: tuple[str, int] | None
) -> tuple[Trace | None, int]:
    """Return the trace, if found, and how many rows were searched."""
    search = search_of(journal, rows)
    return maybe_trace(search, wanted, since_us=since_us, until_us=until_us, topic=topic), search.searched
