"""Queues over the console port: list them, look at what waits, drop it.

What waits in a queue is as private as the queue: where the bus has an admin token it is wanted for all of this; where
it has none, a queue that has a token wants its own. Either comes as `Authorization: Bearer …`. With security on the
doorman has asked who it is, and whoever is known by name needs no queue's token.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from raceway.broker.broker import Broker
from raceway.broker.pubsub import PubSubQueue
from raceway.broker.queues import Queue
from raceway.errors import QueueKindError
from raceway.web.answers import number_of, refusing, token_of
from raceway.web.doorman import Doorman
from raceway.web.routing import CONSUME_ALL, LOOKUP_PRIVATE, Route

# Messages shown at most, and their bytes: the loop reads them, and others wait meanwhile.
PEEK_ROWS, PEEK_BYTES = 100, 1024 * 1024
COLUMNS = ("offset", "time_us", "wire", "kind", "message_id", "producer", "payload")


def queue_routes(broker: Broker, doorman: Doorman) -> list[Route]:
    def find(request: Request) -> Queue:
        """The queue of the address, if the sender may see what is in it."""
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

    return [
        Route("/api/queues", refusing(list_queues), LOOKUP_PRIVATE),
        Route("/api/queues/{name:path}/messages", refusing(messages), {"GET": CONSUME_ALL, "DELETE": CONSUME_ALL}),
    ]


def _peek(broker: Broker, queue: Queue, limit: int) -> list[dict[str, Any]]:
    """Oldest first; what is on its way to a consumer and not taken yet is among them."""
    name = queue.topic.name
    begin = max(queue.cursor, broker.journal.offsets(name)[0])
    found = broker.journal.read_topic(name, begin, max(limit, 1), PEEK_BYTES, COLUMNS)
    rows = [row for batch in found for row in batch.to_pylist()]
    return [row | {"payload": b64encode(row["payload"] or b"").decode()} for row in rows[:limit]]
