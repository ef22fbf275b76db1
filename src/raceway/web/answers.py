"""What handlers of the console port have in common: who asks, what was sent, and how a refusal is said."""

from __future__ import annotations

import asyncio
import hmac
from base64 import b64decode
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from raceway.broker.broker import Broker
from raceway.errors import (
    ForbiddenError,
    MalformedError,
    PeerError,
    PinTakenError,
    QueueKindError,
    RacewayError,
    SchemaIncompatibleError,
    SchemaInvalidError,
    SchemaReferenceError,
    TooLargeError,
    UnknownNamespaceError,
    UnknownQueueError,
    UnknownSchemaError,
    UnknownTopicError,
)
from raceway.schema.json_text import decode_json

STATUSES = {
    UnknownQueueError.code: 404,
    UnknownSchemaError.code: 404,
    UnknownTopicError.code: 404,
    UnknownNamespaceError.code: 404,
    ForbiddenError.code: 403,
    QueueKindError.code: 409,
    PinTakenError.code: 409,
    SchemaIncompatibleError.code: 409,
    SchemaReferenceError.code: 409,
    TooLargeError.code: 413,
    SchemaInvalidError.code: 422,
}

Handler = Callable[[Request], Awaitable[Response]]


def refusal(status: int, code: str, message: str) -> Response:
    return JSONResponse({"error": {"code": code, "message": message}}, status_code=status)


def refusing(handle: Handler) -> Handler:
    """The handler, with errors made on purpose turned into answers."""

    async def answer(request: Request) -> Response:
        try:
            return await handle(request)
        except RacewayError as error:
            return refusal(
                STATUSES.get(error.code, 400 if isinstance(error, PeerError) else 503), error.code, str(error)
            )

    return answer


def token_of(request: Request) -> str:
    """`Authorization: Bearer TOKEN`, or the password of a client that can send nothing else."""
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    if scheme.lower() != "basic":
        return ""
    try:
        return b64decode(credentials, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def check_admin(request: Request, admin_token: str) -> None:
    """Raises ForbiddenError where the bus has a token and this is not it."""
    if admin_token and not hmac.compare_digest(token_of(request).encode(), admin_token.encode()):
        raise ForbiddenError("the token", "administrate this bus")


async def read_json(request: Request, limit: int) -> dict[str, Any]:
    """The object that was sent. Raises TooLargeError, MalformedError."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise TooLargeError("a body", len(body), limit)
    try:
        found = decode_json(bytes(body))
    except ValueError as error:
        raise MalformedError(f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise MalformedError("the body is not a JSON object")
    return found


async def committed(broker: Broker) -> None:
    """Whoever is told that something is so may rely on it: wait until it is on the disk."""
    done = asyncio.Event()
    broker.journal.after_commit(done.set)
    await done.wait()
