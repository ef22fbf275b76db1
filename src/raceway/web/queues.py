"""Queues over the console port: list, create, show waiting messages, purge.

Messages in a queue are as private as the queue: if the bus has an administrator's token it is required here; otherwise
a queue with a token requires its own. Both are sent as `Authorization: Bearer …`. With security on the doorman has
checked the principal, and no queue's token is needed.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request

from raceway.model.intents.administration import PeekQueue, PurgeQueue
from raceway.model.intents.queues import CreateQueue
from raceway.model.subscriptions import parse_start
from raceway.web.answers import principal_of
from raceway.web.inputs import CLAMPED, read_body
from raceway.web.routing import CONSUME_ALL, LOOKUP_PRIVATE, MANAGE_TOPIC, Answered, SiteRoutes, delete, get, post

# Limits of messages shown: they are read in the event loop.
PEEK_ROWS, PEEK_BYTES = 100, 1024 * 1024
COLUMNS = ("offset", "time_us", "wire", "kind", "message_id", "producer", "payload")
MESSAGES = "/api/queues/{name:path}/messages"


class QueuePage(msgspec.Struct, frozen=True):
    queues: list[dict[str, Any]]


class NewQueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A queue to create. `start`: `first`, `last`, an offset or a time. `token`: required to use the queue."""

    name: str
    start: str | int = "last"
    token: str = ""


class MadeQueue(msgspec.Struct, frozen=True):
    """A created queue. `made` is false if it existed already."""

    name: str
    made: bool


class PeekQuery(msgspec.Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(description="Maximum number of messages.", ge=0, le=PEEK_ROWS, extra=CLAMPED)] = 10


class QueueMessages(msgspec.Struct, frozen=True):
    """Waiting messages, oldest first."""

    waiting: int
    messages: list[dict[str, Any]]


class PurgedQueue(msgspec.Struct, frozen=True):
    purged: int


class QueueRoutes(SiteRoutes):
    @get("/api/queues", LOOKUP_PRIVATE, "queues")
    async def queues(self) -> QueuePage:
        """Queues."""
        rows = [
            {"name": each.name, "mode": each.mode, "guarded": each.guarded, "creator": each.maker,
             "created_ms": each.made_ms, "waiting": each.backlog, "consumers": len(each.consumers)}
            for each in self._view.queues
        ]  # fmt: skip
        return QueuePage(sorted(rows, key=lambda row: str(row["name"])))

    @post("/api/queues", MANAGE_TOPIC, "topics", body=NewQueue, statuses=(200, 201))
    async def create(self, request: Request) -> Answered[MadeQueue]:
        """Create a queue that starts at a position."""
        sent = await read_body(request, NewQueue)
        start, maker = parse_start(str(sent.start)), str(principal_of(request))
        done = await self._ask(request, CreateQueue(sent.name, token=sent.token, start=start, maker=maker))
        return Answered(MadeQueue(sent.name, done.changed), 201 if done.changed else 200)

    @get(MESSAGES, CONSUME_ALL, "queues")
    async def peek(self, request: Request, name: str, query: PeekQuery) -> QueueMessages:
        """Messages waiting in a queue."""
        wanted = PeekQueue(name, self._site.maybe_queue_token(request), query.limit, PEEK_BYTES, COLUMNS)
        found = await self._ask(request, wanted)
        rows = [row | {"payload": b64encode(row["payload"] or b"").decode()} for row in found.rows]
        return QueueMessages(found.waiting, rows)

    @delete(MESSAGES, CONSUME_ALL, "queues")
    async def purge(self, request: Request, name: str) -> PurgedQueue:
        """Purge a queue."""
        token = self._site.maybe_queue_token(request)
        return PurgedQueue(await self._ask(request, PurgeQueue(name, token)))
