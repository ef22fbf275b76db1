"""All listening ports of one bus: open, drain, close."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

import picows
import structlog

from raceway import config
from raceway.model.addresses import host_port
from raceway.net.certificates import Certificates
from raceway.net.connection import Connection, Gate
from raceway.net.grpc import GrpcTcp
from raceway.net.sockets import bind
from raceway.server.bus import LocalBus
from raceway.wires.danube.listen.gate import DanubeGate
from raceway.wires.mb.listen.session import MbGate
from raceway.wires.mb.listen.tcp import MbTcp
from raceway.wires.mb.listen.websocket import answer_upgrade
from raceway.wires.seneca.codec.patterns import PinTable
from raceway.wires.seneca.listen.calls import ReturnPath
from raceway.wires.seneca.listen.http import SenecaHttp, SenecaHttpGate
from raceway.wires.seneca.listen.session import NoReturns, SenecaGate
from raceway.wires.seneca.listen.tcp import SenecaTcp
from raceway.wires.zbus.listen.admin import Administration
from raceway.wires.zbus.listen.session import ZbusGate, ZbusTcp

log = structlog.get_logger("raceway.listen")

# Offsets from `port_base`. The tracker's port opens only if it is configured, the TLS ports only with a certificate.
MB_TCP, MB_WEBSOCKET, DANUBE, ZBUS, SENECA_HTTP, SENECA_TCP, CONSOLE, TRACKER, MB_TLS, MB_WSS = range(10)


def ports(listen: config.Listen) -> dict[str, int]:
    """Return port numbers by name: from `port_base`, or each wire's default. Danube has one, with or without TLS."""
    base, mb, zbus, seneca = listen.port_base, listen.mb, listen.zbus, listen.seneca
    found = {
        "mb": base + MB_TCP if base else mb.tcp_port,
        "mb+ws": base + MB_WEBSOCKET if base else mb.websocket_port,
        danube_door(listen): base + DANUBE if base else listen.danube.port,
        "zbus": base + ZBUS if base else zbus.port,
        "seneca": base + SENECA_HTTP if base else seneca.http_port,
        "seneca+tcp": base + SENECA_TCP if base else seneca.tcp_port,
        "console": base + CONSOLE if base else listen.console_port,
    }
    if zbus.tracker:
        found["tracker"] = tracker_port(listen)
    if listen.tls_certificate:
        found["mb+tls"] = base + MB_TLS if base else mb.tls_port
        found["mb+wss"] = base + MB_WSS if base else mb.wss_port
    return found


def danube_door(listen: config.Listen) -> str:
    return "danube+tls" if listen.tls_certificate else "danube"


def tracker_port(listen: config.Listen) -> int:
    return listen.port_base + TRACKER if listen.port_base else listen.zbus.tracker_port


