"""Seneca services over the console port: list with health, attach, detach.

If the bus has an administrator's token it is required, as `Authorization: Bearer …`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from raceway.errors import MalformedError
from raceway.web.answers import refusing
from raceway.web.routing import LOOKUP_PRIVATE, MANAGE_BROKER, Route

# Enough for a pin and an address.
MAX_BODY = 64 * 1024


class ServiceTable(Protocol):
    """The table of attached services. Rows are records that can be encoded as JSON."""

    def rows(self) -> Sequence[Any]: ...
    async def attach(self, pins: str, url: str, dialect: str = "auto", name: str = "") -> Sequence[Any]: ...
    async def detach(self, pins: str, url: str) -> int: ...


ACCESS = {"GET": LOOKUP_PRIVATE, "POST": MANAGE_BROKER, "DELETE": MANAGE_BROKER}


class Attach(msgspec.Struct, forbid_unknown_fields=True):
    pin: str
    url: str
    dialect: Literal["auto", "L", "W", "T", "S"] = "auto"
    name: str = ""


def seneca_routes(services: ServiceTable) -> list[Route]:
    async def handle(request: Request) -> Response:
        return await actions[request.method](request)

    async def list_services(request: Request) -> Response:
        return _rows(services.rows())

    async def attach(request: Request) -> Response:
        wanted = await _read(request)
        return _rows(await services.attach(wanted.pin, wanted.url, wanted.dialect, wanted.name))

    async def detach(request: Request) -> Response:
        wanted = await _read(request)
        return JSONResponse({"detached": await services.detach(wanted.pin, wanted.url)})

    actions: dict[str, Callable[[Request], Awaitable[Response]]] = {
        "GET": list_services, "HEAD": list_services, "POST": attach, "DELETE": detach
    }  # fmt: skip
    return [Route("/api/seneca/services", refusing(handle), ACCESS)]


async def _read(request: Request) -> Attach:
    """Read from the body, or from the query for clients that cannot send one. Raises MalformedError."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY:
            raise MalformedError("the body is too large")
    try:
        if body:
            return msgspec.json.decode(body, type=Attach)
        return msgspec.convert(dict(request.query_params), Attach)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedError(str(error)) from error


def _rows(rows: Sequence[Any]) -> Response:
    return JSONResponse({"services": msgspec.to_builtins(list(rows))})
