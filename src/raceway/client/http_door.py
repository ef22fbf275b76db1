"""The listening side of a client: services, and callers that wait for late answers.

An HTTP connection is answered in the order of its requests, as HTTP demands, whatever is ready first.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from typing import cast

from raceway.codec.http_stream import CONTINUE_BYTES, Continue, HttpRefusal, Request, RequestReader
from raceway.codec.seneca import HttpAnswer, Refused, http_bytes, refusal_http, too_large
from raceway.errors import ConfigError
from raceway.model.addresses import host_port

# The largest document.
DOCUMENT_LIMIT = 8 * 1024 * 1024
# Calls of one connection that wait for their answers; more are read when some are done.
AT_ONCE = 1000
# Longest time for what is being worked on when a door is closed.
FINISH_S = 10.0
# Longest time for a peer to read why it was refused.
LINGER_S = 1.0
NOT_FOUND = HttpAnswer(404, b"", b"")


class Doors:
    """Listening sockets, their connections, and what is being worked on for them."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int, make: Callable[[], Connection]) -> str:
        """Gives `host:port`; port 0 is any. Raises ConfigError when it cannot be had."""
        try:
            server = await asyncio.get_running_loop().create_server(make, host, port)
        except OSError as error:
            await self.close()
            raise ConfigError("port", f"{host}:{port} cannot be listened on: {error.strerror or error}") from error
        self._servers.append(server)
        return host_port(host, server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """What is being worked on is finished, if that does not take too long. May be repeated."""
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        if self.tasks:
            _, late = await asyncio.wait(self.tasks, timeout=FINISH_S)
            for task in late:
                task.cancel()
        for connection in list(self.connections):
            connection.close()
        for server in servers:
            await server.wait_closed()


class Connection(asyncio.Protocol):
    _transport: asyncio.Transport

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._waiting = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._doors.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._doors.connections.discard(self)

    def close(self) -> None:
        self._transport.close()

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._doors.tasks.add(task)
        self._waiting += 1
        if self._waiting == AT_ONCE:
            self._transport.pause_reading()
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._doors.tasks.discard(task)
        if self._waiting == AT_ONCE and not self._transport.is_closing():
            self._transport.resume_reading()
        self._waiting -= 1

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)


class HttpConnection(Connection):
    """What a request means is said by `take`, which calls `finish` with the answer, at once or later."""

    def __init__(self, doors: Doors) -> None:
        super().__init__(doors)
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
                self.finish(place, refusal_http(_refused(found)))
            else:
                self.take(found, place)
            if self._ending:
                return

    @abstractmethod
    def take(self, request: Request, place: list[bytes]) -> None:
        """A request has come; its answer belongs to `place`."""

    def finish(self, place: list[bytes], answer: HttpAnswer) -> None:
        is_last = self._ending and place is self._order[-1]
        self._answer(place, http_bytes(answer, close=is_last))

    def _answer(self, place: list[bytes], data: bytes) -> None:
        place.append(data)
        ready: list[bytes] = []
        while self._order and self._order[0]:
            ready += self._order.popleft()
        if ready:
            self.write(b"".join(ready))
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
        return too_large(DOCUMENT_LIMIT)
    return Refused(refusal.status, "invalid_message", f"seneca: {refusal.reason}")
