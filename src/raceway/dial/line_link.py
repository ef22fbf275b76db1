"""Calls to one address over one connection of lines: many in flight, answers in the order in which they are ready.

The connection is opened by the first call and opened anew by the first one after it was lost. What was in flight then
is told so; what had not been sent yet waits for the new one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf
from typing import NamedTuple, cast

from raceway.broker.turn import Turn
from raceway.codec.seneca import LineReceiver, Reply, read_answer_line
from raceway.dial.allowed import Target
from raceway.errors import (
    BusyError,
    ConnectionLostError,
    MalformedError,
    RacewayError,
    RequestTimeoutError,
    UnreachableError,
)

Answered = Callable[[Reply | RacewayError], None]
# One answer or a few.
SMALL_READ = 4096
# How often those that wait are looked at. Whoever asked has a deadline of its own, which comes first.
SWEEP_S = 0.05


class LineLimits(NamedTuple):
    waiting: int
    waiting_bytes: int
    answer_bytes: int
    connect_s: float


class _Call:
    __slots__ = ("answered", "ends_s", "is_over", "key", "line")

    def __init__(self, key: str, line: bytes, answered: Answered, ends_s: float) -> None:
        self.key, self.line, self.answered, self.ends_s = key, line, answered, ends_s
        self.is_over = False

    def end(self, result: Reply | RacewayError) -> None:
        if not self.is_over:
            self.is_over = True
            self.answered(result)


class _Connection(asyncio.Protocol):
    def __init__(self, link: LineLink) -> None:
        self._link = link
        self._receiver = LineReceiver(link.limits.answer_bytes)
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports are none of asyncio's classes
        self._link.made(self)

    def data_received(self, data: bytes) -> None:
        """What comes of it leaves at the end of the turn; on a quiet bus that is now."""
        turn = self._link.turn
        turn.begin_read(small=len(data) <= SMALL_READ)
        try:
            self._read(data)
        finally:
            turn.end_read()

    def _read(self, data: bytes) -> None:
        assert self.transport is not None
        try:
            for line in self._receiver.receive_data(data):
                reply = read_answer_line(line)
                if reply is not None:
                    self._link.take(reply)
        except MalformedError:
            self.transport.abort()
        if self._receiver.overflow:
            self.transport.abort()

    def pause_writing(self) -> None:
        self._link.is_paused = True

    def resume_writing(self) -> None:
        self._link.resume()

    def connection_lost(self, error: Exception | None) -> None:
        self._link.lost(self, str(error) if error else "the connection was closed")


class LineLink:
    """Lines leave at the end of the turn, together."""

    def __init__(self, target: Target, loop: asyncio.AbstractEventLoop, turn: Turn, limits: LineLimits) -> None:
        self.target, self.limits = target, limits
        self._loop, self.turn = loop, turn
        self._connection: _Connection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._unsent: deque[_Call] = deque()
        self._unsent_bytes = 0
        self._open: dict[str, _Call] = {}
        self._outbox: list[bytes] = []
        self._untold: list[Callable[[RacewayError | None], None]] = []
        self._sweeping = self._closed = self.is_paused = False

    @property
    def open_connections(self) -> int:
        return int(self._connection is not None)

    def send(self, key: str, line: bytes, timeout_s: float, answered: Answered) -> None:
        """`key` is the call's `mid/cid`. `answered` gets the reply, or UnreachableError (nothing was sent),
        ConnectionLostError, BusyError or RequestTimeoutError; never before this returns."""
        call = _Call(key, line, answered, self._loop.time() + timeout_s)
        if key in self._open or self._is_full(len(line)):
            self._loop.call_soon(call.end, BusyError(f"too many calls wait for {self.target}"))
            return
        if self._connection is not None:
            self._open[key] = call
            self._write(line)
        else:
            self._wait(call)
        if not self._sweeping:
            self._sweep_later()

    def tell(self, line: bytes, told: Callable[[RacewayError | None], None]) -> None:
        """A line that has no answer; `told` is called when it was written, or could not be. While a receiver does not
        read it is not called: what waits for it must not grow."""
        if self._connection is not None:
            self._write(line)
            if self.is_paused:
                self._untold.append(told)
            else:
                self._loop.call_soon(told, None)
            return

        def settle(result: Reply | RacewayError) -> None:
            told(result if isinstance(result, RacewayError) else None)

        self._wait(_Call("", line, settle, inf))

    def _wait(self, call: _Call) -> None:
        """For a connection."""
        self._unsent.append(call)
        self._unsent_bytes += len(call.line)
        self._connect()

    def _is_full(self, size: int) -> bool:
        """Lines that a receiver does not read stay in memory, sent or not."""
        held = self._unsent_bytes
        if self._connection is not None and self._connection.transport is not None:
            held += self._connection.transport.get_write_buffer_size()
        too_many = len(self._open) + len(self._unsent) >= self.limits.waiting
        return too_many or (held > 0 and held + size > self.limits.waiting_bytes)

    def resume(self) -> None:
        """The receiver reads again."""
        self.is_paused = False
        untold, self._untold = self._untold, []
        for told in untold:
            told(None)

    def _write(self, line: bytes) -> None:
        if not self._outbox:
            self.turn.owe(self)
        self._outbox.append(line)

    def flush(self) -> None:
        outbox, self._outbox = self._outbox, []
        if outbox and self._connection is not None and self._connection.transport is not None:
            self._connection.transport.write(b"".join(outbox))

    def take(self, reply: Reply) -> None:
        call = self._open.pop(f"{reply.mid}/{reply.cid}", None)
        if call is not None:
            call.end(reply)

    # ---- the connection ----------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._opening is None and not self._closed:
            self._opening = self._loop.create_task(self._open_connection())

    async def _open_connection(self) -> None:
        try:
            async with asyncio.timeout(self.limits.connect_s):
                await self._loop.create_connection(lambda: _Connection(self), self.target.host, self.target.port)
        except (OSError, UnicodeError) as error:  # the latter for names that DNS cannot carry
            self._refuse_unsent(UnreachableError(str(self.target), str(error) or type(error).__name__))
        else:
            if self._connection is not None:
                self._send_waiting()
            else:
                self._refuse_unsent(ConnectionLostError(str(self.target), "the connection was closed at once"))
        finally:
            self._opening = None

    def made(self, connection: _Connection) -> None:
        self._connection = connection

    def _send_waiting(self) -> None:
        unsent, self._unsent, self._unsent_bytes = self._unsent, deque(), 0
        for call in unsent:
            if call.is_over:
                continue
            self._write(call.line)
            if not call.key:
                call.end(Reply())
            else:
                self._open[call.key] = call

    def _refuse_unsent(self, error: RacewayError) -> None:
        unsent, self._unsent, self._unsent_bytes = self._unsent, deque(), 0
        for call in unsent:
            call.end(error)

    def lost(self, connection: _Connection, reason: str) -> None:
        if connection is not self._connection:
            return
        self._connection, self.is_paused = None, False
        self._outbox.clear()
        untold, self._untold = self._untold, []
        for told in untold:
            told(ConnectionLostError(str(self.target), reason))
        lost, self._open = self._open, {}
        for call in lost.values():
            call.end(ConnectionLostError(str(self.target), reason))

    # ---- deadlines ---------------------------------------------------------------------------------------------------

    def _sweep_later(self) -> None:
        self._sweeping = True
        self._loop.call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Few wait at a time, and thousands come and go between two sweeps: nothing is noted of each."""
        self._sweeping = False
        now = self._loop.time()
        for call in [call for call in (*self._open.values(), *self._unsent) if call.ends_s <= now]:
            self._open.pop(call.key, None)
            call.end(RequestTimeoutError("", str(self.target)))
        if (self._open or self._unsent) and not self._closed:
            self._sweep_later()

    def close(self) -> None:
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None and self._connection.transport is not None:
            self._connection.transport.abort()
