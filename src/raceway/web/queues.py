"""Queues over the console port: list them, look at what waits, drop it.

What waits in a queue is as private as the queue: where the bus has an admin token it is wanted for all of this; where
it has none, a queue that has a token wants its own. Either comes as `Authorization: Bearer …`.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from raceway.broker.broker import Broker
from raceway.broker.pubsub import PubSubQueue
from raceway.broker.queues import Queue
from raceway.errors import ForbiddenError, PeerError, PinTakenError, QueueKindError, RacewayError, UnknownQueueError

# Messages shown at most, and their bytes: the loop reads them, and others wait meanwhile.
PEEK_ROWS, PEEK_BYTES = 100, 1024 * 1024
COLUMNS = ("offset", "time_us", "wire", "kind", "message_id", "producer", "payload")
STATUSES = {UnknownQueueError.code: 404, ForbiddenError.code: 403, QueueKindError.code: 409, PinTakenError.code: 409}


def queue_routes(broker: Broker, admin_token: str) -> list[Route]:
    def find(request: Request) -> Queue:
        """The queue of the address, if the sender may see what is in it."""
        check_admin(request, admin_token)
        name = request.path_params["name"]
        if not admin_token or not broker.queues.exists(name):
            broker.queues.find(name, _token(request))
        queue = next(queue for known, _, queue in broker.queues if known == name)
        if isinstance(queue, PubSubQueue):
            raise QueueKindError(name)
        return queue

    async def list_queues(request: Request) -> Response:
        check_admin(request, admin_token)
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
        limit = request.query_params.get("limit", "10")
        if not (limit.isascii() and limit.isdigit()):
            return refusal(400, "invalid", "limit must be a number")
        return JSONResponse({"waiting": queue.backlog, "messages": _peek(broker, queue, min(int(limit), PEEK_ROWS))})

    return [
        Route("/api/queues", refusing(list_queues)),
        Route("/api/queues/{name:path}/messages", refusing(messages), methods=["GET", "DELETE"]),
    ]


def _peek(broker: Broker, queue: Queue, limit: int) -> list[dict[str, Any]]:
    """Oldest first; what is on its way to a consumer and not taken yet is among them."""
    name = queue.topic.name
    begin = max(queue.cursor, broker.journal.offsets(name)[0])
    found = broker.journal.read_topic(name, begin, max(limit, 1), PEEK_BYTES, COLUMNS)
    rows = [row for batch in found for row in batch.to_pylist()]
    return [row | {"payload": b64encode(row["payload"] or b"").decode()} for row in rows[:limit]]


def check_admin(request: Request, admin_token: str) -> None:
    """Raises ForbiddenError if the bus has a token and the request another one, or none."""
    if admin_token and not hmac.compare_digest(_token(request).encode(), admin_token.encode()):
        raise ForbiddenError("the token", "administrate this bus")


def _token(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def refusing(handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            return await handle(request)
        except RacewayError as error:
            return refusal(
                STATUSES.get(error.code, 400 if isinstance(error, PeerError) else 503), error.code, str(error)
            )

    return answer


def refusal(status: int, code: str, message: str) -> Response:
    return JSONResponse({"error": {"code": code, "message": message}}, status_code=status)
