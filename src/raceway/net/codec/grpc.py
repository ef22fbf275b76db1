"""The server side of gRPC over HTTP/2 (gRPC's PROTOCOL-HTTP2), without sockets and without a clock.

Complete calls are returned as (stream, message, head), all those of one read together.

A message that arrives in several DATA frames is collected here, within two bounds: the small receive window that every
stream has, and `buffer_bytes` for messages larger than it. Larger messages get a reservation, one after the other, and
with it a WINDOW_UPDATE for the rest of the message. So many large messages at once wait for one another, held back by
flow control, instead of filling memory.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from struct import Struct

import msgspec

from raceway.errors import MalformedError
from raceway.net.codec.grpc_head import CallHead, Refusal, Status, judge, refusal, status_fields
from raceway.net.codec.http2 import Http2Connection, Http2Event, Http2Limits
from raceway.net.codec.http2_frames import ENHANCE_YOUR_CALM, field, status_field
from raceway.net.codec.http2_heads import RequestHead

# Length-Prefixed-Message: Compressed-Flag, one byte; Message-Length, four bytes, big-endian.
PREFIX = Struct(">BI")
PREFIX_BYTES = 5
_LENGTH = Struct(">I")
# Room in a window beside the message: the padding of a frame, 256 bytes at most, counts for flow control, and without
# it a peer that pads could not send the last frame.
PADDING = 256

RESPONSE = status_field(200) + field(b"content-type", b"application/grpc")
OK_TRAILERS = field(b"grpc-status", b"0")

# The `wbits` argument of zlib by grpc-encoding: a window of 2^15 bytes, plus 16 for the gzip format. "deflate" is the
# zlib format, as in HTTP (RFC 9110, 8.4.1.2).
_WBITS = {b"gzip": 31, b"deflate": 15}

__all__ = ["ArrivedCall", "CallHead", "GrpcConnection", "GrpcLimits", "Status"]

ArrivedCall = tuple[int, bytes, CallHead]


class GrpcLimits(msgspec.Struct, frozen=True):
    """Limits of one connection."""

    # Clients refuse answers of more than 4 MiB by default; 64 KiB are left for what a delivery adds to a payload.
    message_bytes: int = 4 * 1024 * 1024 - 64 * 1024
    buffer_bytes: int = 64 * 1024 * 1024
    http2: Http2Limits = Http2Limits()


class StreamOpened(msgspec.Struct, frozen=True):
    """The beginning of a call with streaming requests."""

    stream: int
    head: CallHead


class Said(msgspec.Struct, frozen=True):
    """A message of a call with streaming requests."""

    stream: int
    message: bytes


class Finished(msgspec.Struct, frozen=True):
    """The end of the messages of a call with streaming requests; it still waits for responses."""

    stream: int


class Gone(msgspec.Struct, frozen=True):
    """The end of a call without a response: the peer reset the stream, or a stream error did."""

    stream: int


Note = StreamOpened | Said | Finished | Gone


class Arrivals(msgspec.Struct, frozen=True):
    """The result of one read: complete calls, and notes about streaming and ended calls, in order.

    Both lists are empty if the read completed other frames only.
    """

    calls: list[ArrivedCall]
    notes: list[Note]


class _Inflow:
    """A call whose messages arrive in several frames.

    `needed` is the length of the next message, prefix included (until that is known, of the prefix). `reserved` counts
    the bytes it may buffer beyond the small window. `message` is the message of a call that has only one.
    """

    __slots__ = ("head", "message", "needed", "parts", "reserved", "size", "stream")

    def __init__(self, stream: int, head: CallHead) -> None:
        self.stream, self.head = stream, head
        self.parts: list[bytes] = []
        self.size = self.reserved = 0
        self.needed = PREFIX_BYTES
        self.message: bytes | None = None


class _RefusedError(MalformedError):
    """The call is refused; `refusal` is the response to send."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.refusal = refusal(status, text)


