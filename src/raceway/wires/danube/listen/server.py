"""The server side of Danube: gRPC, with TLS if there is a certificate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from raceway.net.grpc import GrpcTcp
from raceway.wires.danube.listen.gate import DanubeGate
from raceway.wires.server import BusParts, WireServer


class DanubeServer(WireServer):
    # RFC 9113, 3.2: over TLS, gRPC clients require "h2" to be negotiated with ALPN.
    alpn: ClassVar[tuple[str, ...]] = ("h2",)

    def __init__(self, bus: BusParts) -> None:
        super().__init__(bus)
        listen = bus.settings.listen
        port = bus.ports["danube+tls" if listen.tls_certificate else "danube"]
        self.gate: DanubeGate = DanubeGate(bus.door, listen, port)
        self.sweep_ms = listen.grpc.sweep_ms

    def protocol(self, port: str) -> Callable[[], asyncio.Protocol]:
        return partial(GrpcTcp, self.gate)
