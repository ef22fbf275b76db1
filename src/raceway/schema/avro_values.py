"""Decoding of Avro datums to JSON.

A union's value stands alone, without the name of its branch; bytes are characters 0 to 255, as in Avro's JSON encoding;
NaN and infinity, which JSON lacks (RFC 8259, 6), are null. A container file is the list of its datums.
"""

from __future__ import annotations

from typing import Any

import msgspec

from raceway.schema.avro_datum import MAGIC, Values, WrongError, container_blocks
from raceway.schema.avro_nodes import Node


def json_of(node: Node, payload: bytes) -> str:
    """Decode a payload in which no fault was found, in any of the three forms."""
    if payload.startswith(MAGIC):
        try:
            return _text([value for block in container_blocks(node, payload) for value in _values(*block)])
        except WrongError:
            pass  # a binary datum that happens to begin with the magic bytes of a file
    try:
        value, end = Values(payload).read(node, 0, 0)
    except WrongError:
        return payload.decode()
    return _text(value) if end == len(payload) else payload.decode()


def _values(node: Node, data: bytes, count: int) -> list[Any]:
    """Decode the datums of a block."""
    values, at, found = Values(data), 0, []
    for _ in range(count):
        value, at = values.read(node, at, 0)
        found.append(value)
    return found


def _text(value: Any) -> str:
    """Encode as JSON text."""
    return msgspec.json.encode(value).decode()
