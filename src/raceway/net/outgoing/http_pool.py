"""The HTTP/1.1 client of the bus: calls to one address over pooled connections.

One request per connection at a time, the response passed to a callback: no task and no future per call, except where a
connection must be opened. Redirects are not followed and content codings not decoded; head and body have limits.

A peer may close an idle connection just as it is used again. A call that fails so, before the first byte of a response,
is sent once more on a new connection: the peer can recognise it by its id (RFC 9112, 9.3.1 on retries). Every other
failure is reported to the caller, who alone knows what a repeat would do.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, cast

from raceway.errors import (
    BusyError,
    ConnectionLostError,
    MalformedError,
    RacewayError,
    RequestTimeoutError,
    TooLargeError,
    UnreachableError,
)
from raceway.net.client.address import Address
from raceway.net.codec.http_stream import HttpReply, ResponseReader
from raceway.net.outgoing.allowed import Target
from raceway.net.timers import TICK_MS, TimerWheel
from raceway.net.turn import Turn

OnReply = Callable[[HttpReply | RacewayError], None]
# Reads of this size hold one response or a few, so they are flushed promptly (`Turn.begin_read`).
SMALL_READ = 4096


class PoolLimits(NamedTuple):
    """Limits of one pool."""

    connections: int
    waiting: int
    waiting_bytes: int
    answer_bytes: int
    connect_s: float
    idle_s: float


class HttpExchange:
    """A call: its request, its callback, and the number under which the pool knows it while it is open."""

    __slots__ = ("_pool", "answered", "connection", "data", "is_over", "is_reused", "number")

    def __init__(self, pool: HttpPool, number: int, data: bytes, answered: OnReply) -> None:
        self._pool, self.number = pool, number
        self.data, self.answered = data, answered
        self.connection: PooledConnection | None = None
        self.is_reused = self.is_over = False

    def end(self, result: HttpReply | RacewayError) -> None:
        """Report the result, once."""
        if not self.is_over:
            self.is_over, self.connection = True, None
            self._pool.ended(self)
            self.answered(result)


class PooledConnection(asyncio.Protocol):
    """A pooled connection."""

    _transport: asyncio.Transport

    def __init__(self, pool: HttpPool) -> None:
        self._pool = pool
        self._reader = ResponseReader(pool.limits.answer_bytes)
        self._exchange: HttpExchange | None = None
        self._heard = False
        self.freed_s = 0.0

    @property
    def is_usable(self) -> bool:
        """Whether a request may be sent now."""
        return not self._transport.is_closing()

    def send(self, exchange: HttpExchange) -> None:
        """Send the request of an exchange."""
        self._exchange, exchange.connection, self._heard = exchange, self, False
        self._transport.write(exchange.data)

    def abort(self) -> None:
        """Close without flushing."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit asyncio's

    def data_received(self, data: bytes) -> None:
        """Handle received bytes within a turn; resulting output is flushed at its end, on an idle bus immediately."""
        turn = self._pool.turn
        turn.begin_read(small=len(data) <= SMALL_READ)
        try:
            self._read(data)
        finally:
            turn.end_read()

    def _read(self, data: bytes) -> None:
        """Parse received bytes and end the exchange they complete."""
        self._heard = True
        try:
            responses = self._reader.receive_data(data)
        except (MalformedError, TooLargeError) as error:
            self._end(error)
            self.abort()
            return
        if not responses and self._exchange is not None:
            return
        # A response without a request: every later one would be matched to the wrong request.
        if len(responses) != 1 or self._exchange is None:
            self._end(MalformedError("unexpected response: more than one for a request"))
            self.abort()
            return
        self._finish(responses[0])

    def _finish(self, response: HttpReply) -> None:
        """End the exchange and keep or close the connection."""
        exchange, self._exchange = self._exchange, None
        # Freed before the callback runs: a call that it makes can use this connection.
        if response.keep_alive:
            self._pool.free(self)
        else:
            self._transport.close()
        if exchange is not None:
            exchange.end(response)

    def connection_lost(self, error: Exception | None) -> None:
        """End the exchange, or send it again if an idle connection was closed by the peer."""
        self._pool.lost(self)
        # RFC 9112, 6.3: a response without a length ends with the connection.
        ending = self._reader.maybe_end() if self._exchange is not None and error is None else None
        if ending is not None:
            self._end(ending)
        # Nothing was received on a reused connection: the peer closed it before it saw the request.
        elif self._exchange is not None and self._exchange.is_reused and not self._heard:
            exchange, self._exchange = self._exchange, None
            self._pool.send_afresh(exchange)
        else:
            self._end(ConnectionLostError(str(self._pool.target), str(error) if error else "the connection was closed"))

    def _end(self, result: HttpReply | RacewayError) -> None:
        """End the exchange, if any."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.end(result)


class HttpPool:
    """Connections to one address. With `context` they use TLS. A pool made without a loop must be given one."""

    _loop: asyncio.AbstractEventLoop

    def __init__(
        self,
        target: Target | Address,
        loop: asyncio.AbstractEventLoop | None,
        turn: Turn,
        limits: PoolLimits,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.target, self.turn, self.limits = target, turn, limits
        if loop is not None:
            self._loop = loop
        self._context = context
        self._free: deque[PooledConnection] = deque()
        self._all: set[PooledConnection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._waiting: deque[HttpExchange] = deque()
        self._open_exchanges: dict[int, HttpExchange] = {}
        self._numbers = itertools.count()
        self._wheel: TimerWheel[int] = TimerWheel()
        self._sweeping = self._closed = False
        # Request bytes of all open calls, sent or queued.
        self.held_bytes = 0

    @property
    def open_connections(self) -> int:
        """Number of established connections."""
        return len(self._all)

    def send(self, data: bytes, timeout_s: float, answered: OnReply) -> int:
        """Send a request and return its number.

        `answered` gets the response, or UnreachableError (nothing was sent), ConnectionLostError, TooLargeError,
        MalformedError, BusyError or RequestTimeoutError; never before this returns.
        """
        exchange = HttpExchange(self, next(self._numbers), data, answered)
        # One request is always accepted, however large.
        is_too_much = self.held_bytes and self.held_bytes + len(data) > self.limits.waiting_bytes
        self.held_bytes += len(data)
        if is_too_much:
            self._refuse(exchange)
            return exchange.number
        connection = self._maybe_free()
        if connection is not None:
            exchange.is_reused = True
            connection.send(exchange)
        else:
            self._send_on_new(exchange)
        self._open_exchanges[exchange.number] = exchange
        now_ms = self._loop.time() * 1000
        self._wheel.add(now_ms + timeout_s * 1000, now_ms, exchange.number)
        self._sweep_later()
        return exchange.number

    def ended(self, exchange: HttpExchange) -> None:
        """Forget an exchange that is over."""
        self.held_bytes -= len(exchange.data)
        self._open_exchanges.pop(exchange.number, None)

    def send_afresh(self, exchange: HttpExchange) -> None:
        """Send an exchange again on a new connection, after the idle one it used turned out to be closed."""
        exchange.is_reused, exchange.connection = False, None
        if self._closed:
            exchange.end(ConnectionLostError(str(self.target), "the bus stops"))
        elif not exchange.is_over:
            self._send_on_new(exchange)

    def _maybe_free(self) -> PooledConnection | None:
        """Return the idle connection used last, the least likely to have been closed; None if there is none."""
        oldest = self._loop.time() - self.limits.idle_s
        while self._free:
            connection = self._free.pop()
            if connection.is_usable and connection.freed_s > oldest:
                return connection
            connection.abort()
        return None

    def _send_on_new(self, exchange: HttpExchange) -> None:
        """Open a connection for an exchange, queue it, or refuse it."""
        if len(self._all) + len(self._opening) < self.limits.connections:
            task = self._loop.create_task(self._open(exchange))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        elif len(self._waiting) < self.limits.waiting:
            self._waiting.append(exchange)
        else:
            self._refuse(exchange)

    def _refuse(self, exchange: HttpExchange) -> None:
        """Report that the queue is full."""
        self._loop.call_soon(exchange.end, BusyError(f"too many calls are queued for {self.target}"))

    async def _open(self, exchange: HttpExchange) -> None:
        """Open a connection and send the exchange on it."""
        try:
            connection = await self._connect()
        except RacewayError as error:
            exchange.end(error)
            self._give_up(error)
            return
        if not connection.is_usable:  # closed by the peer while the handshake completed
            exchange.end(ConnectionLostError(str(self.target), "closed immediately after connecting"))
            return
        # Timed out while connecting: the connection is kept for the next call.
        if exchange.is_over:
            self.free(connection)
        else:
            connection.send(exchange)

    async def _connect(self) -> PooledConnection:
        """Open a connection. Raises UnreachableError."""
        try:
            async with asyncio.timeout(self.limits.connect_s):
                _, connection = await self._loop.create_connection(
                    lambda: PooledConnection(self), self.target.host, self.target.port, ssl=self._context
                )
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that IDNA cannot encode
            raise UnreachableError(str(self.target), str(error) or type(error).__name__) from error
        if connection.is_usable:
            self._all.add(connection)
        return connection

    def _give_up(self, error: RacewayError) -> None:
        """Fail the queued exchanges, unless open connections can still serve them."""
        if not self._all:
            waiting, self._waiting = self._waiting, deque()
            for exchange in waiting:
                exchange.end(error)

    def free(self, connection: PooledConnection) -> None:
        """Reuse a connection for the next queued exchange, or keep it."""
        exchange = self._maybe_waiting()
        if exchange is not None:
            exchange.is_reused = True
            connection.send(exchange)
        elif not self._closed:
            connection.freed_s = self._loop.time()
            self._free.append(connection)
        else:
            connection.abort()

    def lost(self, connection: PooledConnection) -> None:
        """Forget a closed connection; open another if exchanges wait."""
        self._all.discard(connection)
        exchange = self._maybe_waiting()
        if exchange is not None:
            self._send_on_new(exchange)

    def _maybe_waiting(self) -> HttpExchange | None:
        """Return the next queued exchange that is not over."""
        while self._waiting:
            exchange = self._waiting.popleft()
            if not exchange.is_over:
                return exchange
        return None

    # ---- deadlines ---------------------------------------------------------------------------------------------------

    def _sweep_later(self) -> None:
        """Schedule a sweep, if none is scheduled."""
        if not self._sweeping:
            self._sweeping = True
            self._loop.call_later(TICK_MS / 1000, self._sweep)

    def _sweep(self) -> None:
        """Expire due exchanges and drop idle connections."""
        self._sweeping = False
        for number in self._wheel.due(self._loop.time() * 1000):
            self._expire(number)
        self._drop_idle()
        if self._wheel and not self._closed:
            self._sweep_later()

    def _expire(self, number: int) -> None:
        """Time out an exchange and close its connection. A no-op if it has ended."""
        exchange = self._open_exchanges.get(number)
        if exchange is None:
            return
        # HTTP/1.1 responses are matched by order: a late one would be taken for the next request's.
        connection = exchange.connection
        exchange.end(RequestTimeoutError("", str(self.target)))
        if connection is not None:
            connection.abort()

    def _drop_idle(self) -> None:
        """Close connections that were idle too long, oldest first."""
        oldest = self._loop.time() - self.limits.idle_s
        while self._free and not (self._free[0].is_usable and self._free[0].freed_s > oldest):
            self._free.popleft().abort()

    def close(self) -> None:
        """Close all connections; open exchanges end with ConnectionLostError."""
        self._closed = True
        for task in self._opening:
            task.cancel()
        for connection in list(self._all):
            connection.abort()
