"""Shared parts of the console port's handlers: principal, error responses."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from raceway.errors import (
    ForbiddenError,
    InUseError,
    LimitError,
    MismatchError,
    NameTakenError,
    NoRouteError,
    PeerError,
    PinTakenError,
    QueueKindError,
    RacewayError,
    RemoteError,
    RequestTimeoutError,
    SchemaDeletionError,
    SchemaIncompatibleError,
    SchemaInUseError,
    SchemaInvalidError,
    SchemaReadOnlyError,
    SchemaReferenceError,
    SchemaRefusedError,
    TooLargeError,
    TooManyFailuresError,
    TopicKindError,
    TrimmedError,
    UnauthenticatedError,
    UnknownError,
    UnknownQueueError,
    UnknownSchemaError,
)
from raceway.model.envelope import HTTP
from raceway.model.security import ANONYMOUS, Principal

# Key of the ASGI scope for the principal, set by the doorman.
PRINCIPAL = "raceway.principal"
# Key of the ASGI scope for a function that aborts the connection, set by the connection.
ABORT = "raceway.abort"
# Key of the ASGI scope for a function that returns how many bytes the peer has not read.
UNSENT = "raceway.unsent"


class TooSlowError(PeerError):
    """The request body was not received in time."""

    code = "too_slow"


class MediaTypeError(PeerError):
    """The media type of the request is not supported."""

    code = "media_type"


# Code of the bus to HTTP status, for an error and the classes below it. Others are 503.
STATUSES = {
    PeerError.code: 400,
    UnknownError.code: 404,
    NoRouteError.code: 404,
    RequestTimeoutError.code: 504,
    SchemaRefusedError.code: 422,
    RemoteError.code: 502,
    LimitError.code: 503,
    UnauthenticatedError.code: 401,
    TooManyFailuresError.code: 429,
    NameTakenError.code: 409,
    TrimmedError.code: 410,
    TooSlowError.code: 408,
    MediaTypeError.code: 415,
    UnknownQueueError.code: 404,
    UnknownSchemaError.code: 404,
    ForbiddenError.code: 403,
    QueueKindError.code: 409,
    TopicKindError.code: 409,
    MismatchError.code: 409,
    InUseError.code: 409,
    PinTakenError.code: 409,
    SchemaIncompatibleError.code: 409,
    SchemaReferenceError.code: 409,
    SchemaInUseError.code: 409,
    SchemaDeletionError.code: 409,
    SchemaReadOnlyError.code: 409,
    TooLargeError.code: 413,
    SchemaInvalidError.code: 422,
}


class ErrorBody(msgspec.Struct, frozen=True):
    """An error: `code` is for programs (manual: reference/errors), `message` for people. A message that violates its
    topic's schema has `details`: reason, subject, version, path and rule."""

    code: str
    message: str
    details: dict[str, Any] | None = None


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The body of every error response."""

    error: ErrorBody


def refusal(status: int, code: str, message: str, details: dict[str, Any] | None = None) -> Response:
    fault = {"code": code, "message": message} | ({} if details is None else {"details": details})
    return JSONResponse({"error": fault}, status_code=status)


def status_of(error: RacewayError) -> int:
    return error.maybe_entry(STATUSES) or 503


def refusal_of(error: RacewayError) -> Response:
    details = error.details if isinstance(error, SchemaRefusedError) else None
    return refusal(status_of(error), error.code, str(error), details)


def principal_of(request: Request) -> Principal:
    """Return the principal that the doorman found; anonymous with security off."""
    found: Principal | None = request.scope.get(PRINCIPAL)
    return found or Principal(ANONYMOUS, HTTP.decode())


def token_of(request: Request) -> str:
    """Return the token of `Authorization: Bearer`, or the password of `Basic` (RFC 7617) for clients without Bearer."""
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    if scheme.lower() != "basic":
        return ""
    try:
        return b64decode(credentials, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def address_of(request: Request) -> str:
    """Return the host that the request comes from."""
    return request.client.host if request.client is not None else ""
