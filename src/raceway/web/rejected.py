"""Rejected messages over the console port: list, show one, redrive.

    GET  /api/rejected                      newest first; filters: `source`, `topic`, `after` (a position), `limit`
    GET  /api/rejected/{position}           one, with its payload
    POST /api/rejected/{position}/redrive   publish it again: `{"topic": …}` names another topic than its own

If the bus has an administrator's token and no other security, that token is required.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from raceway.broker.broker import Broker
from raceway.broker.undelivered.redrive import KINDS, Redrive, UnknownRejectedError, facts_of
from raceway.errors import MalformedError
from raceway.journal.query.inspect import document
from raceway.model.intents import Publish
from raceway.model.security import Principal
from raceway.web.answers import number_of, principal_of, read_json, refusing
from raceway.web.publishing import HttpPeer, publish
from raceway.web.routing import CONSUME, Route

USUAL, MOST = 50, 500
# Maximum number of rows read for one page with a filter.
LOOKED_AT = 10_000
BODY_LIMIT = 64 * 1024


class RedrivingPeer(HttpPeer):
    """Peer of a redrive. A message that is refused again is not stored as rejected a second time."""

    keeps_refused: ClassVar[bool] = False


class RejectedMessages:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._redrive = Redrive(broker)

    def routes(self) -> list[Route]:
        return [
            Route("/api/rejected", refusing(self.list_newest), CONSUME),
            Route("/api/rejected/{position:int}", refusing(self.show), CONSUME),
            Route("/api/rejected/{position:int}/redrive", refusing(self.redrive), {"POST": CONSUME}),
        ]

    async def list_newest(self, request: Request) -> Response:
        query = request.query_params
        source, topic = query.get("source"), query.get("topic")
        if source is not None and source not in KINDS:
            raise MalformedError(f"source must be one of {', '.join(KINDS)}")
        limit = max(min(number_of("limit", query.get("limit", str(USUAL))), MOST), 1)
        before = number_of("after", query["after"]) if query.get("after") else None
        kept = self._allowed(principal_of(request), self._redrive.topics(source))
        rows, following = await asyncio.to_thread(self._newest, kept, topic, before, limit)
        return JSONResponse({"rejected": [self._shown(row) for row in rows], "after": following})

    def _newest(
        self, kept: Sequence[str], topic: str | None, before: int | None, limit: int
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Return the rows of a page, and the position below which the next one starts."""
        looked_at = 0
        found: list[dict[str, Any]] = []
        while len(found) < limit and looked_at < LOOKED_AT:
            merged = [row for each in kept for row in self._redrive.newest(each, before, limit)]
            rows = sorted(merged, key=lambda row: row["sequence"], reverse=True)[:limit]
            if not rows:
                return found, None
            chosen = [row for row in rows if topic is None or facts_of(row).get("topic") == topic]
            found += chosen[: limit - len(found)]
            full = len(found) == limit
            before = found[-1]["sequence"] if full else rows[-1]["sequence"]
            looked_at += len(rows)
        return found, before

    def _allowed(self, principal: Principal, kept: Sequence[str]) -> list[str]:
        """Return the topics from which the caller may consume. Raises ForbiddenError if there are none."""
        security = self._broker.security
        if not security.enabled:
            return list(kept)
        allowed = [each for each in kept if security.allows(principal, "Consume", each)]
        if not allowed:  # for the cluster: do not reveal which topics exist
            security.check(principal, "Consume")
        return allowed

    async def _find(self, request: Request) -> dict[str, Any]:
        """Return the row of the path. Raises UnknownRejectedError, also without permission, so as not to reveal which
        positions exist."""
        position = request.path_params["position"]
        row = await asyncio.to_thread(self._redrive.row, position)
        security = self._broker.security
        if security.enabled and not security.allows(principal_of(request), "Consume", row["topic"]):
            raise UnknownRejectedError(str(position))
        return row

    def _shown(self, row: dict[str, Any]) -> dict[str, Any]:
        return facts_of(row) | {"redriven": self._redrive.redriven(row["sequence"])}

    async def show(self, request: Request) -> Response:
        row = await self._find(request)
        return JSONResponse(self._shown(row) | {"message": document(row)})

    async def redrive(self, request: Request) -> Response:
        topic = await _other_topic(request)
        position, row = request.path_params["position"], await self._find(request)
        batch = await asyncio.to_thread(self._redrive.batch, row, topic)
        await publish(self._broker, RedrivingPeer(self._broker, request, row["producer"]), Publish(batch))
        target, offset = batch.item("topic", 0).decode(), batch.item("offset", 0)
        self._redrive.note(position, target, offset)
        return JSONResponse({"position": position, "topic": target, "offset": offset})


async def _other_topic(request: Request) -> str | None:
    if request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers:
        return None
    topic = (await read_json(request, BODY_LIMIT)).get("topic")
    if topic is not None and not isinstance(topic, str):
        raise MalformedError("topic must be a string")
    return topic
