"""The server side of MB: over TCP and WebSocket, with and without TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial

import picows

from raceway.wires.mb.listen.session import MbGate
from raceway.wires.mb.listen.tcp import MbTcp
from raceway.wires.mb.listen.websocket import answer_upgrade
from raceway.wires.server import BusParts, WireServer

WEBSOCKETS = ("mb+ws", "mb+wss")


class MbServer(WireServer):
    def __init__(self, bus: BusParts) -> None:
        super().__init__(bus)
        self.gate: MbGate = MbGate(bus.door, bus.settings.listen)
        self.sweep_ms = self.gate.settings.sweep_ms

    def protocol(self, port: str) -> Callable[[], asyncio.Protocol]:
        return partial(MbTcp, self.gate)

    async def open(self, port: str, bound: socket.socket, tls: ssl.SSLContext | None) -> asyncio.Server:
        if port not in WEBSOCKETS:
            return await super().open(port, bound, tls)
        listen = self.bus.settings.listen
        server: asyncio.Server = await picows.ws_create_server(
            partial(answer_upgrade, self.gate), sock=bound, ssl=tls,
            websocket_handshake_timeout=listen.head_s, max_frame_size=self.gate.limits.frame_limit,
            enable_auto_pong=False, use_aiofastnet=False,
            backlog=listen.backlog, ssl_handshake_timeout=None if tls is None else listen.tls_handshake_s,
        )  # fmt: skip
        return server