class GrpcConnection:
    """The server side of a connection. `methods` maps each path to whether its requests are streaming.

    Call `start` first.
    """

    def __init__(self, limits: GrpcLimits, methods: Mapping[bytes, bool]) -> None:
        self._limits = limits
        self._methods = methods
        self._inflows: dict[int, _Inflow] = {}
        self._strangers: dict[int, Refusal] = {}  # requests that are not gRPC, answered once their body is read
        self._small = 0  # bytes buffered for calls without a reservation
        self._reserved = 0
        self._kept = 0  # bytes buffered for all incomplete calls, complete messages included
        self._line: OrderedDict[int, _Inflow] = OrderedDict()  # calls that wait for a reservation
        self._calls: list[ArrivedCall] = []
        self._notes: list[Note] = []
        self.http2 = Http2Connection(limits.http2, self._admit)
        self.out, self.start = self.http2.out, self.http2.start

    def _admit(self, head: RequestHead) -> None:
        head.call = judge(head, self._methods, self._limits.http2.header_bytes)
        # A refused request is answered before its body is complete, and streaming messages are delivered one by one.
        head.whole = isinstance(head.call, CallHead) and not head.call.streams

    # ---- receiving ---------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Bytes of an incomplete frame or header block.

        Incomplete messages do not count: the peer may be waiting for a WINDOW_UPDATE.
        """
        return self.http2.pending

    @property
    def held(self) -> int:
        """Bytes buffered for incomplete frames, header blocks and calls."""
        return self._kept + self.http2.pending

    @property
    def unfinished(self) -> list[int]:
        """Streams of calls whose requests have not ended."""
        return list(self._inflows)

    def drop_input(self) -> None:
        """Discard everything that is incomplete: the input has ended."""
        self._inflows.clear()
        self._strangers.clear()
        self._line.clear()
        self._small = self._reserved = self._kept = 0
        self.http2.drop_input()

    def receive_data(self, data: bytes) -> Iterator[Arrivals]:
        """Yield the arrivals that these bytes complete. A generator: nothing is read or written before iteration."""
        calls, unpack = list[ArrivedCall](), PREFIX.unpack_from
        self._calls, self._notes = calls, []
        for event in self.http2.receive_data(data):
            stream, head, body, ended = event
            # Fast path: a unary call whose only message came uncompressed in one DATA frame.
            if head is not None and body is not None and ended and head.whole and len(body) >= PREFIX_BYTES:
                compressed, length = unpack(body)
                if not compressed and len(body) == length + PREFIX_BYTES and length <= self._limits.message_bytes:
                    calls.append((stream, body[PREFIX_BYTES:], head.call))
                    continue
            self._take(event)
        if calls or self._notes or self.http2.moves or self.http2.fault is not None:
            yield Arrivals(calls, self._notes)

    def _take(self, event: Http2Event) -> None:
        stream, head, body, ended = event
        if body is None:
            self._drop(stream)
            self._notes.append(Gone(stream))
            return
        if head is not None:
            self._begin(stream, head.call)
        # Clients of plain HTTP often read no response before they have sent the body. Half a window of it is enough.
        if stream in self._strangers and (
            ended or self.http2.allowance(stream) < self._limits.http2.stream_window // 2
        ):
            self._refuse(stream, self._strangers[stream])
        inflow = self._inflows.get(stream)
        if inflow is None:  # refused earlier: ignore the rest of its body
            return
        try:
            self._feed(inflow, body)
            if ended:
                self._finish(inflow)
            else:
                self._make_room(inflow)
        except _RefusedError as refused:
            # The response precedes the end of the request; `Output` then resets the stream.
            self._refuse(stream, refused.refusal)
            if inflow.head.streams:
                self._notes.append(Gone(stream))

    def _begin(self, stream: int, call: CallHead | Refusal) -> None:
        if isinstance(call, CallHead):
            self._inflows[stream] = _Inflow(stream, call)
            if call.streams:
                self._notes.append(StreamOpened(stream, call))
        elif call.body:
            self._strangers[stream] = call
        else:
            self._refuse(stream, call)

    def _refuse(self, stream: int, refused: Refusal) -> None:
        self._drop(stream)
        if refused.body:
            self.out.open(stream, refused.block)
            self.out.send(stream, refused.body)
            self.out.end(stream, b"")
        else:
            self.out.respond(stream, refused.block)

    def _feed(self, inflow: _Inflow, piece: bytes) -> None:
        """Buffer a piece of body and deliver the messages it completes. Raises _RefusedError."""
        inflow.parts.append(piece)
        inflow.size += len(piece)
        self._kept += len(piece)
        if not inflow.reserved:
            self._small += len(piece)
        if inflow.size < inflow.needed:
            return
        # Joined once per message, not once per frame. The reservation ends here: it is for one message.
        whole, at = b"".join(inflow.parts), 0
        self._release(inflow)
        while len(whole) - at >= PREFIX_BYTES:
            compressed, length = PREFIX.unpack_from(whole, at)
            # Before the message is complete: a length over the limit must not reserve memory.
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
            # gRPC's statuscodes: UNIMPLEMENTED is the status of a wrong number of requests.
            raise _RefusedError(Status.UNIMPLEMENTED, "a unary method takes one message, got more")

    def _finish(self, inflow: _Inflow) -> None:
        if inflow.size:
            raise _RefusedError(Status.INTERNAL, "the message is shorter than its length prefix")
        if inflow.head.streams:
            self._notes.append(Finished(inflow.stream))
        elif inflow.message is None:
            raise _RefusedError(Status.UNIMPLEMENTED, "a unary method takes one message, got none")
        else:
            self._calls.append((inflow.stream, inflow.message, inflow.head))
        self._drop(inflow.stream)

    def _plain(self, head: CallHead, data: bytes) -> bytes:
        """Decompress a message, to no more than the limit. Raises _RefusedError."""
        limit = self._limits.message_bytes
        # gRPC's compression text: Compressed-Flag without an encoding that can be used is INTERNAL.
        if head.encoding not in _WBITS:
            raise _RefusedError(Status.INTERNAL, "compressed message without grpc-encoding")
        unpacker = zlib.decompressobj(_WBITS[head.encoding])
        try:
            plain = unpacker.decompress(data, limit + 1)  # one more, to tell apart the limit and more than the limit
        except zlib.error as error:
            raise _RefusedError(Status.INTERNAL, "the message cannot be decompressed") from error
        if len(plain) > limit:
            raise self._too_large(f"more than {limit}")
        if not unpacker.eof or unpacker.unused_data:
            raise _RefusedError(Status.INTERNAL, "the message cannot be decompressed")
        return plain

    def _too_large(self, size: str) -> _RefusedError:
        """Return the refusal of a message over the limit."""
        # Not RESOURCE_EXHAUSTED, the usual status: Danube's clients retry it, and the message would never fit.
        limit = self._limits.message_bytes
        return _RefusedError(Status.INVALID_ARGUMENT, f"a message of {size} bytes is over the limit of {limit}")

    # ---- flow control for messages in several frames -----------------------------------------------------------------

    def _make_room(self, inflow: _Inflow) -> None:
        """Make sure that the peer can send the rest of a message. Raises _RefusedError if too much is buffered."""
        allowance, window = self.http2.allowance(inflow.stream), self._limits.http2.stream_window
        missing = inflow.needed - inflow.size + PADDING
        if inflow.size < PREFIX_BYTES:
            # Nothing is buffered yet: delivered messages, or padding, have used up the window.
            if allowance < window // 2:
                self.http2.grant(inflow.stream, window - allowance)
        elif missing <= allowance:
            pass
        elif inflow.reserved:
            self.http2.grant(inflow.stream, missing - allowance)
        else:
            self._line[inflow.stream] = inflow
            self._serve_line()
        # Windows bound a single stream only; ten thousand of them could still buffer a small part each.
        if self._small > self._limits.buffer_bytes:
            raise _RefusedError(Status.RESOURCE_EXHAUSTED, "too many unfinished messages on this connection")

    def _serve_line(self) -> None:
        """Grant reservations in order of arrival."""
        while self._line:
            inflow = next(iter(self._line.values()))
            # The first one is granted whatever its size: a message up to the limit must always get through.
            if self._reserved and self._reserved + inflow.needed > self._limits.buffer_bytes:
                return
            del self._line[inflow.stream]
            self._small -= inflow.size
            self._reserved += inflow.needed
            inflow.reserved = inflow.needed
            short = inflow.needed - inflow.size + PADDING - self.http2.allowance(inflow.stream)
            self.http2.grant(inflow.stream, short)

    def _release(self, inflow: _Inflow) -> None:
        """Give up the buffer and the reservation of a call; the next ones in line may get it."""
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

    def abort(self, stream: int) -> None:
        """Reset a call whose queued messages the peer does not take: trailers would have to wait behind them."""
        self._drop(stream)
        # Clients report this code as RESOURCE_EXHAUSTED.
        self.out.reset(stream, ENHANCE_YOUR_CALM)

    # ---- responses ---------------------------------------------------------------------------------------------------

    def answer_many(self, answers: Iterable[tuple[int, bytes]]) -> None:
        """Respond on each of these streams with one message and status OK."""
        pack = _LENGTH.pack
        self.out.respond_many(
            RESPONSE, [(stream, b"\0%b%b" % (pack(len(message)), message)) for stream, message in answers], OK_TRAILERS
        )

    def refuse(self, stream: int, status: Status, text: str) -> None:
        """Respond with a status and no message."""
        self._refuse(stream, refusal(status, text))

    def open(self, stream: int) -> None:
        """Begin a response that is a stream of messages."""
        self.out.open(stream, RESPONSE)

    def send(self, stream: int, messages: Iterable[bytes]) -> None:
        """Send messages of a streaming response."""
        pack = _LENGTH.pack
        self.out.send(stream, b"".join([b"\0%b%b" % (pack(len(message)), message) for message in messages]))

    def end(self, stream: int, status: Status, text: str) -> None:
        """End a streaming response with a status."""
        self._drop(stream)
        self.out.end(stream, status_fields(status, text))
