"""gRPC over HTTP/2, the client's side: calls in, bytes out; bytes in, answers and ends out. No socket, no clock.

A call is one message; its answer is one message or many, then a status. Every number is counted that the peer counts:
streams it lets us have, bytes it takes on the connection and on each stream, bytes we take on each. A call that may not
begin yet waits in line, a message that may not leave yet waits in pieces.

What we take on a stream is one window; whoever reads its messages gives it back (`give_back`), so that a slow reader
stops its stream and no other.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from struct import Struct
from typing import NamedTuple

import hpack

from raceway.codec import http2_frames as h2
from raceway.codec.grpc_head import Status
from raceway.codec.http2_frames import FRAME, FRAME_HEAD, BrokenConnectionError, field, frame, unpadded

PREFIX = Struct(">BI")
# What a stream's reader may leave unread. It is given back by quarters, so the largest message always fits in the rest.
STREAM_WINDOW = 8 * 1024 * 1024
CONNECTION_WINDOW = 64 * 1024 * 1024
MESSAGE_LIMIT = 4 * 1024 * 1024
HEADER_BYTES = 64 * 1024
# Heads that are remembered; a server's answers mostly have the same, byte for byte.
CACHED_HEADS = 256

_RESETS = {
    h2.NO_ERROR: Status.INTERNAL,
    h2.REFUSED_STREAM: Status.UNAVAILABLE,
    h2.CANCEL: Status.CANCELLED,
    h2.ENHANCE_YOUR_CALM: Status.RESOURCE_EXHAUSTED,
}
_OF_HTTP = {400: Status.INTERNAL, 401: Status.UNAUTHENTICATED, 403: Status.PERMISSION_DENIED, 404: Status.UNIMPLEMENTED}
_RETRIED = {429, 502, 503, 504}
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")


class Answer(NamedTuple):
    """A message that came on a stream."""

    stream: int
    message: bytes


class Ended(NamedTuple):
    """Nothing more comes on this stream."""

    stream: int
    status: Status
    text: str


class Alive(NamedTuple):
    """The answer to a `ping`."""


Event = Answer | Ended | Alive


class _Head(NamedTuple):
    """What a header block says: what HTTP finds wrong, if anything; how the call ended, if it did."""

    fault: tuple[Status, str] | None
    status: tuple[Status, str] | None


class _Stream:
    """`credit` is how far its sending window is from the peer's initial one, `allowed` what the peer may still send,
    `read` what was read since the peer was told. `fault` is what is wrong with the answer's head, if anything.
    """

    __slots__ = ("allowed", "begun", "credit", "fault", "needed", "out", "parts", "read", "size")

    def __init__(self) -> None:
        self.credit = self.read = self.size = 0
        self.allowed = STREAM_WINDOW
        self.needed = PREFIX.size
        self.out = memoryview(b"")  # cutting a large message into frames must not copy its rest each time
        self.begun = False
        self.parts: list[bytes] = []
        self.fault: tuple[Status, str] | None = None


class GrpcClientConnection:
    """One connection. `metadata` goes with every call. Call `start` first."""

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
        self._open = 0  # streams the peer knows of
        self._most = 100  # as RFC 9113, section 6.5.2 recommends, until the peer says
        self._window = self._initial = h2.DEFAULT_WINDOW
        self._frame_bytes = h2.DEFAULT_FRAME
        self._rest = b""
        self._block: tuple[int, int, bytes] | None = None
        self._received = 0

    def start(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        values = ((h2.ENABLE_PUSH, 0), (h2.INITIAL_WINDOW_SIZE, STREAM_WINDOW), (h2.HEADER_TABLE_SIZE, 0))
        write(h2.PREFACE + h2.settings(values) + h2.window_update(0, CONNECTION_WINDOW - h2.DEFAULT_WINDOW))

    # ---- calls -------------------------------------------------------------------------------------------------------

    def call(self, path: bytes, message: bytes) -> int:
        """Begin a call; the number under which its answers will come."""
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
        """Send of its message what the windows allow."""
        while found.out:
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
        """Want no more of it. May be repeated."""
        found = self._forget(stream)
        if found is not None and found.begun:
            self._write(h2.reset(stream, h2.CANCEL))
        self._serve_line()

    def give_back(self, stream: int, message: bytes) -> None:
        """A message of this stream was read."""
        found = self._streams.get(stream)
        if found is None:
            return
        found.read += PREFIX.size + len(message)
        if found.read >= STREAM_WINDOW // 4:
            self._write(h2.window_update(stream, found.read))
            found.allowed += found.read
            found.read = 0

    def ping(self, word: bytes) -> None:
        """Eight bytes that the peer sends back."""
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
            self._events.append(Ended(stream, status, text))

    # ---- receiving ---------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> list[Event]:
        """What these bytes bring. Raises BrokenConnectionError: nothing more can be read."""
        data = self._rest + data if self._rest else data
        self._events = events = list[Event]()
        at, size = 0, len(data)
        while size - at >= FRAME_HEAD:
            word, flags, stream = FRAME.unpack_from(data, at)
            length, end = word >> 8, at + FRAME_HEAD + (word >> 8)
            if length > h2.DEFAULT_FRAME:
                raise BrokenConnectionError(h2.FRAME_SIZE_ERROR, "frame too large")
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
        if self._block is not None and (kind != h2.CONTINUATION or stream != self._block[0]):
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "a header block is interrupted")
        if kind == h2.DATA:
            self._data(flags, stream, body)
        elif kind in (h2.HEADERS, h2.CONTINUATION):
            self._headers(kind, flags, stream, body)
        elif kind == h2.RST_STREAM:
            error = int.from_bytes(body, "big")
            self._end(stream, _RESETS.get(error, Status.INTERNAL), f"the stream was reset with error {error}")
        elif kind == h2.SETTINGS:
            self._settings(flags, body)
        elif kind == h2.PING:
            if flags & h2.ACK:
                self._events.append(Alive())
            else:
                self._write(frame(h2.PING, h2.ACK, 0, body))
        elif kind == h2.GOAWAY:
            self._go_away(body)
        elif kind == h2.WINDOW_UPDATE:
            self._window_update(stream, int.from_bytes(body, "big") & h2.LARGEST_WINDOW)
        elif kind == h2.PUSH_PROMISE:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "a push that was not wanted")

    def _data(self, flags: int, stream: int, body: bytes) -> None:
        self._received += len(body)
        found = self._streams.get(stream)
        if found is None:  # cancelled, and the peer does not know yet
            return
        found.allowed -= len(body)
        if found.allowed < 0:
            raise BrokenConnectionError(h2.FLOW_CONTROL_ERROR, "more than the stream's window")
        if flags & h2.PADDED:
            padded, body = len(body), unpadded(flags, body)
            found.read += padded - len(body)
        found.parts.append(body)
        found.size += len(body)
        if found.size >= found.needed:
            self._take_messages(stream, found)
        if flags & h2.END_STREAM:
            self._end(stream, *(found.fault or (Status.INTERNAL, "the answer ends without a status")))

    def _take_messages(self, stream: int, found: _Stream) -> None:
        data, at = found.parts[0] if len(found.parts) == 1 else b"".join(found.parts), 0
        needed = PREFIX.size
        while len(data) - at >= PREFIX.size:
            compressed, length = PREFIX.unpack_from(data, at)
            if compressed or length > MESSAGE_LIMIT:
                text = "a compressed message" if compressed else f"a message of {length} bytes"
                self._end(stream, Status.RESOURCE_EXHAUSTED, f"{text} is not taken")
                self._write(h2.reset(stream, h2.CANCEL))
                return
            needed = PREFIX.size + length
            if len(data) - at < needed:
                break
            self._events.append(Answer(stream, data[at + PREFIX.size : at + needed]))
            at += needed
            needed = PREFIX.size
        rest = data[at:]
        found.parts, found.size, found.needed = [rest] if rest else [], len(rest), needed

    # ---- heads -------------------------------------------------------------------------------------------------------

    def _headers(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == h2.CONTINUATION:
            if self._block is None:
                raise BrokenConnectionError(h2.PROTOCOL_ERROR, "nothing to continue")
            _, first_flags, begun = self._block
            body, ended = begun + body, first_flags
        else:
            body = unpadded(flags, body)
            body, ended = body[5:] if flags & h2.PRIORITISED else body, flags
        if len(body) > HEADER_BYTES:
            raise BrokenConnectionError(h2.ENHANCE_YOUR_CALM, "header block too large")
        self._block = None if flags & h2.END_HEADERS else (stream, ended, body)
        if self._block is None:
            self._head_came(stream, self._decode(body), bool(ended & h2.END_STREAM))

    def _decode(self, block: bytes) -> _Head:
        """Equal bytes mean equal fields as long as the compression's table is empty."""
        head = self._heads.get(block)
        if head is not None:
            return head
        try:
            fields = {bytes(name): bytes(value) for name, value in self._decoder.decode(block, raw=True)}
        except (hpack.HPACKError, IndexError) as error:
            raise BrokenConnectionError(h2.COMPRESSION_ERROR, "header block cannot be read") from error
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
            no_status = Status.UNKNOWN, "the answer ends without a status"
            self._end(stream, *(head.status or found.fault or no_status))

    # ---- the connection ----------------------------------------------------------------------------------------------

    def _settings(self, flags: int, body: bytes) -> None:
        if flags & h2.ACK:
            return
        if len(body) % h2.SETTING.size:
            raise BrokenConnectionError(h2.FRAME_SIZE_ERROR, "settings of an impossible length")
        for key, value in h2.SETTING.iter_unpack(body):
            if key == h2.INITIAL_WINDOW_SIZE:
                self._initial = value
            elif key == h2.MAX_FRAME_SIZE:
                self._frame_bytes = value
            elif key == h2.MAX_CONCURRENT_STREAMS:
                self._most = value
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
        """What the peer has not looked at it never will."""
        last = int.from_bytes(body[:4], "big") & h2.LARGEST_STREAM
        for stream in [stream for stream in self._streams if stream > last]:
            self._end(stream, Status.UNAVAILABLE, "the server takes no more calls on this connection")


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
    return status, f"the server answered with HTTP status {code.decode('latin-1')}"
