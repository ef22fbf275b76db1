"""All doors of one bus: open them, let the peers finish, close. In that order, top to bottom."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial

import picows
import structlog

from raceway import config
from raceway.broker.broker import Broker
from raceway.listen.mb import MbGate
from raceway.listen.sockets import bind, tls_context
from raceway.listen.tcp import MbTcp
from raceway.listen.websocket import answer_upgrade

log = structlog.get_logger("raceway.listen")

# Offsets from `port_base`; ports of wires that are not built yet stay closed.
MB_TCP, MB_WEBSOCKET, CONSOLE, MB_TLS, MB_WSS = 0, 1, 6, 8, 9


def ports(listen: config.Listen) -> dict[str, int]:
    """Door to port: from `port_base`, else each wire's own default."""
    base, wire = listen.port_base, listen.mb
    if base:
        found = {"mb": base + MB_TCP, "mb+ws": base + MB_WEBSOCKET, "console": base + CONSOLE}
        secure = {"mb+tls": base + MB_TLS, "mb+wss": base + MB_WSS}
    else:
        found = {"mb": wire.tcp_port, "mb+ws": wire.websocket_port, "console": listen.console_port}
        secure = {"mb+tls": wire.tls_port, "mb+wss": wire.wss_port}
    return found | secure if listen.tls_certificate else found


class Doors:
    def __init__(self, broker: Broker, listen: config.Listen, loop: asyncio.AbstractEventLoop) -> None:
        self._broker = broker
        self._listen = listen
        self._loop = loop
        self._gate = MbGate(broker, listen, loop)
        self._servers: list[asyncio.Server] = []
        self._sweep_timer: asyncio.TimerHandle | None = None
        broker.journal.pressure = self._gate.pause

    async def open(self) -> None:
        """Open every door, or raise ConfigError naming the port that cannot be had."""
        chosen = ports(self._listen)
        await self._open_tcp(chosen["mb"], None)
        await self._open_websocket(chosen["mb+ws"], None)
        if self._listen.tls_certificate:
            context = tls_context(self._listen)
            await self._open_tcp(chosen["mb+tls"], context)
            await self._open_websocket(chosen["mb+wss"], context)
        self._sweep()

    async def drain(self) -> None:
        """Take nobody new; let open requests be answered and output leave, for `drain_s` at most; then close."""
        for server in self._servers:
            server.close()
        self._broker.draining = True
        try:
            async with asyncio.timeout(self._broker.settings.drain_s):
                while self._is_busy():  # noqa: ASYNC110 - two things are waited for, neither knows of the other
                    await asyncio.sleep(0.01)
        except TimeoutError:
            log.warning("drain ended by its limit", open_requests=len(self._broker.correlation))

    def _is_busy(self) -> bool:
        journal = self._broker.journal
        if len(self._broker.correlation) or journal.committed + 1 < journal.next_sequence:
            return True
        return not all(session.idle() for session in self._gate.sessions)

    def close(self) -> None:
        """End all connections."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for session in list(self._gate.sessions):
            session.flush()
            session.close("the bus stops")

    async def _open_tcp(self, port: int, context: ssl.SSLContext | None) -> None:
        server = await self._loop.create_server(
            partial(MbTcp, self._gate), sock=bind(self._host(context), port), ssl=context,
            backlog=self._listen.backlog, ssl_handshake_timeout=self._handshake_limit(context),
        )  # fmt: skip
        self._servers.append(server)

    async def _open_websocket(self, port: int, context: ssl.SSLContext | None) -> None:
        server = await picows.ws_create_server(
            partial(answer_upgrade, self._gate), sock=bind(self._host(context), port), ssl=context,
            websocket_handshake_timeout=self._listen.head_s, max_frame_size=self._gate.limits.frame_limit,
            enable_auto_pong=False, use_aiofastnet=False,
            backlog=self._listen.backlog, ssl_handshake_timeout=self._handshake_limit(context),
        )  # fmt: skip
        self._servers.append(server)

    def _host(self, context: ssl.SSLContext | None) -> str:
        return config.plain_host(self._listen) if context is None else self._listen.host

    def _handshake_limit(self, context: ssl.SSLContext | None) -> float | None:
        return self._listen.tls_handshake_s if context is not None else None

    def _sweep(self) -> None:
        self._gate.sweep()
        self._sweep_timer = self._loop.call_later(self._listen.mb.sweep_ms / 1000, self._sweep)
