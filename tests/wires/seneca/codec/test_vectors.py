"""The vectors of the Seneca wire against the codec: a request is read, the answer that the vector tells of is given the
facts of that answer, and must come out as the vector writes it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from raceway.model.document import raw_members, raw_of
from raceway.model.envelope import Hop
from raceway.wires.seneca.codec import trk
from raceway.wires.seneca.codec.answer import (
    CallOutcome,
    HttpAnswer,
    Result,
    Stamp,
    accepted_http,
    answer_http,
    answer_line,
    refusal_http,
    response_document,
    several_document,
)
from raceway.wires.seneca.codec.call import Call, Dialect, batch_of
from raceway.wires.seneca.codec.failure import CallFailure, not_found
from raceway.wires.seneca.codec.outgoing import read_http_answer, read_returned
from tests.rigs.seneca_calls import body_of, call_of, custom_of, headers_of, line_call, line_refused, refused, told
from tests.rigs.vectors.seneca import NEW, VECTORS, Vector, ms

ANSWERED_OVER_HTTP = [
    vector
    for vector in VECTORS.values()
    if vector.dialect != "T" and vector.sent and vector.answers and vector.answer.status in (200, 500)
    and vector.name not in ("V14", "V15", "V23")
]  # fmt: skip


def expected(vector: Vector, call: Call) -> Any:
    return json.loads(vector.answer.text.replace(NEW.encode(), call.cid.encode()))


def stamp_of(call: Call, document: dict[str, Any]) -> Stamp:
    """Who answered and when, as the answer tells it: in `trk`, in W's times, or in the headers of V26."""
    meta = document.get("meta$", {})
    for entry in meta.get("trk", ()):
        if entry["mid"] == call.mid:
            return Stamp(meta["rid"], entry["tms"][1], entry["tms"][2])
    if call.dialect is Dialect.LEGACY:
        return Stamp("B", ms(903), ms(904), "cmd:div,role:math")
    return Stamp("B", meta.get("start", ms(803)), meta.get("end", ms(804)), meta.get("pattern"))


def outcome_of(call: Call, status: int | None, document: Any) -> CallOutcome:
    """The answer as an action would have given it."""
    if not isinstance(document, dict):
        return Result(json.dumps(document).encode())
    meta = document.get("meta$", {})
    custom = meta.get("usr", meta.get("custom"))
    data = {name: value for name, value in document.items() if name != "meta$"}
    hops = msgspec.convert(meta["trk"], tuple[Hop, ...]) if len(meta.get("trk", ())) > 1 else None
    members = None if custom is None else raw_members(custom)
    if status == 500 and data["code"] == "act_not_found":
        return not_found(call.members)
    if status == 500:
        details: Any = data.get("details")
        is_wrapped = "orig" in data
        code, message = (data["orig"]["code"], details["message"]) if is_wrapped else (data["code"], data["message"])
        return CallFailure(code, message, None if is_wrapped else raw_of(details), custom=members)
    result = data.get("array$", data if not meta.get("empty") else None)
    return Result(json.dumps(result).encode(), members, hops)


@pytest.mark.parametrize("vector", ANSWERED_OVER_HTTP, ids=lambda vector: vector.name)
def test_an_answer_is_written_as_the_vector_says(vector: Vector) -> None:
    call = call_of(vector.sent[0], vector.sent_headers)
    assert call.dialect.value == vector.dialect
    document = expected(vector, call)
    outcome = outcome_of(call, vector.answer.status, document)
    answer = answer_http(call, outcome, stamp_of(call, document if isinstance(document, dict) else {}))
    assert answer.status == vector.answer.status
    body = body_of(answer)
    if vector.dialect == "W" and vector.name != "V22":  # those write down only what a client looks at
        assert document["meta$"].items() <= body.pop("meta$").items()
        document.pop("meta$")
    assert body == document
    headers = headers_of(answer)
    assert headers[b"content-type"] == b"application/json"
    wanted = {name: value.replace(b"<new>/<new>", call.id.encode()) for name, value in vector.answered_headers.items()}
    assert wanted.items() <= headers.items()


@pytest.mark.parametrize("name", ["V20", "V21"])
def test_what_is_no_message_is_refused_without_meta_data(name: str) -> None:
    vector = VECTORS[name]
    answer = refusal_http(refused(vector.sent[0]))
    assert (answer.status, body_of(answer)) == (vector.answer.status, vector.answer.document)


