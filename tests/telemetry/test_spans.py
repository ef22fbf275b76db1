from __future__ import annotations

from typing import Any

from raceway.model.trace_context import derived
from raceway.telemetry import names
from raceway.telemetry.spans import PATIENCE_US, SpanMaker

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
NOW = 1_700_000_000_000_000


def row(sequence: int, kind: str = "publish", **facts: Any) -> dict[str, Any]:
    usual = {
        "sequence": sequence, "topic": "math.sum", "offset": sequence, "time_us": NOW + sequence * 1000, "wire": "mb",
        "kind": kind, "message_id": f"m{sequence}", "forwarded_id": None, "answers": None, "parent_id": None,
        "correlation_id": f"m{sequence}", "timeout_ms": None, "producer": "desk", "attributes": {}, "hops": [],
        "error": None,
    }  # fmt: skip
    return usual | facts


def test_a_publish_is_one_span_with_a_derived_trace_id_that_says_so() -> None:
    (span,) = SpanMaker("bus").spans([row(3)], NOW)
    assert (span.name, span.kind) == ("send math.sum", names.PRODUCER)
    assert span.trace_id == derived("m3").trace_id
    assert span.attributes[names.DERIVED] is True
    assert (span.parent_id, span.start_ns) == ("", (NOW + 3000) * 1000)


def test_a_traceparent_names_the_trace_and_the_parent() -> None:
    context = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    (span,) = SpanMaker("bus").spans([row(0, attributes=context)], NOW)
    assert (span.trace_id, span.parent_id) == (TRACE, PARENT)
    assert names.DERIVED not in span.attributes


def test_a_chain_follows_the_trace_that_its_first_message_brought() -> None:
    first = row(0, "request", attributes={"traceparent": f"00-{TRACE}-{PARENT}-01"}, forwarded_id="masked")
    child = row(1, parent_id="m0", correlation_id="m0")
    answer = row(2, "response", answers=0, correlation_id="m0", producer="calc", hops=[{"tms": [10, 12, 15]}])
    maker = SpanMaker("bus")
    sent_child, sent, processed = maker.spans([first, child, answer], NOW)
    assert {span.trace_id for span in (sent_child, sent, processed)} == {TRACE}
    assert sent.parent_id == PARENT
    assert processed.parent_id == sent.span_id
    assert sent_child.parent_id == processed.span_id
    assert (processed.start_ns - sent.start_ns, processed.end_ns) == (2_000_000, (NOW + 2000) * 1000)
    assert processed.attributes[names.CLIENT_ID] == "calc"
    assert maker.oldest_open is None


def test_an_error_answer_marks_both_spans() -> None:
    spans = SpanMaker("bus").spans([row(0, "request"), row(1, "response", answers=0, error="act_execute")], NOW)
    assert [span.error for span in spans] == ["act_execute", "act_execute"]


def test_what_the_bus_refused_itself_was_processed_by_nobody() -> None:
    maker = SpanMaker("bus")
    (span,) = maker.spans([row(0, "request"), row(1, "response", answers=0, error="no_route", producer="raceway")], NOW)
    assert (span.name, span.error, span.end_ns - span.start_ns) == ("send math.sum", "no_route", 1_000_000)
    assert maker.oldest_open is None


def test_late_and_second_answers_make_no_span() -> None:
    maker = SpanMaker("bus")
    maker.spans([row(0, "request"), row(1, "response", answers=0)], NOW)
    assert maker.spans([row(2, "response", answers=0, error="duplicate"), row(3, "response", answers=9)], NOW) == []


def test_a_request_that_nobody_answers_ends_at_its_deadline() -> None:
    maker = SpanMaker("bus")
    assert maker.spans([row(0, "request", timeout_ms=50)], NOW) == []
    assert maker.oldest_open == 0
    (span,) = maker.spans([], NOW + 50_000 + PATIENCE_US + 1)
    assert (span.error, span.end_ns - span.start_ns) == ("timeout", 50_000_000)


def test_what_is_not_sampled_is_not_sent() -> None:
    assert SpanMaker("bus").spans([row(0, attributes={"traceparent": f"00-{TRACE}-{PARENT}-00"})], NOW) == []


def test_the_same_rows_make_the_same_spans_and_another_bus_others() -> None:
    rows = [row(0), row(1)]
    assert SpanMaker("bus").spans(rows, NOW) == SpanMaker("bus").spans(rows, NOW)
    assert SpanMaker("bus").spans(rows, NOW)[0].span_id != SpanMaker("other").spans(rows, NOW)[0].span_id
