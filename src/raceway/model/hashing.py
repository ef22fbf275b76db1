"""64-bit FNV-1a, the hash of Danube's clients and brokers."""

from __future__ import annotations

OFFSET_BASIS = 0xCBF29CE484222325
PRIME = 0x100000001B3
_64_BITS = (1 << 64) - 1
# Numeric columns of the journal are signed 64-bit.
_63_BITS = (1 << 63) - 1


def fnv1a64(data: bytes) -> int:
    """Return the 64-bit FNV-1a hash."""
    found = OFFSET_BASIS
    for byte in data:
        found = (found ^ byte) * PRIME & _64_BITS
    return found


def sender_id(topic: bytes, producer: bytes) -> int:
    """Return a producer id for a sender of another wire: stable over restarts, and not zero."""
    # Not 0, which proto3 does not distinguish from an absent field.
    return fnv1a64(topic + b"\0" + producer) & _63_BITS or 1
