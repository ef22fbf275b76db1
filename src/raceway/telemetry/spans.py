"""Conversion of journal rows to spans.

    publish     one span, `send TOPIC`, at the time the bus accepted it
    request     `send TOPIC` from its acceptance to its answer; below it `process TOPIC` of the responder, from the time
                it was handed over to the answer

A span's parent is the span of the message that caused it, otherwise the one that the sender's `traceparent` names.
Trace ids come from `traceparent`, for the whole chain as soon as one of its messages carried one; otherwise they are
derived from the correlation id and marked as such. Span ids are derived from positions: a span that is sent again after
a fault has the same id.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from raceway.model.envelope import OWN_NAME, REFUSALS
from raceway.model.trace_context import TRACEPARENT, TraceContext, derived, maybe_parse
from raceway.telemetry import names

V = TypeVar("V")

# Entries kept of each kind: messages that may still cause others, chains with a trace id, and requests without an
# answer. Bounds the memory; an older cause is simply not linked.
KEPT = 50_000
# Assumed deadline of a request that has none.
PATIENCE_US = 60_000_000

COLUMNS = (
    "sequence", "topic", "offset", "time_us", "wire", "kind", "message_id", "forwarded_id", "answers", "parent_id",
    "correlation_id", "timeout_ms", "producer", "attributes", "hops", "error",
)  # fmt: skip


class SpanFacts(msgspec.Struct, frozen=True):
    """Span with ids as hexadecimal digits and times in nanoseconds."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: dict[str, str | int | bool]
    error: str | None = None
    sampled: bool = True


class Recent(OrderedDict[Any, V]):
    """Map that keeps the last `KEPT` keys."""

    def put(self, key: Any, value: V) -> V | None:
        """Store a value; return the one that was dropped for it, if any."""
        self[key] = value
        self.move_to_end(key)
        return self.popitem(last=False)[1] if len(self) > KEPT else None


