"""The prefix that Confluent's serializers put before a payload: a zero byte and the registry id, big-endian.

Protobuf payloads carry one thing more: which message type of the definition it is, as a list of indices (zigzag
varints, the count first; a single zero stands for the first type). The client of Node (KafkaJS) leaves that out and
means the first type.
"""

from __future__ import annotations

PREFIX_BYTES = 5
# Types are nested; nobody nests them deeper than this.
MAX_INDICES = 32


def maybe_registry_id(payload: bytes) -> int | None:
    """The id in the prefix, if the payload can have one at all."""
    if len(payload) < PREFIX_BYTES or payload[0] != 0:
        return None
    return int.from_bytes(payload[1:PREFIX_BYTES], "big")


def maybe_indices(data: bytes) -> tuple[tuple[int, ...], bytes] | None:
    """The message type that a framed Protobuf payload names, and the message itself."""
    count, at = _zigzag(data, 0)
    if count is None or not 0 <= count <= MAX_INDICES:
        return None
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
    """What a framed Protobuf payload may be: type and message, the likelier one first."""
    named = maybe_indices(data)
    bare = ((0,), data)
    return [bare] if named is None else [named, bare]


def _zigzag(data: bytes, at: int) -> tuple[int | None, int]:
    value = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    return None, at
