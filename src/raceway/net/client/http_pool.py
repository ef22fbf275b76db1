"""HTTP/1.1 calls to one address over a pool of persistent connections, one call at a time on each."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

from raceway.errors import ConnectionLostError, MalformedError, RequestTimeoutError, TooLargeError
from raceway.net.client.address import Address
from raceway.net.client.options import Options
from raceway.net.codec.http_stream import HttpReply, ResponseReader

# Longest idle time of a connection that is used again. Below the 5 s after which Node closes idle ones.
IDLE_S = 4.0


class ClientHttpPool:
    """Persistent connections to one address. Belongs to one event loop.

    There are as many connections as calls in flight; no limit is set here. `body_limit` bounds a response's body.
    """

    def __init__(self, address: Address, options: Options, body_limit: int) -> None:
        self._address, self._options, self._body_limit = address, options, body_limit
        # Idle connections, the most recently used one last.
        self._free: deque[_ClientConnection] = deque()
        # All open connections, for `close`; each removes itself when it is lost.
        self._all: set[_ClientConnection] = set()
        self._closed = False

    async def open(self) -> None:
        """Check that the address accepts connections. Raises ConnectionLostError."""
        # Kept for the first call.
        self._give_back(await self._connect())

    async def close(self) -> None:
        """Close all connections and fail calls in flight. Idempotent."""
        self._closed = True
        for connection in list(self._all):
            connection.close("the client was closed")
        self._free.clear()

    async def call(self, request: bytes, about: str, timeout_s: float) -> HttpReply:
        """Send one encoded request and return its response. `about` names the call in a RequestTimeoutError.

        A request on a reused connection that is closed before any byte of the response is sent once more on a new
        connection. The receiver may get it twice and has to recognize it by its id.

        Raises RequestTimeoutError, ConnectionLostError, MalformedError, TooLargeError.
        """
        try:
            # One timeout for both attempts, and for connecting.
            async with asyncio.timeout(timeout_s):
                connection = self._maybe_free()
                if connection is not None:
                    try:
                        return await self._exchange(connection, request)
                    except ConnectionLostError:
                        # RFC 9112, 9.3.1: an idle connection may be closed at any time; only then is a retry due.
                        if connection.answering or self._closed:
                            raise
                return await self._exchange(await self._connect(), request)
        except TimeoutError:
            raise RequestTimeoutError(about, "") from None

    async def _exchange(self, connection: _ClientConnection, request: bytes) -> HttpReply:
        try:
            response = await connection.exchange(request)
        except BaseException:
            # Also on timeout and cancellation: the late response must not be taken for that of the next call.
            connection.close("call abandoned")
            raise
        if response.keep_alive:
            self._give_back(connection)
        else:
            connection.close("connection: close")
        return response

    def _maybe_free(self) -> _ClientConnection | None:
        """Pop the most recently used idle connection, so that surplus ones reach IDLE_S and are closed."""
        oldest = asyncio.get_running_loop().time() - IDLE_S
        while self._free:
            connection = self._free.pop()
            if connection.is_open and connection.idle_since > oldest:
                return connection
            connection.close("idle for too long")
        return None

    def _give_back(self, connection: _ClientConnection) -> None:
        connection.idle_since = asyncio.get_running_loop().time()
        self._free.append(connection)

    async def _connect(self) -> _ClientConnection:
        if self._closed:
            raise ConnectionLostError(str(self._address), "the client was closed")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._options.connect_s):
                _, connection = await loop.create_connection(
                    lambda: _ClientConnection(str(self._address), ResponseReader(self._body_limit), self._all),
                    self._address.host,
                    self._address.port,
                )
        except TimeoutError:
            raise ConnectionLostError(str(self._address), f"no answer within {self._options.connect_s:g} s") from None
        except OSError as error:
            raise ConnectionLostError(str(self._address), error.strerror or str(error)) from error
        return connection


class _ClientConnection(asyncio.Protocol):
    """A pooled connection: at most one request is waiting for its response."""

    def __init__(self, address: str, reader: ResponseReader, everyone: set[_ClientConnection]) -> None:
        self._address, self._reader, self._everyone = address, reader, everyone
        self._waiting: asyncio.Future[HttpReply] | None = None
        self._reason = "closed by the peer"
        self.idle_since = 0.0
        # Whether any byte of the response has arrived; if so, the peer has read the request.
        self.answering = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._everyone.add(self)

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    async def exchange(self, request: bytes) -> HttpReply:
        """Send a request and wait for its response. Raises ConnectionLostError, MalformedError, TooLargeError."""
        if not self.is_open:
            raise ConnectionLostError(self._address, self._reason)
        self._waiting = asyncio.get_running_loop().create_future()
        self.answering = False
        self._transport.write(request)
        return await self._waiting

    def close(self, reason: str) -> None:
        # Not `close`: unsent bytes of an abandoned request are of no use.
        self._reason = reason
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self.answering = True
        try:
            responses = self._reader.receive_data(data)
        except (MalformedError, TooLargeError) as error:
            self._fail(error)
            self._transport.abort()
            return
        for response in responses:
            self._answer(response)

    def _answer(self, response: HttpReply) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            # A response without a request: the order of responses on this connection is unreliable.
            self._transport.abort()
        elif not waiting.done():
            waiting.set_result(response)

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)

    def connection_lost(self, error: Exception | None) -> None:
        self._everyone.discard(self)
        # RFC 9112, 6.3: a body without length ends with the connection.
        rest = self._reader.maybe_end()
        if rest is not None:
            self._answer(rest)
        self._fail(ConnectionLostError(self._address, str(error) if error else self._reason))
