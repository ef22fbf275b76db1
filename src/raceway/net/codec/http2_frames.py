"""HTTP/2 frames as bytes (RFC 9113, 4 and 6): types, flags, error codes, and the encoders of frames that we send.

Outgoing header blocks use no dynamic table: each field is a literal without indexing, so that one encoded block can be
sent on every stream of every connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from raceway.errors import MalformedError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # RFC 9113, 3.4

# Frame types and flags (RFC 9113, 6.1 to 6.10). END_STREAM and ACK share a bit, on different types.
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITISED = 0x1, 0x1, 0x4, 0x8, 0x20

# Error codes (RFC 9113, 7).
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED = range(6)
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, CONNECT_ERROR, ENHANCE_YOUR_CALM = range(6, 12)

# Identifiers of settings (RFC 9113, 6.5.2).
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = (
    range(1, 7)
)

FRAME_HEAD = 9
# Length and type, flags, stream (RFC 9113, 4.1). The length has 24 bits, so it shares a 32-bit word with the type.
FRAME = Struct(">IBI")
U32 = Struct(">I")
SETTING = Struct(">HI")

LARGEST_WINDOW = LARGEST_STREAM = 2**31 - 1
# Initial values of settings (RFC 9113, 6.5.2): they hold until the other side's SETTINGS is read.
DEFAULT_WINDOW, DEFAULT_FRAME = 65_535, 16_384
LARGEST_FRAME = 2**24 - 1


class BrokenConnectionError(MalformedError):
    """A connection error (RFC 9113, 5.4.1): the connection ends with GOAWAY and the code `error`."""

    def __init__(self, error: int, reason: str) -> None:
        super().__init__(reason)
        self.error = error


class BrokenStreamError(MalformedError):
    """A stream error (RFC 9113, 5.4.2): the stream ends with RST_STREAM and the code `error`."""

    def __init__(self, stream: int, error: int, reason: str) -> None:
        super().__init__(reason)
        self.stream, self.error = stream, error


def frame(kind: int, flags: int, stream: int, body: bytes | memoryview = b"") -> bytes:
    return FRAME.pack(len(body) << 8 | kind, flags, stream) + body


def unpadded(flags: int, body: bytes) -> bytes:
    """Return the content of a DATA or HEADERS frame without its padding. Raises BrokenConnectionError."""
    if not flags & PADDED:
        return body
    if not body:
        raise BrokenConnectionError(FRAME_SIZE_ERROR, "padded frame without a pad length")
    # RFC 9113, 6.1: padding as long as the payload or longer is a connection error.
    if body[0] >= len(body):
        raise BrokenConnectionError(PROTOCOL_ERROR, "pad length exceeds the frame")
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
    """Encode a header field as a literal without indexing (RFC 7541, 6.2.2)."""
    return b"\0" + _string(name) + _string(value)


def status_field(status: int) -> bytes:
    """Encode `:status`: 200 is entry 8 of the static table (RFC 7541, A); others take its name only."""
    return b"\x88" if status == 200 else b"\x08" + _string(b"%d" % status)


def _string(text: bytes) -> bytes:
    """Encode a string literal without Huffman coding (RFC 7541, 5.2)."""
    size = len(text)
    if size < 127:
        return bytes([size]) + text
    # RFC 7541, 5.1: a 7-bit prefix of ones, then groups of 7 bits, the lowest first.
    rest, head = size - 127, bytearray([127])
    while rest >= 128:
        head.append(rest & 127 | 128)
        rest >>= 7
    head.append(rest)
    return bytes(head) + text
