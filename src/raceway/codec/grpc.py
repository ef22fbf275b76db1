"""gRPC over HTTP/2, the server's side: heads that make a call, messages in bodies, statuses. No socket, no clock.

Calls come out as (stream, message, head), all of one read together. Messages that come in parts are collected here
within bounds: what has arrived within the small window every stream has, and beside it `buffer_bytes` for messages
that are larger. Those are let in one after the other, each with the window it needs, so that many large messages at
once end up waiting for one another and not in our memory.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from struct import Struct

import msgspec

from raceway.codec.grpc_head import CallHead, Refusal, Status, judge, refusal, status_fields
from raceway.codec.http2 import Event, Http2Connection, Http2Limits
from raceway.codec.http2_frames import BrokenConnectionError, field, status_field
from raceway.codec.http2_heads import Head
from raceway.errors import MalformedError

# A message begins with whether it is compressed, and its length.
PREFIX = Struct(">BI")
PREFIX_BYTES = 5
_LENGTH = Struct(">I")
# A window has room for this much beside the message, or a peer that pads its frames could not send the last of them.
PADDING = 256

RESPONSE = status_field(200) + field(b"content-type", b"application/grpc")
OK_TRAILERS = field(b"grpc-status", b"0")

# zlib's name for each encoding that we read: the size of its window, with or without the header of gzip.
_WBITS = {b"gzip": 31, b"deflate": 15}

__all__ = ["Call", "CallHead", "GrpcConnection", "GrpcLimits", "Status"]

Call = tuple[int, bytes, CallHead]


class GrpcLimits(msgspec.Struct, frozen=True):
    message_bytes: int = 4 * 1024 * 1024 - 64 * 1024
    buffer_bytes: int = 64 * 1024 * 1024
    http2: Http2Limits = Http2Limits()


class Opened(msgspec.Struct, frozen=True):
    """A call whose requests are a stream has begun."""

    stream: int
    head: CallHead


class Said(msgspec.Struct, frozen=True):
    """One message of such a call."""

    stream: int
    message: bytes


class Finished(msgspec.Struct, frozen=True):
    """No more messages of such a call; it wants its answers still."""

    stream: int


class Gone(msgspec.Struct, frozen=True):
    """The peer has given up the call, or broke it."""

    stream: int


Note = Opened | Said | Finished | Gone


class Arrivals(msgspec.Struct, frozen=True):
    """What one read brought: calls that are complete, and what happened to others, in order.

    Both may be empty: then it brought something else that is whole.
    """

    calls: list[Call]
    notes: list[Note]


class _Inflow:
    """A call whose messages come in parts. `needed` is how long the next one is, prefix included, once that is known.

    `reserved` is what it may keep beyond the small window; `message` the one message of a call that has only one.
    """

    __slots__ = ("head", "message", "needed", "parts", "reserved", "size", "stream")

    def __init__(self, stream: int, head: CallHead) -> None:
        self.stream, self.head = stream, head
        self.parts: list[bytes] = []
        self.size = self.reserved = 0
        self.needed = PREFIX_BYTES
        self.message: bytes | None = None


class _RefusedError(MalformedError):
    """The call cannot go on; `refusal` is its answer."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.refusal = refusal(status, text)


