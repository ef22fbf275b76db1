"""The server side of Seneca: callers over HTTP and TCP, and the services that the bus calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from raceway.wires.seneca.dial.returns import Returns
from raceway.wires.seneca.dial.services import ServiceTable
from raceway.wires.seneca.listen.http import SenecaHttp
from raceway.wires.seneca.listen.routes import SenecaRoutes
from raceway.wires.seneca.listen.session import SenecaGate
from raceway.wires.seneca.listen.tcp import SenecaTcp
from raceway.wires.seneca.settings import SenecaDial, SenecaWire
from raceway.wires.server import BusParts, WireServer

# Longest wait at start for services that do not answer: a start should take less than a second.
LOOK_S = 0.3


class SenecaServer(WireServer):
    def __init__(self, bus: BusParts) -> None:
        super().__init__(bus)
        listen, dial, allowed = bus.settings.listen, bus.settings.of(SenecaDial), bus.allowed()
        timeout_ms = listen.of(SenecaWire).request_timeout_ms
        self.services = ServiceTable(bus.door, dial, timeout_ms, bus.loop, allowed, bus.is_own)
        self.returns = Returns(bus.door, dial, bus.loop, allowed, bus.is_own)
        self.gate: SenecaGate = SenecaGate(bus.door, listen, bus.ports["seneca"], self.services.pins, self.returns)
        self.sweep_ms = self.gate.settings.sweep_ms

    async def prepare(self) -> None:
        self.services.open()
        await self.services.looked(LOOK_S)

    def routes(self) -> Sequence[SenecaRoutes]:
        return (SenecaRoutes(self.services),)

    def protocol(self, port: str) -> Callable[[], asyncio.Protocol]:
        return partial(SenecaHttp if port == "seneca" else SenecaTcp, self.gate)

    async def drain(self, limit_s: float) -> None:
        await asyncio.gather(self.services.drain(limit_s), self.returns.drain(limit_s))

    def close(self) -> None:
        self.returns.close()
        self.services.close()
