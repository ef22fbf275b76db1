"""Requests over HTTP: which dialect they are, what they say, and what is made up where they say nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.model.envelope import Hop
from raceway.wires.seneca.codec.call import Call, Dialect, batch_of
from raceway.wires.seneca.codec.request import NotACall, read_http, too_large
from tests.rigs.seneca_calls import call_of, custom_of, fresh_ids, plain, refused

LEGACY = {
    b"seneca-id": b"m1/c1",
    b"seneca-origin": b"A",
    b"seneca-kind": b"req",
    b"seneca-track": b'["A"]',
    b"seneca-time-client-sent": b"1700000000123",
}


# ---- which dialect --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "dialect"),
    [
        ({"a": 1}, Dialect.BARE),
        ({}, Dialect.BARE),
        ({"a": 1, "meta$": {"id": "m1/c1"}}, Dialect.WEB),
        ({"a": 1, "meta$": {"mi": "m1"}}, Dialect.WEB),
        ({"a": 1, "meta$": {"tx": "c1", "mid": "m1"}}, Dialect.WEB),
        *[({"meta$": {name: None}}, Dialect.SEED) for name in ("mid", "cid", "sid", "snc", "trk", "act", "out", "vin")],
        ({"a": 1, "msg$": {"mid": "m1"}}, Dialect.SEED),
        ({"a": 1, "msg$": {"cid": "c1"}}, Dialect.BARE),
        ({"a": 1, "msg$": {"mid": "m1", "id": "x/y"}}, Dialect.SEED),
        ({"a": 1, "meta$": {"other": 1}}, Dialect.BARE),
        ({"a": 1, "meta$": {}}, Dialect.BARE),
        ({"a": 1, "meta$": "text"}, Dialect.BARE),
        ({"a": 1, "meta$": [{"id": "x"}]}, Dialect.BARE),
        ({"a": 1, "meta$": None, "msg$": {"mid": "m1"}}, Dialect.BARE),
    ],
)  # fmt: skip
def test_a_dialect_shows_by_its_meta_data(document: dict[str, Any], dialect: Dialect) -> None:
    assert call_of(document).dialect is dialect


def test_the_header_of_l_counts_more_than_meta_data() -> None:
    call = call_of({"a": 1, "meta$": {"id": "other/other"}}, {b"seneca-id": b"m1/c1"})
    assert (call.dialect, call.id, call.payload) == (Dialect.LEGACY, "m1/c1", b'{"a":1}')


# ---- L --------------------------------------------------------------------------------------------------------------


def test_a_legacy_request_is_told_by_its_headers() -> None:
    call = call_of({"role": "math", "a": 1, "custom$": {"t": 1}, "fatal$": True}, LEGACY)
    assert (call.mid, call.cid, call.sid, call.sync) == ("m1", "c1", "A", True)
    assert (call.sent_ms, call.echo.track) == (1_700_000_000_123, b'["A"]')
    assert call.hops == (Hop(sid="A", mid="m1", tms=(1_700_000_000_123,)),)
    assert (json.loads(call.payload), custom_of(call)) == ({"role": "math", "a": 1}, {"t": 1})


@pytest.mark.parametrize(
    ("identity", "ids"),
    [
        (b"m1/c1", ("m1", "c1")),
        (b"m1/c1/more", ("m1", "c1")),
        (b"m1", ("m1", "new1")),
        (b"m1/", ("m1", "new1")),
        (b"/c1", ("new1", "c1")),
        (b"", ("new1", "new2")),
        (b"\xff/c1", ("\ufffd", "c1")),
    ],
)
def test_a_missing_part_of_an_id_is_always_new(identity: bytes, ids: tuple[str, str]) -> None:
    call = call_of({}, {b"seneca-id": identity})
    assert (call.mid, call.cid, call.echo.id) == (*ids, identity)


def test_a_legacy_request_without_origin_is_called_by_its_agent() -> None:
    assert call_of({}, {b"seneca-id": b"m/c", b"user-agent": b"curl/8"}).sid == "curl/8"
    assert call_of({}, {b"seneca-id": b"m/c"}).sid == "UNKNOWN"


@pytest.mark.parametrize("sent", [b"0", b"", b"soon", b"-5", b"1e999", b"99999999999999999999"])
def test_a_time_that_is_none_is_unknown(sent: bytes) -> None:
    assert call_of({}, LEGACY | {b"seneca-time-client-sent": sent}).sent_ms is None


def test_a_refused_legacy_request_can_be_found_again() -> None:
    refusal = refused(b"null", LEGACY)
    assert refusal.lines == b"seneca-id: m1/c1\r\nseneca-origin: A\r\n"


# ---- W --------------------------------------------------------------------------------------------------------------


def web(**meta: Any) -> Call:
    return call_of({"role": "math", "meta$": meta})


def test_a_web_request_is_told_by_its_meta_data() -> None:
    parents = [["p", "m0/c1", "B", "-", "v", 90, None, True, "y"], ["p", "m0/c1", "A", "-", "v", 80, None, True, "x"]]
    call = web(
        id="m1/c1", mi="m1", tx="c1", sync=False, custom={"t": 1}, parents=parents, instance="B", start=100,
        timeout=500, pattern="role:math",
    )  # fmt: skip
    assert (call.mid, call.cid, call.sid, call.sync, custom_of(call)) == ("m1", "c1", "B", False, {"t": 1})
    assert (call.sent_ms, call.timeout_ms, call.pattern) == (100, 500, "role:math")
    assert call.hops == (Hop(sid="A", rid="B", mid="m0", tms=(80, 90)), Hop(sid="B", mid="m1", tms=(100,)))
    assert call.parent_id == "m0"


def test_the_joined_id_wins_in_w() -> None:
    assert web(id="m1/c1", mi="x", tx="y", mid="z").id == "m1/c1"
    assert web(id="m1", tx="c2").id == "m1/c2"
    assert web(mi="m2", tx="c2").id == "m2/c2"
    assert web(mi="m2", cid="c3").id == "m2/c3"
    assert web(id=5).id == "new1/new2"


def test_custom_data_of_the_body_counts_where_meta_data_has_none() -> None:
    body = {"custom$": {"a": 1}, "meta$": {"id": "m/c"}}
    assert custom_of(call_of(body)) == {"a": 1}
    assert custom_of(call_of(body | {"meta$": {"id": "m/c", "custom": {"b": 2}}})) == {"b": 2}
    assert custom_of(call_of(body | {"custom$": [1]})) == {}


def test_fields_that_a_sender_tells_of_itself_are_not_kept() -> None:
    call = web(id="m/c", seneca="3.38.0", tag="-", plugin={}, err=None, zzz={"k": 1})
    assert plain(call.unknown) == {"zzz": {"k": 1}}


# ---- S --------------------------------------------------------------------------------------------------------------


def seed(**meta: Any) -> Call:
    return call_of({"role": "math", "meta$": {"mid": "m1", **meta}})


def test_a_seed_request_is_told_by_its_meta_data() -> None:
    trk = [{"sid": "A", "rid": "B", "mid": "m0", "tms": [1, 2]}, {"sid": "B", "mid": "m1", "tms": [3]}]
    call = seed(cid="c1", sid="B", snc=True, pat="role:math", trk=trk, rtn={"urn": "http://h/rtn"}, ctm={"t": 1}, vin=1)
    assert (call.mid, call.cid, call.sid, call.sync, call.pattern) == ("m1", "c1", "B", True, "role:math")
    assert (call.reply_to, custom_of(call), call.sent_ms, call.parent_id) == ("http://h/rtn", {"t": 1}, 3, "m0")


@pytest.mark.parametrize(
    ("meta", "field", "value"),
    [
        ({"cid": 5}, "cid", "new1"), ({"cid": ""}, "cid", "new1"), ({"cid": "a/b"}, "cid", "a"),
        ({"sid": None}, "sid", "UNKNOWN"), ({"snc": "no"}, "sync", True), ({"snc": None}, "sync", True),
        ({"snc": False}, "sync", False), ({"pat": 1}, "pattern", None), ({"trk": {}}, "sent_ms", None),
        ({"rtn": "http://h"}, "reply_to", None), ({"rtn": {"urn": 1}}, "reply_to", None), ({"ctm": []}, "custom", {}),
        ({"vin": "1"}, "vin", 1), ({"vin": 1.5}, "vin", 1), ({"vin": 7}, "vin", 7), ({"vin": None}, "vin", 1),
        ({"multiple": "true"}, "multiple", False), ({"multiple": True}, "multiple", True),
    ],
)  # fmt: skip
def test_each_field_defaults_on_its_own(meta: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(seed(**meta), field) == value


def test_several_answers_need_a_synchronous_call() -> None:
    assert not seed(multiple=True, snc=False).multiple


def test_an_own_entry_is_there_for_sure() -> None:
    assert seed(sid="A").hops == (Hop(sid="A", mid="m1", tms=(None,)),)
    other = [{"sid": "X", "mid": "m0", "tms": [5]}]
    assert [hop.mid for hop in seed(sid="A", trk=other).hops] == ["m0", "m1"]


def test_a_return_path_that_says_more_is_kept() -> None:
    row = batch_of(seed(rtn={"urn": "http://h/rtn", "topic": "t"}), b"math").row(0)
    assert row.reply_to == "http://h/rtn"
    assert json.loads(row.attributes["seneca.rtn"]) == {"urn": "http://h/rtn", "topic": "t"}


# ---- queries --------------------------------------------------------------------------------------------------------


def test_a_get_reads_the_query() -> None:
    call = call_of(b"", query=b"role=math&cmd=sum&a=1&b=%C3%A9+x&empty=")
    assert json.loads(call.payload) == {"role": "math", "cmd": "sum", "a": "1", "b": "é x", "empty": ""}


def test_jsonic_text_comes_before_other_parameters_and_both_over_the_body() -> None:
    call = call_of(b'{"a":0,"b":0,"c":0}', query=b"msg$=a:1,b:{x:1}&a=2")
    assert json.loads(call.payload) == {"a": "2", "b": {"x": 1}, "c": 0}


@pytest.mark.parametrize("query", [b"a=%", b"a=%zz", b"a=%ff", b"msg$=a:x+y", b"msg$=[1]", b"&".join([b"a=1"] * 1001)])
def test_a_query_that_cannot_be_read_is_no_message(query: bytes) -> None:
    assert refused(b"", query=query).code == "invalid_message"


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{}, LEGACY])
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"), (b"null", "invalid_message"), (b"[1]", "invalid_message"), (b'"x"', "invalid_message"),
        (b"{", "invalid_json"), (b'{"a":' * 100_000, "invalid_json"), (b'{"a":"\xff"}', "invalid_json"),
        (b'{"a":"\\ud800"}', "invalid_json"),
    ],
)  # fmt: skip
def test_what_kills_a_real_listener_is_refused(body: bytes, code: str, headers: dict[bytes, bytes]) -> None:
    refusal = refused(body, headers)
    assert (refusal.status, refusal.code) == (400, code)


def test_a_response_is_not_a_message() -> None:
    assert refused(b'{"meta$":{"mid":"m1","res":true}}').code == "invalid_message"


def test_too_much_custom_data_is_too_large() -> None:
    many = {str(number): "x" for number in range(200)}
    for custom in (many, {"a": "x" * 70_000}):
        assert refused(json.dumps({"meta$": {"id": "m/c", "custom": custom}}).encode()).status == 413
    assert refused(json.dumps({"meta$": {"mid": "m", **many}}).encode()).status == 413
    assert too_large(100).status == 413


hostile = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
FIELDS = [
    "id", "mi", "tx", "sync", "custom", "parents", "instance", "start", "timeout", "pattern", "mid", "cid", "sid",
    "snc", "trk", "rtn", "ctm", "usr", "vin", "multiple", "res", "pat", "zzz",
]  # fmt: skip


@given(st.dictionaries(st.sampled_from(FIELDS), hostile), st.booleans())
def test_no_meta_data_is_ever_a_reason_to_refuse(meta: dict[str, Any], legacy: bool) -> None:
    body = json.dumps({"role": "math", "meta$": meta}, allow_nan=False, default=str) if is_sayable(meta) else "{}"
    call = read_http({b"seneca-id": b"m/c"} if legacy else {}, body.encode(), fresh_ids())
    if isinstance(call, NotACall):
        assert meta.get("res") is True
        return
    assert call.mid
    assert call.cid
    assert "/" not in call.mid + call.cid
    row = batch_of(call, b"math").row(0)
    assert (row.message_id, row.correlation_id, row.producer) == (call.mid, call.cid, call.sid)
    assert json.loads(row.payload) == ({"role": "math"} if "role" in body else {})


def is_sayable(value: Any) -> bool:
    """JSON has no NaN and no infinities."""
    try:
        json.dumps(value, allow_nan=False).encode()
    except (ValueError, UnicodeEncodeError):
        return False
    return True


# ---- rows -----------------------------------------------------------------------------------------------------------


def test_a_row_has_all_that_the_message_says() -> None:
    call = call_of(
        {
            "role": "math", "x": {"y": 1.50}, "default$": {}, "custom$": {"never": 1},
            "meta$": {
                "mid": "m1", "cid": "c1", "sid": "A", "snc": True, "pat": "role:math", "vin": 3, "multiple": True,
                "trk": [{"sid": "Z", "mid": "m0", "tms": [1]}, {"sid": "A", "mid": "m1", "tms": [5]}],
                "rtn": {"urn": "http://127.0.0.1/rtn"},
                "ctm": {"tenant": "t1", "level": 5, "schema_id": 7, "schema_version": 2, "seneca.x": "s"},
                "zzz": [1],
            },
        }
    )  # fmt: skip
    row = batch_of(call, b"math").row(0)
    assert (row.wire, row.kind, row.topic, row.encoding) == ("seneca", "request", "math", "json")
    assert (row.message_id, row.correlation_id, row.parent_id, row.producer) == ("m1", "c1", "m0", "A")
    assert (row.sent_ms, row.reply_to, row.schema_id, row.schema_version) == (5, "http://127.0.0.1/rtn", 7, 2)
    assert row.hops == call.hops
    assert row.attributes == {
        "tenant": "t1", "level": "5", "seneca.custom.seneca.x": "s", "seneca.typed": '["level"]',
        "seneca.meta.zzz": "[1]", "seneca.vin": "3", "seneca.pat": "role:math", "seneca.multiple": "true",
    }  # fmt: skip
    assert row.payload == b'{"role":"math","x":{"y": 1.5}}'


def test_an_asynchronous_message_is_a_publish() -> None:
    assert batch_of(seed(snc=False), b"math").row(0).kind == "publish"
    assert batch_of(web(id="m/c", sync=False, timeout=100), b"math").row(0).timeout_ms == 100


def test_a_history_that_was_cut_is_marked() -> None:
    trk = [{"sid": "A", "mid": f"m{number}", "tms": [1]} for number in range(100)]
    row = batch_of(seed(trk=trk), b"math").row(0)
    assert (len(row.hops), row.attributes["seneca.hops_cut"]) == (64, "36")


def test_values_are_looked_at_as_text_or_as_what_they_are() -> None:
    call = call_of({"role": "math", "n": 1.0, "o": {}})
    assert [call.look(key) for key in ("role", "n", "n", "o", "z")] == [
        "math",
        "1",
        "1",
        "[object Object]",
        "undefined",
    ]
    assert [call.text(key) for key in ("role", "n", "o", "z")] == ["math", None, None, None]


def test_a_message_that_names_no_pattern_is_stored_with_the_one_that_matched() -> None:
    row = batch_of(call_of({"a": 1}), b"x", "a:1").row(0)
    assert row.attributes == {"seneca.pat": "a:1"}
    own = batch_of(seed(pat="mine", ctm={"t": "1"}), b"x", "a:1").row(0)
    assert own.attributes == {"t": "1", "seneca.pat": "mine"}
    assert batch_of(seed(ctm={"t": "1"}), b"x", "a:1").row(0).attributes == {"t": "1", "seneca.pat": "a:1"}
