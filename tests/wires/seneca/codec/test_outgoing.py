"""The caller's side: what a listener of each dialect is sent, and what its answers mean."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.errors import MalformedError
from raceway.model.document import raw_members
from raceway.model.envelope import Hop
from raceway.net.codec.http_stream import HttpCall, RequestReader
from raceway.wires.seneca.codec.answer import HttpAnswer
from raceway.wires.seneca.codec.call import Dialect
from raceway.wires.seneca.codec.outgoing import (
    ListenerReply,
    Outgoing,
    call_http,
    call_line,
    read_answer_line,
    read_http_answer,
    read_returned,
)
from raceway.wires.seneca.codec.rows import ReplyRow, answer_batch
from tests.rigs.seneca_calls import call_of, headers_of, line_call, plain
from tests.rigs.vectors.seneca import VECTORS

HOPS = (Hop(sid="Z", rid="A", mid="m0", tms=(1, 2)), Hop(sid="A", mid="m1", tms=(5,)))


def outgoing(**more: Any) -> Outgoing:
    return Outgoing("m1", "c1", "A", raw_members({"role": "math", "x": 1}), sent_ms=5, hops=HOPS, **more)


def sent(dialect: Dialect, **more: Any) -> tuple[dict[bytes, bytes], Any]:
    request = call_http(dialect, outgoing(**more))
    return headers_of(HttpAnswer(0, request.lines, b"")), json.loads(request.body)


# ---- requests -------------------------------------------------------------------------------------------------------


def test_a_legacy_listener_gets_headers() -> None:
    headers, body = sent(Dialect.LEGACY, custom=raw_members({"t": 1}))
    assert headers == {
        b"content-type": b"application/json", b"seneca-id": b"m1/c1", b"seneca-kind": b"req", b"seneca-origin": b"A",
        b"seneca-track": b'["A"]', b"seneca-time-client-sent": b"5",
    }  # fmt: skip
    assert body == {"role": "math", "x": 1, "custom$": {"t": 1}}


def test_a_web_listener_gets_meta_data_with_long_names() -> None:
    headers, body = sent(Dialect.WEB, sync=False, timeout_ms=500)
    assert headers == {b"content-type": b"application/json"}
    meta = body.pop("meta$")
    assert body == {"role": "math", "x": 1}
    assert {name: meta[name] for name in ("id", "mi", "tx", "sync", "custom", "instance", "start", "timeout")} == {
        "id": "m1/c1", "mi": "m1", "tx": "c1", "sync": False, "custom": {}, "instance": "A", "start": 5, "timeout": 500,
    }  # fmt: skip
    assert [parent[1:3] for parent in meta["parents"]] == [["m0/c1", "A"], ["m0/c1", "Z"]]


def test_a_chain_is_never_longer_than_a_real_instance_bears() -> None:
    long = tuple(Hop(sid="A", rid="B", mid=f"m{number}", tms=(1,)) for number in range(64))
    request = outgoing()
    request.hops = long
    assert len(json.loads(call_http(Dialect.WEB, request).body)["meta$"]["parents"]) <= 33


def test_an_unknown_listener_gets_both() -> None:
    headers, body = sent(Dialect.ANY)
    assert headers[b"seneca-id"] == body["meta$"]["id"].encode() == b"m1/c1"


def test_a_bare_request_is_the_document() -> None:
    assert sent(Dialect.BARE) == ({b"content-type": b"application/json"}, {"role": "math", "x": 1})


def test_names_cannot_write_headers() -> None:
    request = outgoing()
    request.sid, request.mid = "A\r\nx: y", "m\n1"
    lines = call_http(Dialect.LEGACY, request).lines
    assert lines.count(b"\n") == 6
    assert b"\nx: y" not in lines


def test_a_request_is_complete() -> None:
    request = call_http(Dialect.WEB, outgoing())
    data = request.to_bytes(b"127.0.0.1:10101", b"/act")
    (read,) = RequestReader(10_000).receive_data(data)
    assert isinstance(read, HttpCall)
    assert (read.method, read.target, read.body, read.keep_alive) == (b"POST", b"/act", request.body, True)
    assert read.headers[b"host"] == b"127.0.0.1:10101"
    (returned,) = RequestReader(10_000).receive_data(request.to_bytes(b"h", b"/rtn"))
    assert isinstance(returned, HttpCall)
    assert returned.target == b"/rtn"


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
ids = st.text("abc123", min_size=1, max_size=12)
members = st.dictionaries(
    texts.filter(lambda key: not key.endswith("$")), st.integers() | texts | st.none(), max_size=4
)
custom_data = st.dictionaries(st.text("abc", min_size=1), st.integers() | texts, max_size=3)


@given(ids, ids, ids, members, custom_data, st.booleans(), st.sampled_from("LWST+"))
def test_what_is_sent_is_understood_by_a_listener(
    mid: str, cid: str, sid: str, data: dict[str, Any], custom: dict[str, Any], sync: bool, dialect: str
) -> None:
    request = Outgoing(
        mid, cid, sid, raw_members(data), sync, raw_members(custom), (Hop(sid=sid, mid=mid, tms=(5,)),), 5
    )
    if dialect in "T+":
        line = call_line(Dialect.TCP if dialect == "T" else Dialect.SEED_LINE, request)
        assert line.count(b"\n") == 1
        call = line_call(line[:-1])
    else:
        http = call_http(Dialect(dialect), request)
        call = call_of(http.body, headers_of(HttpAnswer(0, http.lines, b"")))
    assert (call.mid, call.cid, call.sid, call.sync) == (mid, cid, sid, sync or dialect == "L")
    assert (json.loads(call.payload), plain(call.custom)) == (data, custom)
    assert (call.hops, call.sent_ms) == (request.hops, 5)


# ---- answers --------------------------------------------------------------------------------------------------------


def heard(dialect: Dialect, body: Any, status: int = 200, headers: dict[bytes, bytes] | None = None) -> ListenerReply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_http_answer(dialect, status, headers or {}, data)


def code(reply: ListenerReply) -> str | None:
    return None if reply.failure is None else reply.failure.code


@pytest.mark.parametrize(
    ("body", "payload"),
    [
        ({"x": 1}, {"x": 1}),
        ({"x": 1, "meta$": {"id": "m/c"}}, {"x": 1}),
        ({"meta$": {"empty": True}}, None),
        ({"array$": [1], "meta$": {}}, [1]),
        ([1, 2], [1, 2]),
        ({"entity$": "-/-/foo", "meta$": {}}, {"entity$": "-/-/foo"}),
        ({"x": 1, "meta$": "mine"}, {"x": 1, "meta$": "mine"}),
    ],
)
@pytest.mark.parametrize("status", [200, 201, 500])
def test_a_web_answer_is_judged_by_its_meta_data_not_by_its_status(body: Any, payload: Any, status: int) -> None:
    reply = heard(Dialect.WEB, body, status)
    assert (code(reply), json.loads(reply.payload)) == (None, payload)


@pytest.mark.parametrize("body", [b"", b"null", b'"text"', b"5", b"<html>", b"\xff", b'{"a":' * 600])
def test_a_web_answer_that_is_no_result(body: bytes) -> None:
    assert code(heard(Dialect.WEB, body)) == "result_not_objarr"


def test_a_web_error() -> None:
    reply = heard(Dialect.WEB, VECTORS["V24"].answer.text, 500)
    assert reply.failure is not None
    assert (reply.failure.code, reply.failure.message) == ("div_zero", "division by zero")
    assert (reply.mid, reply.cid, reply.rid) == ("m33", "c33", "B")


def test_a_legacy_answer() -> None:
    headers = {b"seneca-id": b"m1/c1", b"seneca-accept": b"B", b"seneca-time-listen-recv": b"0"}
    reply = heard(Dialect.LEGACY, {"sum": 3, "meta$": {"error": True}}, headers=headers)
    assert (code(reply), json.loads(reply.payload)) == (None, {"sum": 3, "meta$": {"error": True}})
    assert (reply.mid, reply.cid, reply.rid, reply.received_ms, reply.custom) == ("m1", "c1", "B", None, None)


@pytest.mark.parametrize("body", [b"null", b"", b" "])
def test_a_legacy_answer_without_result(body: bytes) -> None:
    assert heard(Dialect.LEGACY, body).payload == b"null"


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (500, VECTORS["V27"].answer.text, "div_zero"),
        (404, b"", "act_execute"),
        (201, {"x": 1}, "act_execute"),
        (500, [1], "act_execute"),
        (200, b'"text"', "result_not_objarr"),
        (200, b"<html>", "result_not_objarr"),
        (502, b"<html>", "result_not_objarr"),
    ],
)
def test_a_legacy_error(status: int, body: Any, expected: str) -> None:
    assert code(heard(Dialect.LEGACY, body, status)) == expected


def test_an_unknown_listener_shows_by_its_answer_what_it_is() -> None:
    web = heard(Dialect.ANY, VECTORS["V22"].answer.text)
    assert (json.loads(web.payload), web.custom) == ({"sum": 3}, {})
    legacy = heard(Dialect.ANY, {"sum": 3}, headers={b"seneca-id": b"m/c"})
    assert (json.loads(legacy.payload), legacy.custom) == ({"sum": 3}, None)
    assert code(heard(Dialect.ANY, VECTORS["V27"].answer.text, 500)) == "div_zero"


def test_a_bare_answer_is_data() -> None:
    assert json.loads(heard(Dialect.BARE, {"x": 1, "meta$": {"error": True}}).payload)["x"] == 1


@pytest.mark.parametrize("line", [b"{", b"[]", b"null", b"\xff"])
def test_a_line_that_is_no_object_breaks_the_connection(line: bytes) -> None:
    with pytest.raises(MalformedError):
        read_answer_line(line)


def test_lines_that_are_no_answers_are_passed_over() -> None:
    for line in (b'{"kind":"act","id":"m/c"}', b"{}", b'{"meta$":{"mid":"m"}}'):
        assert read_answer_line(line) is None


@pytest.mark.parametrize(
    ("line", "payload", "expected"),
    [
        ({"res": {"x": 1}}, {"x": 1}, None),
        ({"res": None}, None, None),
        ({}, None, None),
        ({"res": [1], "error": None}, [1], None),
        ({"res": "text"}, None, "result_not_objarr"),
        ({"res": {"x": 1}, "error": {"code": "c", "message": "m", "seneca": True}}, None, "c"),
        ({"error": "words"}, None, "act_execute"),
    ],
)
def test_wrapped_answers(line: dict[str, Any], payload: Any, expected: str | None) -> None:
    reply = read_answer_line(json.dumps({"id": "m/c", "kind": "res", "accept": "B", **line}).encode())
    assert reply is not None
    assert (reply.mid, reply.cid, reply.rid, code(reply)) == ("m", "c", "B", expected)
    if expected is None:
        assert json.loads(reply.payload) == payload


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"meta$":{"mid":"m"}}', b'{"meta$":5}', b"{"])
def test_a_return_path_takes_responses_only(body: bytes) -> None:
    with pytest.raises(MalformedError):
        read_returned(body)


hostile = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
FIELDS = ["id", "mi", "tx", "mid", "cid", "rid", "trk", "trace", "usr", "custom", "error", "empty", "multiple", "start"]


@given(
    st.dictionaries(st.sampled_from(FIELDS), hostile),
    hostile,
    st.sampled_from([Dialect.LEGACY, Dialect.WEB, Dialect.SEED, Dialect.BARE, Dialect.ANY]),
    st.integers(200, 599),
)
def test_no_answer_breaks_the_caller(meta: dict[str, Any], array: Any, dialect: Dialect, status: int) -> None:
    reply = heard(dialect, {"a": 1, "array$": array, "meta$": meta}, status)
    assert reply.failure is not None or reply.accepted or reply.several or json.loads(reply.payload) != 0
    answer_batch([ReplyRow(reply, b"m1", lambda: reply.hops)]).complete()
    line = json.dumps({"kind": "res", "id": array, "res": array, "error": meta, "time": array}).encode()
    assert read_answer_line(line) is not None
