"""Rows of the journal: many as columns (`Batch`), one as a record (`Envelope`).

The hot path builds no records. A codec fills a `Batch`, in which each column is

    None      unused: costs nothing, in memory or on disk
    a value   holds for every row of the batch (wire, kind, producer, often the topic)
    a list    one item per row, None where the row has none

Text columns hold UTF-8 `bytes`, because that is what wires carry and what the disk stores; `Envelope` holds `str`,
for slow paths, clients and tests. `attributes` and `hops` are JSON bytes in a batch (`encode_attributes`,
`encode_hops`) and Python objects in an envelope.

A root of a causal chain leaves `correlation_id` empty in its batch: readers of the journal give it its own
`message_id`. That spares 36 bytes in almost every row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from raceway.errors import BusyError, NoRouteError

T = TypeVar("T")
Column: TypeAlias = T | list[T | None] | None

PUBLISH, REQUEST, RESPONSE, CONTROL = b"publish", b"request", b"response", b"control"
MB, DANUBE, ZBUS, SENECA, HTTP = b"mb", b"danube", b"zbus", b"seneca", b"http"

# Values of `error` in answers that did not reach their requester.
LATE, DUPLICATE = b"late", b"duplicate"

# The producer of the bus's own messages, and the codes of the answers that the bus gives itself.
OWN_NAME = b"raceway"
REFUSALS = (NoRouteError.code, BusyError.code)
# `error` of a row whose content was deleted on request; what is left of it is in no table.
DELETED = "raceway.deleted"


class Hop(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A leg of a request: ids of sender, receiver and message, and times in milliseconds.

    `tms` is [sent, received, answered, back]; compare only times of the same host's clock.
    """

    sid: str = ""
    rid: str = ""
    mid: str = ""
    tms: tuple[int | None, ...] = ()


