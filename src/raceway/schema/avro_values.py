"""From the bytes of an Avro datum to the value they say, as JSON.

A union's value stands there as it is, without the name of its branch; bytes are characters from 0 to 255, as in Avro's
own JSON; what JSON has no number for (NaN, infinity) is null. A container file is the list of its datums.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from raceway.schema.avro_datum import MAGIC, MAX_DEPTH, Steps, WrongError, container_blocks
from raceway.schema.avro_nodes import Node

_FLOATS = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}


def json_of(node: Node, payload: bytes) -> str:
    """Of a payload in which no fault was found, in whichever of the three spellings."""
    if payload.startswith(MAGIC):
        try:
            return _text([value for block in container_blocks(node, payload) for value in _values(*block)])
        except WrongError:
            pass  # a datum in binary that happens to begin like a file
    try:
        value, end = Values(payload).read(node, 0, 0)
    except WrongError:
        return payload.decode()
    return _text(value) if end == len(payload) else payload.decode()


def _values(node: Node, data: bytes, count: int) -> list[Any]:
    values, at, found = Values(data), 0, []
    for _ in range(count):
        value, at = values.read(node, at, 0)
        found.append(value)
    return found


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class Values(Steps):
    """Reads where `Steps` only steps: each gives the value and where it ends, or raises WrongError."""

    def read(self, node: Node, at: int, depth: int) -> tuple[Any, int]:
        kind = node.kind
        if kind == "record":
            return self._read_record(node, at, depth + 1)
        if kind == "union":
            return self.read(*self.branch(node, at), depth)
        if kind == "array" or kind == "map":
            return self._read_items(node, at, depth + 1)
        return self._read_plain(node, at, self.step(node, at, depth))

    def _read_plain(self, node: Node, at: int, end: int) -> tuple[Any, int]:
        """A value that was stepped over and found good."""
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
        _check_depth(depth)
        found: dict[str, Any] = {}
        for field in node.fields:
            found[field.name], at = self.read(field.node, at, depth)
        return found, at

    def _read_items(self, node: Node, at: int, depth: int) -> tuple[Any, int]:
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
    if depth > MAX_DEPTH:
        raise WrongError("nesting", f"nested more than {MAX_DEPTH} deep")
