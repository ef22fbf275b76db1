"""Columns of a `Batch`, as codecs make them, to columns of bronze."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from raceway.model.envelope import JSON_COLUMNS, Batch, decode_attributes, decode_hops
from raceway.pipeline.columns import BRONZE

# A codec says these of all its messages, bronze of all rows.
_SAID = ("count", "wire")


def bronze_columns(batch: Batch) -> dict[str, pa.Array]:
    """A message that names no chain begins one: its own id is the correlation id."""
    found = {name: _column(batch, name) for name in batch.__dict__ if name not in _SAID}
    nothing = pa.nulls(batch.count, pa.string())
    found["correlation_id"] = pc.coalesce(
        found.get("correlation_id", nothing), found.get("parent_id", nothing), found.get("message_id", nothing)
    )
    return found


def _column(batch: Batch, name: str) -> pa.Array:
    kind, column = BRONZE.field(name).type, getattr(batch, name)
    values = column if isinstance(column, list) else [column] * batch.count
    if name in JSON_COLUMNS:
        return pa.array([_decoded(name, value) for value in values], kind)
    if pa.types.is_string(kind):
        return pa.array(values, pa.binary()).cast(pa.string())
    return pa.array(values, kind)


def _decoded(name: str, value: bytes | None) -> list[Any]:
    if name == "attributes":
        return list(decode_attributes(value).items())
    return [{"sid": hop.sid, "rid": hop.rid, "mid": hop.mid, "tms": list(hop.tms)} for hop in decode_hops(value)]
