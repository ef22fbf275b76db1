"""The client side of gRPC over HTTP/2 (gRPC's PROTOCOL-HTTP2), without sockets and without a clock.

A call sends one message and receives one or more, then a status. The limits of the server are respected: concurrent
streams, and the flow-control windows of the connection and of each stream. A call over the limit of streams is queued;
a message larger than the windows is sent in pieces.

Each stream has a receive window of its own, which its reader refills with `give_back`: a slow reader holds up its own
stream only.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from struct import Struct
from typing import NamedTuple

import hpack

from raceway.net.codec import http2_frames as h2
from raceway.net.codec.grpc_head import Status
from raceway.net.codec.http2_frames import FRAME, FRAME_HEAD, BrokenConnectionError, field, frame, unpadded

# Length-Prefixed-Message: Compressed-Flag, one byte; Message-Length, four bytes, big-endian.
PREFIX = Struct(">BI")
# Bytes that the reader of a stream may leave unread. The window is refilled by quarters, so at least three quarters are
# open to a peer whose messages have all been read: the largest message fits.
STREAM_WINDOW = 8 * 1024 * 1024
CONNECTION_WINDOW = 64 * 1024 * 1024
MESSAGE_LIMIT = 4 * 1024 * 1024
HEADER_BYTES = 64 * 1024
# Cached header blocks: most responses of a server have the same, byte for byte.
CACHED_HEADS = 256

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


Event = GrpcMessage | CallEnded | PingAcknowledged


class _Head(NamedTuple):
    """A response's header block: the error its HTTP status stands for, and its gRPC status, if any."""

    fault: tuple[Status, str] | None
    status: tuple[Status, str] | None


class _Stream:
    """The state of one call.

    `credit` is the send window minus the peer's initial window; `allowed` counts the bytes the peer may still send;
    `read` counts the bytes read since the last WINDOW_UPDATE. `fault` is the error of the response's HTTP status.
    """

    __slots__ = ("allowed", "begun", "credit", "fault", "needed", "out", "parts", "read", "size")

    def __init__(self) -> None:
        self.credit = self.read = self.size = 0
        self.allowed = STREAM_WINDOW
        self.needed = PREFIX.size
        self.out = memoryview(b"")  # a view: sending a large message in frames must not copy the remainder each time
        self.begun = False
        self.parts: list[bytes] = []
        self.fault: tuple[Status, str] | None = None


