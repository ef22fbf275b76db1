"""The server side of a wire, as the process that runs a bus sees it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from raceway import config
from raceway.broker.door import Door
from raceway.net.connection import Gate
from raceway.net.outgoing.allowed import AllowList, Target


class BusParts(NamedTuple):
    """The parts of a bus that its wires use. `ports` are the numbers of all its ports, by name.

    With `only` the process opens this port and no other.
    """

    door: Door
    settings: config.Config
    loop: asyncio.AbstractEventLoop
    ports: Mapping[str, int]
    only: str | None = None

    def allowed(self) -> AllowList:
        """Return the addresses that the bus may connect to."""
        return AllowList(self.settings.listen, self.settings.dial.allow)

    def is_own(self, target: Target) -> bool:
        """Return whether an address is one of the bus's own listeners."""
        listen = self.settings.listen
        return target.port in self.ports.values() and config.names_us(f"//{target}", (listen.host, *listen.hosts))


class WireServer:
    """The server side of one wire: its connections, and what runs beside them. Created once, before any port opens.

    `gate` has its connections, which are swept every `sweep_ms`. `alpn` are the protocols offered over TLS.
    """

    alpn: ClassVar[tuple[str, ...]] = ()
    gate: Gate[Any]
    sweep_ms: int

    def __init__(self, bus: BusParts) -> None:
        self.bus = bus

    async def prepare(self) -> None:
        """Do what must be done before the first port opens. Raises ConfigError."""

    @abstractmethod
    def protocol(self, port: str) -> Callable[[], asyncio.Protocol]:
        """Return the factory of the protocol of a connection on this port."""

    async def open(self, port: str, bound: socket.socket, tls: ssl.SSLContext | None) -> asyncio.Server:
        """Accept connections on a bound socket."""
        listen = self.bus.settings.listen
        return await self.bus.loop.create_server(
            self.protocol(port), sock=bound, ssl=tls, backlog=listen.backlog,
            ssl_handshake_timeout=None if tls is None else listen.tls_handshake_s,
        )  # fmt: skip

    def running(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Return a context that is entered when all ports are open, and left before they close."""
        return contextlib.nullcontext()

    def routes(self) -> Sequence[Any]:
        """Return what the wire adds to the console port: a `web.routing.Routes` for each group of routes."""
        return ()

    async def drain(self, limit_s: float) -> None:
        """Wait until what was accepted has been delivered, at most `limit_s` seconds."""

    def close(self) -> None:
        """Close what the wire opened besides its connections."""
