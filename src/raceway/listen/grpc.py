"""The gRPC door: calls of the codec to whoever serves them, and their answers back.

All calls of one method that a read brought are handed over together, so that a thousand publishes become one batch.
Handlers do not wait: they answer at once or later, by the number of the stream. Streams that are gone by then, because
the peer gave them up, their time ran out or the connection died, swallow their answers.

A server stream has one pump, its owner's: it looks at `room`, sends, and is told when there is room again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Protocol

import structlog

from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.peers import Pending, no_copies
from raceway.broker.timers import TICK_MS, TimerWheel
from raceway.codec.grpc import Arrivals, Call, Finished, Gone, GrpcConnection, GrpcLimits, Opened, Said
from raceway.codec.grpc_head import CallHead, Status
from raceway.codec.http2 import Http2Limits
from raceway.errors import BusyError, RacewayError
from raceway.listen.gate import Gate
from raceway.listen.session import HIGH_WATER, Session
from raceway.listen.tcp import StreamProtocol
from raceway.model.buckets import Buckets
from raceway.model.envelope import DANUBE, Batch

log = structlog.get_logger("raceway.listen")

__all__ = ["Call", "CallHead", "GrpcGate", "GrpcSession", "GrpcTcp", "Intake", "Methods", "ServerStream", "Status"]

KEEPALIVE = b"raceway!"
# When a peer has been counted out: how many answers more than the output limit may wait for windows it does not open.
WAITING_LIMIT = 2

Handler = Callable[["GrpcSession", list[Call]], None]
Verdict = tuple[Status, str]


class Intake(Protocol):
    """Who takes the requests of a call that is a stream in both directions."""

    def take(self, message: bytes) -> None: ...
    def finish(self) -> None:
        """The peer has asked everything; it still listens."""

    def close(self) -> None:
        """The call is over, by no doing of ours."""


StreamHandler = Callable[["GrpcSession", int, CallHead], Intake]


class Methods:
    """Who serves what, by path. Complete before the door opens."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        self.stream_handlers: dict[str, StreamHandler] = {}
        self.kinds: dict[bytes, bool] = {}
        self.drains: list[Callable[[], None]] = []

    def unary(self, path: str, handler: Handler) -> None:
        """One request, one answer."""
        self.handlers[path] = handler
        self.kinds[path.encode()] = False

    def server_stream(self, path: str, handler: Handler) -> None:
        """One request, many answers: the handler opens a stream for each call, or refuses it."""
        self.unary(path, handler)

    def bidi(self, path: str, handler: StreamHandler) -> None:
        """Many requests, many answers."""
        self.stream_handlers[path] = handler
        self.kinds[path.encode()] = True

    def at_drain(self, call: Callable[[], None]) -> None:
        """Have this called when the bus is about to stop."""
        self.drains.append(call)


class GrpcGate(Gate["GrpcSession"]):
    """All connections of the gRPC door. `authorize`, if set, is asked once for each head of a read: None lets it in."""

    def __init__(
        self, broker: Broker, listen: config.Listen, loop: asyncio.AbstractEventLoop, methods: Methods
    ) -> None:
        super().__init__(broker, listen, loop.time, listen.grpc.max_connections)
        self.settings = settings = listen.grpc
        self.methods = methods
        self.authorize: Callable[[GrpcSession, CallHead], Verdict | None] | None = None
        self._resets = Buckets(loop.time)
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
        """May one more stream of this address be given up? A new connection is no new beginning."""
        return self._resets.take(network, self.settings.reset_rate, self.settings.reset_burst)

    def open_session(self, transport: asyncio.Transport, codec: GrpcConnection) -> GrpcSession:
        return GrpcSession(self, transport, codec)

    def drain(self) -> None:
        for call in self.methods.drains:
            call()
        for session in list(self.sessions):
            session.say_goodbye()


