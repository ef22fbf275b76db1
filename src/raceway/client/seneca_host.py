"""Where a service listens: HTTP for dialects L, W, the seed's documents and bare JSON; TCP lines, if wanted.

Real npm clients may call it directly, and so does a bus to which it is attached. Each call is answered in the dialect
it came in.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Self, cast

from raceway.client.seneca_actions import Performer
from raceway.client.seneca_flow import fresh_id
from raceway.codec import seneca as codec
from raceway.codec.http_stream import CONTINUE_BYTES, Continue, HttpRefusal, Request, RequestReader
from raceway.codec.seneca import Call, Failure, HttpAnswer, LineReceiver, LineRefused, Refused
from raceway.errors import ConfigError

ACT = b"/act"
# The largest document.
DOCUMENT_LIMIT = 8 * 1024 * 1024
# Calls of one connection that wait for their answers; more are read when some are done.
AT_ONCE = 1000
# Longest time for a peer to read why it was refused.
LINGER_S = 1.0
NOT_FOUND = HttpAnswer(404, b"", b"")


class SenecaHost:
    """A listening service. `closing` runs first when it is closed: to take it off the bus."""

    def __init__(self, performer: Performer, closing: Callable[[], Awaitable[None]] | None = None) -> None:
        self._performer = performer
        self._closing = closing
        self._servers: list[asyncio.Server] = []
        self._connections: set[_Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        # Where it listens, once it does: `http://…/act`, and `tcp://…` if there are lines.
        self.url = self.tcp_url = ""

    async def listen(self, host: str, port: int, tcp_port: int | None = None) -> Self:
        """Port 0: any. Raises ConfigError when a port cannot be had."""
        self.url = f"http://{await self._open(host, port, _HttpConnection)}/act"
        if tcp_port is not None:
            self.tcp_url = f"tcp://{await self._open(host, tcp_port, _LineConnection)}"
        return self

    async def _open(self, host: str, port: int, make: type[_Connection]) -> str:
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(lambda: make(self._performer, self._connections, self.tasks), host, port)
        except OSError as error:
            await self._stop()
            raise ConfigError("port", f"{host}:{port} cannot be listened on: {error.strerror or error}") from error
        self._servers.append(server)
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Take no more messages; those being worked on are finished. May be repeated."""
        closing, self._closing = self._closing, None
        if closing is not None:
            await closing()
        await self._stop()

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for connection in list(self._connections):
            connection.close()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Connection(asyncio.Protocol):
    _transport: asyncio.Transport

    def __init__(self, performer: Performer, everyone: set[_Connection], tasks: set[asyncio.Task[None]]) -> None:
        self._performer, self._everyone, self._tasks = performer, everyone, tasks
        self._waiting = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._everyone.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._everyone.discard(self)

    def close(self) -> None:
        self._transport.close()

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        self._waiting += 1
        if self._waiting == AT_ONCE:
            self._transport.pause_reading()
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._waiting == AT_ONCE and not self._transport.is_closing():
            self._transport.resume_reading()
        self._waiting -= 1

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)


class _HttpConnection(_Connection):
    """Answers leave in the order of the requests, as HTTP demands, whatever is ready first."""

    def __init__(self, performer: Performer, everyone: set[_Connection], tasks: set[asyncio.Task[None]]) -> None:
        super().__init__(performer, everyone, tasks)
        self._reader = RequestReader(DOCUMENT_LIMIT)
        # One place per request, filled when its answer is ready.
        self._order: deque[list[bytes]] = deque()
        # The last request of this connection has come.
        self._ending = False
        # The peer may still be sending what was refused.
        self._lingers = False

    def data_received(self, data: bytes) -> None:
        if self._ending:
            return
        for found in self._reader.receive_data(data):
            place: list[bytes] = []
            self._order.append(place)
            if isinstance(found, Continue):
                self._answer(place, CONTINUE_BYTES)
                continue
            self._ending = isinstance(found, HttpRefusal) or not found.keep_alive
            if isinstance(found, HttpRefusal):
                self._lingers = True
                self._finish(place, codec.refusal_http(_refused(found)))
            else:
                self._take(found, place)
            if self._ending:
                return

    def _take(self, request: Request, place: list[bytes]) -> None:
        if request.path != ACT:
            self._finish(place, NOT_FOUND)
            return
        call = codec.read_http(request.headers, request.body, fresh_id, request.query)
        if isinstance(call, Refused):
            self._finish(place, codec.refusal_http(call))
        else:
            self._start(self._perform(place, call))

    async def _perform(self, place: list[bytes], call: Call) -> None:
        outcome, stamp = await self._performer.perform(call)
        # A sender that expects no answer still learns whether it worked, so that it can try again.
        accepted = not call.sync and not isinstance(outcome, Failure)
        self._finish(place, codec.accepted_http(call, stamp) if accepted else codec.answer_http(call, outcome, stamp))

    def _finish(self, place: list[bytes], answer: HttpAnswer) -> None:
        is_last = self._ending and place is self._order[-1]
        self._answer(place, codec.http_bytes(answer, close=is_last))

    def _answer(self, place: list[bytes], data: bytes) -> None:
        place.append(data)
        ready: list[bytes] = []
        while self._order and self._order[0]:
            ready += self._order.popleft()
        if ready:
            self._write(b"".join(ready))
        if self._ending and not self._order:
            self._end()

    def _end(self) -> None:
        """To close while the peer is still sending would destroy the answer before it is read."""
        if self._lingers and not self._transport.is_closing():
            self._transport.write_eof()
            asyncio.get_running_loop().call_later(LINGER_S, self._transport.close)
        else:
            self._transport.close()


def _refused(refusal: HttpRefusal) -> Refused:
    if refusal.status == 413:
        return codec.too_large(DOCUMENT_LIMIT)
    return Refused(refusal.status, "invalid_message", f"seneca: {refusal.reason}")


class _LineConnection(_Connection):
    def __init__(self, performer: Performer, everyone: set[_Connection], tasks: set[asyncio.Task[None]]) -> None:
        super().__init__(performer, everyone, tasks)
        self._lines = LineReceiver(DOCUMENT_LIMIT)

    def data_received(self, data: bytes) -> None:
        for line in self._lines.receive_data(data):
            call = codec.read_line(line, fresh_id)
            if isinstance(call, LineRefused):
                self._write(call.line or b"")
                if call.close:
                    self._transport.close()
                    return
            else:
                self._start(self._perform(call))
        if self._lines.overflow:
            self._transport.abort()

    async def _perform(self, call: Call) -> None:
        outcome, stamp = await self._performer.perform(call)
        line = codec.answer_line(call, outcome, stamp)
        if line is not None:
            self._write(line)
