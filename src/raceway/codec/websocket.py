"""WebSocket frames of a client (RFC 6455, 5.2 and 5.3): always masked. The keys come from the caller."""

from __future__ import annotations

from raceway.codec.mb_encode import websocket_frame

MASK_BIT = 0x80


def masked_frame(message: bytes, key: bytes) -> bytes:
    """A whole text message under a key of four random bytes."""
    size = len(message)
    header = websocket_frame(size)
    header = bytes((header[0], header[1] | MASK_BIT)) + header[2:]
    mask = int.from_bytes((key * (size // 4 + 1))[:size], "big")
    masked = (int.from_bytes(message, "big") ^ mask).to_bytes(size, "big")
    return b"%b%b%b" % (header, key, masked)
