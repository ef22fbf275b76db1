"""WebSocket frames of a client, which are always masked (RFC 6455, 5.1 and 5.3)."""

from __future__ import annotations

from raceway.wires.mb.codec.encode import websocket_frame

MASK_BIT = 0x80  # RFC 6455, 5.2: the highest bit of the second byte


def masked_frame(message: bytes, key: bytes) -> bytes:
    """Encode a text message as one frame, masked with `key`: four random bytes."""
    size = len(message)
    header = websocket_frame(size)
    header = bytes((header[0], header[1] | MASK_BIT)) + header[2:]
    # RFC 6455, 5.3: byte i is XORed with byte i modulo 4 of the key; as one integer, many times faster than by byte.
    mask = int.from_bytes((key * (size // 4 + 1))[:size], "big")
    masked = (int.from_bytes(message, "big") ^ mask).to_bytes(size, "big")
    return b"%b%b%b" % (header, key, masked)