class SpanMaker:
    """Makes spans from rows in order. `service` distinguishes the spans of several buses."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._traces: Recent[TraceContext] = Recent()
        self._spans: Recent[str] = Recent()
        self._open: Recent[Mapping[str, Any]] = Recent()

    @property
    def oldest_open(self) -> int | None:
        """Position of the first request that still waits for its answer; None if there is none."""
        return next(iter(self._open), None)

    def spans(self, rows: Iterable[Mapping[str, Any]], now_us: int) -> list[SpanFacts]:
        """Return the sampled spans that these rows complete, and those of requests whose time is over."""
        found: list[SpanFacts] = []
        for row in rows:
            if row["kind"] == "publish":
                found.append(self._sent(row, row["time_us"], None))
            elif row["kind"] == "request":
                self._remember(row)
                # Too many open requests: the oldest is reported as a timeout rather than forgotten.
                if (given_up := self._open.put(row["sequence"], row)) is not None:
                    found.append(self._sent(given_up, now_us, "timeout"))
            elif row["kind"] == "response":
                found += self._answered(row)
        found += self._overdue(now_us)
        return [span for span in found if span.sampled]

    def _answered(self, row: Mapping[str, Any]) -> list[SpanFacts]:
        """Return the spans that an answer completes. Late and second answers complete none."""
        request = self._open.pop(row["answers"], None)
        if request is None:
            return []
        sent = self._sent(request, row["time_us"], row["error"])
        # Refused by the bus itself: no service has processed the request.
        if row["producer"] == OWN_NAME.decode() and row["error"] in REFUSALS:
            return [sent]
        attributes = self._attributes(row, names.PROCESS) | {names.DESTINATION: request["topic"]}
        processed = SpanFacts(
            f"{names.PROCESS} {request['topic']}", names.CONSUMER, sent.trace_id,
            self._span_id(request["sequence"], names.PROCESS), sent.span_id,
            _handed_us(request, row) * 1000, row["time_us"] * 1000, attributes, row["error"], sent.sampled,
        )  # fmt: skip
        return [sent, processed]

    def _overdue(self, now_us: int) -> list[SpanFacts]:
        """Return the spans of requests whose deadline passed a while ago."""
        found = []
        for position, request in list(self._open.items()):
            patience_us = PATIENCE_US if request["timeout_ms"] is None else request["timeout_ms"] * 1000
            # A minute of grace after the deadline: the row of an answer may be read a little later than it was
            # written.
            if now_us > request["time_us"] + patience_us + PATIENCE_US:
                del self._open[position]
                found.append(self._sent(request, request["time_us"] + patience_us, "timeout"))
        return found

    def _sent(self, row: Mapping[str, Any], end_us: int, error: str | None) -> SpanFacts:
        """Return the `send` span of a publish or request."""
        span_id = self._remember(row)
        context = self._context(row)
        attributes = self._attributes(row, names.SEND)
        if context.derived:
            attributes[names.DERIVED] = True
        return SpanFacts(
            f"{names.SEND} {row['topic']}", names.PRODUCER, context.trace_id, span_id, self._parent_id(row, context),
            row["time_us"] * 1000, max(end_us, row["time_us"]) * 1000, attributes, error, context.sampled,
        )  # fmt: skip

    def _remember(self, row: Mapping[str, Any]) -> str:
        """Record the ids under which later messages may name this one as their parent; return its span id."""
        span_id = self._span_id(row["sequence"], names.SEND)
        # Messages that a service sends while it handles a request belong below its `process` span.
        handled = self._span_id(row["sequence"], names.PROCESS) if row["kind"] == "request" else span_id
        for name in ("message_id", "forwarded_id"):
            if row[name]:
                self._spans.put(row[name], handled)
        own = maybe_parse((row["attributes"] or {}).get(TRACEPARENT))
        # The first `traceparent` of a chain decides, so that all its spans are in one trace.
        if own is not None and self._traces.get(row["correlation_id"]) is None:
            self._traces.put(row["correlation_id"], own)
        return span_id

    def _context(self, row: Mapping[str, Any]) -> TraceContext:
        """Return the trace context of a row: its own, that of its chain, or a derived one."""
        own = maybe_parse((row["attributes"] or {}).get(TRACEPARENT))
        return own or self._traces.get(row["correlation_id"]) or derived(row["correlation_id"] or "")

    def _parent_id(self, row: Mapping[str, Any], context: TraceContext) -> str:
        """Return the span id of the cause; that of the `traceparent` if the cause is unknown."""
        known = self._spans.get(row["parent_id"]) if row["parent_id"] else None
        return known or context.parent_id

    def _attributes(self, row: Mapping[str, Any], operation: str) -> dict[str, str | int | bool]:
        """Return the attributes of a span; absent values are left out."""
        values = {
            names.SYSTEM: names.RACEWAY,
            names.OPERATION_NAME: operation,
            names.OPERATION_TYPE: operation,
            names.DESTINATION: row["topic"],
            names.MESSAGE_ID: row["message_id"],
            names.CONVERSATION_ID: row["correlation_id"],
            names.CLIENT_ID: row["producer"],
            names.WIRE: row["wire"],
            names.KIND: row["kind"],
            names.OFFSET: row["offset"],
            names.POSITION: row["sequence"],
            names.ERROR_TYPE: row["error"],
        }
        return {name: value for name, value in values.items() if value is not None}

    def _span_id(self, position: int, operation: str) -> str:
        """Derive a span id of 8 bytes from a position."""
        return hashlib.sha256(f"{self._service}\0{position}\0{operation}".encode()).hexdigest()[:16]


def _handed_us(request: Mapping[str, Any], answer: Mapping[str, Any]) -> int:
    """Return when the request was handed over, by the broker's hop times, otherwise the request's own time."""
    times = answer["hops"][-1]["tms"] if answer["hops"] else None
    # Three times (accepted, handed over, answered) are the broker's; services write other numbers of them.
    if not times or len(times) != 3 or None in times:
        return int(request["time_us"])
    waited_ms: int = times[1] - times[0]
    return int(request["time_us"]) + max(waited_ms, 0) * 1000