class Doors:
    """The listening ports. `pins` are those of attached Seneca services, `returns` sends late answers to their callers.

    With `tracker_only` only the tracker's port opens, and no queues are served.
    """

    def __init__(
        self,
        bus: LocalBus,
        listen: config.Listen,
        loop: asyncio.AbstractEventLoop,
        *,
        pins: PinTable[Any] | None = None,
        returns: ReturnPath | None = None,
        tracker_only: bool = False,
    ) -> None:
        self._bus, door = bus, bus.door
        self._listen = listen
        self._loop = loop
        self._ports = ports(listen)
        self._mb = MbGate(door, listen)
        console = f"http://{host_port(config.plain_host(listen), self._ports['console'])}/"
        zbus_port = tracker_port(listen) if tracker_only else self._ports["zbus"]
        self._zbus = ZbusGate(door, listen, zbus_port, console, serves_queues=not tracker_only)
        self._danube = DanubeGate(door, listen, self._ports[danube_door(listen)])
        self._tracker_only = tracker_only
        self._seneca = SenecaGate(
            door, listen, self._ports["seneca"], PinTable() if pins is None else pins, returns or NoReturns()
        )  # fmt: skip
        self._gates: tuple[Gate[Any], ...] = (self._mb, self._danube, self._zbus, self._seneca)
        self.certificates = Certificates(listen) if listen.tls_certificate else None
        self._servers: list[asyncio.Server] = []
        self._sweep_timers: dict[Gate[Any], asyncio.TimerHandle] = {}
        bus.on_pressure(self._pause)

    @property
    def administration(self) -> Administration:
        return self._zbus.administration

    async def open(self) -> None:
        """Open all ports. Raises ConfigError naming the port that cannot be opened."""
        if self._listen.zbus.tracker:
            await self._open_tcp(partial(ZbusTcp, self._zbus), tracker_port(self._listen), None)
        if not self._tracker_only:
            await self._open_wires()
        self._sweep(self._mb, self._listen.mb.sweep_ms)
        self._sweep(self._danube, self._listen.grpc.sweep_ms)
        self._sweep(self._zbus, self._listen.zbus.sweep_ms)
        self._sweep(self._seneca, self._listen.seneca.sweep_ms)

    async def _open_wires(self) -> None:
        chosen = self._ports
        await self._open_tcp(partial(MbTcp, self._mb), chosen["mb"], None)
        await self._open_websocket(chosen["mb+ws"], None)
        # RFC 9113, 3.2: over TLS, gRPC clients require "h2" to be negotiated with ALPN.
        secure = self.certificates.context("h2") if self.certificates else None
        await self._open_tcp(partial(GrpcTcp, self._danube), chosen[danube_door(self._listen)], secure)
        await self._open_tcp(partial(ZbusTcp, self._zbus), chosen["zbus"], None)
        await self._open_tcp(partial(SenecaHttp, SenecaHttpGate(self._seneca)), chosen["seneca"], None)
        await self._open_tcp(partial(SenecaTcp, self._seneca), chosen["seneca+tcp"], None)
        if self.certificates:
            context = self.certificates.context()
            await self._open_tcp(partial(MbTcp, self._mb), chosen["mb+tls"], context)
            await self._open_websocket(chosen["mb+wss"], context)

    async def drain(self) -> None:
        """Stop accepting connections; wait up to `drain_s` for open requests and pending output."""
        for server in self._servers:
            server.close()
        self._bus.drain()
        for gate in self._gates:
            gate.drain()
        try:
            async with asyncio.timeout(self._bus.door.runtime.settings.drain_s):
                while self._is_busy():  # noqa: ASYNC110 - journal and sessions have no common event to wait for
                    await asyncio.sleep(0.01)
        except TimeoutError:
            log.warning("drain timed out", open_requests=self._bus.expiring)

    def _is_busy(self) -> bool:
        return not (self._bus.is_settled() and all(session.idle() for session in self._sessions()))

    def close(self) -> None:
        """Close all connections."""
        for timer in self._sweep_timers.values():
            timer.cancel()
        for session in self._sessions():
            session.flush()
        self._bus.store_cursors()
        for session in self._sessions():
            session.close("server is shutting down")

    def _sessions(self) -> list[Connection]:
        return [session for gate in self._gates for session in gate.sessions]

    def _pause(self, paused: bool) -> None:
        for gate in self._gates:
            gate.pause(paused)

    async def _open_tcp(
        self, protocol: Callable[[], asyncio.Protocol], port: int, context: ssl.SSLContext | None
    ) -> None:
        server = await self._loop.create_server(
            protocol, sock=bind(self._host(context), port), ssl=context,
            backlog=self._listen.backlog, ssl_handshake_timeout=self._handshake_limit(context),
        )  # fmt: skip
        self._servers.append(server)

    async def _open_websocket(self, port: int, context: ssl.SSLContext | None) -> None:
        server = await picows.ws_create_server(
            partial(answer_upgrade, self._mb), sock=bind(self._host(context), port), ssl=context,
            websocket_handshake_timeout=self._listen.head_s, max_frame_size=self._mb.limits.frame_limit,
            enable_auto_pong=False, use_aiofastnet=False,
            backlog=self._listen.backlog, ssl_handshake_timeout=self._handshake_limit(context),
        )  # fmt: skip
        self._servers.append(server)

    def _host(self, context: ssl.SSLContext | None) -> str:
        return config.plain_host(self._listen) if context is None else self._listen.host

    def _handshake_limit(self, context: ssl.SSLContext | None) -> float | None:
        return self._listen.tls_handshake_s if context is not None else None

    def _sweep(self, gate: Gate[Any], every_ms: int) -> None:
        gate.sweep()
        self._sweep_timers[gate] = self._loop.call_later(every_ms / 1000, self._sweep, gate, every_ms)