@pytest.mark.parametrize("name", ["V02", "V03"])
def test_an_asynchronous_message_is_accepted_with_nothing(name: str) -> None:
    vector = VECTORS[name]
    call = call_of(vector.sent[0])
    assert not call.sync
    answer = accepted_http(call, Stamp("B", ms(0), ms(1)))
    assert (answer.status, answer.body) == (202, b"{}")


def test_an_asynchronous_message_of_w_gets_an_empty_result() -> None:
    vector = VECTORS["V23"]
    call = call_of(vector.sent[0])
    assert not call.sync
    answer = accepted_http(call, Stamp("B", ms(0), ms(1)))
    assert answer.status == 200
    assert vector.answer.document["meta$"].items() <= body_of(answer)["meta$"].items()


@pytest.mark.parametrize("who", ["B", "C"])
def test_each_receiver_of_an_asynchronous_message_holds_its_own_copy(who: str) -> None:
    call = call_of(VECTORS["V02"].sent[0])
    times = {"B": ms(118), "C": ms(131)}
    hops = trk.received(call.hops, call.sid, call.mid, who, times[who])
    assert told(hops) == VECTORS["V02"].views[who]


def test_a_message_sent_because_of_another_has_its_correlation_and_history() -> None:
    """V03: new mid, same cid, ancestors and the own hop."""
    cause, sent = call_of(VECTORS["V02"].sent[0]), call_of(VECTORS["V03"].sent[0])
    hops = trk.received(cause.hops, cause.sid, cause.mid, "B", ms(118))
    assert trk.started(hops, "B", "m13", ms(120)) == sent.hops
    assert (sent.cid, sent.parent_id) == (cause.cid, cause.mid)


def test_a_chain_of_calls_is_told_as_it_was() -> None:
    """V04 to V07: A asks B, B asks C, C answers, B answers, A closes."""
    first, second = call_of(VECTORS["V04"].sent[0]), call_of(VECTORS["V05"].sent[0])
    at_b = trk.received(first.hops, first.sid, first.mid, "B", ms(210))
    assert trk.started(at_b, "B", second.mid, ms(215)) == second.hops
    assert second.parent_id == first.mid

    by_c = answer_http(second, Result(b'{"rate":0.23}'), Stamp("C", ms(222), ms(224)))
    assert body_of(by_c) == VECTORS["V06"].answer.document
    reply = read_http_answer(Dialect.SEED, 200, {}, by_c.body)
    assert (reply.mid, reply.cid, reply.rid, reply.payload) == ("m15", "c14", "C", b'{"rate":0.23}')

    assert reply.hops is not None
    child = trk.closed(reply.hops, second.mid, ms(231))
    at_b = trk.with_children(trk.answered(at_b, first.mid, ms(240)), [child])
    by_b = answer_http(first, Result(b'{"price":12.3}', hops=at_b), Stamp("B", ms(210), ms(240)))
    assert body_of(by_b) == VECTORS["V07"].answer.document

    back = read_http_answer(Dialect.SEED, 200, {}, by_b.body)
    assert back.hops is not None
    assert told(trk.closed(back.hops, first.mid, ms(252))) == VECTORS["V07"].views["A"]


def test_a_child_without_response_is_listed_with_the_times_known() -> None:
    """V08."""
    call = call_of(VECTORS["V08"].sent[0])
    hops = trk.received(call.hops, call.sid, call.mid, "B", ms(305))
    asked = [trk.started(hops, "B", mid, at) for mid, at in (("m17", ms(310)), ("m18", ms(311)))]
    answered = trk.answered(trk.received(asked[0], "B", "m17", "C", ms(315)), "m17", ms(316))
    children = [trk.closed(answered, "m17", ms(320)), asked[1]]
    together = trk.with_children(trk.answered(hops, call.mid, ms(350)), children)
    assert told(together) == VECTORS["V08"].answer.document["meta$"]["trk"]


def test_a_caller_closes_its_entry() -> None:
    """V01: round trip, processing and network from the times of one clock each."""
    vector = VECTORS["V01"]
    reply = read_http_answer(Dialect.SEED, 200, {}, vector.answer.text)
    assert reply.hops is not None
    hops = trk.closed(reply.hops, "m11", ms(47))
    assert told(hops) == vector.views["A"]
    sent, received, answered, back = (time for time in hops[0].tms if time is not None)
    assert (back - sent, answered - received) == (47, 5)


