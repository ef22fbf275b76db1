"""Traces: all rows of one correlation id as a tree of spans.

A span is a publish, or a request with its answer. Its parent is the message that caused it, found by `parent_id` among
the ids under which earlier messages of the trace were sent or forwarded. A span without a known parent is at the top.
Times are those of the broker's clock, so spans of all wires can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from raceway.model.trace_context import TRACEPARENT, TraceContext, context_of, maybe_parse


class FurtherAnswer(msgspec.Struct, frozen=True):
    """An answer after the timeout, or after another answer."""

    position: int
    wire: str
    producer: str | None
    time_us: int
    error: str | None


class Span(msgspec.Struct, kw_only=True):
    """A publish, or a request with its answer. `parent` and `answer` are positions.

    `handed_us` and `end_us` are set for answered requests only. `answered` is None for a publish, False for a request
    without an answer.
    """

    position: int
    parent: int | None = None
    depth: int = 0
    kind: str
    wire: str
    topic: str
    offset: int | None
    message_id: str | None
    parent_id: str | None
    producer: str | None
    begin_us: int
    timeout_ms: int | None = None
    answered: bool | None = None
    answer: int | None = None
    answer_wire: str | None = None
    responder: str | None = None
    handed_us: int | None = None
    end_us: int | None = None
    error: str | None = None
    hops: list[dict[str, Any]] = []
    further: list[FurtherAnswer] = []


class Trace(msgspec.Struct, kw_only=True):
    """A trace. `spans` are in the order of the tree, each after its parent.

    `truncated`: rows may be missing, because the search reached its limit before the end of the journal, or because
    there were more rows than a trace may have.
    """

    id: str
    correlation_id: str
    trace_id: str
    trace_id_derived: bool
    begin_us: int
    end_us: int
    messages: int
    wires: list[str]
    spans: list[Span]
    truncated: bool = False
    searched_rows: int = 0


def trace_of(wanted: str, correlation_id: str, rows: Sequence[Mapping[str, Any]]) -> Trace:
    """Build a trace from its rows, ordered by position; names are those of the journal's columns."""
    spans: dict[int, Span] = {}
    ids: dict[str, int] = {}
    for row in rows:
        if row["kind"] == "response":
            _take_answer(spans, row)
            continue
        parent = ids.get(row["parent_id"] or "")
        spans[row["sequence"]] = _span(row, parent)
        for name in ("message_id", "forwarded_id"):
            if row[name]:
                ids[row[name]] = row["sequence"]
    context = _context(rows, correlation_id)
    return Trace(
        id=wanted,
        correlation_id=correlation_id,
        trace_id=context.trace_id,
        trace_id_derived=context.derived,
        begin_us=min((row["time_us"] for row in rows), default=0),
        end_us=max((row["time_us"] for row in rows), default=0),
        messages=len(rows),
        wires=list(dict.fromkeys(row["wire"] for row in rows)),
        spans=list(_in_tree_order(spans)),
    )


def _context(rows: Sequence[Mapping[str, Any]], correlation_id: str) -> TraceContext:
    """Return the trace context of the first message that has one, else the derived one."""
    named = (row["attributes"] for row in rows if maybe_parse((row["attributes"] or {}).get(TRACEPARENT)))
    return context_of(next(named, None), correlation_id)


def _span(row: Mapping[str, Any], parent: int | None) -> Span:
    return Span(
        position=row["sequence"], parent=parent, kind=row["kind"], wire=row["wire"], topic=row["topic"],
        offset=row["offset"], message_id=row["message_id"], parent_id=row["parent_id"], producer=row["producer"],
        begin_us=row["time_us"], timeout_ms=row["timeout_ms"], error=row["error"],
        answered=False if row["kind"] == "request" else None,
    )  # fmt: skip


def _take_answer(spans: dict[int, Span], row: Mapping[str, Any]) -> None:
    """Add an answer to its span: the first one ends the request, late and duplicate ones are listed."""
    span = spans.get(row["answers"] if row["answers"] is not None else -1)
    if span is None:
        return
    if span.answered or row["error"] in ("late", "duplicate"):
        further = FurtherAnswer(row["sequence"], row["wire"], row["producer"], row["time_us"], row["error"])
        span.further = [*span.further, further]
        return
    span.answered, span.answer, span.answer_wire = True, row["sequence"], row["wire"]
    span.responder, span.error, span.end_us = row["producer"], row["error"], row["time_us"]
    span.hops = list(row["hops"] or [])
    span.handed_us = _maybe_handed_us(span)


def _maybe_handed_us(span: Span) -> int | None:
    """Return when a request was forwarded to its responder, in microseconds, if the broker has recorded it."""
    # The broker's own hop has three times: accepted, forwarded, answered. Others are by the clock of a service.
    times = span.hops[-1]["tms"] if span.hops else None
    if not times or len(times) != 3 or None in times:
        return None
    accepted_ms, handed_ms, _ = times
    waited_us = (handed_ms - accepted_ms) * 1000
    return span.begin_us + waited_us if waited_us >= 0 and accepted_ms == span.begin_us // 1000 else None


def _in_tree_order(spans: dict[int, Span]) -> Iterator[Span]:
    below: dict[int | None, list[Span]] = {}
    for span in spans.values():
        below.setdefault(span.parent, []).append(span)
    waiting = list(reversed(below.get(None, [])))
    while waiting:
        span = waiting.pop()
        yield span
        for child in reversed(below.get(span.position, [])):
            child.depth = span.depth + 1
            waiting.append(child)
