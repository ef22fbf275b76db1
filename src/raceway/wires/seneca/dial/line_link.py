"""Calls to one address over one connection of lines: many in flight, responses in any order.

The connection is opened by the first call, and again by the first call after it was lost. Calls in flight then fail;
calls not yet sent wait for the new connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf
from typing import cast

import msgspec

from raceway import errors
from raceway.errors import RacewayError
from raceway.net.outgoing.courier import NotTaken, Tried
from raceway.net.turn import Turn
from raceway.wires.seneca.codec.call import Dialect
from raceway.wires.seneca.codec.line import LineReceiver
from raceway.wires.seneca.codec.outgoing import ListenerReply, Outgoing, call_line, read_answer_line
from raceway.wires.seneca.dial.address import ServiceAddress
from raceway.wires.seneca.settings import SenecaDial

OnListenerReply = Callable[[ListenerReply | RacewayError], None]
# Reads of this size hold one response or a few, so they are flushed promptly (`Turn.begin_read`).
SMALL_READ = 4096
# Interval of the deadline check. Callers have deadlines of their own, which come first, so it may be coarse.
SWEEP_S = 0.05


class _Call(msgspec.Struct):
    """A call: its line, its callback and its deadline."""

    key: str
    line: bytes
    answered: OnListenerReply
    ends_s: float
    is_over: bool = False

    def end(self, result: ListenerReply | RacewayError) -> None:
        """Report the result, once."""
        if not self.is_over:
            self.is_over = True
            self.answered(result)


class _LinkConnection(asyncio.Protocol):
    """The connection of a link."""

    def __init__(self, link: LineLink) -> None:
        self._link = link
        self._receiver = LineReceiver(link.settings.answer_limit)
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit asyncio's
        self._link.connection = self

    def data_received(self, data: bytes) -> None:
        """Handle received bytes within a turn; resulting output is flushed at its end, on an idle bus immediately."""
        turn = self._link.turn
        turn.begin_read(small=len(data) <= SMALL_READ)
        try:
            self._read(data)
        finally:
            turn.end_read()

    def _read(self, data: bytes) -> None:
        """Parse lines and end the calls they answer."""
        assert self.transport is not None
        try:
            for line in self._receiver.receive_data(data):
                reply = read_answer_line(line)
                if reply is not None:
                    self._link.take(reply)
        # Framing is in doubt after a line that is not JSON, and after one over the limit.
        except errors.MalformedError:
            self.transport.abort()
        if self._receiver.overflow:
            self.transport.abort()

    def pause_writing(self) -> None:
        """Note that the receiver reads slowly."""
        self._link.is_paused = True

    def resume_writing(self) -> None:
        """Note that the receiver reads again."""
        self._link.resume()

    def connection_lost(self, error: Exception | None) -> None:
        self._link.lost(self, str(error) if error else "the connection was closed")


class LineLink:
    """Calls over one connection. Lines are flushed together, at the end of the turn."""

    def __init__(
        self, address: ServiceAddress, settings: SenecaDial, loop: asyncio.AbstractEventLoop, turn: Turn
    ) -> None:
        self._target, self.settings = address.target, settings
        self._loop, self.turn = loop, turn
        self.connection: _LinkConnection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._unsent: deque[_Call] = deque()
        self._unsent_bytes = 0
        self._open: dict[str, _Call] = {}
        self._outbox: list[bytes] = []
        self._untold: list[Tried] = []
        self._sweeping = self._closed = self.is_paused = False

    @property
    def open_connections(self) -> int:
        """Number of established connections: 0 or 1."""
        return int(self.connection is not None)

    def call(self, dialect: Dialect, outgoing: Outgoing, timeout_s: float, answered: OnListenerReply) -> None:
        """Send a call. `answered` gets the reply, or UnreachableError (nothing was sent), ConnectionLostError,
        BusyError or RequestTimeoutError; never before this returns."""
        key, line = outgoing.id, call_line(dialect, outgoing)
        call = _Call(key, line, answered, self._loop.time() + timeout_s)
        # Two calls with one id could not be told apart by their responses.
        if key in self._open or self._is_full(len(line)):
            self._loop.call_soon(call.end, errors.BusyError(f"too many calls are queued for {self._target}"))
            return
        if self.connection is not None:
            self._open[key] = call
            self._write(line)
        else:
            self._wait(call)
        if not self._sweeping:
            self._sweep_later()

    def tell(self, dialect: Dialect, outgoing: Outgoing, timeout_s: float, tried: Tried) -> None:
        """Send a message without a reply; a written line counts as accepted, since T and S lines have no
        acknowledgement. While the receiver does not read, `tried` is held back, so that the buffer does not grow."""
        line = call_line(dialect, outgoing)
        if self.connection is not None:
            self._write(line)
            if self.is_paused:
                self._untold.append(tried)
            else:
                self._loop.call_soon(tried, None)
            return

        def settle(result: ListenerReply | RacewayError) -> None:
            tried(NotTaken(str(result), reached=False) if isinstance(result, RacewayError) else None)

        self._wait(_Call("", line, settle, inf))

    def _wait(self, call: _Call) -> None:
        """Queue a call until a connection is open."""
        self._unsent.append(call)
        self._unsent_bytes += len(call.line)
        if self._opening is None and not self._closed:
            self._opening = self._loop.create_task(self._open_connection())

    def _is_full(self, size: int) -> bool:
        """Report whether the limits are reached. Lines the receiver has not read stay in memory, so they count."""
        held = self._unsent_bytes
        if self.connection is not None and self.connection.transport is not None:
            held += self.connection.transport.get_write_buffer_size()
        too_many = len(self._open) + len(self._unsent) >= self.settings.waiting
        return too_many or (held > 0 and held + size > self.settings.waiting_bytes)

    def resume(self) -> None:
        """Call the callbacks that were held back: the receiver reads again."""
        self.is_paused = False
        untold, self._untold = self._untold, []
        for tried in untold:
            tried(None)

    def _write(self, line: bytes) -> None:
        """Queue a line for the end of the turn."""
        if not self._outbox:
            self.turn.owe(self)
        self._outbox.append(line)

    def flush(self) -> None:
        """Write the queued lines."""
        outbox, self._outbox = self._outbox, []
        if outbox and self.connection is not None and self.connection.transport is not None:
            self.connection.transport.write(b"".join(outbox))

    def take(self, reply: ListenerReply) -> None:
        """End the call that a reply answers; a late or unknown one is ignored."""
        call = self._open.pop(f"{reply.mid}/{reply.cid}", None)
        if call is not None:
            call.end(reply)

    # ---- the connection ----------------------------------------------------------------------------------------------

    async def _open_connection(self) -> None:
        """Connect and send the queued calls, or fail them."""
        try:
            async with asyncio.timeout(self.settings.connect_ms / 1000):
                await self._loop.create_connection(lambda: _LinkConnection(self), self._target.host, self._target.port)
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that IDNA cannot encode
            self._refuse_unsent(errors.UnreachableError(str(self._target), str(error) or type(error).__name__))
        else:
            if self.connection is not None:
                self._send_waiting()
            else:
                lost = errors.ConnectionLostError(str(self._target), "closed immediately after connecting")
                self._refuse_unsent(lost)
        finally:
            self._opening = None

    def _send_waiting(self) -> None:
        """Send the queued calls."""
        unsent, self._unsent, self._unsent_bytes = self._unsent, deque(), 0
        for call in unsent:
            if call.is_over:
                continue
            self._write(call.line)
            if not call.key:
                # A line without a response is done when it was written.
                call.end(ListenerReply())
            else:
                self._open[call.key] = call

    def _refuse_unsent(self, error: RacewayError) -> None:
        """Fail the queued calls."""
        unsent, self._unsent, self._unsent_bytes = self._unsent, deque(), 0
        for call in unsent:
            call.end(error)

    def lost(self, connection: _LinkConnection, reason: str) -> None:
        """Fail the calls in flight: the connection is closed."""
        if connection is not self.connection:
            return
        self.connection, self.is_paused = None, False
        self._outbox.clear()
        untold, self._untold = self._untold, []
        error = errors.ConnectionLostError(str(self._target), reason)
        for tried in untold:
            tried(NotTaken(str(error), reached=False))
        lost, self._open = self._open, {}
        for call in lost.values():
            call.end(error)

    # ---- deadlines ---------------------------------------------------------------------------------------------------

    def _sweep_later(self) -> None:
        """Schedule the next deadline check."""
        self._sweeping = True
        self._loop.call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Time out due calls."""
        self._sweeping = False
        # A scan instead of a timer per call: few calls wait at a time, but thousands come and go between two sweeps.
        now = self._loop.time()
        for call in [call for call in (*self._open.values(), *self._unsent) if call.ends_s <= now]:
            self._open.pop(call.key, None)
            call.end(errors.RequestTimeoutError("", str(self._target)))
        if (self._open or self._unsent) and not self._closed:
            self._sweep_later()

    def close(self) -> None:
        """Close the connection; open calls end with ConnectionLostError."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self.connection is not None and self.connection.transport is not None:
            self.connection.transport.abort()
