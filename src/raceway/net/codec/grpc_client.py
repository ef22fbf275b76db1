"""The client side of gRPC over HTTP/2 (gRPC's PROTOCOL-HTTP2), without sockets and without a clock.

A call sends one message and receives one or more, then a status. The limits of the server are respected: concurrent
streams, and the flow-control windows of the connection and of each stream. A call over the limit of streams is queued;
a message larger than the windows is sent in pieces.

Each stream has a receive window of its own, which its reader refills with `give_back`: a slow reader holds up its own
stream only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import ClassVar, NamedTuple

from raceway.net.codec import http2_frames as h2
from raceway.net.codec.grpc import PREFIX
from raceway.net.codec.grpc_head import Status
from raceway.net.codec.http2 import Http2Endpoint, Http2Limits
from raceway.net.codec.http2_frames import BrokenConnectionError, BrokenStreamError, field, unpadded
from raceway.net.codec.http2_heads import Fields, HeadReader
from raceway.net.codec.http2_output import Output
from raceway.net.codec.http2_streams import Http2Stream

# Bytes that the reader of a stream may leave unread. The window is refilled by quarters, so at least three quarters are
# open to a peer whose messages have all been read: the largest message fits.
STREAM_WINDOW = 8 * 1024 * 1024
CONNECTION_WINDOW = 64 * 1024 * 1024
MESSAGE_LIMIT = 4 * 1024 * 1024
# RFC 9113, 6.5.2: no limit of streams until the server's SETTINGS; 100 is the least it should allow.
LIMITS = Http2Limits(
    max_streams=100, header_bytes=32 * 1024, stream_window=STREAM_WINDOW, connection_window=CONNECTION_WINDOW
)

# gRPC's table of HTTP/2 error codes; all others are INTERNAL.
_RESETS = {
    h2.NO_ERROR: Status.INTERNAL,
    h2.REFUSED_STREAM: Status.UNAVAILABLE,
    h2.CANCEL: Status.CANCELLED,
    h2.ENHANCE_YOUR_CALM: Status.RESOURCE_EXHAUSTED,
}
# gRPC's table of HTTP statuses (http-grpc-status-mapping); all others are UNKNOWN. Those of `_RETRIED` are UNAVAILABLE.
_OF_HTTP = {400: Status.INTERNAL, 401: Status.UNAUTHENTICATED, 403: Status.PERMISSION_DENIED, 404: Status.UNIMPLEMENTED}
_RETRIED = {429, 502, 503, 504}
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")


class GrpcMessage(NamedTuple):
    """A message received on a stream."""

    stream: int
    message: bytes


class CallEnded(NamedTuple):
    """The end of a call, with its status."""

    stream: int
    status: Status
    text: str


class PingAcknowledged(NamedTuple):
    """The acknowledgement of a `ping`."""


GrpcEvent = GrpcMessage | CallEnded | PingAcknowledged


class _Head(NamedTuple):
    """A response's header block: the error its HTTP status stands for, and its gRPC status, if any."""

    fault: tuple[Status, str] | None
    status: tuple[Status, str] | None
    whole: bool = False  # as of a `RequestHead`: a response is handled frame by frame


class _CallStream(Http2Stream):
    """A call whose request was sent. `read` counts the bytes read since the last WINDOW_UPDATE.

    `fault` is the error of the response's HTTP status. `needed` is the length of the next message, prefix included
    (until that is known, of the prefix).
    """

    __slots__ = ("fault", "needed", "parts", "read", "size")

    def __init__(self, stream: int) -> None:
        super().__init__(stream, None, STREAM_WINDOW, ended=False)
        self.read = self.size = 0
        self.needed = PREFIX.size
        self.parts: list[bytes] = []
        self.fault: tuple[Status, str] | None = None


class _Requests(Output):
    def _close(self, stream: int) -> None:
        """Keep a stream whose request is complete: its response follows."""


