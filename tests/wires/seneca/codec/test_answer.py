"""Answers in each dialect: exact headers, status and body."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from raceway.model.document import raw_members
from raceway.wires.seneca.codec.answer import (
    CallOutcome,
    HttpAnswer,
    Result,
    Stamp,
    accepted_http,
    answer_http,
    answer_line,
    http_bytes,
    refusal_http,
)
from raceway.wires.seneca.codec.call import Call, Dialect
from raceway.wires.seneca.codec.failure import CallFailure, not_found
from raceway.wires.seneca.codec.outgoing import read_answer_line, read_http_answer
from raceway.wires.seneca.codec.request import NotACall
from tests.rigs.seneca_calls import body_of, call_of, headers_of, line_call

STAMP = Stamp("B", 10, 20, "cmd:x")
LEGACY = {b"seneca-id": b"m1/c1", b"seneca-origin": b"A", b"seneca-track": b'["A"]', b"seneca-time-client-sent": b"5"}
FAILED = CallFailure("my_code", "boom", Raw(b'{"a":1}'))


def legacy() -> Call:
    return call_of({"role": "math", "custom$": {"t": 1}}, LEGACY)


def web() -> Call:
    return call_of({"role": "math", "meta$": {"id": "m1/c1", "custom": {"t": 1}}})


def seed() -> Call:
    return call_of({"role": "math", "meta$": {"mid": "m1", "cid": "c1", "ctm": {"t": 1}}})


def bare() -> Call:
    return call_of({"role": "math"})


# ---- results --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [b'{"sum":3}', b"{}", b"[1,2]", b"[]", b"null", b' {"a" : 1} '])
def test_l_and_bare_get_the_result_alone(payload: bytes) -> None:
    for call in (legacy(), bare()):
        answer = answer_http(call, Result(payload), STAMP)
        assert (answer.status, answer.body) == (200, payload)


def test_no_result_is_null_in_l_and_never_an_empty_body() -> None:
    for call in (legacy(), bare()):
        assert answer_http(call, Result(b""), STAMP).body == b"null"


def test_l_repeats_id_and_origin_exactly_and_tells_true_times() -> None:
    identity = b"m1/c1/\xe9 more"
    answer = answer_http(call_of({}, LEGACY | {b"seneca-id": identity}), Result(b"{}"), STAMP)
    assert headers_of(answer) == {
        b"content-type": b"application/json",
        b"seneca-id": identity,
        b"seneca-kind": b"res",
        b"seneca-origin": b"A",
        b"seneca-track": b'["A"]',
        b"seneca-accept": b"B",
        b"seneca-time-client-sent": b"5",
        b"seneca-time-listen-recv": b"10",
        b"seneca-time-listen-sent": b"20",
    }


def test_what_l_did_not_say_is_not_repeated() -> None:
    answer = answer_http(call_of({}, {b"seneca-id": b"m/c"}), Result(b"{}"), STAMP)
    silent = {b"seneca-origin", b"seneca-track", b"seneca-time-client-sent"}
    assert silent.isdisjoint(headers_of(answer))


def test_a_responder_cannot_write_headers_by_its_name() -> None:
    for call in (legacy(), bare()):
        answer = answer_http(call, Result(b"{}"), Stamp("B\r\nset-cookie: x", 1, 2))
        assert b"set-cookie" not in headers_of(answer)


@pytest.mark.parametrize("call", [web(), seed()], ids=["W", "S"])
@pytest.mark.parametrize(
    ("payload", "beside", "empty"),
    [
        (b'{"sum":3}', {"sum": 3}, None),
        (b" {\n} ", {}, None),
        (b"[1,2]", {"array$": [1, 2]}, None),
        (b"null", {}, True),
        (b"", {}, True),
    ],
)
def test_w_and_s_have_meta_data_beside_the_result(call: Call, payload: bytes, beside: Any, empty: bool | None) -> None:
    answer = answer_http(call, Result(payload), STAMP)
    document = body_of(answer)
    meta = document.pop("meta$")
    assert (answer.status, document, meta.get("empty")) == (200, beside, empty)
    assert not meta.get("error")


def test_custom_data_comes_back_as_the_action_left_it() -> None:
    for outcome in (Result(b"{}"), CallFailure("x", "y")):
        assert body_of(answer_http(web(), outcome, STAMP))["meta$"]["custom"] == {"t": 1}
        assert body_of(answer_http(seed(), outcome, STAMP))["meta$"]["usr"] == {"t": 1}
        outcome.custom = raw_members({"t": 2})
        assert body_of(answer_http(web(), outcome, STAMP))["meta$"]["custom"] == {"t": 2}
        assert body_of(answer_http(seed(), outcome, STAMP))["meta$"]["usr"] == {"t": 2}


def test_the_callers_of_a_web_call_have_its_own_call_in_front() -> None:
    parents = '[ ["p", "m0/c1", "Z", "-", "0.1.0", 1, null, true, "z"] ]'
    body = b'{"meta$":{"id":"m1/c1","instance":"A","pattern":"role:x","start":5,"parents":%b}}' % parents.encode()
    meta = body_of(answer_http(call_of(body), Result(b"{}", trace=b'[{"desc":1}]'), STAMP))["meta$"]
    assert meta["parents"] == [["role:x", "m1/c1", "A", None, None, 5, None, True, None], *json.loads(parents)]
    assert meta["trace"] == [{"desc": 1}]


@pytest.mark.parametrize("parents", [[], None, "x", [1], {}])
def test_callers_that_are_none_leave_the_own_call(parents: Any) -> None:
    call = call_of({"meta$": {"id": "m1/c1", "instance": "A", "parents": parents}})
    meta = body_of(answer_http(call, Result(b"{}"), STAMP))["meta$"]
    assert [each[1] for each in meta["parents"]] == ["m1/c1"]


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_an_error_of_the_action_keeps_its_code_in_w_s_and_bare() -> None:
    for call in (web(), seed(), bare()):
        answer = answer_http(call, FAILED, STAMP)
        document = body_of(answer)
        meta = document.pop("meta$", {"error": True})
        assert (answer.status, meta["error"]) == (500, True)
        assert document == {"message": "boom", "code": "my_code", "details": {"a": 1}}


def test_an_error_of_the_action_is_wrapped_in_l_and_t() -> None:
    line = answer_line(line_call({"id": "m/c", "kind": "act", "act": {}, "sync": True}), FAILED, STAMP)
    assert line is not None
    for told in (body_of(answer_http(legacy(), FAILED, STAMP)), json.loads(line)["error"]):
        message = "seneca: Action cmd:x failed: boom."
        assert (told["code"], told["seneca"], told["message"], told["msg"]) == ("act_execute", True, message, message)
        original = {"code": "my_code", "details": {"a": 1}}
        assert told["orig"] == original
        assert told["details"] == {"a": 1, "message": "boom", "pattern": "cmd:x", "orig$": original}


def test_an_error_of_seneca_keeps_its_code_everywhere() -> None:
    failure = not_found(raw_members({"role": "x"}))
    calls = [legacy(), web(), seed(), bare()]
    assert {body_of(answer_http(call, failure, STAMP))["code"] for call in calls} == {"act_not_found"}
    assert body_of(answer_http(legacy(), failure, STAMP))["seneca"] is True


@pytest.mark.parametrize("make", [legacy, web, seed, bare])
def test_no_answer_shows_a_stack_or_a_place_in_the_code(make: Any) -> None:
    body = answer_http(make(), FAILED, STAMP).body
    assert b"stack" not in body
    assert b"callpoint" not in body


def test_refusals_have_no_meta_data() -> None:
    answer = refusal_http(NotACall(400, "invalid_json", "why", b"seneca-id: m/c\r\n"))
    assert headers_of(answer) == {b"content-type": b"application/json", b"seneca-id": b"m/c"}
    assert body_of(answer) == {"code": "invalid_json", "message": "why", "seneca": True}


# ---- HTTP -----------------------------------------------------------------------------------------------------------


def test_a_response_is_complete() -> None:
    answer = HttpAnswer(200, b"seneca-accept: B\r\n", "é".encode())
    assert http_bytes(answer) == (
        b"HTTP/1.1 200 OK\r\nseneca-accept: B\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\n\xc3\xa9"
    )
    assert b"\r\nconnection: close\r\n" in http_bytes(answer, close=True)
    assert http_bytes(HttpAnswer(599, b"", b"")).startswith(b"HTTP/1.1 599 Error\r\n")


def test_nothing_goes_back_in_band() -> None:
    for call in (legacy(), bare()):
        assert accepted_http(call, STAMP)[::2] == (200, b"null")


results = st.one_of(
    st.dictionaries(
        st.text().filter(lambda key: key not in ("meta$", "array$")), st.integers() | st.text(), max_size=3
    ),
    st.lists(st.integers() | st.text(), max_size=3),
    st.none(),
)
outcomes = st.one_of(
    results.map(lambda value: Result(json.dumps(value).encode())),
    st.builds(CallFailure, code=st.text("abc_", min_size=1), message=st.text(min_size=1)),
)


@given(outcomes, st.dictionaries(st.text(), st.integers() | st.text(), max_size=3), st.sampled_from("WSLT"))
def test_what_is_answered_is_understood_by_a_caller(outcome: CallOutcome, custom: dict[str, Any], dialect: str) -> None:
    outcome.custom = raw_members(custom)
    if dialect == "T":
        call = line_call({"id": "m1/c1", "kind": "act", "act": {}, "sync": True})
        line = answer_line(call, outcome, STAMP)
        assert line is not None
        reply = read_answer_line(line[:-1])
    else:
        call = {"W": web, "S": seed, "L": legacy}[dialect]()
        answer = answer_http(call, outcome, STAMP)
        reply = read_http_answer(Dialect(dialect), answer.status, headers_of(answer), answer.body)
    assert reply is not None
    assert (reply.mid, reply.cid, reply.rid) == ("m1", "c1", "B")
    if isinstance(outcome, CallFailure):
        assert reply.failure is not None
        assert (reply.failure.code, reply.failure.message) == (outcome.code, outcome.message)
    else:
        assert reply.failure is None
        assert json.loads(reply.payload) == json.loads(outcome.payload)
    if dialect in "WS":
        assert {name: json.loads(bytes(value)) for name, value in (reply.custom or {}).items()} == custom
