"""HTTP/1.1 calls of a client to one address, over the pool of connections that the bus uses for its own calls."""

from __future__ import annotations

import asyncio
import ssl
import sys

from raceway.errors import ConnectionLostError, NotConnectedError, RacewayError, RequestTimeoutError, UnreachableError
from raceway.net.client.address import Address
from raceway.net.client.failures import not_connected
from raceway.net.client.options import Options
from raceway.net.codec.http_stream import HttpReply
from raceway.net.outgoing.http_pool import HttpExchange, HttpPool, PooledConnection, PoolLimits
from raceway.net.turn import Turn

# Longest idle time of a connection that is used again. Below the 5 s after which Node closes idle ones.
IDLE_S = 4.0


class ClientHttpPool(HttpPool):
    """Persistent connections to one address. Belongs to the event loop that it is first used in.

    There are as many connections as calls in flight; no limit is set here. `body_limit` bounds a response's body. With
    `context` they use TLS.
    """

    def __init__(
        self, address: Address, options: Options, body_limit: int, context: ssl.SSLContext | None = None
    ) -> None:
        limits = PoolLimits(sys.maxsize, 0, sys.maxsize, body_limit, options.connect_s, IDLE_S)
        super().__init__(address, None, Turn(lambda call: self._loop.call_soon(call)), limits, context)
        # Numbers of calls that must not be sent again.
        self._once: set[int] = set()

    async def open(self) -> None:
        """Check that the address accepts connections. Raises ConnectionLostError."""
        self._loop = asyncio.get_running_loop()
        self.free(await self._connect())  # kept for the first call

    async def close(self) -> None:  # type: ignore[override]  # as all resources of clients are closed
        """Close all connections and fail calls in flight. Idempotent."""
        super().close()
        for exchange in list(self._open_exchanges.values()):
            exchange.end(ConnectionLostError(str(self.target), "the client was closed"))

    async def call(self, request: bytes, about: str, timeout_s: float, *, once: bool = False) -> HttpReply:
        """Send one encoded request and return its response. `about` names the call in a RequestTimeoutError.

        A request on a reused connection that is closed before any byte of the response is sent once more on a new
        connection. The receiver may get it twice and has to recognize it by its id. With `once` the loss is raised.

        Raises RequestTimeoutError, ConnectionLostError, MalformedError, TooLargeError.
        """
        self._loop = asyncio.get_running_loop()
        told: asyncio.Future[HttpReply | RacewayError] = self._loop.create_future()
        number = self.send(request, timeout_s, lambda result: None if told.done() else told.set_result(result))
        if once:
            self._once.add(number)
        try:
            result = await told
        finally:
            self._once.discard(number)
            # A no-op unless the caller was cancelled: the late response must not be taken for that of the next call.
            self._expire(number)
        if isinstance(result, RequestTimeoutError):
            raise RequestTimeoutError(about, "")
        if isinstance(result, RacewayError):
            raise result
        return result

    def send_afresh(self, exchange: HttpExchange) -> None:
        if exchange.number in self._once:
            exchange.end(ConnectionLostError(str(self.target), "the connection was closed before an answer"))
        else:
            super().send_afresh(exchange)

    async def _connect(self) -> PooledConnection:
        if self._closed:
            raise ConnectionLostError(str(self.target), "the client was closed")
        try:
            return await super()._connect()
        except UnreachableError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and not isinstance(cause, TimeoutError):
                raise not_connected(str(self.target), cause) from cause
            raise NotConnectedError(str(self.target), f"no answer within {self.limits.connect_s:g} s") from cause
