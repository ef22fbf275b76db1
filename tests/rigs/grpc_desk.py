"""Callers at a desk: the real gRPC codec and session over transports that only write down, in a loop moved by hand."""

from __future__ import annotations

import asyncio
from typing import Any

from raceway import config
from raceway.broker.door import Door
from raceway.net.codec import http2_frames as h2
from raceway.net.codec.grpc import GrpcConnection
from raceway.net.grpc import GrpcGate, GrpcSession, GrpcTcp, Methods
from raceway.wires.danube.listen.session import DanubeSession
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench, RecordingTransport
from tests.rigs.http2 import GREETING, Frame, data, fields_of, frames, headers, message, with_fields


class PlainGate(GrpcGate):
    """A gate with these methods and no others."""

    def __init__(self, door: Door, listen: config.Listen, methods: Methods) -> None:
        super().__init__(door.runtime, listen, methods)
        self._door = door

    def open_session(self, transport: asyncio.Transport, codec: GrpcConnection) -> DanubeSession:
        return DanubeSession(self, self._door, transport, codec)


class GrpcDesk(Bench):
    """A bench with the gRPC gate in front of its broker."""

    def __init__(self, methods: Methods, listen: config.Listen | None = None, **grpc: Any) -> None:
        super().__init__()
        listen = listen or config.Listen(grpc=config.GrpcWire(**grpc))
        self.gate = PlainGate(DOOR(self.broker), listen, methods)

    def caller(self) -> Caller:
        return Caller(self)

    def sweep_for(self, seconds: float, every: float = 0.5) -> None:
        for _ in range(round(seconds / every)):
            self.loop.advance(every)
            self.gate.sweep()
            self.loop.settle()


class Caller:
    """One connection, seen from its far end."""

    def __init__(self, desk: GrpcDesk) -> None:
        self.transport = RecordingTransport()
        self.protocol = GrpcTcp(desk.gate)
        self._desk = desk
        self._read = 0
        self._next = 1
        self.protocol.connection_made(self.transport)
        self.send(GREETING)
        self.heard()

    @property
    def session(self) -> GrpcSession:
        session = self.protocol._session
        assert isinstance(session, GrpcSession)
        return session

    def send(self, *received: bytes) -> None:
        """All in one read."""
        self.protocol.data_received(b"".join(received))

    def calling(self, method: str, body: bytes = b"", **fields: str) -> bytes:
        """The bytes of a call, on the next stream."""
        stream, self._next = self._next, self._next + 2
        return headers(stream, *with_fields(path=f"/test.Echo/{method}", **fields)) + data(stream, message(body))

    def heard(self) -> list[Frame]:
        """What came since the last time, after everything that was going on is settled."""
        self._desk.loop.settle()
        written = self.transport.written
        found = frames(written[self._read :])
        self._read = len(written)
        return found

    def answers(self) -> dict[int, tuple[int, bytes]]:
        """Status and body of each call that was answered since the last time; 405 and the like as they are."""
        bodies: dict[int, bytes] = {}
        found = {}
        for each in self.heard():
            if each.kind == h2.DATA:
                bodies[each.stream] = bodies.get(each.stream, b"") + each.body
            if each.kind == h2.HEADERS and each.flags & h2.END_STREAM:
                fields = fields_of(each.body)
                text = fields.get("grpc-message", "").encode()
                found[each.stream] = (int(fields["grpc-status"]), bodies.get(each.stream, text))
        return found
