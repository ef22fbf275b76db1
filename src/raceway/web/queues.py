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

from raceway.broker.broker import Broker
from raceway.broker.queues.pubsub import PubSubQueue
from raceway.broker.queues.queue import Queue
from raceway.errors import QueueKindError
from raceway.model.subscriptions import parse_start
from raceway.web.answers import committed, principal_of, token_of
from raceway.web.doorman import Doorman
from raceway.web.inputs import CLAMPED, read_body
from raceway.web.routing import CONSUME_ALL, LOOKUP_PRIVATE, MANAGE_TOPIC, Answered, Routes, delete, get, post

# The mode of an ordinary queue on zbus.
ORDINARY = 1

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


class QueueRoutes(Routes):
    def __init__(self, broker: Broker, doorman: Doorman) -> None:
        self._broker, self._doorman = broker, doorman

    @get("/api/queues", LOOKUP_PRIVATE, "queues")
    async def queues(self) -> QueuePage:
        """Queues."""
        rows = [
            {"name": name, "mode": record.mode, "guarded": bool(record.token), "creator": record.maker,
             "created_ms": record.made_ms, "waiting": queue.backlog if isinstance(queue, Queue) else 0,
             "consumers": len(queue.consumers)}
            for name, record, queue in self._broker.queues
        ]  # fmt: skip
        return QueuePage(sorted(rows, key=lambda row: str(row["name"])))

    @post("/api/queues", MANAGE_TOPIC, "topics", body=NewQueue, statuses=(200, 201))
    async def create(self, request: Request) -> Answered[MadeQueue]:
        """Create a queue that starts at a position."""
        sent = await read_body(request, NewQueue)
        self._broker.security.check(principal_of(request), "ManageTopic", sent.name)
        made, start = not self._broker.queues.exists(sent.name), parse_start(str(sent.start))
        # Publish/subscribe queues have no start.
        self._broker.queues.create(None, str(principal_of(request)), sent.name, ORDINARY, sent.token, start)
        await committed(self._broker)
        return Answered(MadeQueue(sent.name, made), 201 if made else 200)

    @get(MESSAGES, CONSUME_ALL, "queues")
    async def peek(self, request: Request, name: str, query: PeekQuery) -> QueueMessages:
        """Messages waiting in a queue."""
        queue = self._find(request, name)
        return QueueMessages(queue.backlog, _peek(self._broker, queue, query.limit))

    @delete(MESSAGES, CONSUME_ALL, "queues")
    async def purge(self, request: Request, name: str) -> PurgedQueue:
        """Purge a queue."""
        return PurgedQueue(self._find(request, name).purge())

    def _find(self, request: Request, name: str) -> Queue:
        """Return a queue, if the caller may see its messages."""
        self._broker.queues.find(name, None if self._doorman.is_asking else token_of(request))
        queue = next(queue for known, _, queue in self._broker.queues if known == name)
        if isinstance(queue, PubSubQueue):
            raise QueueKindError(name)
        return queue


def _peek(broker: Broker, queue: Queue, limit: int) -> list[dict[str, Any]]:
    """Return messages, oldest first, including those handed out and not taken."""
    name = queue.topic.name
    begin = max(queue.cursor, broker.journal.offsets(name)[0])
    found = broker.journal.read_topic(name, begin, max(limit, 1), PEEK_BYTES, COLUMNS)
    rows = [row for batch in found for row in batch.to_pylist()]
    return [row | {"payload": b64encode(row["payload"] or b"").decode()} for row in rows[:limit]]
