"""The bus's own HTTP client: calls to one address over connections that are kept and used again.

One request per connection at a time, the answer to a callback: no task and no future per call, except where a
connection has to be opened. Nothing is followed (redirects) and nothing unpacked; head and body have limits.

A kept connection may be closed by its peer at the very moment it is used again. A call that meets this before the first
byte of an answer is sent once more on a fresh connection: the peer can recognise it by its id. Every other break is
told to the caller, who alone knows what a repeat would do.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, cast

from raceway.broker.timers import TICK_MS, TimerWheel
from raceway.broker.turn import Turn
from raceway.codec.http_stream import Response, ResponseReader
from raceway.dial.allowed import Target
from raceway.errors import (
    BusyError,
    ConnectionLostError,
    MalformedError,
    RacewayError,
    RequestTimeoutError,
    TooLargeError,
    UnreachableError,
)

Answered = Callable[[Response | RacewayError], None]
# One answer or a few.
SMALL_READ = 4096


class PoolLimits(NamedTuple):
    connections: int
    waiting: int
    waiting_bytes: int
    answer_bytes: int
    connect_s: float
    idle_s: float


class _Exchange:
    """One call: what is sent, who is told, and the number under which its pool knows it while it is open."""

    __slots__ = ("_pool", "answered", "connection", "data", "is_over", "is_reused", "number")

    def __init__(self, pool: HttpPool, number: int, data: bytes, answered: Answered) -> None:
        self._pool, self.number = pool, number
        self.data, self.answered = data, answered
        self.connection: _Connection | None = None
        self.is_reused = self.is_over = False

    def end(self, result: Response | RacewayError) -> None:
        if not self.is_over:
            self.is_over, self.connection = True, None
            self._pool.ended(self)
            self.answered(result)


class _Connection(asyncio.Protocol):
    def __init__(self, pool: HttpPool) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._reader = ResponseReader(pool.limits.answer_bytes)
        self._exchange: _Exchange | None = None
        self._heard = False
        self.freed_s = 0.0

    @property
    def is_usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, exchange: _Exchange) -> None:
        assert self._transport is not None
        self._exchange, exchange.connection, self._heard = exchange, self, False
        self._transport.write(exchange.data)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are none of asyncio's classes

    def data_received(self, data: bytes) -> None:
        """What comes of it leaves at the end of the turn; on a quiet bus that is now."""
        turn = self._pool.turn
        turn.begin_read(small=len(data) <= SMALL_READ)
        try:
            self._read(data)
        finally:
            turn.end_read()

    def _read(self, data: bytes) -> None:
        self._heard = True
        try:
            responses = self._reader.receive_data(data)
        except (MalformedError, TooLargeError) as error:
            self._end(error)
            self.abort()
            return
        if not responses and self._exchange is not None:
            return
        if len(responses) != 1 or self._exchange is None:  # an answer that nobody asked for: not to be trusted again
            self._end(MalformedError("more than one answer"))
            self.abort()
            return
        self._finish(responses[0])

    def _finish(self, response: Response) -> None:
        exchange, self._exchange = self._exchange, None
        if response.keep_alive:
            self._pool.free(self)
        elif self._transport is not None:
            self._transport.close()
        if exchange is not None:
            exchange.end(response)

    def connection_lost(self, error: Exception | None) -> None:
        self._pool.lost(self)
        ending = self._reader.maybe_end() if self._exchange is not None and error is None else None
        if ending is not None:
            self._end(ending)
        elif self._exchange is not None and self._exchange.is_reused and not self._heard:
            exchange, self._exchange = self._exchange, None
            self._pool.send_afresh(exchange)
        else:
            self._end(ConnectionLostError(str(self._pool.target), str(error) if error else "the connection was closed"))

    def _end(self, result: Response | RacewayError) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.end(result)


class HttpPool:
    """`context` turns it to TLS. `close` ends everything."""

    def __init__(
        self,
        target: Target,
        loop: asyncio.AbstractEventLoop,
        turn: Turn,
        limits: PoolLimits,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.target, self.turn, self.limits = target, turn, limits
        self._loop = loop
        self._context = context
        self._free: deque[_Connection] = deque()
        self._all: set[_Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._waiting: deque[_Exchange] = deque()
        self._open_exchanges: dict[int, _Exchange] = {}
        self._numbers = itertools.count()
        self._wheel: TimerWheel[int] = TimerWheel()
        self._sweeping = self._closed = False
        # Of calls that are not over, waiting or not.
        self.held_bytes = 0

    @property
    def open_connections(self) -> int:
        return len(self._all)

    def send(self, data: bytes, timeout_s: float, answered: Answered) -> None:
        """`answered` gets the response, or UnreachableError (nothing was sent), ConnectionLostError, TooLargeError,
        MalformedError, BusyError or RequestTimeoutError; never before this returns."""
        exchange = _Exchange(self, next(self._numbers), data, answered)
        is_too_much = self.held_bytes and self.held_bytes + len(data) > self.limits.waiting_bytes
        self.held_bytes += len(data)
        if is_too_much:
            self._refuse(exchange)
            return
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

    def ended(self, exchange: _Exchange) -> None:
        self.held_bytes -= len(exchange.data)
        self._open_exchanges.pop(exchange.number, None)

    def send_afresh(self, exchange: _Exchange) -> None:
        """The kept connection it was sent on was gone already."""
        exchange.is_reused, exchange.connection = False, None
        if self._closed:
            exchange.end(ConnectionLostError(str(self.target), "the bus stops"))
        elif not exchange.is_over:
            self._send_on_new(exchange)

    def _maybe_free(self) -> _Connection | None:
        """The one used last: it is the least likely to have been closed."""
        oldest = self._loop.time() - self.limits.idle_s
        while self._free:
            connection = self._free.pop()
            if connection.is_usable and connection.freed_s > oldest:
                return connection
            connection.abort()
        return None

    def _send_on_new(self, exchange: _Exchange) -> None:
        if len(self._all) + len(self._opening) < self.limits.connections:
            task = self._loop.create_task(self._open(exchange))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        elif len(self._waiting) < self.limits.waiting:
            self._waiting.append(exchange)
        else:
            self._refuse(exchange)

    def _refuse(self, exchange: _Exchange) -> None:
        self._loop.call_soon(exchange.end, BusyError(f"too much waits for {self.target} already"))

    async def _open(self, exchange: _Exchange) -> None:
        try:
            async with asyncio.timeout(self.limits.connect_s):
                _, connection = await self._loop.create_connection(
                    lambda: _Connection(self), self.target.host, self.target.port, ssl=self._context
                )
        except (OSError, UnicodeError) as error:  # the latter for names that DNS cannot carry
            unreachable = UnreachableError(str(self.target), str(error) or type(error).__name__)
            exchange.end(unreachable)
            self._give_up(unreachable)
            return
        if not connection.is_usable:  # the peer has closed it before we came to use it
            exchange.end(ConnectionLostError(str(self.target), "the connection was closed at once"))
            return
        self._all.add(connection)
        if exchange.is_over:
            self.free(connection)
        else:
            connection.send(exchange)

    def _give_up(self, error: RacewayError) -> None:
        """No connection can be had: whoever waits for one is told, unless some are still at work."""
        if not self._all:
            waiting, self._waiting = self._waiting, deque()
            for exchange in waiting:
                exchange.end(error)

    def free(self, connection: _Connection) -> None:
        """It has its answer: it serves whoever waits, or is kept."""
        exchange = self._maybe_waiting()
        if exchange is not None:
            exchange.is_reused = True
            connection.send(exchange)
        elif not self._closed:
            connection.freed_s = self._loop.time()
            self._free.append(connection)
        else:
            connection.abort()

    def lost(self, connection: _Connection) -> None:
        self._all.discard(connection)
        exchange = self._maybe_waiting()
        if exchange is not None:
            self._send_on_new(exchange)

    def _maybe_waiting(self) -> _Exchange | None:
        while self._waiting:
            exchange = self._waiting.popleft()
            if not exchange.is_over:
                return exchange
        return None

    # ---- deadlines ---------------------------------------------------------------------------------------------------

    def _sweep_later(self) -> None:
        if not self._sweeping:
            self._sweeping = True
            self._loop.call_later(TICK_MS / 1000, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = False
        for number in self._wheel.due(self._loop.time() * 1000):
            self._expire(number)
        self._drop_idle()
        if self._wheel and not self._closed:
            self._sweep_later()

    def _expire(self, number: int) -> None:
        """Its connection cannot serve anybody else: the answer would be taken for another one's."""
        exchange = self._open_exchanges.get(number)
        if exchange is None:
            return
        connection = exchange.connection
        exchange.end(RequestTimeoutError("", str(self.target)))
        if connection is not None:
            connection.abort()

    def _drop_idle(self) -> None:
        oldest = self._loop.time() - self.limits.idle_s
        while self._free and not (self._free[0].is_usable and self._free[0].freed_s > oldest):
            self._free.popleft().abort()

    def close(self) -> None:
        self._closed = True
        for task in self._opening:
            task.cancel()
        for connection in list(self._all):
            connection.abort()