class GrpcTcp(StreamProtocol):
    def __init__(self, gate: GrpcGate) -> None:
        self._codec = GrpcConnection(gate.limits, gate.methods.kinds)
        super().__init__(gate, self._codec)
        self._grpc_gate = gate

    def open_session(self, transport: asyncio.Transport) -> GrpcSession:
        return self._grpc_gate.open_session(transport, self._codec)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        session = self._session
        if self._codec.http2.halted and session is not None and session.open:
            session.pause()
            session.broker.turn.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Others have had their turn: the rest of what was read."""
        if self._session is not None and self._session.open:
            self._session.resume()
            self.data_received(b"")

    def drop_input(self) -> None:
        super().drop_input()
        self._codec.drop_input()

    def pause_writing(self) -> None:
        super().pause_writing()
        if isinstance(self._session, GrpcSession):
            self._session.fill()

    def resume_writing(self) -> None:
        super().resume_writing()
        if isinstance(self._session, GrpcSession):
            self._session.drained()


class ServerStream:
    """An answer of many messages, as its owner sees it.

    `on_closed` is called once, when the stream ends by no doing of the owner.
    """

    __slots__ = ("_session", "id", "on_closed", "on_room")

    def __init__(
        self, session: GrpcSession, stream: int, on_closed: Callable[[], None], on_room: Callable[[], None]
    ) -> None:
        self._session = session
        self.id = stream
        self.on_closed, self.on_room = on_closed, on_room

    @property
    def open(self) -> bool:
        return self._session.streams.get(self.id) is self

    @property
    def room(self) -> int:
        """How many bytes may still be handed over; one large message may exceed it. Look before you send: whoever finds
        none is told by `on_room` when there is some again.
        """
        return self._session.room(self.id) if self.open else 0

    def send(self, messages: Sequence[bytes]) -> None:
        if self.open:
            self._session.send(self.id, messages)

    def end(self, status: Status = Status.OK, text: str = "") -> None:
        """After everything that was sent. `on_closed` is not called for this."""
        if self.open:
            self._session.end(self.id, status, text)


class GrpcSession(Session):
    wire: ClassVar[bytes] = DANUBE

    def __init__(self, gate: GrpcGate, transport: asyncio.Transport, codec: GrpcConnection) -> None:
        super().__init__(gate, transport, no_copies, lambda: codec.pending)
        self.gate = gate
        self.producer = self.address.encode()
        codec.http2.may_reset = partial(gate.may_reset, self.network)
        self.streams: dict[int, ServerStream] = {}
        self._codec = codec
        self._intakes: dict[int, Intake] = {}
        # Streams that have no room: because of what they let wait themselves, or because of the connection, in turn.
        self._full: set[int] = set()
        self._held: OrderedDict[int, None] = OrderedDict()
        self._output_full = False
        self._written = 0  # in this turn
        self._buffered = 0
        self._deadlines: TimerWheel[int] = TimerWheel()
        self._ticks = False
        self._swept = gate.time()
        # The connection is gone, and whoever had streams on it did not end them first.
        self.lost = False
        self._asked: float | None = None
        self.handlers = {Arrivals: self._arrived}
        self._note_handlers: dict[type, Callable[[Any], None]] = {
            Opened: self._opened, Said: self._said, Finished: self._finished, Gone: self._gone,
        }  # fmt: skip

    def start(self) -> None:
        super().start()
        self._codec.start(self.write)
        self._began = self._gate.time()  # a peer that never says anything is stalled too

    def stop(self, reason: str) -> None:
        if self.open:
            self.lost = True
            streams, self.streams = self.streams, {}
            intakes, self._intakes = self._intakes, {}
            self._full.clear()
            self._held.clear()
            for stream in streams.values():
                self._tell(stream.on_closed)
            for intake in intakes.values():
                self._tell(intake.close)
        super().stop(reason)

    def held(self) -> int:
        return self._codec.held

    def refuse_unfinished(self, error: BusyError) -> None:
        self.refuse_many(self._codec.unfinished, Status.RESOURCE_EXHAUSTED, str(error))
        super().refuse_unfinished(error)

    def say_goodbye(self) -> None:
        """No new calls; what is open may go on."""
        self._codec.http2.go_away("the bus stops")

    def close(self, reason: str) -> None:
        if self.open:
            for number in list(self.streams):
                self._codec.end(number, Status.UNAVAILABLE, reason)
            if self._codec.fault is None:
                self._codec.http2.go_away(reason)
            self.flush()
        self.stop(reason)
        self.transport.close()

    def answer(self, request: Pending, batch: Batch, row: int) -> None:
        """Calls of this wire never become requests of the bus."""

    def fail(self, request: Pending, error: RacewayError) -> None:
        """As `answer`."""

    # ---- what the peer does ------------------------------------------------------------------------------------------

    def _arrived(self, arrivals: Arrivals) -> None:
        # Streams that were open and are given up go first: a call of the same read may be about what they held.
        for note in arrivals.notes:
            if type(note) is Gone and note.stream in self.streams:
                self._gone(note)
        if arrivals.calls:
            self._dispatch(arrivals.calls)
        for note in arrivals.notes:
            self._note_handlers[type(note)](note)
        self._tell_room()
        fault = self._codec.fault
        if fault is not None and self.open:
            self.broker.count_error(self)
            self.broker.meter.counts["connection.failed"] += 1
            log.warning("broken", peer=self.id, address=self.address, reason=fault.reason)
            self.close(fault.reason)

    def _dispatch(self, calls: list[Call]) -> None:
        """Calls to their handlers: all of one method at once, methods in the order of their first calls."""
        groups: dict[str, list[Call]] = {}
        group, last = list[Call](), None
        for call in calls:
            head = call[2]
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

    def _verdict(self, head: CallHead) -> Verdict | None:
        authorize = self.gate.authorize
        if authorize is None:
            return None
        try:
            return authorize(self, head)
        except Exception:
            log.exception("nobody can be let in", peer=self.id)
            return Status.INTERNAL, "internal error"

    def _handle(self, path: str, calls: list[Call]) -> None:
        try:
            self.gate.methods.handlers[path](self, calls)
        except Exception:
            log.exception("a call failed", method=path, peer=self.id)
            self.refuse_many([call[0] for call in calls], Status.INTERNAL, "internal error")

    def _opened(self, note: Opened) -> None:
        verdict = self._verdict(note.head)
        if verdict is not None:
            self.refuse(note.stream, *verdict)
            return
        if note.head.timeout_s is not None:
            self._expect(note.stream, note.head.timeout_s)
        self._tell(partial(self._begin, note.stream, note.head), note.stream)

    def _begin(self, stream: int, head: CallHead) -> None:
        self._intakes[stream] = self.gate.methods.stream_handlers[head.path](self, stream, head)

    def _said(self, note: Said) -> None:
        intake = self._intakes.get(note.stream)
        if intake is not None:
            self._tell(partial(intake.take, note.message), note.stream)

    def _finished(self, note: Finished) -> None:
        intake = self._intakes.pop(note.stream, None)
        if intake is not None:
            self._tell(intake.finish, note.stream)

    def _gone(self, note: Gone) -> None:
        self._leave(note.stream)

    def _leave(self, number: int) -> None:
        """This call is over, by no doing of whoever serves it."""
        intake = self._intakes.pop(number, None)
        stream = self.streams.pop(number, None)
        self._forget_room(number)
        if intake is not None:
            self._tell(intake.close)
        if stream is not None:
            self._tell(stream.on_closed)

    def _tell(self, call: Callable[[], None], stream: int | None = None) -> None:
        """Somebody else's code: its faults are not the connection's, but they end the call."""
        try:
            call()
        except Exception:
            log.exception("a call failed", peer=self.id)
            if stream is not None:
                self.refuse(stream, Status.INTERNAL, "internal error")

    # ---- deadlines ---------------------------------------------------------------------------------------------------

    def _expect(self, stream: int, timeout_s: float) -> None:
        now_ms = self._gate.time() * 1000
        if not self._ticks:
            self._ticks = True
            self.broker.loop.call_later(TICK_MS / 1000, self._expire)
        self._deadlines.add(now_ms + timeout_s * 1000, now_ms, stream)
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
            self.broker.loop.call_later(TICK_MS / 1000, self._expire)

    # ---- answers -----------------------------------------------------------------------------------------------------

    def answer_many(self, answers: Iterable[tuple[int, bytes]]) -> None:
        """(stream, message) each, with status OK."""
        self._codec.answer_many(answers)

    def refuse(self, stream: int, status: Status, text: str, *, after_s: float = 0.0) -> None:
        """An answer that is only a status; after a while if the peer would ask again at once. Ends open streams too."""
        if after_s:
            self.broker.loop.call_later(after_s, partial(self.refuse, stream, status, text))
            return
        if not self.open:
            return
        self.broker.count_error(self)
        if stream in self.streams:
            self._codec.end(stream, status, text)
        else:
            self._codec.refuse(stream, status, text)
        self._leave(stream)

    def refuse_many(self, streams: Iterable[int], status: Status, text: str) -> None:
        for stream in streams:
            self.refuse(stream, status, text)

    def open_stream(self, stream: int, on_closed: Callable[[], None], on_room: Callable[[], None]) -> ServerStream:
        """Begin to answer with many messages. If the peer has given up by now, `on_closed` follows."""
        opened = self.streams[stream] = ServerStream(self, stream, on_closed, on_room)
        if stream in self._codec.http2.streams:
            self._codec.open(stream)
        else:
            self.broker.turn.call_soon(partial(self._leave, stream))
        return opened

    def room(self, stream: int) -> int:
        """How many bytes may be handed over for one stream. Whoever finds none is told when there is some again."""
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
        """What may wait for all windows together, and in this turn for the socket."""
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

    def fill(self) -> None:
        """The socket takes no more for now."""
        self._output_full = True

    def drained(self) -> None:
        self._output_full = False
        self._tell_room()

    def _tell_room(self) -> None:
        """Whoever has waited longest goes first, until the connection has no more room."""
        for number in self._codec.out.take_moved():
            if number in self._full and self._stream_room(number) > 0:
                self._full.discard(number)
                self._held[number] = None
        while self._held and self._connection_room() > 0:
            number, _ = self._held.popitem(last=False)
            stream = self.streams.get(number)
            if stream is not None and number not in self._full:
                self._tell(stream.on_room)

    def write(self, data: bytes) -> None:
        self._written += len(data)
        super().write(data)

    def flush(self) -> None:
        super().flush()
        self._written = 0
        self._tell_room()
        waiting = self._codec.out.waiting
        if waiting > WAITING_LIMIT * self._output_bytes and self.open:
            self.cut("too slow", "bus.slow_closed", waiting=waiting)

    # ---- time passes -------------------------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        settings = self.gate.settings
        self._codec.http2.relax(int(settings.flood_rate * (now - self._swept)) + 1)
        self._swept = now
        self._notice_reading()
        if self.cut_stuck(now):
            return
        if self.is_stalled(now):
            self.cut("unfinished message", "bus.stalled_closed")
        elif self._asked is not None and (now - self._asked) * 1000 >= settings.keepalive_timeout_ms:
            self.cut("no answer to a ping", "bus.silent_closed")
        elif self._asked is None and self.silence_ms(now) >= settings.keepalive_ms:
            self._asked = now
            self._codec.http2.ping(KEEPALIVE)

    def _notice_reading(self) -> None:
        """While much waits for the peer we do not hear it; but as long as it takes bytes it lives."""
        buffered, self._buffered = self._buffered, self.transport.get_write_buffer_size()
        if self._output_full and buffered != self._buffered:
            self.hear()

    def hear(self) -> None:
        super().hear()
        self._asked = None
