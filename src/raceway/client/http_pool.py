"""Calls over HTTP: kept connections to one place, one call at a time on each, as many of them as calls in flight."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

from raceway.client.address import Address
from raceway.client.options import Options
from raceway.codec.http_stream import Response, ResponseReader
from raceway.errors import ConnectionLostError, MalformedError, RequestTimeoutError, TooLargeError

# Node closes idle connections after 5 s; one that is about to be closed must not be used again.
IDLE_S = 4.0


class HttpPool:
    """See the module. Belongs to one event loop."""

    def __init__(self, address: Address, options: Options, body_limit: int) -> None:
        self._address, self._options, self._body_limit = address, options, body_limit
        self._free: deque[_Connection] = deque()
        self._all: set[_Connection] = set()
        self._closed = False

    async def open(self) -> None:
        """Is somebody there? Raises ConnectionLostError."""
        self._give_back(await self._connect())

    async def close(self) -> None:
        """Calls in flight fail. May be repeated."""
        self._closed = True
        for connection in list(self._all):
            connection.close("the client was closed")
        self._free.clear()

    async def call(self, request: bytes, about: str, timeout_s: float) -> Response:
        """One request, one response. Raises RequestTimeoutError, ConnectionLostError, MalformedError, TooLargeError.

        A kept connection may have been closed while the request was on its way. Then, and only then, it is sent once
        more: whoever gets it twice knows it by its id.
        """
        try:
            async with asyncio.timeout(timeout_s):
                connection = self._maybe_free()
                if connection is not None:
                    try:
                        return await self._exchange(connection, request)
                    except ConnectionLostError:
                        if connection.answering or self._closed:
                            raise
                return await self._exchange(await self._connect(), request)
        except TimeoutError:
            raise RequestTimeoutError(about, "") from None

    async def _exchange(self, connection: _Connection, request: bytes) -> Response:
        try:
            response = await connection.exchange(request)
        except BaseException:
            connection.close("given up")
            raise
        if response.keep_alive:
            self._give_back(connection)
        else:
            connection.close("not to be kept")
        return response

    def _maybe_free(self) -> _Connection | None:
        """The one used last: the others grow old and go."""
        oldest = asyncio.get_running_loop().time() - IDLE_S
        while self._free:
            connection = self._free.pop()
            if connection.is_open and connection.idle_since > oldest:
                return connection
            connection.close("idle for too long")
        return None

    def _give_back(self, connection: _Connection) -> None:
        connection.idle_since = asyncio.get_running_loop().time()
        self._free.append(connection)

    async def _connect(self) -> _Connection:
        if self._closed:
            raise ConnectionLostError(str(self._address), "the client was closed")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._options.connect_s):
                _, connection = await loop.create_connection(
                    lambda: _Connection(str(self._address), ResponseReader(self._body_limit), self._all),
                    self._address.host,
                    self._address.port,
                )
        except TimeoutError:
            raise ConnectionLostError(str(self._address), f"no answer within {self._options.connect_s:g} s") from None
        except OSError as error:
            raise ConnectionLostError(str(self._address), error.strerror or str(error)) from error
        return connection


class _Connection(asyncio.Protocol):
    def __init__(self, address: str, reader: ResponseReader, everyone: set[_Connection]) -> None:
        self._address, self._reader, self._everyone = address, reader, everyone
        self._waiting: asyncio.Future[Response] | None = None
        self._reason = "closed by the other side"
        self.idle_since = 0.0
        # Has any byte of the answer come?
        self.answering = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._everyone.add(self)

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    async def exchange(self, request: bytes) -> Response:
        if not self.is_open:
            raise ConnectionLostError(self._address, self._reason)
        self._waiting = asyncio.get_running_loop().create_future()
        self.answering = False
        self._transport.write(request)
        return await self._waiting

    def close(self, reason: str) -> None:
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

    def _answer(self, response: Response) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            # An answer to nothing: what else comes here cannot be trusted either.
            self._transport.abort()
        elif not waiting.done():
            waiting.set_result(response)

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)

    def connection_lost(self, error: Exception | None) -> None:
        self._everyone.discard(self)
        rest = self._reader.maybe_end()
        if rest is not None:
            self._answer(rest)
        self._fail(ConnectionLostError(self._address, str(error) if error else self._reason))
