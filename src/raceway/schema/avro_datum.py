"""Validation of a payload against an Avro schema, and its conversion to JSON. Three forms are accepted:

    one datum in binary encoding, without trailing bytes
    an object container file whose own schema the registered one can read
    JSON: Avro's JSON encoding, or plain values (without the branch names of unions), as many clients send

Validation skips values and builds none. Depth and number of steps are bounded: every step but those for types without
bytes advances in the payload. Such types are refused as array items, but a record may have thousands of fields of them,
and records made of such records many more, so fields are counted too.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from raceway.errors import SchemaInvalidError
from raceway.schema.avro_compatibility import refusals
from raceway.schema.avro_json import fault_of, fits
from raceway.schema.avro_nodes import Node
from raceway.schema.avro_reader import read_schema
from raceway.schema.definition import Fault
from raceway.schema.json_text import decode_json, document_of

# Within Python's recursion limit: each level takes up to three calls.
MAX_DEPTH = 200
# Fields that may be skipped in addition to one per byte of the payload: about a second of work.
SPARE_STEPS = 2_000_000
# Avro 1.12, "Object Container Files": magic, metadata map, 16-byte sync marker, then blocks.
MAGIC = b"Obj\x01"
SYNC_BYTES = 16
_METADATA = Node("map", items=Node("bytes"))
# Limit of all decompressed blocks of one payload, against decompression bombs.
UNFOLDED_BYTES = 16 * 1024 * 1024
# Avro 1.12, "Primitive Types": IEEE 754, little-endian.
WIDTHS = {"float": 4, "double": 8}
_FLOATS = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
# First bytes of a JSON text (RFC 8259, 2 and 3).
JSON_BEGINNINGS = b'{["-0123456789ntf \t\r\n'


class WrongError(Exception):
    """The violated rule, and how. The path is built while the exception propagates."""

    def __init__(self, rule: str, reason: str) -> None:
        self.rule, self.reason = rule, reason
        self.path: list[str] = []


def maybe_fault(node: Node, payload: bytes) -> Fault | None:
    """Return what is wrong with a payload; None if it is valid in one of the three forms. If it is in none, the fault
    of the likeliest one is returned."""
    if payload.startswith(MAGIC) and (fault := _maybe_wrong(_check_container, node, payload)) is None:
        return None
    if (binary := _maybe_wrong(_check_binary, node, payload)) is None:
        return None
    if payload.startswith(MAGIC):
        return fault
    # Binary was tried first: it is the rule, and a binary datum may begin with any byte.
    if payload[:1] in JSON_BEGINNINGS:
        try:
            value = decode_json(payload)
        except ValueError:
            return binary
        return None if fits(node, value) else fault_of(node, value)
    return binary


def _maybe_wrong(check: Callable[[Node, bytes], None], node: Node, payload: bytes) -> Fault | None:
    """Run a check; return its error as a fault."""
    try:
        check(node, payload)
    except WrongError as wrong:
        return Fault("/" + "/".join(reversed(wrong.path)), wrong.rule, wrong.reason)
    return None


def _check_binary(node: Node, payload: bytes) -> None:
    """Check one datum in binary encoding."""
    end = DatumWalk(payload).step(node, 0, 0)
    if end != len(payload):
        raise WrongError("end", f"the datum ends after {end} of {len(payload)} bytes")


def json_of(node: Node, payload: bytes) -> str:
    """Decode a payload in which no fault was found, in any of the three forms, to JSON.

    A union's value stands alone, without the name of its branch; bytes are characters 0 to 255, as in Avro's JSON
    encoding; NaN and infinity, which JSON lacks (RFC 8259, 6), are null. A container file is the list of its datums.
    """
    if payload.startswith(MAGIC):
        try:
            values = [value for block in container_blocks(node, payload) for value in _values(*block)]
            return msgspec.json.encode(values).decode()
        except WrongError:
            pass  # a binary datum that happens to begin with the magic bytes of a file
    try:
        value, end = Values(payload).read(node, 0, 0)
    except WrongError:
        return payload.decode()
    return msgspec.json.encode(value).decode() if end == len(payload) else payload.decode()


def _values(node: Node, data: bytes, count: int) -> Iterator[Any]:
    """Yield the datums of a block."""
    values, at = Values(data), 0
    for _ in range(count):
        value, at = values.read(node, at, 0)
        yield value


class DatumWalk:
    """Skip the datums in `data`. Each method returns the position after a value, or raises WrongError.

    `spare`: what is left of the steps in addition to one per byte, if the data is a part of the payload.
    """

    def __init__(self, data: bytes, spare: int = SPARE_STEPS) -> None:
        self._data, self._spare = data, spare
        self._left = len(data) + self._spare

    @property
    def spare(self) -> int:
        """Spare steps left."""
        return min(self._spare, self._left)

    def step(self, node: Node, at: int, depth: int) -> int:
        """Skip one datum."""
        kind = node.kind
        # Kinds in order of frequency: this is the hot path of validation.
        if kind == "record":
            return self._record(node, at, depth + 1)
        if kind == "string" or kind == "bytes":
            return self.text(kind, at)
        if kind == "int" or kind == "long":
            value, at = self.number(at)
            if kind == "int" and not -(1 << 31) <= value < 1 << 31:
                raise WrongError("int", f"{value} is out of the range of int")
            return at
        if kind == "union":
            return self.step(*self.branch(node, at), depth)
        if kind == "array" or kind == "map":
            return self._blocks(node, at, depth + 1)
        if kind == "enum":
            value, at = self.number(at)
            if not 0 <= value < len(node.symbols):
                raise WrongError("enum", f"the enum has no symbol {value}")
            return at
        if kind == "boolean":
            if self._data[at : at + 1] not in (b"\x00", b"\x01"):
                raise WrongError("boolean", "the byte is neither 0 nor 1")
            return at + 1
        return self.within(at + (node.size if kind == "fixed" else WIDTHS.get(kind, 0)))

    def branch(self, node: Node, at: int) -> tuple[Node, int]:
        """Return the branch a union's value is of, and the position of the value."""
        branch, at = self.number(at)
        if not 0 <= branch < len(node.branches):
            raise WrongError("union", f"the union has no branch {branch}")
        return node.branches[branch], at

    def number(self, at: int) -> tuple[int, int]:
        """Return a zigzag varint of at most 64 bits, and the position after it."""
        data, value, shift = self._data, 0, 0
        # Ten groups of seven bits hold 64 bits; an eleventh byte, or higher bits in the tenth, are refused.
        while shift < 70:
            if at >= len(data):
                raise WrongError("end", "unexpected end of the payload")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80 and value < 1 << 64:
                return (value >> 1) ^ -(value & 1), at
            shift += 7 if byte >= 0x80 else 70
        raise WrongError("long", "varint of more than 64 bits")

    def text(self, kind: str, at: int) -> int:
        """Skip a length and that many bytes; of a string, check UTF-8."""
        size, at = self.number(at)
        if size < 0:
            raise WrongError(kind, f"negative length {size}")
        end = self.within(at + size)
        if kind == "string":
            try:
                self._data[at:end].decode()
            except UnicodeDecodeError:
                raise WrongError("string", "not UTF-8") from None
        return end

    def within(self, end: int) -> int:
        """Return `end` if it is within the data."""
        if end > len(self._data):
            raise WrongError("end", "unexpected end of the payload")
        return end

    def _record(self, node: Node, at: int, depth: int) -> int:
        """Skip a record: its fields in declaration order."""
        if depth > MAX_DEPTH:
            raise WrongError("nesting", f"nested deeper than {MAX_DEPTH} levels")
        self._left -= len(node.fields)
        if self._left < 0:
            raise WrongError("work", "validation budget exceeded: too many record fields")
        for field in node.fields:
            try:
                at = self.step(field.node, at, depth)
            except WrongError as wrong:
                wrong.path.append(field.name)
                raise
        return at

    def _blocks(self, node: Node, at: int, depth: int) -> int:
        """Skip the blocks of an array or map, up to the empty one that ends it."""
        assert node.items is not None
        if depth > MAX_DEPTH:
            raise WrongError("nesting", f"nested deeper than {MAX_DEPTH} levels")
        while True:
            count, at = self.count(at)
            if count == 0:
                return at
            for _ in range(count):
                try:
                    if node.kind == "map":
                        at = self.text("string", at)
                    at = self.step(node.items, at, depth)
                except WrongError as wrong:
                    wrong.path.append("*")
                    raise

    def count(self, at: int) -> tuple[int, int]:
        """Return the number of items of the next block."""
        count, at = self.number(at)
        # Avro 1.12, "Arrays": a negative count is followed by the block's size in bytes, which is not needed here.
        if count < 0:
            count = -count
            _, at = self.number(at)
        # Every item takes a byte at least (see `avro_reader`), so a larger count is wrong and refused before the loop.
        if count > len(self._data) - at:
            raise WrongError("count", f"{count} items do not fit in the remaining {len(self._data) - at} bytes")
        return count, at


