"""Listening sockets of a client, for services and for answers that come by a return path.

Responses leave in the order of their requests (RFC 9112, 9.3.2), whichever is ready first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import cast

from raceway.errors import ConfigError
from raceway.model.addresses import host_port
from raceway.net.codec.http_stream import CONTINUE_BYTES, Continue, HttpCall, HttpRefusal, RequestReader
from raceway.wires.seneca.codec.answer import HttpAnswer, http_bytes, refusal_http
from raceway.wires.seneca.codec.request import NotACall, too_large

# Largest request body, and largest line. Seneca documents are small; the limit only bounds memory.
DOCUMENT_LIMIT = 8 * 1024 * 1024
# Unanswered calls per connection. Reading pauses at this number, so a flooding peer is slowed down by TCP.
AT_ONCE = 1000
# Time for calls in progress to finish when the sockets are closed; they are cancelled afterwards.
FINISH_S = 10.0
# Time between a refusal and the close, for the peer to read the refusal (RFC 9112, 9.6).
LINGER_S = 1.0
NOT_FOUND = HttpAnswer(404, b"", b"")


class HttpListener:
    """Listening sockets, their connections, and the tasks that work on their calls."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self.connections: set[ListenerConnection] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int, make: Callable[[], ListenerConnection]) -> str:
        """Listen and return `host:port`; port 0 selects a free one. `make` creates the protocol of each connection.

        Raises ConfigError if the address cannot be bound.
        """
        try:
            server = await asyncio.get_running_loop().create_server(make, host, port)
        except OSError as error:
            # A service with two sockets has both or none.
            await self.close()
            raise ConfigError("port", f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        self._servers.append(server)
        return host_port(host, server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening, let calls in progress finish for up to FINISH_S, then close connections. Idempotent."""
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        if self.tasks:
            _, late = await asyncio.wait(self.tasks, timeout=FINISH_S)
            for task in late:
                task.cancel()
        for connection in list(self.connections):
            connection.close()
        # Last: since Python 3.12 it waits for the connections too.
        for server in servers:
            await server.wait_closed()


class ListenerConnection(asyncio.Protocol):
    """An accepted connection: counts unanswered calls, and pauses reading while there are too many."""

    _transport: asyncio.Transport

    def __init__(self, doors: HttpListener) -> None:
        self._doors = doors
        self._waiting = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._doors.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._doors.connections.discard(self)

    def close(self) -> None:
        self._transport.close()

    def pause_writing(self) -> None:
        """Stop reading: a peer that does not read its answers may not send more calls."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def start(self, work: Awaitable[None]) -> None:
        """Run `work` as a task that `HttpListener.close` waits for."""
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


class HttpConnection(ListenerConnection):
    """An HTTP/1.1 connection. `take` gets each request and its place; it calls `finish` with place and answer, now or
    later."""

    def __init__(self, doors: HttpListener, take: Callable[[HttpConnection, HttpCall, list[bytes]], None]) -> None:
        super().__init__(doors)
        self._take = take
        self._reader = RequestReader(DOCUMENT_LIMIT)
        # One list per request, in order of arrival; filled when the answer is ready.
        self._order: deque[list[bytes]] = deque()
        # No further request is read: the peer asked to close, or sent something malformed.
        self._ending = False
        # Close late: the peer may still be sending the request that was refused.
        self._lingers = False

    def data_received(self, data: bytes) -> None:
        if self._ending:
            return
        for found in self._reader.receive_data(data):
            place: list[bytes] = []
            self._order.append(place)
            # RFC 9110, 10.1.1: 100 (Continue) precedes the response, so it has a place in the order, too.
            if isinstance(found, Continue):
                self._answer(place, CONTINUE_BYTES)
                continue
            self._ending = isinstance(found, HttpRefusal) or not found.keep_alive
            if isinstance(found, HttpRefusal):
                self._lingers = True
                self.finish(place, refusal_http(_refused(found)))
            else:
                self._take(self, found, place)
            if self._ending:
                return

    def finish(self, place: list[bytes], answer: HttpAnswer) -> None:
        """Answer the request that `place` stands for."""
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
        """Close the connection, after a pause if the peer may still be sending: a reset would destroy the answer."""
        if self._lingers and not self._transport.is_closing():
            # RFC 9112, 9.6: close the write side first, then wait for the peer.
            self._transport.write_eof()
            asyncio.get_running_loop().call_later(LINGER_S, self._transport.close)
        else:
            self._transport.close()


def _refused(refusal: HttpRefusal) -> NotACall:
    if refusal.status == 413:
        return too_large(DOCUMENT_LIMIT)
    return NotACall(refusal.status, "invalid_message", f"seneca: {refusal.reason}")
