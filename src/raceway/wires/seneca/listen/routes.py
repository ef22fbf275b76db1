"""Seneca services over the console port: list with health, attach, detach.

If the bus has an administrator's token it is required, as `Authorization: Bearer …`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric
from starlette.requests import Request

from raceway.errors import MalformedError
from raceway.web.routing import LOOKUP_PRIVATE, MANAGE_BROKER, Routes, ServiceBehind, delete, get, post
from raceway.wires.seneca.dial.services import ServiceTable

# Enough for a pin and an address.
MAX_BODY = 64 * 1024
ADDRESS = "/api/seneca/services"


class Attach(msgspec.Struct, forbid_unknown_fields=True):
    pin: str
    url: str
    dialect: Literal["auto", "L", "W", "T", "S"] = "auto"
    name: str = ""


class Services(msgspec.Struct, frozen=True):
    services: list[dict[str, Any]]


class Detached(msgspec.Struct, frozen=True):
    detached: int


class SenecaRoutes(Routes):
    def __init__(self, services: ServiceTable) -> None:
        self._services = services

    def collect(self) -> Iterable[Metric]:
        rows = self._services.rows()
        found = GaugeMetricFamily("raceway_seneca_services", "Attached Seneca services.", labels=("state",))
        for state in ("up", "down", "unknown"):
            found.add_metric((state,), sum(row.state == state for row in rows))
        yield found

    def attached(self) -> Iterable[ServiceBehind]:
        for row in self._services.rows():
            yield ServiceBehind(
                "seneca", row.pin, row.topic, row.url, row.state, row.reason, row.dialect, row.calls, row.failures
            )

    @get(ADDRESS, LOOKUP_PRIVATE, "seneca")
    async def services(self) -> Services:
        """Attached Seneca services."""
        return Services(msgspec.to_builtins(self._services.rows()))

    @post(ADDRESS, MANAGE_BROKER, "seneca", body=Attach)
    async def attach(self, request: Request) -> Services:
        """Attach a Seneca service."""
        wanted = await _read(request)
        rows = await self._services.attach(wanted.pin, wanted.url, wanted.dialect, wanted.name)
        return Services(msgspec.to_builtins(rows))

    @delete(ADDRESS, MANAGE_BROKER, "seneca", body=Attach)
    async def detach(self, request: Request) -> Detached:
        """Detach a Seneca service."""
        wanted = await _read(request)
        return Detached(await self._services.detach(wanted.pin, wanted.url))


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
