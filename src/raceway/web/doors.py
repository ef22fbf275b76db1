"""`GET /api/doors`: the addresses of all listening ports, so that the URL of the console port names a whole bus.

With security on, a caller without any permission is told nothing: which protocols a bus speaks, and where, is known to
those who may use it.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request

from raceway.model.addresses import host_port
from raceway.web.routing import ANY, SiteRoutes, get
from raceway.wires import WIRES


class BusDoors(msgspec.Struct, frozen=True):
    """URLs for clients, by scheme: with the host of this request, unless a setting advertises another address."""

    doors: dict[str, str]


class DoorRoutes(SiteRoutes):
    @get("/api/doors", ANY, "bus")
    async def doors(self, request: Request) -> BusDoors:
        """Addresses of all listening ports, as URLs for clients."""
        host, listen, numbers = request.url.hostname or "127.0.0.1", self._site.listen, self._site.ports
        found = {"console": f"{request.url.scheme}://{request.url.netloc}"}
        for wire in WIRES:
            section = listen.of(wire.settings)
            for port in wire.ports:
                if port.name in numbers:
                    scheme, told = port.scheme or port.name, port.advertised and getattr(section, port.advertised)
                    found[scheme] = f"{scheme}://{told or host_port(host, numbers[port.name])}"
        return BusDoors(found)
