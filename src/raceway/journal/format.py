"""The canonical columns of a row, as every reader of the journal gets them.

`attributes` and `hops` are empty, never null; `correlation_id` of a root is its own `message_id`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

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


def chosen_schema(columns: Sequence[str] | None) -> pa.Schema:
    """SCHEMA, or its `columns` in the order given. KeyError for a name it does not have."""
    return SCHEMA if columns is None else pa.schema([SCHEMA.field(name) for name in columns])
