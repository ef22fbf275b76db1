"""W3C Trace Context: the attributes `traceparent` and `tracestate`, on every wire that carries attributes.

    traceparent = version "-" trace-id "-" parent-id "-" flags        in lower-case hexadecimal

The bus forwards both unchanged. A chain of messages without them has a trace id too, derived from its correlation id,
so that it can be computed from that id at any place.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"

# Trace Context, 3.2.2 and 3.2.4: version 00 has four fields, a later one may have more after them; `ff` is invalid.
_form = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*+)?", re.ASCII).fullmatch
_SAMPLED = 1


class TraceContext(NamedTuple):
    """The trace of a message. `parent_id` is the span that sent it; empty if the trace id is derived."""

    trace_id: str
    parent_id: str = ""
    sampled: bool = True
    derived: bool = False


def maybe_parse(text: str | None) -> TraceContext | None:
    """Parse a `traceparent`; return None if it is invalid or absent."""
    # Trace Context, 3.2.2.3: an invalid header is ignored, and a new trace begins.
    found = _form(text.strip()) if text else None
    if found is None:
        return None
    version, trace_id, parent_id, flags, more = found.groups()
    # Trace Context, 3.2.2.3 and 3.2.2.4: all zeros is an invalid trace-id or parent-id.
    if not trace_id.strip("0") or not parent_id.strip("0") or (version == "00" and more):
        return None
    return TraceContext(trace_id, parent_id, bool(int(flags, 16) & _SAMPLED))


def derived(correlation_id: str) -> TraceContext:
    """Return the trace derived from a correlation id."""
    return TraceContext(hashlib.sha256(correlation_id.encode()).hexdigest()[:32], derived=True)


def context_of(attributes: Mapping[str, str] | None, correlation_id: str | None) -> TraceContext:
    """Return the trace of a message: that of its attributes, else the derived one."""
    return maybe_parse((attributes or {}).get(TRACEPARENT)) or derived(correlation_id or "")