def test_a_bare_message_gets_default_meta_data() -> None:
    """V09: what the journal knows of it afterwards."""
    vector = VECTORS["V09"]
    call = call_of(vector.sent[0], vector.sent_headers)
    stored = vector.views["stored meta"]
    hops = trk.answered(trk.received(call.hops, call.sid, call.mid, "B", ms(400)), call.mid, ms(402))
    text = json.dumps(stored["trk"]).replace(NEW, call.mid)
    assert told(hops) == json.loads(text)
    assert (call.vin, call.sid, call.sync, custom_of(call)) == (1, stored["sid"], stored["snc"], stored["ctm"])
    assert (call.mid, call.cid) == ("new1", "new2")


def test_several_responses_are_one_document() -> None:
    """V14."""
    vector = VECTORS["V14"]
    call = call_of(vector.sent[0])
    assert call.multiple
    outcomes: list[tuple[CallOutcome, Stamp]] = [
        (Result(b'{"price":5}'), Stamp("C", ms(533), ms(534))),
        (Result(b'{"price":6}'), Stamp("D", ms(535), ms(539))),
    ]
    answer = HttpAnswer(200, b"", several_document(call, outcomes, Stamp("B", ms(531), ms(541))))
    assert body_of(answer) == vector.answer.document
    reply = read_http_answer(Dialect.SEED, answer.status, {}, answer.body)
    assert [(each.rid, each.payload) for each in reply.several] == [("C", b'{"price":5}'), ("D", b'{"price":6}')]


def test_a_late_answer_takes_the_return_path() -> None:
    """V15: 202 in-band, then the response document by POST."""
    vector = VECTORS["V15"]
    call = call_of(vector.sent[0])
    assert call.reply_to == "http://127.0.0.1:8000/rtn"
    accepted = accepted_http(call, Stamp("B", ms(604), ms(604)))
    assert (accepted.status, accepted.body) == (202, b"{}")
    assert read_http_answer(Dialect.SEED, 202, {}, b"{}").accepted
    document = response_document(call, Result(b'{"rows":7}'), Stamp("B", ms(604), ms(9604)))
    assert json.loads(document) == json.loads(vector.returned[0])
    returned = read_returned(document)
    assert (returned.mid, returned.cid, returned.payload) == ("m24", "c24", b'{"rows":7}')


def test_unknown_meta_data_is_kept_and_not_echoed() -> None:
    """V17."""
    call = call_of(VECTORS["V17"].sent[0])
    row = batch_of(call, b"math.sum").row(0)
    assert (row.attributes["seneca.meta.zzz"], row.attributes["seneca.vin"]) == ('{"k":1}', "7")


@pytest.mark.parametrize("name", ["V29", "V31"])
def test_a_line_is_answered_by_a_line(name: str) -> None:
    vector = VECTORS[name]
    call = line_call(vector.sent[0])
    document = vector.answer.document
    times = document["time"]
    outcome: CallOutcome = Result(b'{"sum":3}') if name == "V29" else not_found(call.members)
    line = answer_line(call, outcome, Stamp("B", times["listen_recv"], times["listen_sent"]))
    assert line is not None
    assert line.endswith(b"\n")
    assert json.loads(line) == document


def test_an_asynchronous_line_is_not_answered() -> None:
    """V30."""
    call = line_call(VECTORS["V30"].sent[0])
    assert not call.sync
    assert answer_line(call, Result(b"{}"), Stamp("B", ms(1), ms(2))) is None


def test_a_repeat_has_the_same_ids_and_its_own_times() -> None:
    """V32: the codec's half; that the action does not run again is the door's."""
    first, again = (call_of(VECTORS["V01"].sent[0]) for _ in range(2))
    answers = [
        body_of(answer_http(call, Result(b'{"sum":3}'), Stamp("B", at, at + 5)))
        for call, at in ((first, ms(20)), (again, ms(2000)))
    ]
    assert first.id == again.id == "m11/c11"
    assert answers[0]["sum"] == answers[1]["sum"]
    assert answers[1]["meta$"]["trk"][0]["tms"] == [ms(0), ms(2000), ms(2005)]


def test_a_line_that_is_no_json_ends_the_connection() -> None:
    assert line_refused(b"{").close
