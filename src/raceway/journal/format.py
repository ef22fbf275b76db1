"""Layout of a segment of blocks, and the canonical columns that readers get.

A segment is one block after the other, without anything before, between or after them. A block is

    prefix    56 bytes, below; starts with the journal's own random marker, ends with a CRC over itself
    meta      MessagePack (`Meta`): where each column lies in the body, columns with one value for all rows, the
              offsets each topic got, the CRC of each stripe of the body; then zero bytes up to a multiple of 8
    body      the Arrow buffers of the columns in use, each at a multiple of 8; its length is a multiple of 8

All numbers are little-endian. The marker (8 random bytes, kept in the file `identity`) makes it possible to find the
next block when a prefix is damaged beyond repair: a sender does not know it, so payloads cannot contain it. The prefix
keeps this shape in every later version, so that an older release can name the version it does not know.

Three ways to store a column: a value in `Meta.constants` for all rows; PLAIN, an item per row; RUNS, an item per run of
equal ones, and where each run ends. RAMP is RUNS with the row's number added: dense offsets are one item per batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
import pyarrow as pa

from raceway.journal.integrity.checksum import crc, maybe_mend

VERSION = 1
MARKER_SIZE = 8
ALIGNMENT = 8
HAS_CONTROL_ROWS = 1

_FIELDS = struct.Struct(
    "<"
    "8s"  # marker
    "H"  # format version
    "H"  # flags
    "I"  # bytes of meta, without its padding
    "Q"  # bytes of the body
    "q"  # sequence of the first row
    "I"  # rows
    "I"  # CRC of meta
    "q"  # time_us of the last row
    "4x"
)
_CRC = struct.Struct("<I")
PREFIX_SIZE = _FIELDS.size + _CRC.size

PLAIN, RUNS, RAMP = 0, 1, 2

HOP = pa.struct([("sid", pa.string()), ("rid", pa.string()), ("mid", pa.string()), ("tms", pa.list_(pa.int64()))])

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("sequence", pa.int64()),
        ("topic", pa.string()),
        ("offset", pa.int64()),
        ("time_us", pa.int64()),
        ("sent_ms", pa.int64()),
        ("wire", pa.string()),
        ("kind", pa.string()),
        ("message_id", pa.string()),
        ("forwarded_id", pa.string()),
        ("answers", pa.int64()),
        ("parent_id", pa.string()),
        ("correlation_id", pa.string()),
        ("reply_to", pa.string()),
        ("timeout_ms", pa.int64()),
        ("version", pa.string()),
        ("producer", pa.string()),
        ("producer_id", pa.int64()),
        ("schema_id", pa.int64()),
        ("schema_version", pa.int64()),
        ("routing_key", pa.string()),
        ("attributes", pa.map_(pa.string(), pa.string())),
        ("hops", pa.list_(HOP)),
        ("encoding", pa.string()),
        ("error", pa.string()),
        ("payload", pa.binary()),
    ]
)


# Names of columns of SCHEMA; None means all.
Columns: TypeAlias = Sequence[str] | None
# Rows, in batches of bounded size.
Batches: TypeAlias = Iterator[pa.RecordBatch]


def chosen_schema(columns: Columns) -> pa.Schema:
    """Return SCHEMA, or its `columns` in the order given. Raises KeyError for an unknown name."""
    return SCHEMA if columns is None else pa.schema([SCHEMA.field(name) for name in columns])


class Prefix(NamedTuple):
    """Fixed part of a block."""

    version: int
    flags: int
    meta_size: int
    body_size: int
    first: int
    rows: int
    meta_crc: int
    time_us: int

    @property
    def body_at(self) -> int:
        """Position of the body, counted from the beginning of the block."""
        return PREFIX_SIZE + aligned(self.meta_size)

    @property
    def size(self) -> int:
        """Bytes of the whole block."""
        return self.body_at + self.body_size

    @property
    def last(self) -> int:
        return self.first + self.rows - 1


class StoredColumn(msgspec.Struct, array_like=True, gc=False):
    """Column of `items` values (rows, or runs) in `parts` of the body: (position, size) of each Arrow buffer.

    (0, 0) stands for an absent buffer. RUNS and RAMP have one part more, at the end: where each run ends, as int32.
    """

    name: str
    encoding: int
    items: int
    parts: list[tuple[int, int]]


class Meta(msgspec.Struct, array_like=True, gc=False):
    """Variable part of a block.

    `check` is the sum of the body's 32-bit words. A CRC can take three or more flipped bits for one (once in 4,096); a
    repaired stripe must also bring this sum back, and carries make it a different kind of check.
    """

    columns: list[StoredColumn]
    constants: dict[str, bytes | int]
    spans: list[tuple[str, int, int]]
    sums: bytes
    check: int


_encode_meta = msgspec.msgpack.Encoder().encode
_meta_decoder = msgspec.msgpack.Decoder(Meta)


def aligned(size: int) -> int:
    """Round a size up to a multiple of 8."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def encode_head(marker: bytes, meta: Meta, body_size: int, first: int, rows: int, time_us: int, flags: int) -> bytes:
    """Return prefix and meta with its padding: everything before the body."""
    coded = _encode_meta(meta)
    # The CRC of meta stands in the prefix, the CRCs of the body in meta: each part vouches for the next.
    fields = _FIELDS.pack(marker, VERSION, flags, len(coded), body_size, first, rows, crc(coded), time_us)
    return b"".join([fields, _CRC.pack(crc(fields)), coded, bytes(aligned(len(coded)) - len(coded))])


def maybe_parse_prefix(data: bytes, marker: bytes) -> tuple[Prefix, bool] | None:
    """Return (prefix, whether it was repaired), or None if these bytes are not the beginning of a block."""
    if len(data) < PREFIX_SIZE:
        return None
    fields, (expected,) = data[: _FIELDS.size], _CRC.unpack_from(data, _FIELDS.size)
    sound = crc(fields) == expected
    mended = fields if sound else maybe_mend(fields, expected)
    # The marker decides after the repair: random bytes that look like a prefix with one flipped bit fail here.
    if mended is None or mended[:MARKER_SIZE] != marker:
        return None
    return Prefix._make(_FIELDS.unpack(mended)[1:]), not sound


def maybe_parse_meta(data: bytes, prefix: Prefix) -> tuple[Meta, bool] | None:
    """Parse meta from its bytes without padding; return (meta, whether it was repaired), or None if damaged beyond
    repair."""
    sound = crc(data) == prefix.meta_crc
    mended = data if sound else maybe_mend(data, prefix.meta_crc)
    if mended is None:
        return None
    try:
        return _meta_decoder.decode(mended), not sound
    except msgspec.DecodeError:  # an odd number of flips that looked like one
        return None
