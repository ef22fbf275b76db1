"""The gRPC server: dispatches calls of the codec to their handlers and writes the answers.

All calls of one method in one socket read are passed to the handler together, so that a thousand publishes become one
batch. Handlers do not block: they answer immediately or later, by stream id. Answers to streams that have ended in the
meantime (reset by the peer, deadline exceeded, connection lost) are discarded.

The owner of a server stream does its own pumping: it checks `room`, sends, and is called back when there is room again.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

import structlog

from raceway import config
from raceway.errors import BusyError
from raceway.model.buckets import Buckets
from raceway.net.codec.grpc import Arrivals, ArrivedCall, Finished, Gone, GrpcConnection, GrpcLimits, Said, StreamOpened
from raceway.net.codec.grpc_head import CallHead, Status
from raceway.net.codec.http2 import Http2Limits
from raceway.net.connection import HIGH_WATER, Connection, Gate
from raceway.net.runtime import Runtime
from raceway.net.tcp import StreamProtocol
from raceway.net.timers import TICK_MS, TimerWheel

log = structlog.get_logger("raceway.listen")

__all__ = [
    "ArrivedCall", "CallHead", "GrpcGate", "GrpcSession", "GrpcTcp", "Methods", "RequestStream", "ServerStream",
    "Status",
]  # fmt: skip

# Opaque data of our PING frames, 8 octets (RFC 9113, 6.7).
KEEPALIVE = b"raceway!"
# A peer is closed when this multiple of the output limit waits for flow-control windows that it does not open.
WAITING_LIMIT = 2
# Pauses of reading up to this length do not matter for a limit of many seconds.
LONG_PAUSE_S = 1.0

# The first argument of handlers is the session of the wire, a subclass of `GrpcSession`.
MethodHandler = Callable[[Any, list[ArrivedCall]], None]
CallVerdict = tuple[Status, str]


class RequestStream(Protocol):
    """Receiver of the requests of one bidirectional call."""

    def take(self, message: bytes) -> None: ...
    def finish(self) -> None:
        """Handle the end of the requests (half-close): the peer still reads answers."""

    def close(self) -> None:
        """Handle the end of a call that the peer cancelled, or whose connection or deadline ended it."""


StreamHandler = Callable[[Any, int, CallHead], RequestStream]


class Methods:
    """Handlers by path. Must be complete before the port opens."""

    def __init__(self) -> None:
        self.handlers: dict[str, MethodHandler] = {}
        self.stream_handlers: dict[str, StreamHandler] = {}
        self.kinds: dict[bytes, bool] = {}
        # Called when the shutdown starts.
        self.drains: list[Callable[[], None]] = []

    def unary(self, path: str, handler: MethodHandler) -> None:
        """Register a method with one request; with many answers, the handler opens a stream per call."""
        self.handlers[path] = handler
        self.kinds[path.encode()] = False

    def bidi(self, path: str, handler: StreamHandler) -> None:
        """Register a method with many requests and many answers."""
        self.stream_handlers[path] = handler
        self.kinds[path.encode()] = True


class GrpcGate(Gate["GrpcSession"]):
    """All gRPC connections. `authorize`, if set, is called once per distinct head of a read; None means allowed."""

    def __init__(self, runtime: Runtime, listen: config.Listen, methods: Methods) -> None:
        super().__init__(runtime, listen, listen.grpc.max_connections)
        self.settings = settings = listen.grpc
        self.methods = methods
        self.authorize: Callable[[Any, CallHead], CallVerdict | None] | None = None
        # Per network, not per connection: see `may_reset`.
        self._resets = Buckets(self.time)
        self.limits = GrpcLimits(
            message_bytes=settings.message_limit,
            buffer_bytes=settings.buffer_bytes,
            http2=Http2Limits(
                max_streams=settings.max_streams,
                header_bytes=settings.header_limit,
                flood_burst=settings.flood_burst,
            ),
        )

    def may_reset(self, network: str) -> bool:
        """Return whether the rate limit of stream resets of this network allows one more."""
        # "Rapid reset" (CVE-2023-44487; RFC 9113, 10.5): a client that opens and resets streams without end. Counted
        # across connections, because reconnecting is cheap.
        return self._resets.take(network, self.settings.reset_rate, self.settings.reset_burst)

    @abstractmethod
    def open_session(self, transport: asyncio.Transport, codec: GrpcConnection) -> GrpcSession:
        """Create the session of a new connection."""

    def drain(self) -> None:
        # Health first: watchers must hear of the shutdown before the GOAWAY.
        for call in self.methods.drains:
            call()
        for session in list(self.sessions):
            session.say_goodbye()


class GrpcTcp(StreamProtocol):
    """gRPC over TCP or TLS."""

    def __init__(self, gate: GrpcGate) -> None:
        self._codec = GrpcConnection(gate.limits, gate.methods.kinds)
        super().__init__(gate, self._codec)
        self._grpc_gate = gate

    def open_session(self, transport: asyncio.Transport) -> GrpcSession:
        return self._grpc_gate.open_session(transport, self._codec)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        session = self._session
        # The codec stops after a number of unusual frames, so that one peer cannot hold up the loop with them.
        if self._codec.http2.halted and session is not None and session.open:
            session.pause()
            session.runtime.turn.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Process the rest of the last read, after other connections had their turn."""
        if self._session is not None and self._session.open:
            self._session.resume()
            # The codec has the rest of the last read in its buffer.
            self.data_received(b"")

    def drop_input(self) -> None:
        super().drop_input()
        self._codec.drop_input()


