"""Rows of any wire as documents, and replies of services as rows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from raceway.model.document import raw_members
from raceway.model.envelope import MB, PUBLISH, REQUEST, SENECA, ZBUS, Batch, Hop, encode_attributes, encode_hops
from raceway.wires.seneca.codec.answer import CallOutcome, Result, Stamp, answer_http
from raceway.wires.seneca.codec.call import Dialect, batch_of
from raceway.wires.seneca.codec.failure import CallFailure
from raceway.wires.seneca.codec.outgoing import ListenerReply, call_http, call_line, filled_hops, read_http_answer
from raceway.wires.seneca.codec.rows import (
    PayloadForm,
    ReplyRow,
    answer_batch,
    document_of,
    outcome_of,
    outgoing_of,
    payload_of,
    with_keys,
)
from tests.rigs.seneca_calls import call_of, fresh_ids, plain, told

NOW = 1_700_000_000_000


# ---- payloads of other wires ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "document", "form"),
    [
        (b'{"a": 1.50}', b'{"a": 1.50}', PayloadForm.DOCUMENT),
        (b" {} ", b"{}", PayloadForm.DOCUMENT),
        (b"[1, 2]", b'{"data":[1, 2]}', PayloadForm.JSON),
        (b'"text"', b'{"data":"text"}', PayloadForm.JSON),
        (b"null", b'{"data":null}', PayloadForm.JSON),
        (b"5", b'{"data":5}', PayloadForm.JSON),
        (b"hello \xc3\xa9", '{"data":"hello é"}'.encode(), PayloadForm.TEXT),
        (b"", b'{"data":""}', PayloadForm.TEXT),
        (b"\xff\x00", b'{"data_base64":"/wA="}', PayloadForm.BYTES),
        (b'{"a":' * 600, b'{"data":"' + b'{\\"a\\":' * 600 + b'"}', PayloadForm.TEXT),
    ],
)
def test_what_is_no_object_travels_as_a_member(payload: bytes, document: bytes, form: PayloadForm) -> None:
    assert document_of(payload) == (document, form)


@given(
    st.binary()
    | st.text().map(str.encode)
    | st.recursive(st.integers() | st.text(), st.lists).map(lambda value: json.dumps(value).encode())
)
def test_an_echo_of_a_payload_is_the_payload(payload: bytes) -> None:
    document, form = document_of(payload)
    again = payload_of(document, form)
    assert again == (payload if form in (PayloadForm.TEXT, PayloadForm.BYTES) else payload.strip())


def test_a_document_stays_one_if_that_was_asked() -> None:
    for document in (b'{"data":5}', b'{"data":"x"}', b"[1]", b"null", b'{"data":1,"more":2}', b"{}"):
        assert payload_of(document, PayloadForm.DOCUMENT) == document
    for form in PayloadForm:
        assert payload_of(b'{"data_base64":"/wA="}', form) == b"\xff\x00"
        assert payload_of(b'{"data_base64":"no base 64"}', form) == b'{"data_base64":"no base 64"}'
        assert payload_of(b'{"data":1,"more":2}', form) == b'{"data":1,"more":2}'


def test_an_answer_to_text_that_is_no_text_is_json() -> None:
    assert payload_of(b'{"data":{"x":1}}', PayloadForm.TEXT) == b'{"x":1}'
    assert payload_of(b'{"data":"x"}', PayloadForm.JSON) == b'"x"'


# ---- rows to services -----------------------------------------------------------------------------------------------


def answer_row(reply: ListenerReply, form: PayloadForm | None = None, source: bool = True) -> Batch:
    batch = answer_batch([ReplyRow(reply, b"masked", lambda: reply.hops, form)])
    batch.complete()
    batch.source = batch.source if source else None
    return batch


def foreign(payload: bytes, **columns: Any) -> Batch:
    return Batch(1, wire=ZBUS, kind=REQUEST, topic=b"math.sum", payload=[payload], **columns)


def test_a_message_of_another_wire_gets_what_a_seneca_message_has() -> None:
    batch = foreign(
        b'{"a":1}', message_id=[b"id/1"], producer=b"worker", schema_id=7,
        attributes=[encode_attributes({"tenant": "t1", "zbus.topic": "x"})],
    )  # fmt: skip
    outgoing, form = outgoing_of(batch, 0, {"role": "math", "cmd": "sum"}, fresh_ids(), NOW)
    assert (outgoing.mid, outgoing.cid, outgoing.sid, outgoing.sync) == ("id.1", "id.1", "worker", True)
    assert plain(outgoing.members) == {"a": 1, "role": "math", "cmd": "sum"}
    assert (plain(outgoing.custom), form) == ({"tenant": "t1", "schema_id": 7}, PayloadForm.DOCUMENT)
    assert told(outgoing.hops) == [{"sid": "worker", "mid": "id.1", "tms": [NOW]}]


def test_a_message_without_id_or_producer_gets_them() -> None:
    outgoing, form = outgoing_of(foreign(b"\xff"), 0, {}, fresh_ids(), NOW)
    assert (outgoing.mid, outgoing.cid, outgoing.sid, form) == ("new1", "new1", "UNKNOWN", PayloadForm.BYTES)


def test_a_publish_is_asynchronous() -> None:
    batch = foreign(b"{}")
    batch.kind = PUBLISH
    assert not outgoing_of(batch, 0, {}, fresh_ids(), NOW)[0].sync


def test_pattern_keys_win_over_the_payload_but_keep_their_type() -> None:
    members = with_keys(raw_members({"cmd": "other", "n": 5, "x": 1}), {"cmd": "sum", "n": "5"})
    assert plain(members) == {"cmd": "sum", "n": 5, "x": 1}


def test_a_seneca_message_goes_on_as_it_came() -> None:
    call = call_of(
        {
            "role": "math",
            "x": 1.50,
            "meta$": {
                "mid": "m1", "cid": "c1", "sid": "A", "vin": 3, "pat": "role:math", "zzz": [1], "multiple": True,
                "trk": [{"sid": "Z", "rid": "A", "mid": "m0", "tms": [1, 2]}, {"sid": "A", "mid": "m1", "tms": [5]}],
                "ctm": {"t": 1, "schema_id": 7}, "rtn": {"urn": "http://h/rtn"},
            },
        }
    )  # fmt: skip
    outgoing, _ = outgoing_of(batch_of(call, b"math"), 0, {"role": "math"}, fresh_ids(), NOW)
    again = call_of(call_http(Dialect.SEED, outgoing).body)
    for name in ("mid", "cid", "sid", "sync", "hops", "vin", "pattern", "sent_ms", "payload"):
        assert getattr(again, name) == getattr(call, name), name
    assert (plain(again.custom), plain(again.unknown)) == (plain(call.custom), plain(call.unknown))
    assert (again.reply_to, again.multiple) == (None, False), "the bus fulfils these itself"


def test_a_message_that_names_no_pattern_is_told_the_one_that_matched() -> None:
    batch = batch_of(call_of({"role": "math"}), b"math")
    assert outgoing_of(batch, 0, {}, fresh_ids(), NOW, "role:math")[0].pattern == "role:math"


def test_a_web_call_keeps_its_callers_on_the_way_to_a_web_service() -> None:
    parents = [["p", "m0/c1", "Z", "-", "0.1.0", 1, None, True, "z"]]
    call = call_of({"a": 1, "meta$": {"id": "m1/c1", "instance": "A", "start": 5, "parents": parents}})
    outgoing, _ = outgoing_of(batch_of(call, b"x"), 0, {}, fresh_ids(), NOW)
    meta = json.loads(call_http(Dialect.WEB, outgoing).body)["meta$"]
    assert (meta["parents"], meta["instance"], meta["start"], meta["id"]) == (parents, "A", 5, "m1/c1")


# ---- answers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        ListenerReply(b'{"x":1}', rid="B", custom=raw_members({"t": 1}), hops=(Hop(sid="A", mid="m", tms=(1, 2, 3)),)),
        ListenerReply(b"[1]"),
        ListenerReply(b"null"),
        ListenerReply(failure=CallFailure("my_code", "boom", Raw(b'{"a":1}'))),
        ListenerReply(failure=CallFailure("act_not_found", "nobody", is_seneca=True)),
    ],
    ids=["object", "array", "nothing", "error", "error of Seneca"],
)
@pytest.mark.parametrize("has_source", [True, False], ids=["as it was read", "from its row alone"])
def test_a_reply_comes_through_the_bus_as_it_was(reply: ListenerReply, has_source: bool) -> None:
    outcome = outcome_of(answer_row(reply, source=has_source), 0)
    assert plain(outcome.custom) == plain(reply.custom)
    assert (outcome.hops and json.loads(bytes(outcome.hops))) == (reply.hops and told(reply.hops))  # type: ignore[arg-type]
    if reply.failure is not None:
        assert isinstance(outcome, CallFailure)
        assert (outcome.code, outcome.message, outcome.is_seneca) == (
            reply.failure.code,
            reply.failure.message,
            reply.failure.is_seneca,
        )
    else:
        assert isinstance(outcome, Result)
        assert outcome.payload == reply.payload


def test_calls_that_a_web_service_made_come_through_too() -> None:
    trace = b'[{"desc":["p","m2/c1","B","-","v",1,2,true,"x"],"trace":[]}]'
    reply = read_http_answer(Dialect.WEB, 200, {}, b'{"x":1,"meta$":{"id":"m1/c1","trace":%b}}' % trace)
    outcome = outcome_of(answer_row(reply), 0)
    assert isinstance(outcome, Result)
    assert outcome.trace == trace
    hops = filled_hops((Hop(sid="A", mid="m1", tms=(0,)),), "A", "m1", reply, Stamp("B", 5, 6))
    assert [(hop.mid, hop.tms) for hop in hops] == [("m1", (0, 5, 6)), ("m2", (1, None, None, 2))]


def test_a_responder_that_keeps_its_history_is_believed() -> None:
    own = (Hop(sid="A", rid="S", mid="m1", tms=(0, 1, 2)),)
    assert filled_hops((), "A", "m1", ListenerReply(hops=own), Stamp("B", 5, 6)) == own


def test_the_row_of_an_answer() -> None:
    reply = ListenerReply(b'{"x":1}', rid="B", custom=raw_members({"t": "1"}), hops=(Hop(sid="A", mid="m"),))
    row = answer_row(reply).row(0)
    assert (row.wire, row.message_id, row.producer, row.encoding, row.error) == ("seneca", "masked", "B", "json", None)
    assert (row.attributes, row.hops, row.payload) == ({"t": "1"}, reply.hops, b'{"x":1}')
    failed = answer_row(ListenerReply(failure=CallFailure("c", "m"))).row(0)
    assert (failed.error, json.loads(failed.payload)) == ("c", {"message": "m", "code": "c"})


def test_an_answer_with_too_much_custom_data_is_a_failure() -> None:
    row = answer_row(ListenerReply(b"{}", custom=raw_members({"a": "x" * 70_000}))).row(0)
    assert (row.error, row.attributes) == ("too_large", {})


def test_an_answer_for_another_wire_is_what_its_request_was() -> None:
    assert answer_row(ListenerReply(b'{"data":[1]}'), PayloadForm.JSON).row(0).payload == b"[1]"
    assert answer_row(ListenerReply(b'{"data":[1]}'), PayloadForm.DOCUMENT).row(0).payload == b'{"data":[1]}'
    assert answer_row(ListenerReply(b'{"data_base64":"/w=="}')).row(0).payload == b'{"data_base64":"/w=="}'


def answered(wire: bytes, payload: bytes, error: bytes | None = None, **columns: Any) -> CallOutcome:
    return outcome_of(Batch(1, wire=wire, payload=[payload], error=error, **columns), 0)


def test_answers_of_other_wires() -> None:
    result = answered(ZBUS, b"[1]", attributes=[encode_attributes({"t": "1"})], hops=[encode_hops((Hop(mid="x"),))])
    assert isinstance(result, Result)
    assert (result.payload, plain(result.custom), result.hops) == (b'{"data":[1]}', {"t": "1"}, None)
    assert answered(MB, b'{"x":1}') == Result(b'{"x":1}')
    assert answered(SENECA, b"[1]") == Result(b"[1]")


def test_a_stranger_cannot_write_json_into_documents_by_attributes() -> None:
    """A client that gets a line that is no JSON dies of it."""
    forged = {"a": "}{", "seneca.typed": '["a"]', "seneca.parents": "}{", "seneca.trace": "}{", "seneca.vin": "x"}
    forged |= {"seneca.meta.x": "}{", "seneca.pat": "p"}
    column = [encode_attributes(forged)]
    outgoing, _ = outgoing_of(foreign(b"{}", attributes=column), 0, {}, fresh_ids(), NOW)
    for dialect in (Dialect.LEGACY, Dialect.WEB, Dialect.SEED):
        assert json.loads(call_http(dialect, outgoing).body)
    assert json.loads(call_line(Dialect.TCP, outgoing))["act"]["custom$"] == {"a": "}{"}
    web = call_of({"meta$": {"id": "m/c"}})
    for error in (None, b"500"):
        answer = answer_http(web, answered(ZBUS, b"{}", error, attributes=column), Stamp("B", 1, 2))
        assert json.loads(answer.body)["meta$"]["custom"] == {"a": "}{"}


@pytest.mark.parametrize(
    ("wire", "payload", "error", "code", "message", "details"),
    [
        (MB, b'{"error":{"code":"X","message":"boom","details":{"a":1}}}', b"X", "X", "boom", {"a": 1}),
        (MB, b'error:{"code":"X","message":"boom"}', b"X", "X", "boom", None),
        (MB, b"plain", b"X", "X", "plain", None),
        (ZBUS, b"not here", b"404", "404", "not here", None),
        (ZBUS, b"", b"500", "500", "500", None),
    ],
)
def test_errors_of_other_wires(
    wire: bytes, payload: bytes, error: bytes, code: str, message: str, details: Any
) -> None:
    failure = answered(wire, payload, error)
    assert isinstance(failure, CallFailure)
    assert (failure.code, failure.message, failure.is_seneca) == (code, message, False)
    assert (failure.details and json.loads(bytes(failure.details))) == details
