"""Is a payload a datum of an Avro schema? Three spellings are taken:

    one datum in binary, and nothing behind it
    an object container file, whose own schema the registered one can read
    JSON: Avro's own encoding, or plain values (a union's branch unnamed), as many clients send

Values are stepped over, not built. Depth is bounded, and so is the number of steps: every step but those for types
without bytes moves on in the payload. Those types cannot be items, but a record may have thousands of fields of them,
and records made of such records more than anybody can count; so fields are counted too.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from raceway.errors import SchemaInvalidError
from raceway.schema.avro_compatibility import refusals
from raceway.schema.avro_json import fault_of, fits
from raceway.schema.avro_nodes import Node
from raceway.schema.avro_reader import read_schema
from raceway.schema.definition import Fault
from raceway.schema.json_text import decode_json, document_of

MAX_DEPTH = 200
# Fields that may be stepped over beside one for each byte: a second.
SPARE_STEPS = 2_000_000
MAGIC = b"Obj\x01"
SYNC_BYTES = 16
# What compressed blocks of one payload may unfold to.
UNFOLDED_BYTES = 16 * 1024 * 1024
WIDTHS = {"float": 4, "double": 8}
# A JSON text begins with one of these.
JSON_BEGINNINGS = b'{["-0123456789ntf \t\r\n'


class WrongError(Exception):
    """The rule that is broken, and how. The path is put together on the way out."""

    def __init__(self, rule: str, reason: str) -> None:
        self.rule, self.reason = rule, reason
        self.path: list[str] = []


def maybe_fault(node: Node, payload: bytes) -> Fault | None:
    """The first spelling in which the payload is a datum decides; if there is none, what the likeliest one lacks."""
    if payload.startswith(MAGIC) and (fault := _maybe_wrong(_check_container, node, payload)) is None:
        return None
    if (binary := _maybe_wrong(_check_binary, node, payload)) is None:
        return None
    if payload.startswith(MAGIC):
        return fault
    if payload[:1] in JSON_BEGINNINGS:
        try:
            value = decode_json(payload)
        except ValueError:
            return binary
        return None if fits(node, value) else fault_of(node, value)
    return binary


def _maybe_wrong(check: Callable[[Node, bytes], None], node: Node, payload: bytes) -> Fault | None:
    try:
        check(node, payload)
    except WrongError as wrong:
        return Fault("/" + "/".join(reversed(wrong.path)), wrong.rule, wrong.reason)
    return None


def _check_binary(node: Node, payload: bytes) -> None:
    end = Steps(payload).step(node, 0, 0)
    if end != len(payload):
        raise WrongError("end", f"the datum ends after {end} of {len(payload)} bytes")


class Steps:
    """Steps over the datums in `data`. Each gives where it ends, or raises WrongError.

    `spare`: what is left of the steps beside one for each byte, where the data is a part of the payload.
    """

    def __init__(self, data: bytes, spare: int | None = None) -> None:
        self._data = data
        self._spare = SPARE_STEPS if spare is None else spare
        self._left = len(data) + self._spare

    @property
    def spare(self) -> int:
        return min(self._spare, self._left)

    def step(self, node: Node, at: int, depth: int) -> int:
        kind = node.kind
        if kind == "record":
            return self._record(node, at, depth + 1)
        if kind == "string" or kind == "bytes":
            return self.text(kind, at)
        if kind == "int" or kind == "long":
            value, at = self.number(at)
            if kind == "int" and not -(1 << 31) <= value < 1 << 31:
                raise WrongError("int", f"{value} is no int")
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
                raise WrongError("boolean", "neither 0 nor 1")
            return at + 1
        return self.within(at + (node.size if kind == "fixed" else WIDTHS.get(kind, 0)))

    def branch(self, node: Node, at: int) -> tuple[Node, int]:
        """The one a union's value is of, and where that value begins."""
        branch, at = self.number(at)
        if not 0 <= branch < len(node.branches):
            raise WrongError("union", f"the union has no branch {branch}")
        return node.branches[branch], at

    def number(self, at: int) -> tuple[int, int]:
        """A zigzag varint of at most 64 bits, and where it ends."""
        data, value, shift = self._data, 0, 0
        while shift < 70:
            if at >= len(data):
                raise WrongError("end", "the payload ends here")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80 and value < 1 << 64:
                return (value >> 1) ^ -(value & 1), at
            shift += 7 if byte >= 0x80 else 70
        raise WrongError("long", "a number of more than 64 bits")

    def text(self, kind: str, at: int) -> int:
        size, at = self.number(at)
        if size < 0:
            raise WrongError(kind, f"a length of {size}")
        end = self.within(at + size)
        if kind == "string":
            try:
                self._data[at:end].decode()
            except UnicodeDecodeError:
                raise WrongError("string", "not UTF-8") from None
        return end

    def within(self, end: int) -> int:
        if end > len(self._data):
            raise WrongError("end", "the payload ends here")
        return end

    def _record(self, node: Node, at: int, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise WrongError("nesting", f"nested more than {MAX_DEPTH} deep")
        self._left -= len(node.fields)
        if self._left < 0:
            raise WrongError("work", "its records have more fields than there is time for")
        for field in node.fields:
            try:
                at = self.step(field.node, at, depth)
            except WrongError as wrong:
                wrong.path.append(field.name)
                raise
        return at

    def _blocks(self, node: Node, at: int, depth: int) -> int:
        assert node.items is not None
        if depth > MAX_DEPTH:
            raise WrongError("nesting", f"nested more than {MAX_DEPTH} deep")
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
        """Items of the next block. A negative count is followed by the block's size in bytes."""
        count, at = self.number(at)
        if count < 0:
            count = -count
            _, at = self.number(at)
        if count > len(self._data) - at:
            raise WrongError("count", f"{count} items cannot be in the {len(self._data) - at} bytes left")
        return count, at


# ---- container files ------------------------------------------------------------------------------------------------


def _check_container(node: Node, payload: bytes) -> None:
    for _ in container_blocks(node, payload):
        pass


def container_blocks(node: Node, payload: bytes) -> Iterator[tuple[Node, bytes, int]]:
    """The file's own schema, which `node` can read, the bytes of a good block, and how many datums they are."""
    metadata, at = _metadata(payload)
    try:
        written = read_schema(document_of(metadata.get(b"avro.schema", b"")))
    except SchemaInvalidError as error:
        raise WrongError("container", f"the file's own schema: {error}") from None
    if reasons := refusals(node, written):
        raise WrongError("container", f"the file's own schema cannot be read: {reasons[0]}")
    codec = metadata.get(b"avro.codec", b"null")
    if codec not in (b"null", b"deflate"):
        raise WrongError("container", f"the codec {codec.decode('utf-8', 'replace')!r} is not known")
    steps, sync, at = Steps(payload), payload[at : at + SYNC_BYTES], at + SYNC_BYTES
    room, spare = UNFOLDED_BYTES, steps.spare
    while at < len(payload):
        count, at = steps.number(at)
        size, at = steps.number(at)
        end = steps.within(at + max(size, 0) + SYNC_BYTES)
        if size < 0 or payload[end - SYNC_BYTES : end] != sync:
            raise WrongError("container", "a block is not followed by the sync marker")
        block, at = payload[at : at + size], end
        data = _inflated(block, room) if codec == b"deflate" else block
        room -= len(data)
        spare = _check_block(written, data, count, spare)
        yield written, data, count


def _check_block(node: Node, data: bytes, count: int, spare: int) -> int:
    """What is left of the spare steps."""
    if not 0 <= count <= max(len(data), 1):
        raise WrongError("container", f"{count} datums cannot be in {len(data)} bytes")
    steps, at = Steps(data, spare), 0
    for _ in range(count):
        at = steps.step(node, at, 0)
    if at != len(data):
        raise WrongError("container", "a block holds more than its datums")
    return steps.spare


def _metadata(payload: bytes) -> tuple[dict[bytes, bytes], int]:
    """The file's head, a map of bytes; and where it ends."""
    found: dict[bytes, bytes] = {}
    steps, at = Steps(payload), len(MAGIC)
    while True:
        count, at = steps.count(at)
        if count == 0:
            return found, at
        for _ in range(count):
            size, start = steps.number(at)
            key_end = steps.text("bytes", at)
            value_size, value_start = steps.number(key_end)
            at = steps.text("bytes", key_end)
            found[payload[start : start + size]] = payload[value_start : value_start + value_size]


def _inflated(block: bytes, limit: int) -> bytes:
    try:
        data = zlib.decompressobj(-15).decompress(block, limit + 1)
    except zlib.error as error:
        raise WrongError("container", f"a block cannot be unfolded: {error}") from None
    if len(data) > limit:
        raise WrongError("container", f"the blocks unfold to more than {UNFOLDED_BYTES} bytes")
    return data
