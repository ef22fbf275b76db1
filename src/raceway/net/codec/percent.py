"""Percent-encoding (RFC 3986, 2.1), decoded from bytes to bytes."""

from __future__ import annotations

# Every pair of hexadecimal digits and its byte: percent-decoding (RFC 3986, 2.1) by lookup.
_ESCAPES = {
    bytes((high, low)): bytes((int(chr(high) + chr(low), 16),))
    for high in b"0123456789abcdefABCDEF"
    for low in b"0123456789abcdefABCDEF"
}


def maybe_unescape(text: bytes) -> bytes | None:
    """Percent-decode once; None if a percent sign is not followed by two hexadecimal digits."""
    if b"%" not in text:
        return text
    start, *rest = text.split(b"%")
    try:
        return start + b"".join([_ESCAPES[piece[:2]] + piece[2:] for piece in rest])
    except KeyError:
        return None