class Envelope(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A row as a record. Field names are those of the bronze columns."""

    partition: int = 0
    sequence: int = -1
    topic: str = ""
    offset: int | None = None
    time_us: int = 0
    sent_ms: int | None = None
    wire: str = ""
    kind: str = "publish"
    message_id: str | None = None
    forwarded_id: str | None = None
    answers: int | None = None
    parent_id: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    timeout_ms: int | None = None
    version: str | None = None
    producer: str | None = None
    producer_id: int | None = None
    schema_id: int | None = None
    schema_version: int | None = None
    routing_key: str | None = None
    attributes: dict[str, str] = {}
    hops: tuple[Hop, ...] = ()
    encoding: str | None = None
    error: str | None = None
    payload: bytes = b""


TEXT_COLUMNS = (
    "topic", "wire", "kind", "message_id", "forwarded_id", "parent_id", "correlation_id", "reply_to", "version",
    "producer", "routing_key", "encoding", "error",
)  # fmt: skip
NUMBER_COLUMNS = (
    "offset", "time_us", "sent_ms", "answers", "timeout_ms", "producer_id", "schema_id", "schema_version",
)  # fmt: skip
JSON_COLUMNS = ("attributes", "hops")

# All columns of a batch. `partition` and `sequence` are missing: the journal assigns them at append.
COLUMNS = (*TEXT_COLUMNS, *NUMBER_COLUMNS, *JSON_COLUMNS, "payload")

_attributes_decoder = msgspec.json.Decoder(dict[str, str])
_hops_decoder = msgspec.json.Decoder(tuple[Hop, ...])
encode_json = msgspec.json.Encoder().encode


def encode_attributes(attributes: dict[str, str]) -> bytes | None:
    """Encode attributes as JSON for the column; None if there are none."""
    return encode_json(attributes) if attributes else None


def decode_attributes(column: bytes | None) -> dict[str, str]:
    """Decode a value of the column `attributes`."""
    return _attributes_decoder.decode(column) if column else {}


def encode_hops(hops: Sequence[Hop]) -> bytes | None:
    """Encode hops as JSON for the column; None if there are none."""
    return encode_json(hops) if hops else None


def decode_hops(column: bytes | None) -> tuple[Hop, ...]:
    """Decode a value of the column `hops`."""
    return _hops_decoder.decode(column) if column else ()


def agreed(values: list[T]) -> T | list[T]:
    """Return a column of these values: a single value if all are equal, else the list."""
    # `count` runs in C, and compares by identity first.
    return values[0] if values.count(values[0]) == len(values) else values


# Types of a column with a value for each row. Compared with `type() in`, which is faster than `isinstance`.
_PER_ROW = (list, range)


class Batch:
    """Rows that enter the bus together, as columns. Mutable: the broker fills in the columns that only it knows.

    `source` is not a column: it is the object from which a codec read the rows, for a receiver on the same wire, which
    then need not decode them again. It is not stored.

    `later`, if set, fills in the columns that such a receiver does not read. It runs after the message was forwarded,
    because on an idle bus a client waits for that and not for the columns. All other readers of the columns of a batch
    with a source must call `complete` first.
    """

    # Weak references are for those who remember something about a batch and must not keep it in memory.
    __slots__ = ("__dict__", "__weakref__", "later", "source")

    source: Any
    later: Callable[[Batch], None] | None
    count: int
    topic: Column[bytes] = None
    wire: Column[bytes] = None
    kind: Column[bytes] = None
    message_id: Column[bytes] = None
    forwarded_id: Column[bytes] = None
    parent_id: Column[bytes] = None
    correlation_id: Column[bytes] = None
    reply_to: Column[bytes] = None
    version: Column[bytes] = None
    producer: Column[bytes] = None
    routing_key: Column[bytes] = None
    encoding: Column[bytes] = None
    error: Column[bytes] = None
    offset: Column[int] | range = None  # the journal assigns a range if all rows are of one topic
    time_us: Column[int] = None
    sent_ms: Column[int] = None
    answers: Column[int] = None
    timeout_ms: Column[int] = None
    producer_id: Column[int] = None
    schema_id: Column[int] = None
    schema_version: Column[int] = None
    attributes: Column[bytes] = None
    hops: Column[bytes] = None
    payload: Column[bytes] = None

    def __init__(self, count: int, **columns: Any) -> None:
        self.count = count
        self.source = self.later = None
        self.__dict__.update(columns)

    def complete(self) -> None:
        """Fill in the columns left to `later`, if any."""
        # Cleared first: `later` itself may read columns, and must run once.
        later, self.later = self.later, None
        if later is not None:
            later(self)

    def item(self, name: str, row: int) -> Any:
        """Return the value of a column in one row."""
        column = getattr(self, name)
        return column[row] if type(column) in _PER_ROW else column

    def column(self, name: str) -> Sequence[Any]:
        """Return a column as a sequence with a value for each row."""
        column = getattr(self, name)
        return column if type(column) in _PER_ROW else (column,) * self.count

    def keep(self, rows: list[int]) -> Batch:
        """Return a new batch of these rows only."""
        self.complete()
        kept = Batch(len(rows))
        for name, column in self.__dict__.items():
            if name != "count":
                setattr(kept, name, [column[row] for row in rows] if type(column) in _PER_ROW else column)
        return kept

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> Batch:
        """Return a new batch of the rows of all batches, in order. For slow paths."""
        joined = cls(sum(batch.count for batch in batches))
        for name in dict.fromkeys(name for batch in batches for name in batch.__dict__ if name != "count"):
            values = [value for batch in batches for value in batch.column(name)]
            per_row = any(type(getattr(batch, name)) in _PER_ROW for batch in batches)
            setattr(joined, name, values if per_row else agreed(values))
        return joined

    def set_if_used(self, name: str, column: list[Any]) -> None:
        """Set a column unless all its values are None."""
        if column.count(None) < len(column):
            setattr(self, name, column)

    def row(self, row: int) -> Envelope:
        """Return one row as an envelope, without position. For slow paths."""
        fields: dict[str, Any] = {}
        for name in TEXT_COLUMNS:
            if (value := self.item(name, row)) is not None:
                fields[name] = value.decode()
        for name in NUMBER_COLUMNS:
            if (value := self.item(name, row)) is not None:
                fields[name] = value
        fields["attributes"] = decode_attributes(self.item("attributes", row))
        fields["hops"] = decode_hops(self.item("hops", row))
        fields["payload"] = self.item("payload", row) or b""
        # The root of a causal chain stores no correlation id (see the module docstring).
        if "correlation_id" not in fields and "message_id" in fields:
            fields["correlation_id"] = fields["message_id"]
        return Envelope(**fields)

    def __iter__(self) -> Iterator[Envelope]:
        return map(self.row, range(self.count))

    @classmethod
    def of(cls, envelopes: Iterable[Envelope]) -> Batch:
        """Return a batch of these envelopes, without their positions. Columns that no row uses are not set."""
        rows = list(envelopes)
        batch = cls(len(rows))
        for name in TEXT_COLUMNS:
            column = [None if (v := getattr(row, name)) is None else v.encode() for row in rows]
            batch.set_if_used(name, column)
        for name in NUMBER_COLUMNS:
            batch.set_if_used(name, [getattr(row, name) for row in rows])
        batch.set_if_used("attributes", [encode_attributes(row.attributes) for row in rows])
        batch.set_if_used("hops", [encode_hops(row.hops) for row in rows])
        batch.payload = [row.payload for row in rows]
        return batch
