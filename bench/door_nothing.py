"""Raceway's gRPC listener without a broker: the cost of HTTP/2 and gRPC alone.

    python -m bench.door_nothing PORT

Has the two methods of `bench.grpc_nothing`.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from functools import partial

import uvloop

from bench.danube_wire import COUNT, SEND
from raceway import config
from raceway.journal import wall_clock_us
from raceway.net.codec.grpc import GrpcConnection
from raceway.net.grpc import ArrivedCall, GrpcGate, GrpcSession, GrpcTcp, Methods, ServerStream
from raceway.net.runtime import Runtime
from raceway.net.sockets import bind


def send(session: GrpcSession, calls: list[ArrivedCall]) -> None:
    session.answer_many([(stream, b"\x08\x02") for stream, _, _ in calls])


class Counting:
    """A stream of messages, sent as its window allows."""

    def __init__(self, session: GrpcSession, stream: int, number: int, size: int) -> None:
        self._left, self._message = number, bytes(size)
        self._stream: ServerStream = session.open_stream(stream, lambda: None, self._go_on)
        self._go_on()

    def _go_on(self) -> None:
        while self._left and (room := self._stream.room) > 0:
            some = min(self._left, room // len(self._message) + 1)
            self._stream.send([self._message] * some)
            self._left -= some
        if not self._left:
            self._stream.end()


def count(session: GrpcSession, calls: list[ArrivedCall]) -> None:
    for stream, request, _ in calls:
        number, size = map(int, request.split())
        Counting(session, stream, number, size)


class PlainSession(GrpcSession):
    def opened(self) -> None:
        """Do nothing: there is no broker."""

    closed = count_error = opened


class PlainGate(GrpcGate):
    def open_session(self, transport: asyncio.Transport, codec: GrpcConnection) -> PlainSession:
        return PlainSession(self, transport, codec)


async def main(port: int) -> None:
    loop = asyncio.get_running_loop()
    methods = Methods()
    methods.unary(SEND, send)
    methods.unary(COUNT, count)
    runtime = Runtime(
        config.BrokerSettings(),
        loop,
        wall_clock_us,
        defaultdict(int),
        lambda *record, **facts: None,
        lambda done: done(None),
    )
    gate = PlainGate(runtime, config.Listen(), methods)
    server = await loop.create_server(partial(GrpcTcp, gate), sock=bind("127.0.0.1", port))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
