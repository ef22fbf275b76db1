"""`GET /api/traces/{id}`: the trace of a correlation id, or of any message's id, as a tree.

A search reads the journal in another thread, one at a time: it must not take the bus's time from messages. Whoever may
not consume from a topic does not see its messages here either.
"""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from raceway import config
from raceway.broker.broker import Broker
from raceway.errors import BusyError, UnknownError
from raceway.journal.traces import Search, maybe_trace
from raceway.model.security import Principal
from raceway.model.traces import Trace
from raceway.web.answers import number_of, principal_of, refusing

WAITING = 10


class UnknownTraceError(UnknownError):
    """No message has the id, as far as was searched."""

    code = "unknown_trace"
    kind = "message"


class Traces:
    def __init__(self, broker: Broker, settings: config.HttpDoor) -> None:
        self._broker, self._settings = broker, settings
        self._turn = asyncio.Lock()
        self._waiting = 0

    def routes(self) -> list[Route]:
        return [Route("/api/traces/{id:path}", refusing(self.find))]

    async def find(self, request: Request) -> Response:
        """`topic`, `since_us` and `until_us` narrow the search, `rows` is how many may be read."""
        wanted, query = request.path_params["id"], request.query_params
        asked = ("since_us", "until_us", "rows")
        numbers = {name: number_of(name, query[name]) if name in query else None for name in asked}
        if self._waiting >= WAITING:
            raise BusyError("too many searches are waiting")
        self._waiting += 1
        try:
            async with self._turn:
                trace, searched = await asyncio.to_thread(self._search, wanted, numbers, query.get("topic"))
        finally:
            self._waiting -= 1
        if trace is not None:
            trace = self._allowed(principal_of(request), trace)
        if trace is None:
            raise UnknownTraceError(f"{wanted} ({searched:,} rows searched)")
        return Response(msgspec.json.encode(trace), media_type="application/json")

    def _search(self, wanted: str, numbers: dict[str, int | None], topic: str | None) -> tuple[Trace | None, int]:
        journal, limit = self._broker.journal, self._settings.trace_rows
        search = Search(
            read=journal.read, read_topic=journal.read_topic, first=journal.first_position(), end=journal.committed + 1,
            rows=min(numbers["rows"] or limit, limit),
        )  # fmt: skip
        found = maybe_trace(
            search, wanted, since_us=numbers["since_us"], until_us=numbers["until_us"],
            topic=None if topic is None else (topic, journal.offsets(topic)[1]),
        )  # fmt: skip
        return found, search.searched

    def _allowed(self, principal: Principal, trace: Trace) -> Trace | None:
        security = self._broker.security
        if not security.enabled:
            return trace
        spans = [span for span in trace.spans if security.allows(principal, "Consume", span.topic)]
        return msgspec.structs.replace(trace, spans=spans, messages=len(spans)) if spans else None
