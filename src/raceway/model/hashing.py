"""The hash that Danube's clients and brokers share: 64-bit FNV-1a."""

from __future__ import annotations

OFFSET_BASIS = 0xCBF29CE484222325
PRIME = 0x100000001B3
_64_BITS = (1 << 64) - 1
# A column of the journal is a signed 64-bit number.
_63_BITS = (1 << 63) - 1


def fnv1a64(data: bytes) -> int:
    found = OFFSET_BASIS
    for byte in data:
        found = (found ^ byte) * PRIME & _64_BITS
    return found


def sender_id(topic: bytes, producer: bytes) -> int:
    """The lasting id of a sender of another wire: never zero, and fit for a column."""
    return fnv1a64(topic + b"\0" + producer) & _63_BITS or 1
