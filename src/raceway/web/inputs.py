"""Input of the console port's handlers: query strings and JSON bodies, decoded into records.

A number of a query that is out of its limits is refused; with `Meta(extra=CLAMPED)` it is brought within them. Flags
are false unless they are `true`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Meta
from starlette.requests import Request

from raceway.errors import MalformedError, TooLargeError
from raceway.schema.json_text import decode_json

R = TypeVar("R", bound=msgspec.Struct)

BODY_LIMIT = 64 * 1024
# Key of the ASGI scope for the object that was read from the body.
BODY = "raceway.body"


def read_query(request: Request, kind: type[R]) -> R:
    """Decode the query string. Raises MalformedError."""
    given: dict[str, Any] = dict(request.query_params)
    for name, read in _lenient_fields(kind).items():
        if name in given:
            given[name] = read(given[name])
    return _converted(given, kind, strict=False)


async def read_body(request: Request, kind: type[R], limit: int = BODY_LIMIT) -> R:
    """Decode the body, a JSON object. Raises TooLargeError, MalformedError."""
    return _converted(await read_json(request, limit), kind)


async def read_json(request: Request, limit: int = BODY_LIMIT) -> dict[str, Any]:
    """Read a JSON object from the body. Raises TooLargeError, MalformedError."""
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
    request.scope[BODY] = found
    return found


def maybe_body(request: Request) -> dict[str, Any] | None:
    """Return the JSON object that a handler has read from the body."""
    body: dict[str, Any] | None = request.scope.get(BODY)
    return body


def is_true(text: str) -> bool:
    return text.lower() == "true"


def _converted(given: dict[str, Any], kind: type[R], strict: bool = True) -> R:
    try:
        return msgspec.convert(given, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise MalformedError(str(error)) from error


@cache
def _lenient_fields(kind: type[msgspec.Struct]) -> dict[str, Callable[[str], Any]]:
    """Return how to read the fields that `msgspec` would be too strict with, by name."""
    found: dict[str, Callable[[str], Any]] = {}
    for field in msgspec.structs.fields(kind):
        if bool in (field.type, *get_args(field.type)):
            found[field.encode_name] = is_true
        for meta in _metas(field.type):
            if meta.extra:
                found[field.encode_name] = partial(meta.extra["read"], field.encode_name, meta)
    return found


def _metas(kind: Any) -> Iterator[Meta]:
    for part in get_args(kind):
        if isinstance(part, Meta):
            yield part
        else:
            yield from _metas(part)


def _clamped(name: str, limits: Meta, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise MalformedError(f"{name} must be a whole number")
    number = max(int(text), int(limits.ge or 0))
    return number if limits.le is None else min(number, int(limits.le))


def _clamped_unless_empty(name: str, limits: Meta, text: str) -> int | None:
    return _clamped(name, limits, text) if text else None


CLAMPED = {"read": _clamped}
# An empty value means none.
CLAMPED_UNLESS_EMPTY = {"read": _clamped_unless_empty}