class ServerStream:
    """An answer of many messages, as the handler sees it.

    `on_closed` is called once if the stream ends other than by `end`: cancelled, deadline exceeded, connection lost.
    `is_live`: the peer must take what is sent, or the stream is reset.
    """

    __slots__ = ("_moved", "_seen", "_session", "id", "is_live", "on_closed", "on_room")

    def __init__(
        self,
        session: GrpcSession,
        stream: int,
        on_closed: Callable[[], None],
        on_room: Callable[[], None],
        *,
        is_live: bool = False,
    ) -> None:
        self._session = session
        self.id = stream
        self.on_closed, self.on_room = on_closed, on_room
        self.is_live = is_live
        # Progress of the peer, and when it last changed or nothing was queued.
        self._seen: int | None = None
        self._moved = 0.0

    @property
    def open(self) -> bool:
        return self._session.streams.get(self.id) is self

    @property
    def room(self) -> int:
        """Bytes that may be sent now; one large message may exceed it. If 0 or less, `on_room` is called later."""
        return self._session.room(self.id) if self.open else 0

    def send(self, messages: Sequence[bytes]) -> None:
        if self.open:
            self._session.send(self.id, messages)

    def unmoved_s(self, now: float, progress: int | None) -> float:
        """Return for how long the peer has taken nothing of what is queued; 0 if it has, or if nothing is."""
        if progress is None or progress != self._seen:
            self._seen, self._moved = progress, now
        return now - self._moved

    def end(self, status: Status = Status.OK, text: str = "") -> None:
        """End the stream with trailers after all pending messages. Does not call `on_closed`."""
        if self.open:
            self._session.end(self.id, status, text)