class GrpcClientConnection:
    """The client side of a connection. `metadata` is sent with every call. Call `start` first."""

    def __init__(self, authority: bytes, secure: bool, metadata: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self._head = field(b":method", b"POST") + field(b":scheme", b"https" if secure else b"http")
        self._fields = (
            field(b":authority", authority) + field(b"te", b"trailers") + field(b"content-type", b"application/grpc")
        ) + b"".join(field(name, value) for name, value in metadata)
        self._write: Callable[[bytes], None] = _not_started
        self._decoder = hpack.Decoder(max_header_list_size=HEADER_BYTES)
        self._heads: dict[bytes, _Head] = {}
        self._events: list[Event] = []
        self._streams: dict[int, _Stream] = {}
        self._line: deque[tuple[int, bytes, bytes]] = deque()
        self._next = 1
        self._open = 0  # streams begun and not ended
        # RFC 9113, 6.5.2: no limit until the server's SETTINGS; 100 is the least it should allow.
        self._most = 100
        self._window = self._initial = h2.DEFAULT_WINDOW
        self._frame_bytes = h2.DEFAULT_FRAME
        self._rest = b""
        self._block: tuple[int, int, bytes] | None = None
        self._received = 0

    def start(self, write: Callable[[bytes], None]) -> None:
        """Send the client preface; `write` takes all output."""
        self._write = write
        # RFC 9113, 3.4: the preface, then SETTINGS. A header table of size 0 keeps header blocks cacheable (`_decode`).
        values = ((h2.ENABLE_PUSH, 0), (h2.INITIAL_WINDOW_SIZE, STREAM_WINDOW), (h2.HEADER_TABLE_SIZE, 0))
        write(h2.PREFACE + h2.settings(values) + h2.window_update(0, CONNECTION_WINDOW - h2.DEFAULT_WINDOW))

    # ---- calls -------------------------------------------------------------------------------------------------------

    def call(self, path: bytes, message: bytes) -> int:
        """Begin a call; return the stream of its events."""
        # RFC 9113, 5.1.1: odd numbers, and increasing; so queued calls must begin in order.
        stream, self._next = self._next, self._next + 2
        self._streams[stream] = _Stream()
        body = PREFIX.pack(0, len(message)) + message
        if self._line or self._open >= self._most:
            self._line.append((stream, path, body))
        else:
            self._begin(stream, path, body)
        return stream

    def _begin(self, stream: int, path: bytes, body: bytes) -> None:
        self._open += 1
        block = self._head + field(b":path", path) + self._fields
        self._write(frame(h2.HEADERS, h2.END_HEADERS, stream, block))
        found = self._streams[stream]
        found.begun, found.out = True, memoryview(body)
        self._pump(stream, found)

    def _pump(self, stream: int, found: _Stream) -> None:
        """Send as much of a stream's message as the windows allow."""
        while found.out:
            # RFC 9113, 6.9.2: a window may be negative, after the server reduced its initial one.
            room = min(self._window, self._initial + found.credit, self._frame_bytes, len(found.out))
            if room <= 0:
                return
            piece, found.out = found.out[:room], found.out[room:]
            self._window -= room
            found.credit -= room
            self._write(frame(h2.DATA, 0 if found.out else h2.END_STREAM, stream, piece))

    def _pump_all(self) -> None:
        for stream, found in self._streams.items():
            if self._window <= 0:
                return
            if found.out:
                self._pump(stream, found)

    def cancel(self, stream: int) -> None:
        """Cancel a call. No-op if it has ended."""
        found = self._forget(stream)
        if found is not None and found.begun:
            self._write(h2.reset(stream, h2.CANCEL))
        self._serve_line()

    def give_back(self, stream: int, message: bytes) -> None:
        """Return the bytes of a message that was read to the stream's window."""
        found = self._streams.get(stream)
        if found is None:
            return
        found.read += PREFIX.size + len(message)
        # By quarters of the window: a WINDOW_UPDATE for each message would double the number of frames.
        if found.read >= STREAM_WINDOW // 4:
            self._write(h2.window_update(stream, found.read))
            found.allowed += found.read
            found.read = 0

    def ping(self, word: bytes) -> None:
        """Send a PING with these eight bytes; `PingAcknowledged` follows."""
        self._write(frame(h2.PING, 0, 0, word))

    def _forget(self, stream: int) -> _Stream | None:
        found = self._streams.pop(stream, None)
        if found is not None and found.begun:
            self._open -= 1
        elif found is not None:
            self._line = deque(waiting for waiting in self._line if waiting[0] != stream)
        return found

    def _serve_line(self) -> None:
        while self._line and self._open < self._most:
            self._begin(*self._line.popleft())

    def _end(self, stream: int, status: Status, text: str) -> None:
        if self._forget(stream) is not None:
            self._events.append(CallEnded(stream, status, text))

    # ---- receiving ---------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> list[Event]:
        """Return the events that these bytes complete. Raises BrokenConnectionError: the connection must be closed."""
        data = self._rest + data if self._rest else data
        self._events = events = list[Event]()
        at, size = 0, len(data)
        while size - at >= FRAME_HEAD:
            word, flags, stream = FRAME.unpack_from(data, at)
            length, end = word >> 8, at + FRAME_HEAD + (word >> 8)
            # RFC 9113, 4.2: we announce no MAX_FRAME_SIZE, so the initial value holds.
            if length > h2.DEFAULT_FRAME:
                raise BrokenConnectionError(h2.FRAME_SIZE_ERROR, f"frame larger than {h2.DEFAULT_FRAME} bytes")
            if end > size:
                break
            self._frame(word & 255, flags, stream & h2.LARGEST_STREAM, data[at + FRAME_HEAD : end])
            at = end
        self._rest = data[at:]
        if self._received > CONNECTION_WINDOW // 4:
            self._write(h2.window_update(0, self._received))
            self._received = 0
        self._serve_line()
        return events

    def _frame(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        # RFC 9113, 4.3: no other frame may come between the fragments of a field block.
        if self._block is not None and (kind != h2.CONTINUATION or stream != self._block[0]):
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "header block interrupted by another frame")
        if kind == h2.DATA:
            self._data(flags, stream, body)
        elif kind in (h2.HEADERS, h2.CONTINUATION):
            self._headers(kind, flags, stream, body)
        elif kind == h2.RST_STREAM:
            error = int.from_bytes(body, "big")
            self._end(stream, _RESETS.get(error, Status.INTERNAL), f"stream reset by the server with error {error}")
        elif kind == h2.SETTINGS:
            self._settings(flags, body)
        elif kind == h2.PING:
            if flags & h2.ACK:
                self._events.append(PingAcknowledged())
            else:
                self._write(frame(h2.PING, h2.ACK, 0, body))
        elif kind == h2.GOAWAY:
            self._go_away(body)
        elif kind == h2.WINDOW_UPDATE:
            self._window_update(stream, int.from_bytes(body, "big") & h2.LARGEST_WINDOW)
        elif kind == h2.PUSH_PROMISE:
            # RFC 9113, 6.6: a connection error, since our SETTINGS disable push.
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "PUSH_PROMISE although push is disabled")

    def _data(self, flags: int, stream: int, body: bytes) -> None:
        # RFC 9113, 6.9: DATA of closed streams counts for the connection's window too.
        self._received += len(body)
        found = self._streams.get(stream)
        if found is None:  # cancelled; the RST_STREAM has not reached the server yet
            return
        found.allowed -= len(body)
        if found.allowed < 0:
            raise BrokenConnectionError(h2.FLOW_CONTROL_ERROR, "flow-control window of the stream exceeded")
        # RFC 9113, 6.1: padding counts for flow control. No reader will return it, so do it here.
        if flags & h2.PADDED:
            padded, body = len(body), unpadded(flags, body)
            found.read += padded - len(body)
        found.parts.append(body)
        found.size += len(body)
        if found.size >= found.needed:
            self._take_messages(stream, found)
        if flags & h2.END_STREAM:
            # gRPC: a response ends with trailers, never with DATA.
            self._end(stream, *(found.fault or (Status.INTERNAL, "the response ended without a status")))

    def _take_messages(self, stream: int, found: _Stream) -> None:
        data, at = found.parts[0] if len(found.parts) == 1 else b"".join(found.parts), 0
        needed = PREFIX.size
        while len(data) - at >= PREFIX.size:
            compressed, length = PREFIX.unpack_from(data, at)
            # Calls send no grpc-accept-encoding, so a server must not compress.
            if compressed or length > MESSAGE_LIMIT:
                text = "compressed" if compressed else f"of {length} bytes, over the limit of {MESSAGE_LIMIT}"
                self._end(stream, Status.RESOURCE_EXHAUSTED, f"response message refused: {text}")
                self._write(h2.reset(stream, h2.CANCEL))
                return
            needed = PREFIX.size + length
            if len(data) - at < needed:
                break
            self._events.append(GrpcMessage(stream, data[at + PREFIX.size : at + needed]))
            at += needed
            needed = PREFIX.size
        rest = data[at:]
        found.parts, found.size, found.needed = [rest] if rest else [], len(rest), needed

    # ---- heads -------------------------------------------------------------------------------------------------------

    def _headers(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == h2.CONTINUATION:
            # RFC 9113, 6.10.
            if self._block is None:
                raise BrokenConnectionError(h2.PROTOCOL_ERROR, "CONTINUATION without a preceding HEADERS")
            _, first_flags, begun = self._block
            body, ended = begun + body, first_flags
        else:
            body = unpadded(flags, body)
            # RFC 9113, 6.2: five bytes of deprecated priority.
            body, ended = body[5:] if flags & h2.PRIORITISED else body, flags
        if len(body) > HEADER_BYTES:
            raise BrokenConnectionError(h2.ENHANCE_YOUR_CALM, "header block too large")
        self._block = None if flags & h2.END_HEADERS else (stream, ended, body)
        if self._block is None:
            self._head_came(stream, self._decode(body), bool(ended & h2.END_STREAM))

    def _decode(self, block: bytes) -> _Head:
        """Decode a header block, or find it in the cache. Raises BrokenConnectionError."""
        # Equal bytes mean equal fields as long as the dynamic table (RFC 7541, 2.3.2) is empty.
        head = self._heads.get(block)
        if head is not None:
            return head
        try:
            fields = {bytes(name): bytes(value) for name, value in self._decoder.decode(block, raw=True)}
        except (hpack.HPACKError, IndexError) as error:
            raise BrokenConnectionError(h2.COMPRESSION_ERROR, "header block cannot be decoded") from error
        head = _read_head(fields)
        if self._decoder.header_table.dynamic_entries:
            self._heads.clear()
        elif len(self._heads) < CACHED_HEADS:
            self._heads[block] = head
        return head

    def _head_came(self, stream: int, head: _Head, ended: bool) -> None:
        found = self._streams.get(stream)
        if found is None:
            return
        found.fault = head.fault or found.fault
        if ended:
            no_status = Status.UNKNOWN, "the response ended without a status"
            self._end(stream, *(head.status or found.fault or no_status))

    # ---- the connection ----------------------------------------------------------------------------------------------

    def _settings(self, flags: int, body: bytes) -> None:
        if flags & h2.ACK:
            return
        # RFC 9113, 6.5: six bytes for each setting.
        if len(body) % h2.SETTING.size:
            raise BrokenConnectionError(h2.FRAME_SIZE_ERROR, "SETTINGS has an invalid length")
        for key, value in h2.SETTING.iter_unpack(body):
            if key == h2.INITIAL_WINDOW_SIZE:
                self._initial = value
            elif key == h2.MAX_FRAME_SIZE:
                self._frame_bytes = value
            elif key == h2.MAX_CONCURRENT_STREAMS:
                self._most = value
        # RFC 9113, 6.5.3: acknowledge first, then send what the new values allow.
        self._write(h2.SETTINGS_ACK)
        self._pump_all()

    def _window_update(self, stream: int, increment: int) -> None:
        if stream:
            found = self._streams.get(stream)
            if found is not None:
                found.credit += increment
                self._pump(stream, found)
        else:
            self._window += increment
            self._pump_all()

    def _go_away(self, body: bytes) -> None:
        """Fail streams above `last_stream_id` as UNAVAILABLE: the peer did not process them (RFC 9113, 6.8)."""
        last = int.from_bytes(body[:4], "big") & h2.LARGEST_STREAM
        for stream in [stream for stream in self._streams if stream > last]:
            self._end(stream, Status.UNAVAILABLE, "the server accepts no further calls on this connection (GOAWAY)")


def _not_started(data: bytes) -> None:
    raise AssertionError("not started")


def _read_head(fields: dict[bytes, bytes]) -> _Head:
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
