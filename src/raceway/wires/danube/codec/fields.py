"""Protobuf fields encoded by hand, for the messages that are sent most.

A field is a key, then a varint, or a length and that many bytes. A varint has seven bits in each byte, lowest first;
here it is composed from table entries of fourteen bits, which takes half as many steps.
"""

from __future__ import annotations

PIECE_BITS = 14
_PIECE = (1 << PIECE_BITS) - 1

# Tables: two bytes with the continuation bit set, and the last one or two bytes. Filled on first use, since it takes
# time at start that only Danube needs.
_more: list[bytes] = []
_last: list[bytes] = []


def varint(number: int) -> bytes:
    """Encode a non-negative number as a varint."""
    try:
        if number <= _PIECE:
            return _last[number]
        pieces = b""
        while number > _PIECE:
            pieces += _more[number & _PIECE]
            number >>= PIECE_BITS
        return pieces + _last[number]
    except IndexError:  # the tables are empty: costs nothing on later calls, unlike a test
        _fill()
        return varint(number)


def _fill() -> None:
    assert not _last, "a negative number cannot be a varint here"
    _more.extend([bytes((0x80 | n & 0x7F, 0x80 | n >> 7)) for n in range(_PIECE + 1)])
    _last.extend([bytes((n,)) if n < 0x80 else bytes((0x80 | n & 0x7F, n >> 7)) for n in range(_PIECE + 1)])


def number_field(key: int, number: int) -> bytes:
    """Encode a numeric field (wire type 0)."""
    return varint(key << 3) + varint(number)


def bytes_field(key: int, value: bytes) -> bytes:
    """Encode a string, bytes or message field (wire type 2)."""
    return varint(key << 3 | 2) + varint(len(value)) + value


def map_field(key: int, entries: dict[str, str]) -> bytes:
    """Encode a `map<string, string>` field."""
    # Protobuf: a map is a repeated message with the key as field 1 and the value as field 2.
    return b"".join(
        [
            bytes_field(key, bytes_field(1, name.encode()) + bytes_field(2, value.encode()))
            for name, value in entries.items()
        ]
    )
