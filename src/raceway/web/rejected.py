"""Rejected messages over the console port: list, show one, redrive.

    GET  /api/rejected                      newest first; filters: `source`, `topic`, `after` (a position), `limit`
    GET  /api/rejected/{position}           one, with its payload
    POST /api/rejected/{position}/redrive   publish it again: `{"topic": …}` names another topic than its own

If the bus has an administrator's token and no other security, that token is required.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, NotRequired, TypedDict, cast

import msgspec
from msgspec import Meta
from starlette.requests import Request

from raceway.broker.broker import Broker
from raceway.broker.undelivered.redrive import KINDS, Redrive, UnknownRejectedError, facts_of
from raceway.errors import MalformedError
from raceway.journal.query.inspect import document
from raceway.model.intents import Publish
from raceway.model.security import Principal
from raceway.web.answers import principal_of
from raceway.web.inputs import CLAMPED, CLAMPED_UNLESS_EMPTY, read_json
from raceway.web.publishing import HttpPeer, publish
from raceway.web.routing import CONSUME, Routes, get, post

# Maximum number of rows read for one page with a filter.
LOOKED_AT = 10_000


class RedrivingPeer(HttpPeer):
    """Peer of a redrive. A message that is refused again is not stored as rejected a second time."""

    keeps_refused: ClassVar[bool] = False


SOURCE = Meta(description="Only messages of this kind.", extra_json_schema={"enum": list(KINDS)})
AFTER = Meta(description="Only messages older than this position.", ge=0, extra=CLAMPED_UNLESS_EMPTY)


class RejectedQuery(msgspec.Struct, frozen=True, kw_only=True):
    source: Annotated[str, SOURCE] | None = None
    topic: Annotated[str, Meta(description="Only messages of this topic.")] | None = None
    after: Annotated[int, AFTER] | None = None
    limit: Annotated[int, Meta(description="Maximum number of entries.", ge=1, le=500, extra=CLAMPED)] = 50


class RejectedRow(TypedDict):
    """A message that was refused or not delivered; `redriven`: where it was published again, if it was."""

    position: int
    source: str
    time_us: int
    wire: str
    producer: str | None
    message_id: str | None
    correlation_id: str | None
    bytes: int
    topic: NotRequired[str]
    code: NotRequired[str]
    reason: NotRequired[str]
    path: NotRequired[str]
    subject: NotRequired[str]
    version: NotRequired[str]
    receiver: NotRequired[str]
    subscription: NotRequired[str]
    offset: NotRequired[str]
    redriven: dict[str, Any] | None
    message: NotRequired[dict[str, Any]]


class RejectedPage(msgspec.Struct, frozen=True):
    rejected: list[RejectedRow]
    after: int | None


class OtherTopic(msgspec.Struct, frozen=True):
    topic: str | None = None


class Redriven(msgspec.Struct, frozen=True):
    position: int
    topic: str
    offset: int | None


class RejectedRoutes(Routes):
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._redrive = Redrive(broker)

    @get("/api/rejected", CONSUME, "messages")
    async def rejected(self, request: Request, query: RejectedQuery) -> RejectedPage:
        """Messages that were refused or not delivered."""
        if query.source is not None and query.source not in KINDS:
            raise MalformedError(f"source must be one of {', '.join(KINDS)}")
        kept = self._allowed(principal_of(request), self._redrive.topics(query.source))
        rows, following = await asyncio.to_thread(self._newest, kept, query.topic, query.after, query.limit)
        return RejectedPage([self._shown(row) for row in rows], following)

    @get("/api/rejected/{position:int}", CONSUME, "messages")
    async def message(self, request: Request, position: int) -> RejectedRow:
        """A rejected message, with its payload."""
        row = await self._find(request, position)
        return {**self._shown(row), "message": document(row)}

    @post("/api/rejected/{position:int}/redrive", CONSUME, "messages", body=OtherTopic)
    async def redrive(self, request: Request, position: int) -> Redriven:
        """Publish a rejected message again, to its own topic or another."""
        topic = await _other_topic(request)
        row = await self._find(request, position)
        batch = await asyncio.to_thread(self._redrive.batch, row, topic)
        await publish(self._broker, RedrivingPeer(self._broker, request, row["producer"]), Publish(batch))
        target, offset = batch.item("topic", 0).decode(), batch.item("offset", 0)
        self._redrive.note(position, target, offset)
        return Redriven(position, target, offset)

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

    async def _find(self, request: Request, position: int) -> dict[str, Any]:
        """Return the row at a position. Raises UnknownRejectedError, also without permission, so as not to reveal which
        positions exist."""
        row = await asyncio.to_thread(self._redrive.row, position)
        security = self._broker.security
        if security.enabled and not security.allows(principal_of(request), "Consume", row["topic"]):
            raise UnknownRejectedError(str(position))
        return row

    def _shown(self, row: dict[str, Any]) -> RejectedRow:
        return cast(RejectedRow, facts_of(row) | {"redriven": self._redrive.redriven(row["sequence"])})


async def _other_topic(request: Request) -> str | None:
    if request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers:
        return None
    topic = (await read_json(request)).get("topic")
    if topic is not None and not isinstance(topic, str):
        raise MalformedError("topic must be a string")
    return topic
