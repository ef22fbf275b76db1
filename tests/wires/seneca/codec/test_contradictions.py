"""Where the protocol document contradicts itself or the implementation, and what is done: those that no other test of
the codec names. 6 to 11 are in test_seneca_trk, 17 in test_seneca_document, 19 and 20 and 23 in test_seneca_request,
24 in the model's test_patterns."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Raw

from raceway.model.document import raw_members
from raceway.model.envelope import Hop
from raceway.wires.seneca.codec.answer import (
    Result,
    Stamp,
    accepted_http,
    answer_http,
    answer_line,
    one_line,
    several_document,
)
from raceway.wires.seneca.codec.call import Dialect
from raceway.wires.seneca.codec.failure import CallFailure
from raceway.wires.seneca.codec.outgoing import (
    Outgoing,
    call_http,
    call_line,
    read_answer_line,
    read_http_answer,
    read_returned,
)
from raceway.wires.seneca.codec.trk import received
from tests.rigs.seneca_calls import body_of, call_of, custom_of, line_call, told

STAMP = Stamp("B", 10, 20)


def outgoing(**more: Any) -> Outgoing:
    return Outgoing("m1", "c1", "A", raw_members({"a": 1}), hops=(Hop(sid="A", mid="m1", tms=(5,)),), **more)


def written(**more: Any) -> Any:
    return json.loads(call_http(Dialect.SEED, outgoing(**more)).body)["meta$"]


def test_1_msg_is_an_alias_where_meta_is_absent_and_never_written_outside_of_t() -> None:
    assert call_of({"a": 1, "msg$": {"mid": "m1"}}).mid == "m1"
    assert call_of({"a": 1, "msg$": {"mid": "m1"}, "meta$": {"mid": "m2"}}).mid == "m2"
    assert json.loads(call_of({"a": 1, "msg$": {"mid": "m1"}}).payload) == {"a": 1}
    for dialect in (Dialect.LEGACY, Dialect.WEB, Dialect.SEED, Dialect.ANY):
        assert b"msg$" not in call_http(dialect, outgoing()).body
    assert b"msg$" in call_line(Dialect.TCP, outgoing())


def test_2_act_is_written_and_out_is_accepted_and_neither_is_required() -> None:
    assert written()["act"] is True
    for marker in ({"out": True}, {"act": True}, {}):
        assert call_of({"meta$": {"mid": "m1", **marker}}).mid == "m1"


def test_3_custom_data_has_many_names_and_is_one_thing() -> None:
    request = call_of({"meta$": {"mid": "m1", "ctm": {"a": 1, "b": 1}, "usr": {"b": 2, "c": 2}}})
    assert custom_of(request) == {"a": 1, "b": 1, "c": 2}
    answer = {"meta$": {"res": True, "ctm": {"a": 1, "b": 1}, "usr": {"b": 2, "c": 2}}}
    reply = read_returned(json.dumps(answer).encode())
    assert {name: json.loads(bytes(value)) for name, value in (reply.custom or {}).items()} == {"a": 1, "b": 2, "c": 2}


def test_5_vin_and_pat_are_optional_on_input_and_always_written() -> None:
    assert call_of({"meta$": {"mid": "m1"}}).vin == 1
    assert (written()["vin"], written()["pat"], written(pattern="a:1")["pat"]) == (1, None, "a:1")


def test_12_multiple_is_a_field_of_the_request() -> None:
    assert written(multiple=True)["multiple"] is True
    assert "multiple" not in written()


def test_12_several_answers_fit_on_a_line() -> None:
    call = line_call({"meta$": {"mid": "m1", "multiple": True}})
    line = one_line(several_document(call, [(Result(b'{"x":1}'), STAMP)], STAMP))
    reply = read_answer_line(line[:-1])
    assert reply is not None
    assert [each.payload for each in reply.several] == [b'{"x":1}']


def test_13_every_receiver_holds_a_copy_of_its_own() -> None:
    call = call_of({"meta$": {"mid": "m1", "sid": "A", "snc": False, "trk": [{"sid": "A", "mid": "m1", "tms": [0]}]}})
    copies = [told(received(call.hops, "A", "m1", who, at)) for who, at in (("B", 1), ("C", 2))]
    assert [(copy[0]["rid"], copy[0]["tms"]) for copy in copies] == [("B", [0, 1]), ("C", [0, 2])]


def test_14_an_answer_goes_in_band_even_if_there_is_a_return_path() -> None:
    call = call_of({"meta$": {"mid": "m1", "rtn": {"urn": "http://h/rtn"}}})
    answer = answer_http(call, Result(b'{"x":1}'), STAMP)
    assert (answer.status, body_of(answer)["x"], call.reply_to) == (200, 1, "http://h/rtn")


def test_15_the_return_path_is_an_address_of_the_web() -> None:
    assert written(urn="http://127.0.0.1:8000/rtn")["rtn"] == {"urn": "http://127.0.0.1:8000/rtn"}
    assert "rtn" not in written()


def test_16_the_sender_of_the_response_is_the_receiver_of_the_entry() -> None:
    meta = body_of(answer_http(call_of({"meta$": {"mid": "m1"}}), Result(b"{}"), STAMP))["meta$"]
    assert meta["rid"] == meta["trk"][0]["rid"] == "B"


def test_18_an_instance_id_is_never_parsed() -> None:
    for sid in ("A", "a/b/c/d/e", "no form at all é", "x" * 1000):
        assert call_of({"meta$": {"mid": "m1", "sid": sid}}).sid == sid
        assert call_of({"meta$": {"id": "m1/c1", "instance": sid}}).sid == sid


def test_19_separate_ids_win_in_s() -> None:
    line = line_call({"meta$": {"mid": "m1", "cid": "c1", "id": "x/y"}})
    assert (line.dialect, line.id) == (Dialect.SEED_LINE, "m1/c1")
    assert line_call({"meta$": {"mid": "m1", "id": "x/y"}}).id == "m1/y"


def test_21_an_error_is_meta_data_with_message_code_and_details() -> None:
    call = call_of({"meta$": {"mid": "m1", "cid": "c1"}})
    answer = answer_http(call, CallFailure("my_code", "boom", Raw(b'{"a":1}')), STAMP)
    document = body_of(answer)
    meta = document.pop("meta$")
    assert (answer.status, document) == (500, {"message": "boom", "code": "my_code", "details": {"a": 1}})
    assert meta["error"] is True
    reply = read_http_answer(Dialect.SEED, answer.status, {}, answer.body)
    assert reply.failure is not None
    assert (reply.failure.code, reply.failure.message) == ("my_code", "boom")


def test_22_each_dialect_has_its_own_nothing() -> None:
    seed, web = (call_of({"meta$": meta}) for meta in ({"mid": "m1", "snc": False}, {"id": "m/c", "sync": False}))
    assert accepted_http(seed, STAMP)[::2] == (202, b"{}")
    assert body_of(accepted_http(web, STAMP))["meta$"]["empty"] is True
    legacy = call_of({}, {b"seneca-id": b"m/c"})
    assert legacy.sync, "asynchronous calls cannot be seen in L"
    line = line_call({"id": "m/c", "kind": "act", "act": {}})
    assert answer_line(line, Result(b"{}"), STAMP) is None


def test_25_times_are_kept_as_given_even_if_they_go_back() -> None:
    call = call_of({"meta$": {"mid": "m1", "sid": "A", "trk": [{"sid": "A", "mid": "m1", "tms": [1000]}]}})
    meta = body_of(answer_http(call, Result(b"{}"), Stamp("B", 10, 5)))["meta$"]
    assert meta["trk"][0]["tms"] == [1000, 10, 5]
