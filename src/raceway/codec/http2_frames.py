"""Frames of HTTP/2 as bytes (RFC 9113, sections 4 and 6): their kinds, flags and codes, and those that we send.

Header blocks we send use no dynamic table: a field is a literal that is never indexed, so one block serves every
connection and every stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from raceway.errors import MalformedError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITISED = 0x1, 0x1, 0x4, 0x8, 0x20

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED = range(6)
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, CONNECT_ERROR, ENHANCE_YOUR_CALM = range(6, 12)

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = (
    range(1, 7)
)

FRAME_HEAD = 9
# Length and kind, flags, stream. The length has 24 bits, so it shares a word with the kind.
FRAME = Struct(">IBI")
U32 = Struct(">I")
SETTING = Struct(">HI")

LARGEST_WINDOW = LARGEST_STREAM = 2**31 - 1
# What a peer may assume before it has read our settings, and we before we have read its own.
DEFAULT_WINDOW, DEFAULT_FRAME = 65_535, 16_384
LARGEST_FRAME = 2**24 - 1


class BrokenConnectionError(MalformedError):
    """What the peer did ends the connection; `error` is what GOAWAY says."""

    def __init__(self, error: int, reason: str) -> None:
        super().__init__(reason)
        self.error = error


class BrokenStreamError(MalformedError):
    """What the peer did ends the stream; `error` is what RST_STREAM says."""

    def __init__(self, stream: int, error: int, reason: str) -> None:
        super().__init__(reason)
        self.stream, self.error = stream, error


def frame(kind: int, flags: int, stream: int, body: bytes | memoryview = b"") -> bytes:
    return FRAME.pack(len(body) << 8 | kind, flags, stream) + body


def unpadded(flags: int, body: bytes) -> bytes:
    """What a frame of DATA or HEADERS holds beside its padding. Raises BrokenConnectionError."""
    if not flags & PADDED:
        return body
    if not body:
        raise BrokenConnectionError(FRAME_SIZE_ERROR, "padding without a length")
    if body[0] >= len(body):
        raise BrokenConnectionError(PROTOCOL_ERROR, "more padding than frame")
    return body[1 : len(body) - body[0]]


def settings(values: Iterable[tuple[int, int]]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(SETTING.pack(key, value) for key, value in values))


SETTINGS_ACK = frame(SETTINGS, ACK, 0)


def window_update(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, U32.pack(increment))


def reset(stream: int, error: int) -> bytes:
    return frame(RST_STREAM, 0, stream, U32.pack(error))


def go_away(last: int, error: int, reason: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, U32.pack(max(last, 0)) + U32.pack(error) + reason.encode())


def field(name: bytes, value: bytes) -> bytes:
    """A header field as a literal without indexing (RFC 7541, section 6.2.2)."""
    return b"\0" + _string(name) + _string(value)


def status_field(status: int) -> bytes:
    """`:status`, which is name 8 of the static table; 200 is there as a whole."""
    return b"\x88" if status == 200 else b"\x08" + _string(b"%d" % status)


def _string(text: bytes) -> bytes:
    """A string literal, not Huffman coded (RFC 7541, sections 5.1 and 5.2)."""
    size = len(text)
    if size < 127:
        return bytes([size]) + text
    rest, head = size - 127, bytearray([127])
    while rest >= 128:
        head.append(rest & 127 | 128)
        rest >>= 7
    head.append(rest)
    return bytes(head) + text
