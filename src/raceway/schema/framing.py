"""The prefix that Confluent's serializers put before a payload: a zero byte and the registry id, big-endian.

A Protobuf payload also names its message type, as a list of indices (zigzag varints, the count first; a single zero
stands for the first type). The Node client (KafkaJS) omits the list and means the first type.
"""

from __future__ import annotations

# Confluent wire format: magic byte 0, then the schema id in four bytes.
PREFIX_BYTES = 5
# One index per nesting level of message types; deeper than any real definition.
MAX_INDICES = 32


def maybe_registry_id(payload: bytes) -> int | None:
    """Return the id in the prefix; None if the payload has no prefix."""
    if len(payload) < PREFIX_BYTES or payload[0] != 0:
        return None
    return int.from_bytes(payload[1:PREFIX_BYTES], "big")


def maybe_indices(data: bytes) -> tuple[tuple[int, ...], bytes] | None:
    """Return the message type a framed Protobuf payload names, and the message; None if malformed."""
    count, at = _zigzag(data, 0)
    if count is None or not 0 <= count <= MAX_INDICES:
        return None
    # Confluent's shorthand for [0].
    if count == 0:
        return (0,), data[at:]
    indices: list[int] = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        if index is None or index < 0:
            return None
        indices.append(index)
    return tuple(indices), data[at:]


def readings(data: bytes) -> list[tuple[tuple[int, ...], bytes]]:
    """Return the possible interpretations of a framed Protobuf payload, type and message, the likelier one first."""
    named = maybe_indices(data)
    bare = ((0,), data)
    return [bare] if named is None else [named, bare]


def _zigzag(data: bytes, at: int) -> tuple[int | None, int]:
    """Decode a zigzag varint of at most 32 bits; None if malformed."""
    value = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    return None, at