class Values(DatumWalk):
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
        if depth > MAX_DEPTH:
            raise WrongError("nesting", f"nested deeper than {MAX_DEPTH} levels")
        found: dict[str, Any] = {}
        for field in node.fields:
            found[field.name], at = self.read(field.node, at, depth)
        return found, at

    def _read_items(self, node: Node, at: int, depth: int) -> tuple[Any, int]:
        """Decode an array or map."""
        assert node.items is not None
        if depth > MAX_DEPTH:
            raise WrongError("nesting", f"nested deeper than {MAX_DEPTH} levels")
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


# ---- container files ------------------------------------------------------------------------------------------------


def _check_container(node: Node, payload: bytes) -> None:
    """Check all blocks of a container file."""
    for _ in container_blocks(node, payload):
        pass


def container_blocks(node: Node, payload: bytes, spare: int = SPARE_STEPS) -> Iterator[tuple[Node, bytes, int]]:
    """Yield the file's own schema (readable by `node`), the bytes of each valid block, and its number of datums."""
    metadata, at = Values(payload).read(_METADATA, len(MAGIC), 0)
    try:
        written = read_schema(document_of(metadata.get("avro.schema", "").encode("latin-1")))
    except SchemaInvalidError as error:
        raise WrongError("container", f"invalid schema in the container file: {error}") from None
    if reasons := refusals(node, written):
        raise WrongError("container", f"the schema of the container file is not compatible: {reasons[0]}")
    # Avro 1.12, "Required Codecs": null and deflate. Optional ones would need further libraries.
    codec = metadata.get("avro.codec", "null")
    if codec not in ("null", "deflate"):
        raise WrongError("container", f"unsupported codec {codec!r}: use null or deflate")
    steps, sync, at = DatumWalk(payload, spare), payload[at : at + SYNC_BYTES], at + SYNC_BYTES
    room, spare = UNFOLDED_BYTES, steps.spare
    while at < len(payload):
        count, at = steps.number(at)
        size, at = steps.number(at)
        end = steps.within(at + max(size, 0) + SYNC_BYTES)
        if size < 0 or payload[end - SYNC_BYTES : end] != sync:
            raise WrongError("container", "a block does not end with the sync marker")
        block, at = payload[at : at + size], end
        data = _inflated(block, room) if codec == "deflate" else block
        room -= len(data)
        spare = _check_block(written, data, count, spare)
        yield written, data, count


def _check_block(node: Node, data: bytes, count: int, spare: int) -> int:
    """Check the datums of a block; return what is left of the spare steps."""
    if not 0 <= count <= max(len(data), 1):
        raise WrongError("container", f"{count} datums do not fit in {len(data)} bytes")
    steps, at = DatumWalk(data, spare), 0
    for _ in range(count):
        at = steps.step(node, at, 0)
    if at != len(data):
        raise WrongError("container", "a block has trailing bytes after its datums")
    return steps.spare


def _inflated(block: bytes, limit: int) -> bytes:
    """Decompress a block, at most `limit` bytes."""
    try:
        # Raw deflate without zlib header or checksum (RFC 1951), as the specification says.
        data = zlib.decompressobj(-15).decompress(block, limit + 1)
    except zlib.error as error:
        raise WrongError("container", f"cannot decompress a block: {error}") from None
    if len(data) > limit:
        raise WrongError("container", f"the decompressed blocks exceed {UNFOLDED_BYTES} bytes")
    return data
