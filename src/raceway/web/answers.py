"""Shared parts of the console port's handlers: principal, error responses."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from raceway import errors
from raceway.model.envelope import HTTP
from raceway.model.security import ANONYMOUS, Principal

# Key of the ASGI scope for the principal, set by the doorman.
PRINCIPAL = "raceway.principal"
# Key of the ASGI scope for a function that aborts the connection, set by the connection.
ABORT = "raceway.abort"
# Key of the ASGI scope for a function that returns how many bytes the peer has not read.
UNSENT = "raceway.unsent"
# Key of the ASGI scope for the tasks that the connection cancels, and removes, when its peer disconnects.
ASKING = "raceway.asking"


class TooSlowError(errors.PeerError, code="too_slow"):
    """The request body was not received in time."""


class MediaTypeError(errors.PeerError, code="media_type"):
    """The media type of the request is not supported."""


class NotInstalledError(errors.PeerError, code="not_installed"):
    """Bus that was installed without the packages that the address needs."""


# HTTP status to the errors that have it, each with the classes below it. Others are 503.
KINDS: dict[int, tuple[type[errors.RacewayError], ...]] = {
    400: (errors.PeerError,),
    401: (errors.UnauthenticatedError,),
    403: (errors.ForbiddenError,),
    404: (
        errors.UnknownError,
        errors.NoRouteError,
        errors.UnknownQueueError,
        errors.UnknownSchemaError,
        errors.UnknownPeerError,
    ),
    408: (TooSlowError,),
    409: (
        errors.NameTakenError,
        errors.QueueKindError,
        errors.TopicKindError,
        errors.MismatchError,
        errors.InUseError,
        errors.PinTakenError,
        errors.SchemaIncompatibleError,
        errors.SchemaReferenceError,
        errors.SchemaInUseError,
        errors.SchemaDeletionError,
        errors.SchemaReadOnlyError,
    ),
    410: (errors.TrimmedError,),
    413: (errors.TooLargeError,),
    415: (MediaTypeError,),
    421: (errors.OtherLaneError,),
    422: (errors.SchemaRefusedError, errors.SchemaInvalidError),
    429: (errors.TooManyFailuresError,),
    501: (NotInstalledError, errors.LanesError),
    502: (errors.RemoteError,),
    503: (errors.LimitError,),
    504: (errors.RequestTimeoutError,),
}
STATUSES = {kind.code: status for status, kinds in KINDS.items() for kind in kinds}


class ErrorBody(msgspec.Struct, frozen=True):
    """An error: `code` is for programs (manual: reference/errors), `message` for people. A message that violates its
    topic's schema has `details`: reason, subject, version, path and rule. So has the failure of a service (`remote`):
    `reported`, its own code, `text`, and `details` if it gave any."""

    code: str
    message: str
    details: dict[str, Any] | None = None


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The body of every error response."""

    error: ErrorBody


def refusal(status: int, code: str, message: str, details: dict[str, Any] | None = None) -> Response:
    fault = {"code": code, "message": message} | ({} if details is None else {"details": details})
    return JSONResponse({"error": fault}, status_code=status)


def status_of(error: errors.RacewayError) -> int:
    return error.maybe_entry(STATUSES) or 503


def refusal_of(error: errors.RacewayError) -> Response:
    return refusal(status_of(error), error.code, str(error), _maybe_details(error))


def _maybe_details(error: errors.RacewayError) -> dict[str, Any] | None:
    if isinstance(error, errors.SchemaRefusedError):
        return error.details
    if not isinstance(error, errors.RemoteError):
        return None
    given = {} if error.details is None else {"details": error.details}
    return {"reported": error.reported, "text": error.text} | given


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