class GrpcSession(Connection):
    """An HTTP/2 connection with its calls and streams."""

    def __init__(self, gate: GrpcGate, transport: asyncio.Transport, codec: GrpcConnection) -> None:
        super().__init__(gate, transport, lambda: codec.pending)
        self.gate = gate
        codec.http2.may_reset = partial(gate.may_reset, self.network)
        self.streams: dict[int, ServerStream] = {}
        self._codec = codec
        # Answers unary calls, each given as (stream, message), with status OK.
        self.answer_many = codec.answer_many
        self._intakes: dict[int, RequestStream] = {}
        # Streams without room: over their own limit, or (in order of waiting) because of the connection's limit.
        self._full: set[int] = set()
        self._held: OrderedDict[int, None] = OrderedDict()
        self._output_full = False
        self._written = 0  # bytes in this turn
        # Size of the transport's buffer at the last sweep: a change shows that the peer reads.
        self._buffered = 0
        self._deadlines: TimerWheel[int] = TimerWheel()
        self._ticks = False
        self._swept = self._paused_s = gate.time()
        # The connection was lost while streams were open: deliveries in flight may not have arrived.
        self.lost = False
        self._asked: float | None = None
        self.handlers = {Arrivals: self._arrived}
        self._note_handlers: dict[type, Callable[[Any], None]] = {
            StreamOpened: self._opened, Said: self._said, Finished: self._finished,
            Gone: lambda note: self._leave(note.stream),
        }  # fmt: skip

    def start(self) -> None:
        super().start()
        self._codec.start(self.write)
        self._began = self._gate.time()  # without even the preface (RFC 9113, 3.4) a peer counts as stalled

    def stop(self, reason: str) -> None:
        if self.open:
            self.lost = True
            # Taken out first: callbacks may look at `streams`, and must not find streams of a closed connection.
            streams, self.streams = self.streams, {}
            intakes, self._intakes = self._intakes, {}
            self._full.clear()
            self._held.clear()
            for stream in streams.values():
                self.guard(stream.on_closed)
            for intake in intakes.values():
                self.guard(intake.close)
        super().stop(reason)

    def held(self) -> int:
        return self._codec.held

    def refuse_unfinished(self, error: BusyError) -> None:
        self.refuse_many(self._codec.unfinished, Status.RESOURCE_EXHAUSTED, str(error))
        super().refuse_unfinished(error)

    def say_goodbye(self) -> None:
        """Send GOAWAY: no new calls are accepted, open ones may finish (RFC 9113, 6.8)."""
        self._codec.http2.go_away("server is shutting down")

    def close(self, reason: str) -> None:
        if self.open:
            # UNAVAILABLE: clients may retry on another connection.
            for number in list(self.streams):
                self._codec.end(number, Status.UNAVAILABLE, reason)
            if self._codec.http2.fault is None:  # otherwise the codec has sent GOAWAY with the error code already
                self._codec.http2.go_away(reason)
            self.flush()
        self.stop(reason)
        self.transport.close()

    # ---- input -------------------------------------------------------------------------------------------------------

    def _arrived(self, arrivals: Arrivals) -> None:
        # Reset streams first: a call of the same read may concern messages that were in flight on them.
        for note in arrivals.notes:
            if type(note) is Gone and note.stream in self.streams:
                self._leave(note.stream)
        if arrivals.calls:
            self._dispatch(arrivals.calls)
        for note in arrivals.notes:
            self._note_handlers[type(note)](note)
        self._tell_room()
        fault = self._codec.http2.fault
        if fault is not None and self.open:
            self.count_error()
            self.runtime.counts["connection.failed"] += 1
            log.warning("http2 connection error", peer=self.id, address=self.address, reason=fault.reason)
            self.close(fault.reason)

    def _dispatch(self, calls: list[ArrivedCall]) -> None:
        """Pass calls to their handlers: all of one method together, methods in the order of their first calls."""
        groups: dict[str, list[ArrivedCall]] = {}
        group, last = list[ArrivedCall](), None
        for call in calls:
            head = call[2]
            # The codec shares one head between calls with identical header blocks: authorize it once.
            if head is not last:
                last = head
                verdict = self._verdict(head)
                group = groups.setdefault(head.path, []) if verdict is None else []
            if verdict is not None:
                self.refuse(call[0], *verdict)
                continue
            if head.timeout_s is not None:
                self._expect(call[0], head.timeout_s)
            group.append(call)
        for path, group in groups.items():
            self._handle(path, group)

    def _verdict(self, head: CallHead) -> CallVerdict | None:
        authorize = self.gate.authorize
        if authorize is None:
            return None
        try:
            return authorize(self, head)
        except Exception:
            log.exception("authorization callback failed", peer=self.id)
            return Status.INTERNAL, "internal error"

    def _handle(self, path: str, calls: list[ArrivedCall]) -> None:
        try:
            self.gate.methods.handlers[path](self, calls)
        except Exception:
            # One of the calls may be at fault; which one is not known, so all of them fail.
            log.exception("gRPC handler failed", method=path, peer=self.id)
            self.refuse_many([call[0] for call in calls], Status.INTERNAL, "internal error")

    def _opened(self, note: StreamOpened) -> None:
        verdict = self._verdict(note.head)
        if verdict is not None:
            self.refuse(note.stream, *verdict)
            return
        if note.head.timeout_s is not None:
            self._expect(note.stream, note.head.timeout_s)
        self.guard(partial(self._begin, note.stream, note.head), note.stream)

    def _begin(self, stream: int, head: CallHead) -> None:
        self._intakes[stream] = self.gate.methods.stream_handlers[head.path](self, stream, head)

    def _said(self, note: Said) -> None:
        intake = self._intakes.get(note.stream)
        if intake is not None:
            self.guard(partial(intake.take, note.message), note.stream)

    def _finished(self, note: Finished) -> None:
        intake = self._intakes.pop(note.stream, None)
        if intake is not None:
            self.guard(intake.finish, note.stream)

    def _leave(self, number: int) -> None:
        """Forget a call that ended other than by its handler, and tell the handler."""
        intake = self._intakes.pop(number, None)
        stream = self.streams.pop(number, None)
        self._forget_room(number)
        if intake is not None:
            self.guard(intake.close)
        if stream is not None:
            self.guard(stream.on_closed)

    def guard(self, call: Callable[[], None], stream: int | None = None) -> None:
        """Run a handler's callback. An exception is logged and ends the call, not the connection."""
        try:
            call()
        except Exception:
            log.exception("gRPC stream callback failed", peer=self.id)
            if stream is not None:
                self.refuse(stream, Status.INTERNAL, "internal error")

    # ---- deadlines ---------------------------------------------------------------------------------------------------

    def _expect(self, stream: int, timeout_s: float) -> None:
        # `grpc-timeout` runs from the arrival of the headers. The client keeps its own timer; ours frees the stream.
        now_ms = self._gate.time() * 1000
        if not self._ticks:
            self._ticks = True
            self.runtime.loop.call_later(TICK_MS / 1000, self._expire)
        self._deadlines.add(now_ms + timeout_s * 1000, now_ms, stream)
        # Answered calls stay in the wheel until their deadline: long ones would pile up.
        if len(self._deadlines) > 2 * self.gate.settings.max_streams:
            self._deadlines.retain(self._codec.http2.streams)

    def _expire(self) -> None:
        self._ticks = False
        if not self.open:
            return
        for stream in self._deadlines.due(self._gate.time() * 1000):
            if stream in self._codec.http2.streams:
                self.refuse(stream, Status.DEADLINE_EXCEEDED, "deadline exceeded")
        if self._deadlines:
            self._ticks = True
            self.runtime.loop.call_later(TICK_MS / 1000, self._expire)

    # ---- answers -----------------------------------------------------------------------------------------------------

    def refuse(self, stream: int, status: Status, text: str, *, after_s: float = 0.0) -> None:
        """End a call with an error status, after `after_s` seconds. Works for unanswered calls and open streams."""
        if after_s:  # clients that retry without a pause are slowed down
            self.runtime.loop.call_later(after_s, partial(self.refuse, stream, status, text))
            return
        if not self.open:
            return
        self.count_error()
        # A stream whose response headers were sent ends with trailers; any other gets a Trailers-Only response.
        if stream in self.streams:
            self._codec.end(stream, status, text)
        else:
            self._codec.refuse(stream, status, text)
        self._leave(stream)

    def refuse_many(self, streams: Iterable[int], status: Status, text: str) -> None:
        for stream in streams:
            self.refuse(stream, status, text)

    def open_stream(
        self, stream: int, on_closed: Callable[[], None], on_room: Callable[[], None], *, is_live: bool = False
    ) -> ServerStream:
        """Start an answer of many messages. If the peer has reset the stream already, `on_closed` is called soon."""
        opened = self.streams[stream] = ServerStream(self, stream, on_closed, on_room, is_live=is_live)
        if stream in self._codec.http2.streams:
            self._codec.open(stream)
        else:
            # Later, not now: the caller does not have the stream yet.
            self.runtime.turn.call_soon(partial(self._leave, stream))
        return opened

    def room(self, stream: int) -> int:
        """Return how many bytes may be sent on one stream. If 0 or less, its `on_room` is called when that changes."""
        stream_room, connection_room = self._stream_room(stream), self._connection_room()
        if stream_room <= 0:
            self._full.add(stream)
        elif connection_room <= 0:
            self._held[stream] = None
        return min(stream_room, connection_room)

    def _forget_room(self, stream: int) -> None:
        self._full.discard(stream)
        self._held.pop(stream, None)

    def _stream_room(self, stream: int) -> int:
        return self.gate.settings.stream_bytes - self._codec.out.waits(stream)

    def _connection_room(self) -> int:
        """Return what may be queued for all flow-control windows together, and in this turn for the socket."""
        if self._output_full:
            return 0
        return min(self._output_bytes - self._codec.out.waiting, HIGH_WATER - self._written)

    def send(self, stream: int, messages: Sequence[bytes]) -> None:
        self._codec.send(stream, messages)
        self.room(stream)

    def end(self, stream: int, status: Status, text: str) -> None:
        del self.streams[stream]
        self._intakes.pop(stream, None)
        self._forget_room(stream)
        self._codec.end(stream, status, text)

    def crowd(self) -> None:
        super().crowd()
        self._output_full = True

    def relieve(self) -> None:
        super().relieve()
        self._output_full = False
        self._tell_room()

    def _tell_room(self) -> None:
        """Call `on_room` of waiting streams, the longest-waiting first, until the connection has no more room."""
        # RFC 9113, 5.2.1: windows exist per stream and per connection; a stream needs room in both.
        # Streams whose queued bytes were sent since the last call.
        for number in self._codec.out.take_moved():
            if number in self._full and self._stream_room(number) > 0:
                self._full.discard(number)
                self._held[number] = None
        while self._held and self._connection_room() > 0:
            number, _ = self._held.popitem(last=False)
            stream = self.streams.get(number)
            if stream is not None and number not in self._full:
                self.guard(stream.on_room)

    def write(self, data: bytes) -> None:
        self._written += len(data)
        super().write(data)

    def flush(self) -> None:
        super().flush()
        self._written = 0
        self._tell_room()
        waiting = self._codec.out.waiting
        if waiting > WAITING_LIMIT * self._output_bytes and self.open:
            self.cut("output limit exceeded", "bus.slow_closed", waiting=waiting)

    # ---- timers ------------------------------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        settings = self.gate.settings
        # Refills the budget of control frames, which bounds floods of them (RFC 9113, 10.5).
        self._codec.http2.relax(int(settings.flood_rate * (now - self._swept)) + 1)
        self._swept = now
        self._notice_reading()
        if self.cut_stuck(now):
            return
        self._reset_stuck(now)
        if self.is_stalled(now):
            self.cut("message not completed in time", "bus.stalled_closed")
        elif self._asked is not None and (now - self._asked) * 1000 >= settings.keepalive_timeout_ms:
            self.cut("no answer to PING", "bus.silent_closed")
        elif self._asked is None and self.silence_ms(now) >= settings.keepalive_ms:
            # RFC 9113, 6.7: the peer must answer a PING; any other frame of it counts as well (`hear`).
            self._asked = now
            self._codec.http2.ping(KEEPALIVE)

    def _reset_stuck(self, now: float) -> None:
        """Reset live streams of which the peer takes nothing, although it reads from the connection."""
        for stream in [each for each in self.streams.values() if each.is_live]:
            # While its frames are not read, the peer cannot open a window.
            progress = None if self._pauses else self._codec.out.maybe_progress(stream.id)
            if stream.unmoved_s(now, progress) <= self._gate.listen.stall_s:
                continue
            waiting = self._codec.out.waits(stream.id)
            self.runtime.counts["bus.slow_closed"] += 1
            log.warning("stream reset", peer=self.id, address=self.address, stream=stream.id, waiting=waiting)
            self.runtime.emit("warn", f"stream of connection {self.id} closed: peer does not read", module="listen")
            self._codec.abort(stream.id)
            self._leave(stream.id)

    def pause(self) -> None:
        if not self._pauses:
            self._paused_s = self._gate.time()
        super().pause()

    def resume(self) -> None:
        super().resume()
        now = self._gate.time()
        # The gate does not sweep while it is paused.
        if not self._pauses and now - self._paused_s > LONG_PAUSE_S:
            for stream in self.streams.values():
                stream.unmoved_s(now, None)

    def _notice_reading(self) -> None:
        """Reset the idle timer while the peer reads our output: its answer to a PING may be behind paused input."""
        buffered, self._buffered = self._buffered, self.transport.get_write_buffer_size()
        if self._output_full and buffered != self._buffered:
            self.hear()

    def hear(self) -> None:
        super().hear()
        self._asked = None
