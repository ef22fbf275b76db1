"""W3C trace context: the attributes `traceparent` and `tracestate`, on every wire that can carry an attribute.

    traceparent = version "-" trace-id "-" parent-id "-" flags        all of it lower-case hexadecimal

The bus passes both on as they came. A chain whose messages bring none has a trace id all the same, made of its
correlation id: whoever knows the one can compute the other. Such an id is said to be derived.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"

# Version 00 has exactly four fields; a later one may have more behind them. `ff` is no version.
_form = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*+)?", re.ASCII).fullmatch
_SAMPLED = 1


class TraceContext(NamedTuple):
    """`parent_id` is the span that sent the message; empty where the trace is derived."""

    trace_id: str
    parent_id: str = ""
    sampled: bool = True
    derived: bool = False


def maybe_parse(text: str | None) -> TraceContext | None:
    """What a `traceparent` says; None for one that is not valid, which is as good as none."""
    found = _form(text.strip()) if text else None
    if found is None:
        return None
    version, trace_id, parent_id, flags, more = found.groups()
    if not trace_id.strip("0") or not parent_id.strip("0") or (version == "00" and more):
        return None
    return TraceContext(trace_id, parent_id, bool(int(flags, 16) & _SAMPLED))


def derived(correlation_id: str) -> TraceContext:
    """The trace of a chain that names none."""
    return TraceContext(hashlib.sha256(correlation_id.encode()).hexdigest()[:32], derived=True)


def context_of(attributes: Mapping[str, str] | None, correlation_id: str | None) -> TraceContext:
    """The trace a message belongs to."""
    return maybe_parse((attributes or {}).get(TRACEPARENT)) or derived(correlation_id or "")
