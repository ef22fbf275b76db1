"""Decoding of Avro datums to JSON.

A union's value stands alone, without the name of its branch; bytes are characters 0 to 255, as in Avro's JSON encoding;
NaN and infinity, which JSON lacks (RFC 8259, 6), are null. A container file is the list of its datums.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from raceway.schema.avro_datum import MAGIC, MAX_DEPTH, Steps, WrongError, container_blocks
from raceway.schema.avro_nodes import Node

# Avro 1.12, "Primitive Types": IEEE 754, little-endian.
_FLOATS = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}


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


class Values(Steps):
    """Decoder of datums. Each method returns the value and the position after it, or raises WrongError."""

    def read(self, node: Node, at: int, depth: int) -> tuple[Any, int]:
        """Decode one datum."""
        kind = node.kind
        if kind == "record":
            return self._read_record(node, at, depth + 1)
        if kind == "union":
            return self.read(*self.branch(node, at), depth)
        if kind == "array" or kind == "map":
            return self._read_items(node, at, depth + 1)
        return self._read_plain(node, at, self.step(node, at, depth))

    def _read_plain(self, node: Node, at: int, end: int) -> tuple[Any, int]:
        """Decode a value without parts that was already validated."""
        kind = node.kind
        if kind == "int" or kind == "long":
            return self.number(at)[0], end
        if kind == "string":
            return self._data[self.number(at)[1] : end].decode(), end
        if kind == "bytes" or kind == "fixed":
            start = at if kind == "fixed" else self.number(at)[1]
            return self._data[start:end].decode("latin-1"), end
        if kind == "enum":
            return list(node.symbols)[self.number(at)[0]], end
        if kind == "boolean":
            return self._data[at] == 1, end
        return (_FLOATS[kind].unpack_from(self._data, at)[0] if kind in _FLOATS else None), end

    def _read_record(self, node: Node, at: int, depth: int) -> tuple[dict[str, Any], int]:
        """Decode a record."""
        _check_depth(depth)
        found: dict[str, Any] = {}
        for field in node.fields:
            found[field.name], at = self.read(field.node, at, depth)
        return found, at

    def _read_items(self, node: Node, at: int, depth: int) -> tuple[Any, int]:
        """Decode an array or map."""
        assert node.items is not None
        _check_depth(depth)
        names: list[str] = []
        values: list[Any] = []
        while True:
            count, at = self.count(at)
            if count == 0:
                return (dict(zip(names, values, strict=True)) if node.kind == "map" else values), at
            for _ in range(count):
                if node.kind == "map":
                    start, at = self.number(at)[1], self.text("string", at)
                    names.append(self._data[start:at].decode())
                value, at = self.read(node.items, at, depth)
                values.append(value)


def _check_depth(depth: int) -> None:
    """Refuse nesting that is too deep."""
    if depth > MAX_DEPTH:
        raise WrongError("nesting", f"nested deeper than {MAX_DEPTH} levels")
