"""Finding marks: a message that has one in every place is given to the code, and where they come out is looked up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from raceway.model.envelope import COLUMNS, Envelope

Found = dict[str, str]


def columns_of(row: Envelope, marks: Mapping[str, Any]) -> Found:
    """Which mark stands in which column: column to places, in the order of the marks."""
    found: dict[str, list[str]] = {}
    values = msgspec.structs.asdict(row)
    for place, mark in marks.items():
        for column in COLUMNS:
            if _holds(values[column], mark):
                found.setdefault(column, []).append(place)
    return {column: ", ".join(places) for column, places in found.items()}


def _holds(value: Any, mark: Any) -> bool:
    if isinstance(value, bytes):
        return isinstance(mark, str) and mark.encode() in value
    if isinstance(value, dict):
        return mark in value.values() or mark in value
    if isinstance(value, tuple):
        return any(mark in (hop.sid, hop.rid, hop.mid, *hop.tms) for hop in value)
    if isinstance(value, str) and isinstance(mark, str) and "-" in value and mark in value.split("-"):
        return True
    return type(value) is type(mark) and bool(value == mark)
