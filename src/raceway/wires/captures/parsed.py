"""Results of a wire's parser for consecutive messages, and their conversion to rows of the bronze tables."""

from __future__ import annotations

from dataclasses import dataclass
from mmap import mmap
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raceway.wires.captures.columns import BRONZE, IMPORT, REJECTED, TIMESTAMP
from raceway.wires.captures.slices import Bytes, coded

if TYPE_CHECKING:
    from raceway.wires.captures.slices import Places

# Bytes of a file, or of a piece of one.
CaptureBytes: TypeAlias = bytes | mmap

# Bytes kept of a refused message; the attribute `raw_bytes` has its full size.
KEPT_BYTES = 64 * 1024
RAW_BYTES = "raw_bytes"


class Borders(NamedTuple):
    """Borders of consecutive messages: message `i` is the bytes from `starts[i]` to `stops[i]`.

    `end` is the first byte after them. `fault` tells why nothing can be read from there on; None if nothing is wrong.
    """

    starts: Places
    stops: Places
    end: int
    fault: CaptureFault | None = None


class CaptureFault(NamedTuple):
    """Reason why a message is refused, in the words of its wire."""

    code: str
    reason: str


@dataclass(frozen=True)
class Refusals:
    """Refused messages. `rows` are their numbers among those parsed, in order; `topics` may be NULL."""

    rows: Places
    codes: pa.Array
    reasons: pa.Array
    topics: pa.Array


@dataclass(frozen=True)
class Parsed:
    """Good messages as columns of bronze; columns that are left out are NULL.

    `broken`: number of the message after which no other can be found, though borders were given. Its refusal is the
    last.
    """

    rows: Places
    columns: dict[str, pa.Array]
    refused: Refusals
    broken: int | None = None


class Origin(NamedTuple):
    """Origin of messages: the SHA-256 of the file, its wire, and when it was last written."""

    sha256: str
    wire: str
    time_us: int


def message_rows(origin: Origin, first: int, parsed: Parsed, timeout_ms: int | None = None) -> pa.Table:
    """Return rows of `bronze.messages`; `first` is the number of the first message within the file.

    `timeout_ms` is the deadline of requests that name none; None leaves them without.
    """
    count = len(parsed.rows)
    columns = _common_columns(origin, first + parsed.rows) | parsed.columns
    if timeout_ms is not None and count:
        columns["timeout_ms"] = _deadlines(columns, timeout_ms, count)
    if "sent_ms" in columns:
        columns |= _times(sent_us(columns["sent_ms"], origin.time_us))
    for name in ("attributes", "hops"):
        columns.setdefault(name, pa.array([[]] * count, BRONZE.field(name).type))
    return _table(columns, BRONZE, count)


def rejected_rows(origin: Origin, first: int, data: Bytes, borders: Borders, refused: Refusals) -> pa.Table:
    """Return rows of `bronze.rejected`."""
    starts, stops = borders.starts[refused.rows], borders.stops[refused.rows]
    columns = _common_columns(origin, first + refused.rows) | {
        "topic": refused.topics,
        "code": refused.codes,
        "reason": refused.reasons,
        "attributes": _raw_bytes(stops - starts),
        "payload": data.parts(starts, np.minimum(stops, starts + KEPT_BYTES)),
    }
    return _table(columns, REJECTED, len(refused.rows))


def rejected_rest(origin: Origin, number: int, kept: bytes, size: int, fault: CaptureFault) -> pa.Table:
    """Return one row for the rest of a file in which no border can be found."""
    whole = Borders(np.array([0]), np.array([len(kept)]), size)
    one = Refusals(np.array([0]), pa.array([fault.code]), pa.array([fault.reason]), pa.nulls(1, pa.string()))
    rows = rejected_rows(origin, number, Bytes(kept), whole, one)
    at = REJECTED.get_field_index("attributes")
    return rows.set_column(at, REJECTED.field(at), _raw_bytes(np.array([size])))


def _table(columns: dict[str, pa.Array], schema: pa.Schema, count: int) -> pa.Table:
    """Return a table; absent columns are NULL. Dictionary columns stay encoded: Parquet stores them that way anyway."""
    arrays = [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in schema]
    fields = [
        field.with_type(array.type) if pa.types.is_dictionary(array.type) else field
        for field, array in zip(schema, arrays, strict=True)
    ]
    return pa.table(arrays, schema=pa.schema(fields))


def _deadlines(columns: dict[str, pa.Array], timeout_ms: int, count: int) -> pa.Array:
    """Return `timeout_ms` of each row: that of the request, otherwise the given one."""
    named = columns.get("timeout_ms", pa.nulls(count, pa.int64()))
    unnamed = pc.and_(pc.equal(columns["kind"], "request"), pc.is_null(named))
    return pc.if_else(unnamed, pa.scalar(timeout_ms, pa.int64()), named)


def _common_columns(origin: Origin, sequences: Places) -> dict[str, pa.Array]:
    """Return the columns that all messages of a file have."""
    count = len(sequences)
    return {
        "source": coded(np.zeros(count, np.int32), pa.array([IMPORT + origin.sha256])),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
        "sequence": pa.array(sequences, pa.int64()),
        "wire": coded(np.zeros(count, np.int32), pa.array([origin.wire])),
    } | _times(np.full(count, origin.time_us))


def _times(time_us: Places) -> dict[str, pa.Array]:
    """Return both time columns."""
    times = pa.array(time_us, pa.int64())
    return {"time_us": times, "time": times.cast(TIMESTAMP)}


def sent_us(sent_ms: pa.Array, latest_us: int) -> Places:
    """Return when messages were sent, by their senders' clocks, within what a file can prove.

    Times do not decrease from one message to the next, and nothing was sent after the file was last written.
    """
    told = sent_ms.fill_null(0).to_numpy(zero_copy_only=False)
    within = np.clip(told, 0, latest_us // 1000) * 1000
    found: Places = np.maximum.accumulate(within) if len(within) else within
    return found


def _raw_bytes(sizes: Places) -> pa.Array:
    """Return the attribute `raw_bytes` for messages of which a part is kept, an empty map for others."""
    cut = sizes > KEPT_BYTES
    # A map of one entry where `cut` is true, of none elsewhere: the running count is the offsets.
    offsets = np.concatenate(([0], np.cumsum(cut))).astype(np.int32)
    values = pa.array(sizes[cut], pa.int64()).cast(pa.string())
    return pa.MapArray.from_arrays(pa.array(offsets), pa.repeat(pa.scalar(RAW_BYTES), len(values)), values)