class GrpcClientConnection(Http2Endpoint[GrpcEvent]):
    """The client side of a connection. `metadata` is sent with every call."""

    push_fault: ClassVar[str] = "PUSH_PROMISE although push is disabled"

    def __init__(self, authority: bytes, secure: bool, metadata: Iterable[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(LIMITS, HeadReader(LIMITS.header_bytes, _read_head), _Requests)
        self._head = field(b":method", b"POST") + field(b":scheme", b"https" if secure else b"http")
        self._fields = (
            field(b":authority", authority) + field(b"te", b"trailers") + field(b"content-type", b"application/grpc")
        ) + b"".join(field(name, value) for name, value in metadata)
        # Calls over the limit of streams: path and body.
        self._line: dict[int, tuple[bytes, bytes]] = {}
        self._next = 1

    def start(self, write: Callable[[bytes], None]) -> None:
        """Send the client preface; `write` takes all output."""
        super().start(write)
        # RFC 9113, 3.4: the preface, then SETTINGS. A header table of size 0 keeps header blocks cacheable.
        values = ((h2.ENABLE_PUSH, 0), (h2.INITIAL_WINDOW_SIZE, STREAM_WINDOW), (h2.HEADER_TABLE_SIZE, 0))
        write(h2.PREFACE + h2.settings(values) + h2.window_update(0, CONNECTION_WINDOW - h2.DEFAULT_WINDOW))

    # ---- calls -------------------------------------------------------------------------------------------------------

    def call(self, path: bytes, message: bytes) -> int:
        """Begin a call; return the stream of its events."""
        # RFC 9113, 5.1.1: odd numbers, and increasing; so queued calls must begin in order.
        stream, self._next = self._next, self._next + 2
        self._line[stream] = path, PREFIX.pack(0, len(message)) + message
        self._serve_line()
        return stream

    def _serve_line(self) -> None:
        while self._line and len(self.streams) < self._most:
            stream = next(iter(self._line))
            path, body = self._line.pop(stream)
            self.streams[stream] = _CallStream(stream)
            self.out.send_whole(stream, self._head + field(b":path", path) + self._fields, body)

    def cancel(self, stream: int) -> None:
        """Cancel a call. No-op if it has ended."""
        if stream in self.streams:
            self.out.reset(stream, h2.CANCEL)
        self._line.pop(stream, None)
        self._serve_line()

    def give_back(self, stream: int, message: bytes) -> None:
        """Return the bytes of a message that was read to the stream's window."""
        found = self.streams.get(stream)
        if not isinstance(found, _CallStream):
            return
        found.read += PREFIX.size + len(message)
        # By quarters of the window: a WINDOW_UPDATE for each message would double the number of frames.
        if found.read >= STREAM_WINDOW // 4:
            self._write(h2.window_update(stream, found.read))
            found.allowed += found.read
            found.read = 0

    def _end(self, stream: int, status: Status, text: str) -> None:
        if stream in self.streams:
            self.out.forget(stream)
        elif self._line.pop(stream, None) is None:
            return
        self._events.append(CallEnded(stream, status, text))

    # ---- receiving ---------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> list[GrpcEvent]:
        """Return the events that these bytes complete. Raises BrokenConnectionError: the connection must be closed."""
        events = super().receive_data(data)
        while self.halted:
            events += super().receive_data(b"")
        if self.fault is not None:
            raise self.fault
        self._serve_line()
        return events

    def _data(self, flags: int, stream: int, body: bytes) -> None:
        # RFC 9113, 6.9: DATA of closed streams counts for the connection's window too.
        self._received += len(body)
        found = self.streams.get(stream)
        if not isinstance(found, _CallStream):  # cancelled; the RST_STREAM has not reached the server yet
            return
        found.used += len(body)
        if found.used > found.allowed:
            raise BrokenConnectionError(h2.FLOW_CONTROL_ERROR, "flow-control window of the stream exceeded")
        # RFC 9113, 6.1: padding counts for flow control. No reader will return it, so do it here.
        found.read += len(body)
        body = unpadded(flags, body)
        found.read -= len(body)
        found.parts.append(body)
        found.size += len(body)
        if found.size >= found.needed:
            self._take_messages(stream, found)
        if flags & h2.END_STREAM:
            # gRPC: a response ends with trailers, never with DATA.
            self._end(stream, *(found.fault or (Status.INTERNAL, "the response ended without a status")))

    def _take_messages(self, stream: int, found: _CallStream) -> None:
        data, at = found.parts[0] if len(found.parts) == 1 else b"".join(found.parts), 0
        needed = PREFIX.size
        while len(data) - at >= PREFIX.size:
            compressed, length = PREFIX.unpack_from(data, at)
            # Calls send no grpc-accept-encoding, so a server must not compress.
            if compressed or length > MESSAGE_LIMIT:
                text = "compressed" if compressed else f"of {length} bytes, over the limit of {MESSAGE_LIMIT}"
                self._end(stream, Status.RESOURCE_EXHAUSTED, f"response message refused: {text}")
                self.out.reset(stream, h2.CANCEL)
                return
            needed = PREFIX.size + length
            if len(data) - at < needed:
                break
            self._events.append(GrpcMessage(stream, data[at + PREFIX.size : at + needed]))
            at += needed
            needed = PREFIX.size
        rest = data[at:]
        found.parts, found.size, found.needed = [rest] if rest else [], len(rest), needed

    def _head_came(self, stream: int, flags: int, block: bytes) -> None:
        head: _Head = self._heads.head(block)
        found = self.streams.get(stream)
        if not isinstance(found, _CallStream):
            return
        found.fault = head.fault or found.fault
        if flags & h2.END_STREAM:
            no_status = Status.UNKNOWN, "the response ended without a status"
            self._end(stream, *(head.status or found.fault or no_status))

    def _was_reset(self, stream: int, error: int) -> None:
        self._end(stream, _RESETS.get(error, Status.INTERNAL), f"stream reset by the server with error {error}")

    def _break_stream(self, fault: BrokenStreamError) -> None:
        self._end(fault.stream, Status.INTERNAL, fault.reason)
        self.out.reset(fault.stream, fault.error)

    def _set(self, key: int, value: int) -> None:
        super()._set(key, value)
        if key == h2.MAX_CONCURRENT_STREAMS:
            self._most = value

    def _ping(self, flags: int, stream: int, body: bytes) -> None:
        super()._ping(flags, stream, body)
        if flags & h2.ACK:
            self._events.append(PingAcknowledged())

    def _go_away(self, flags: int, stream: int, body: bytes) -> None:
        """Fail streams above `last_stream_id` as UNAVAILABLE: the peer did not process them (RFC 9113, 6.8)."""
        super()._go_away(flags, stream, body)
        last = int.from_bytes(body[:4], "big") & h2.LARGEST_STREAM
        for number in [number for number in (*self.streams, *self._line) if number > last]:
            self._end(number, Status.UNAVAILABLE, "the server accepts no further calls on this connection (GOAWAY)")


def _read_head(found: Fields) -> _Head:
    fields = dict(found)
    code, status = fields.get(b":status", b"200"), fields.get(b"grpc-status")
    return _Head(
        None if code == b"200" else _of_http(code),
        None if status is None else (_status(status), _unescaped(fields.get(b"grpc-message", b""))),
    )


def _status(code: bytes) -> Status:
    try:
        return Status(int(code))
    except ValueError:
        return Status.UNKNOWN


def _unescaped(text: bytes) -> str:
    return _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), text).decode("utf-8", "replace")


def _of_http(code: bytes) -> tuple[Status, str]:
    number = int(code) if code.isdigit() else 0
    status = Status.UNAVAILABLE if number in _RETRIED else _OF_HTTP.get(number, Status.UNKNOWN)
    return status, f"the server responded with HTTP status {code.decode('latin-1')}"
