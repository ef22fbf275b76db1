"""Protobuf fields written by hand, for the messages of which there are many.

A field is its key, then a varint, or a length and that many bytes. Varints are seven bits to a byte, low ones first;
here they are put together from pieces of fourteen bits, looked up.
"""

from __future__ import annotations

PIECE_BITS = 14
_PIECE = (1 << PIECE_BITS) - 1

# Two bytes, both saying that more follows; and the last one or two. Filled when first needed: a start need not wait.
_more: list[bytes] = []
_last: list[bytes] = []


def varint(number: int) -> bytes:
    """Of a number that is not negative."""
    try:
        if number <= _PIECE:
            return _last[number]
        pieces = b""
        while number > _PIECE:
            pieces += _more[number & _PIECE]
            number >>= PIECE_BITS
        return pieces + _last[number]
    except IndexError:
        _fill()
        return varint(number)


def _fill() -> None:
    assert not _last, "a number that is no varint"
    _more.extend([bytes((0x80 | n & 0x7F, 0x80 | n >> 7)) for n in range(_PIECE + 1)])
    _last.extend([bytes((n,)) if n < 0x80 else bytes((0x80 | n & 0x7F, n >> 7)) for n in range(_PIECE + 1)])


def number_field(key: int, number: int) -> bytes:
    return varint(key << 3) + varint(number)


def bytes_field(key: int, value: bytes) -> bytes:
    return varint(key << 3 | 2) + varint(len(value)) + value


def map_field(key: int, entries: dict[str, str]) -> bytes:
    """map<string, string>: a message per entry, its key under 1, its value under 2."""
    return b"".join(
        [
            bytes_field(key, bytes_field(1, name.encode()) + bytes_field(2, value.encode()))
            for name, value in entries.items()
        ]
    )
