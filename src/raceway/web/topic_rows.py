"""Format of rows and positions over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from raceway.journal.query.inspect import document
from raceway.net.codec.cloudevents import event_of

Form = Literal["rows", "cloudevents"]
# Columns about the journal, of no use to readers by offset.
HIDDEN = ("partition", "sequence")

encode_line = msgspec.json.Encoder().encode


def place_of(offsets: Sequence[int]) -> str:
    return ",".join(map(str, offsets))


def shown(row: Mapping[str, Any], form: Form) -> dict[str, Any]:
    """Return a row in the wanted format."""
    if form == "cloudevents":
        return event_of(row)
    return document({name: value for name, value in row.items() if name not in HIDDEN})
