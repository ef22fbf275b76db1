"""All listening ports of one bus: open, drain, close."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import structlog

from raceway import config, wires
from raceway.errors import UnavailableError
from raceway.net.certificates import Certificates
from raceway.net.connection import Connection
from raceway.net.sockets import Bind, bind
from raceway.server.bus import LocalBus
from raceway.wires.server import BusParts, WireServer
from raceway.wires.wire import load

log = structlog.get_logger("raceway.listen")

# The port of the console, which is of no wire: its name, and its offset from `port_base`.
CONSOLE, CONSOLE_OFFSET = "console", 6


def ports(listen: config.Listen, *, over_lanes: bool = False) -> dict[str, int]:
    """Return the numbers of the ports that are opened, by name: from `port_base`, or each wire's default.

    `over_lanes`: those that a bus of several lanes opens.
    """
    found = [(CONSOLE_OFFSET, CONSOLE, listen.port_base + CONSOLE_OFFSET if listen.port_base else listen.console_port)]
    found += [
        (port.offset, port.name, number)
        for wire in wires.WIRES
        if wire.over_lanes or not over_lanes
        for port in wire.ports
        if (number := wire.port_of(port, listen)) is not None
    ]
    return {name: number for _, name, number in sorted(found)}


def encrypted_ports() -> set[str]:
    """Return the names of the ports that speak TLS."""
    return {port.name for wire in wires.WIRES for port in wire.ports if port.is_encrypted}


class Doors:
    """The listening ports of all wires; with `over_lanes`, those that a bus of several lanes opens. With `only` this
    port opens and no other."""

    def __init__(
        self,
        bus: LocalBus,
        settings: config.Config,
        loop: asyncio.AbstractEventLoop,
        only: str | None = None,
        bind: Bind = bind,
        *,
        over_lanes: bool = False,
    ) -> None:
        self._bus, self._listen, self._loop, self._bind = bus, settings.listen, loop, bind
        parts = BusParts(bus.door, settings, loop, ports(settings.listen, over_lanes=over_lanes), only)
        # Servers by the name of their wire, and by the ports that each opens.
        self.wires: dict[str, WireServer] = {}
        self._ports: dict[str, WireServer] = {}
        for wire in wires.WIRES:
            names = [port.name for port in wire.ports if port.name in parts.ports and only in (None, port.name)]
            if names:
                self.wires[wire.name] = server = load(wire.server)(parts)
                self._ports |= dict.fromkeys(names, server)
        self._numbers = parts.ports
        self.certificates = Certificates(settings.listen) if settings.listen.tls_certificate else None
        self._opened: list[asyncio.Server] = []
        self._sweep_timers: dict[str, asyncio.TimerHandle] = {}
        bus.on_pressure(self._pause)

    async def open(self) -> None:
        """Open all ports. Raises ConfigError naming the port that cannot be opened."""
        for server in self.wires.values():
            await server.prepare()
        encrypted = encrypted_ports()
        for name, server in self._ports.items():
            tls = self.certificates.context(*server.alpn) if self.certificates and name in encrypted else None
            host = config.plain_host(self._listen) if tls is None else self._listen.host
            self._opened.append(await server.open(name, self._bind(host, self._numbers[name]), tls))
        for name in self.wires:
            self._sweep(name)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run what wires have beside their ports."""
        async with contextlib.AsyncExitStack() as stack:
            for server in self.wires.values():
                await stack.enter_async_context(server.running())
            yield

    def routes(self) -> list[Any]:
        """Return the routes that wires add to the console port."""
        return [routes for server in self.wires.values() for routes in server.routes()]

    async def drain(self) -> None:
        """Stop accepting connections; wait up to `drain_s` for open requests and pending output."""
        for opened in self._opened:
            opened.close()
        self._bus.drain()
        for server in self.wires.values():
            server.gate.drain()
        limit_s = self._bus.door.runtime.settings.drain_s
        await asyncio.gather(self._until_idle(limit_s), *(server.drain(limit_s) for server in self.wires.values()))

    async def _until_idle(self, limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                while self._is_busy():  # noqa: ASYNC110 - journal and sessions have no common event to wait for
                    await asyncio.sleep(0.01)
        except TimeoutError:
            log.warning("drain timed out", open_requests=self._bus.expiring)

    def _is_busy(self) -> bool:
        return not (self._bus.is_settled() and all(session.idle() for session in self._sessions()))

    def close(self) -> None:
        """Close all ports and connections, drained or not."""
        for opened in self._opened:
            opened.close()
        for timer in self._sweep_timers.values():
            timer.cancel()
        for session in self._sessions():
            session.flush()
        with contextlib.suppress(UnavailableError):  # of a journal that takes nothing: they are as they were stored
            self._bus.store_cursors()
        for session in self._sessions():
            session.close("server is shutting down")
        for server in self.wires.values():
            server.close()

    def _sessions(self) -> list[Connection]:
        return [session for server in self.wires.values() for session in server.gate.sessions]

    def _pause(self, paused: bool) -> None:
        for server in self.wires.values():
            server.gate.pause(paused)

    def _sweep(self, name: str) -> None:
        server = self.wires[name]
        server.gate.sweep()
        self._sweep_timers[name] = self._loop.call_later(server.sweep_ms / 1000, self._sweep, name)
