"""Conversion of the columns of a `Batch`, as codecs make them, to columns of bronze."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from raceway.model.envelope import JSON_COLUMNS, Batch, decode_attributes, decode_hops
from raceway.wires.captures.columns import BRONZE

# Attributes of a whole batch, not columns; bronze sets the wire of all rows itself.
_SAID = ("count", "wire")


def bronze_columns(batch: Batch) -> dict[str, pa.Array]:
    """Return the columns of a batch. A message without a chain begins one: its own id is the correlation id."""
    found = {name: _column(batch, name) for name in batch.__dict__ if name not in _SAID}
    nothing = pa.nulls(batch.count, pa.string())
    found["correlation_id"] = pc.coalesce(
        found.get("correlation_id", nothing), found.get("parent_id", nothing), found.get("message_id", nothing)
    )
    return found


def _column(batch: Batch, name: str) -> pa.Array:
    """Return a column in the type of bronze."""
    kind, column = BRONZE.field(name).type, getattr(batch, name)
    # A column of a batch is a list, or one value for all rows.
    values = column if isinstance(column, list) else [column] * batch.count
    if name in JSON_COLUMNS:
        return pa.array([_decoded(name, value) for value in values], kind)
    if pa.types.is_string(kind):
        return pa.array(values, pa.binary()).cast(pa.string())
    return pa.array(values, kind)


def _decoded(name: str, value: bytes | None) -> list[Any]:
    """Decode a column that codecs keep as JSON text."""
    if name == "attributes":
        return list(decode_attributes(value).items())
    return [{"sid": hop.sid, "rid": hop.rid, "mid": hop.mid, "tms": list(hop.tms)} for hop in decode_hops(value)]
