"""Queues over the console port: list, create, show waiting messages, purge.

Messages in a queue are as private as the queue: if the bus has an administrator's token it is required here; otherwise
a queue with a token requires its own. Both are sent as `Authorization: Bearer …`. With security on the doorman has
checked the principal, and no queue's token is needed.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from raceway.broker.broker import Broker
from raceway.broker.queues.pubsub import PubSubQueue
from raceway.broker.queues.queue import Queue
from raceway.errors import MalformedError, QueueKindError
from raceway.model.subscriptions import parse_start
from raceway.web.answers import committed, number_of, principal_of, read_json, refusing, token_of
from raceway.web.doorman import Doorman
from raceway.web.routing import CONSUME_ALL, LOOKUP_PRIVATE, MANAGE_TOPIC, Route

BODY_LIMIT = 64 * 1024
# The mode of an ordinary queue on zbus.
ORDINARY = 1

# Limits of messages shown: they are read in the event loop.
PEEK_ROWS, PEEK_BYTES = 100, 1024 * 1024
COLUMNS = ("offset", "time_us", "wire", "kind", "message_id", "producer", "payload")


class NewQueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A queue to create. `start`: `first`, `last`, an offset or a time. `token`: required to use the queue."""

    name: str
    start: str | int = "last"
    token: str = ""


class MadeQueue(msgspec.Struct, frozen=True):
    """A created queue. `made` is false if it existed already."""

    name: str
    made: bool


def queue_routes(broker: Broker, doorman: Doorman) -> list[Route]:
    def find(request: Request) -> Queue:
        """Return the queue of the path, if the caller may see its messages."""
        name = request.path_params["name"]
        broker.queues.find(name, None if doorman.is_asking else token_of(request))
        queue = next(queue for known, _, queue in broker.queues if known == name)
        if isinstance(queue, PubSubQueue):
            raise QueueKindError(name)
        return queue

    async def list_queues(request: Request) -> Response:
        rows = [
            {"name": name, "mode": record.mode, "guarded": bool(record.token), "creator": record.maker,
             "created_ms": record.made_ms, "waiting": queue.backlog if isinstance(queue, Queue) else 0,
             "consumers": len(queue.consumers)}
            for name, record, queue in broker.queues
        ]  # fmt: skip
        return JSONResponse({"queues": sorted(rows, key=lambda row: str(row["name"]))})

    async def messages(request: Request) -> Response:
        queue = find(request)
        if request.method == "DELETE":
            return JSONResponse({"purged": queue.purge()})
        limit = min(number_of("limit", request.query_params.get("limit", "10")), PEEK_ROWS)
        return JSONResponse({"waiting": queue.backlog, "messages": _peek(broker, queue, limit)})

    async def make(request: Request) -> Response:
        """Create an ordinary queue at a start position; publish/subscribe queues have none."""
        sent = _read(await read_json(request, BODY_LIMIT))
        broker.security.check(principal_of(request), "ManageTopic", sent.name)
        made, start = not broker.queues.exists(sent.name), parse_start(str(sent.start))
        broker.queues.create(None, str(principal_of(request)), sent.name, ORDINARY, sent.token, start)
        await committed(broker)
        return JSONResponse(msgspec.to_builtins(MadeQueue(sent.name, made)), 201 if made else 200)

    return [
        Route("/api/queues", refusing(list_queues), LOOKUP_PRIVATE),
        Route("/api/queues", refusing(make), {"POST": MANAGE_TOPIC}),
        Route("/api/queues/{name:path}/messages", refusing(messages), {"GET": CONSUME_ALL, "DELETE": CONSUME_ALL}),
    ]


def _read(document: dict[str, Any]) -> NewQueue:
    try:
        return msgspec.convert(document, NewQueue)
    except msgspec.ValidationError as error:
        raise MalformedError(str(error)) from error


def _peek(broker: Broker, queue: Queue, limit: int) -> list[dict[str, Any]]:
    """Return messages, oldest first, including those handed out and not taken."""
    name = queue.topic.name
    begin = max(queue.cursor, broker.journal.offsets(name)[0])
    found = broker.journal.read_topic(name, begin, max(limit, 1), PEEK_BYTES, COLUMNS)
    rows = [row for batch in found for row in batch.to_pylist()]
    return [row | {"payload": b64encode(row["payload"] or b"").decode()} for row in rows[:limit]]
