from __future__ import annotations

from typing import Any

from raceway.model.traces import trace_of

NOW = 1_700_000_000_000_000


def row(sequence: int, kind: str = "request", **facts: Any) -> dict[str, Any]:
    usual = {
        "sequence": sequence, "topic": f"t{sequence}", "offset": sequence, "time_us": NOW + sequence * 1000,
        "wire": "mb", "kind": kind, "message_id": f"m{sequence}", "forwarded_id": f"f{sequence}", "answers": None,
        "parent_id": None, "correlation_id": "m0", "timeout_ms": None, "producer": f"p{sequence}", "attributes": {},
        "hops": [], "error": None,
    }  # fmt: skip
    return usual | facts


def answer(sequence: int, answers: int, **facts: Any) -> dict[str, Any]:
    return row(sequence, "response", answers=answers, offset=None, message_id=f"m{answers}", **facts)


def test_spans_stand_behind_their_parents_with_their_answers() -> None:
    rows = [
        row(0), row(1, parent_id="f0", wire="seneca"), row(2, "publish", parent_id="m1", wire="zbus"),
        answer(3, 1, wire="zbus"), row(4, parent_id="f0"), answer(5, 0, wire="seneca", error="act_execute"),
    ]  # fmt: skip
    trace = trace_of("m2", "m0", rows)
    assert [(span.position, span.parent, span.depth, span.answer) for span in trace.spans] == [
        (0, None, 0, 5), (1, 0, 1, 3), (2, 1, 2, None), (4, 0, 1, None),
    ]  # fmt: skip
    first, child, publish, unanswered = trace.spans
    assert (first.error, first.answer_wire, first.end_us) == ("act_execute", "seneca", NOW + 5000)
    assert (child.answered, publish.answered, unanswered.answered) == (True, None, False)
    assert (trace.wires, trace.messages) == (["mb", "seneca", "zbus"], 6)
    assert (trace.begin_us, trace.end_us) == (NOW, NOW + 5000)


def test_the_brokers_hop_says_when_a_request_was_handed_over() -> None:
    begin_ms = NOW // 1000
    trace = trace_of("m0", "m0", [row(0), answer(1, 0, hops=[{"tms": [begin_ms, begin_ms + 1, begin_ms + 2]}])])
    assert trace.spans[0].handed_us == NOW + 1000
    foreign = trace_of("m0", "m0", [row(0), answer(1, 0, hops=[{"tms": [5, 6, 7]}])])
    assert foreign.spans[0].handed_us is None  # another clock


def test_late_and_second_answers_are_told_apart() -> None:
    rows = [row(0), answer(1, 0, error="late"), answer(2, 0), answer(3, 0, error="duplicate"), answer(4, 99)]
    (span,) = trace_of("m0", "m0", rows).spans
    assert span.answer == 2
    assert [(each.position, each.error) for each in span.further] == [(1, "late"), (3, "duplicate")]


def test_what_names_a_parent_that_is_not_there_stands_at_the_top() -> None:
    trace = trace_of("x", "x", [row(0, parent_id="gone"), row(1)])
    assert [(span.parent, span.depth) for span in trace.spans] == [(None, 0), (None, 0)]


def test_an_id_used_twice_means_the_newer_message() -> None:
    rows = [row(0, message_id="1"), row(1, message_id="1"), row(2, parent_id="1")]
    assert trace_of("1", "m0", rows).spans[-1].parent == 1


def test_a_message_that_names_itself_as_parent_ends_the_walk() -> None:
    assert len(trace_of("m0", "m0", [row(0, parent_id="m0")]).spans) == 1


def test_the_first_traceparent_is_the_traces() -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert trace_of("m0", "m0", [row(0)]).trace_id_derived
    trace = trace_of(
        "m0", "m0", [row(0, attributes={"traceparent": "bad"}), row(1, attributes={"traceparent": parent})]
    )
    assert (trace.trace_id, trace.trace_id_derived) == (parent[3:35], False)


def test_a_very_deep_chain_is_no_problem() -> None:
    rows = [row(0), *(row(n, parent_id=f"m{n - 1}") for n in range(1, 5000))]
    assert trace_of("m0", "m0", rows).spans[-1].depth == 4999