class GrpcConnection:
    """One connection. `methods` maps each path to whether its requests are a stream. Call `start` first."""

    def __init__(self, limits: GrpcLimits, methods: Mapping[bytes, bool]) -> None:
        self._limits = limits
        self._methods = methods
        self._inflows: dict[int, _Inflow] = {}
        self._strangers: dict[int, Refusal] = {}  # requests that are no calls, answered when they have come whole
        self._small = 0  # bytes kept for calls without a reservation
        self._reserved = 0
        self._kept = 0  # bytes of all messages whose calls have not ended, whole ones among them
        self._line: OrderedDict[int, _Inflow] = OrderedDict()  # wait for a reservation
        self._calls: list[Call] = []
        self._notes: list[Note] = []
        self.http2 = Http2Connection(limits.http2, self._write, self._admit)
        self.out = self.http2.out
        self._writer: Callable[[bytes], None] | None = None

    def start(self, write: Callable[[bytes], None]) -> None:
        self._writer = write
        self.http2.start()

    def _write(self, data: bytes) -> None:
        assert self._writer is not None, "not started"
        self._writer(data)

    def _admit(self, head: Head) -> None:
        head.call = judge(head, self._methods, self._limits.http2.header_bytes)
        head.whole = isinstance(head.call, CallHead) and not head.call.streams

    # ---- receiving ---------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Bytes of an unfinished frame or head. Unfinished messages are no fault: their windows may be closed."""
        return self.http2.pending

    @property
    def held(self) -> int:
        """Bytes kept of frames, heads and calls that are not complete."""
        return self._kept + self.http2.pending

    @property
    def unfinished(self) -> list[int]:
        """Calls that have begun and not said all."""
        return list(self._inflows)

    def drop_input(self) -> None:
        """The connection has ended: keep nothing of what it began."""
        self._inflows.clear()
        self._strangers.clear()
        self._line.clear()
        self._small = self._reserved = self._kept = 0
        self.http2.drop_input()

    @property
    def fault(self) -> BrokenConnectionError | None:
        return self.http2.fault

    def receive_data(self, data: bytes) -> Iterator[Arrivals]:
        """What these bytes bring, when it is asked for: only then something is read, and perhaps written."""
        calls, unpack = list[Call](), PREFIX.unpack_from
        self._calls, self._notes = calls, []
        for event in self.http2.receive_data(data):
            stream, head, body, ended = event
            if head is not None and body is not None and ended and head.whole and len(body) >= PREFIX_BYTES:
                compressed, length = unpack(body)
                if not compressed and len(body) == length + PREFIX_BYTES and length <= self._limits.message_bytes:
                    calls.append((stream, body[PREFIX_BYTES:], head.call))
                    continue
            self._take(event)
        if calls or self._notes or self.http2.moves or self.fault is not None:
            yield Arrivals(calls, self._notes)

    def _take(self, event: Event) -> None:
        stream, head, body, ended = event
        if body is None:
            self._drop(stream)
            self._notes.append(Gone(stream))
            return
        if head is not None:
            self._begin(stream, head.call)
        if stream in self._strangers:
            self._put_off(stream, ended)
        inflow = self._inflows.get(stream)
        if inflow is None:  # refused before; the rest of its body is not wanted
            return
        try:
            self._feed(inflow, body)
            if ended:
                self._finish(inflow)
            else:
                self._make_room(inflow)
        except _RefusedError as refused:
            self._refuse(stream, refused.refusal)
            if inflow.head.streams:
                self._notes.append(Gone(stream))

    def _begin(self, stream: int, call: CallHead | Refusal) -> None:
        if isinstance(call, CallHead):
            self._inflows[stream] = _Inflow(stream, call)
            if call.streams:
                self._notes.append(Opened(stream, call))
        elif call.body:
            self._strangers[stream] = call
        else:
            self._refuse(stream, call)

    def _put_off(self, stream: int, ended: bool) -> None:
        """Whoever does not speak gRPC may not listen before it has said all; but it need not say much."""
        if ended or self.http2.allowance(stream) < self._limits.http2.stream_window // 2:
            self._refuse(stream, self._strangers[stream])

    def _refuse(self, stream: int, refused: Refusal) -> None:
        self._drop(stream)
        if refused.body:
            self.out.open(stream, refused.block)
            self.out.send(stream, refused.body)
            self.out.end(stream, b"")
        else:
            self.out.respond(stream, refused.block)

    def _feed(self, inflow: _Inflow, piece: bytes) -> None:
        """Collect; hand over what is complete. Raises _RefusedError."""
        inflow.parts.append(piece)
        inflow.size += len(piece)
        self._kept += len(piece)
        if not inflow.reserved:
            self._small += len(piece)
        if inflow.size < inflow.needed:
            return
        whole, at = b"".join(inflow.parts), 0
        self._release(inflow)
        while len(whole) - at >= PREFIX_BYTES:
            compressed, length = PREFIX.unpack_from(whole, at)
            if length > self._limits.message_bytes:
                raise self._too_large(f"{length}")
            inflow.needed = PREFIX_BYTES + length
            if len(whole) - at < inflow.needed:
                break
            message = whole[at + PREFIX_BYTES : at + inflow.needed]
            self._complete(inflow, self._plain(inflow.head, message) if compressed else message)
            at += inflow.needed
            inflow.needed = PREFIX_BYTES
        inflow.parts, inflow.size = [whole[at:]], len(whole) - at
        self._small += inflow.size
        self._kept += inflow.size

    def _complete(self, inflow: _Inflow, message: bytes) -> None:
        if inflow.head.streams:
            self._notes.append(Said(inflow.stream, message))
        elif inflow.message is None:
            inflow.message = message
            self._kept += len(message)
        else:
            raise _RefusedError(Status.UNIMPLEMENTED, "this method takes one message")

    def _finish(self, inflow: _Inflow) -> None:
        if inflow.size:
            raise _RefusedError(Status.INTERNAL, "the message is shorter than it says")
        if inflow.head.streams:
            self._notes.append(Finished(inflow.stream))
        elif inflow.message is None:
            raise _RefusedError(Status.UNIMPLEMENTED, "this method takes one message, and there is none")
        else:
            self._calls.append((inflow.stream, inflow.message, inflow.head))
        self._drop(inflow.stream)

    def _plain(self, head: CallHead, data: bytes) -> bytes:
        """A message decompressed, never to more than the limit."""
        limit = self._limits.message_bytes
        if head.encoding not in _WBITS:
            raise _RefusedError(Status.INTERNAL, "a compressed message without grpc-encoding")
        unpacker = zlib.decompressobj(_WBITS[head.encoding])
        try:
            plain = unpacker.decompress(data, limit + 1)
        except zlib.error as error:
            raise _RefusedError(Status.INTERNAL, "the message cannot be decompressed") from error
        if len(plain) > limit:
            raise self._too_large(f"more than {limit}")
        if not unpacker.eof or unpacker.unused_data:
            raise _RefusedError(Status.INTERNAL, "the message cannot be decompressed")
        return plain

    def _too_large(self, size: str) -> _RefusedError:
        """Not RESOURCE_EXHAUSTED: clients send such a message again and again."""
        limit = self._limits.message_bytes
        return _RefusedError(Status.INVALID_ARGUMENT, f"a message of {size} bytes is over the limit of {limit}")

    # ---- room for messages that come in parts ------------------------------------------------------------------------

    def _make_room(self, inflow: _Inflow) -> None:
        """See to it that the rest of its message may come. Raises _RefusedError when too much is unfinished."""
        allowance, window = self.http2.allowance(inflow.stream), self._limits.http2.stream_window
        missing = inflow.needed - inflow.size + PADDING
        if inflow.size < PREFIX_BYTES:
            # Nothing of it is worth mentioning yet: the window was used by messages handed over, or by padding.
            if allowance < window // 2:
                self.http2.grant(inflow.stream, window - allowance)
        elif missing <= allowance:
            pass
        elif inflow.reserved:
            self.http2.grant(inflow.stream, missing - allowance)
        else:
            self._line[inflow.stream] = inflow
            self._serve_line()
        if self._small > self._limits.buffer_bytes:
            raise _RefusedError(Status.RESOURCE_EXHAUSTED, "too many unfinished messages on this connection")

    def _serve_line(self) -> None:
        """Reservations for those who wait, first come first served; one always fits."""
        while self._line:
            inflow = next(iter(self._line.values()))
            if self._reserved and self._reserved + inflow.needed > self._limits.buffer_bytes:
                return
            del self._line[inflow.stream]
            self._small -= inflow.size
            self._reserved += inflow.needed
            inflow.reserved = inflow.needed
            short = inflow.needed - inflow.size + PADDING - self.http2.allowance(inflow.stream)
            self.http2.grant(inflow.stream, short)

    def _release(self, inflow: _Inflow) -> None:
        """Nothing of it is kept any more."""
        self._kept -= inflow.size
        self._line.pop(inflow.stream, None)
        if inflow.reserved:
            self._reserved -= inflow.reserved
            inflow.reserved = 0
            self._serve_line()
        else:
            self._small -= inflow.size
        inflow.size = 0

    def _drop(self, stream: int) -> None:
        self._strangers.pop(stream, None)
        inflow = self._inflows.pop(stream, None)
        if inflow is not None:
            self._kept -= len(inflow.message or b"")
            self._release(inflow)

    # ---- answers -----------------------------------------------------------------------------------------------------

    def answer_many(self, answers: Iterable[tuple[int, bytes]]) -> None:
        """One message each, and status OK."""
        pack = _LENGTH.pack
        self.out.respond_many(
            RESPONSE, [(stream, b"\0%b%b" % (pack(len(message)), message)) for stream, message in answers], OK_TRAILERS
        )

    def refuse(self, stream: int, status: Status, text: str) -> None:
        """No message, only a status."""
        self._refuse(stream, refusal(status, text))

    def open(self, stream: int) -> None:
        """Begin to answer with a stream of messages."""
        self.out.open(stream, RESPONSE)

    def send(self, stream: int, messages: Iterable[bytes]) -> None:
        pack = _LENGTH.pack
        self.out.send(stream, b"".join([b"\0%b%b" % (pack(len(message)), message) for message in messages]))

    def end(self, stream: int, status: Status, text: str) -> None:
        """The end of such an answer."""
        self._drop(stream)
        self.out.end(stream, status_fields(status, text))
