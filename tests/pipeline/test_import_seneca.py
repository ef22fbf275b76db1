"""Seneca captures: every line gets the codec's verdict, and its fields the columns they have on the bus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from raceway import config
from raceway.errors import PeerError
from raceway.model.document import DocumentError, read_members
from raceway.wires.captures import lines
from raceway.wires.captures.parsed import KEPT_BYTES
from raceway.wires.seneca.capture import reader as seneca
from raceway.wires.seneca.codec.call import Call, batch_of
from raceway.wires.seneca.codec.line import LineRefused, read_line
from raceway.wires.seneca.codec.outgoing import read_answer_line
from raceway.wires.seneca.codec.patterns import maybe_topic
from raceway.wires.seneca.codec.request import NotACall, read_http
from raceway.wires.seneca.settings import SenecaWire
from tests.pipeline.captures import Verdict, capture, verdicts
from tests.rigs.vectors.seneca import VECTORS

hostile = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
COMPARED = (
    "kind", "message_id", "correlation_id", "parent_id", "reply_to", "producer", "sent_ms", "timeout_ms", "schema_id",
    "schema_version", "attributes", "encoding", "payload",
)  # fmt: skip
# Of a call that names none, as the bus would give it.
DEADLINE_MS = SenecaWire().request_timeout_ms
META = {"mid": "m1", "cid": "c1", "sid": "A", "snc": True}


@pytest.fixture(autouse=True)
def _ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seneca, "fresh_id", lambda: "new")


def fresh() -> str:
    return "new"


def expected(line: bytes) -> Verdict:
    """What the codec's listeners say of a line: of TCP if it is wrapped, else of HTTP."""
    try:
        document = read_members(line)
    except DocumentError as error:
        return Verdict(None, error.seneca_code, error.reason)
    found = read_line(line, fresh) if "kind" in document else read_http({}, line, fresh)
    if isinstance(found, NotACall):
        return Verdict(None, found.code, found.message)
    if isinstance(found, LineRefused):
        told = json.loads(found.line) if found.line else {"code": "invalid_message"}
        fault = told.get("error", told)
        return Verdict(None, fault["code"], fault.get("message"))
    return _row(found)


def _row(call: Call) -> Verdict:
    try:
        topic = maybe_topic(call.text)
    except PeerError:
        return Verdict(None, "invalid_message")
    (row,) = batch_of(call, (topic or "").encode())
    hops = [{"sid": hop.sid, "rid": hop.rid, "mid": hop.mid, "tms": list(hop.tms)} for hop in row.hops]
    named = {} if topic is None and call.pattern is not None else {"topic": topic or ""}
    deadline = {"timeout_ms": row.timeout_ms or DEADLINE_MS} if row.kind == "request" else {}
    return Verdict({name: getattr(row, name) for name in COMPARED} | {"hops": hops} | named | deadline)


def assert_agrees(folder: Path, spoken: list[bytes]) -> None:
    found = verdicts(capture(folder, "seneca", b"\n".join(spoken)))
    assert len(found) == len(spoken)
    for line, ours in zip(spoken, found, strict=True):
        if is_answer(line):
            assert ours.row is not None
            assert ours.row["kind"] == "response"
            continue
        theirs = expected(line)
        assert ours.code == theirs.code
        assert theirs.reason in (None, ours.reason)
        if theirs.row is not None:
            assert ours.row is not None
            assert {name: ours.row[name] for name in theirs.row} == theirs.row
        else:
            assert ours.payload == line[:KEPT_BYTES]


def is_answer(line: bytes) -> bool:
    try:
        return read_answer_line(line) is not None
    except DocumentError:
        return False


scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "a", "math", "m1/c1", "é", "a b", "system.x", "role:math,cmd:sum"]),
)  # fmt: skip
trk = st.lists(
    st.fixed_dictionaries({}, optional={"sid": scalars, "mid": scalars, "tms": st.lists(scalars)}), max_size=3
)
objects = st.dictionaries(st.sampled_from(["a", "schema_id", "schema_version", "seneca.x"]), scalars, max_size=3)
metas: st.SearchStrategy[Any] = st.one_of(
    scalars,
    st.fixed_dictionaries(
        {},
        optional={"mid": scalars, "cid": scalars, "sid": scalars, "snc": scalars, "trk": st.one_of(trk, scalars),
                  "vin": scalars, "pat": scalars, "ctm": st.one_of(objects, scalars), "multiple": scalars,
                  "rtn": st.one_of(st.just({"urn": "http://a/"}), scalars), "zzz": scalars, "id": scalars},
    ),
    st.fixed_dictionaries(
        {"id": st.sampled_from(["m1/c1", "m1", "/", 7])},
        optional={"mi": scalars, "tx": scalars, "sync": scalars, "custom": st.one_of(objects, scalars),
                  "start": scalars, "timeout": scalars, "instance": scalars, "parents": st.one_of(scalars, st.just([
                      ["p", "m0/c1", "A", "-", "0.1.0", 1, None, True, "x"]]))},
    ),
)  # fmt: skip
documents: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={"role": scalars, "cmd": scalars, "x": scalars, "meta$": metas, "msg$": metas, "custom$": objects},
)
wrapped: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"kind": st.sampled_from(["act", "act", "act", "other", "", 7, None])},
    optional={"id": scalars, "act": st.one_of(documents, scalars), "sync": scalars, "origin": scalars,
              "time": st.one_of(st.just({"client_sent": 5}), scalars), "msg$": metas, "error": scalars},
)  # fmt: skip
spoken_lines: st.SearchStrategy[bytes] = st.one_of(
    st.one_of(documents, wrapped).map(lambda value: json.dumps(value).encode()),
    st.sampled_from([b"[]", b"null", b'"x"', b"{", b'{"a":1}x', b'{"a":"\xff"}', b"[" * 600, b'{"a":1,"a":2}', b"x"]),
    st.binary(min_size=1, max_size=20).filter(lambda line: b"\n" not in line and bool(line.strip(b" \t\r"))),
)


@pytest.mark.parametrize("name", VECTORS)
def test_every_message_of_the_vectors_gets_the_codecs_verdict(name: str, tmp_path: Path) -> None:
    vector = VECTORS[name]
    spoken = [*vector.sent, *vector.returned]
    assert_agrees(tmp_path, [line for line in spoken if line])


@hostile
@given(st.lists(spoken_lines, max_size=6))
@example([json.dumps({"role": "a", "meta$": META | {"ctm": {str(n): "x" * 1000 for n in range(70)}}}).encode()])
@example([json.dumps({"kind": "act", "act": {"custom$": {str(n): 1 for n in range(129)}}, "id": "a/b"}).encode()])
@example([json.dumps({"role": "a b"}).encode(), json.dumps({"role": "system.x"}).encode()])
def test_lines_get_the_codecs_verdict_and_fields(tmp_path: Path, found: list[bytes]) -> None:
    assert_agrees(tmp_path, [line.strip(b" \t\r") for line in found])


def test_answers_of_every_dialect_are_responses_with_their_error(tmp_path: Path) -> None:
    told = {"mid": "m1", "cid": "c1", "rid": "B"}
    spoken: list[Any] = [
        {"sum": 3, "meta$": told | {"res": True, "trk": [{"sid": "A", "rid": "B", "mid": "m1", "tms": [1, 2, 3]}]}},
        {"code": "late", "message": "m", "meta$": told | {"res": True, "error": True, "usr": {"tenant": "t1"}}},
        {"id": "m1/c1", "kind": "res", "accept": "B", "res": [1]},
        {"id": "m1/c1", "kind": "res", "accept": "B", "res": None, "error": {"code": "broken", "message": "m"}},
        {"sum": 3, "meta$": {"id": "m1/c1", "mi": "m1", "tx": "c1", "instance": "B", "start": 1, "end": 2}},
    ]
    found = verdicts(capture(tmp_path, "seneca", "\n".join(map(json.dumps, spoken)).encode()))
    rows = [each.row or {} for each in found]
    identities = [(row["kind"], row["message_id"], row["correlation_id"], row["producer"]) for row in rows]
    assert identities == [("response", "m1", "c1", "B")] * 5
    assert [row["error"] for row in rows] == [None, "late", None, "broken", None]
    assert [json.loads(row["payload"]) for row in (rows[0], rows[2], rows[4])] == [{"sum": 3}, [1], {"sum": 3}]
    assert rows[0]["hops"] == [{"sid": "A", "rid": "B", "mid": "m1", "tms": [1, 2, 3]}]
    assert rows[1]["attributes"] == {"tenant": "t1"}


def test_a_wrapped_line_that_wants_no_answer_is_refused_with_the_reason_all_the_same(tmp_path: Path) -> None:
    (found,) = verdicts(capture(tmp_path, "seneca", b'{"kind":"act","act":{"role":"a"},"sync":false}'))
    assert (found.code, found.reason) == ("invalid_message", "seneca: a message needs an id")


def test_a_message_that_names_no_role_is_called_by_the_pattern_its_sender_tells(tmp_path: Path) -> None:
    spoken = [{"evt": "saved", "meta$": META | {"pat": pattern}} for pattern in ("evt:*", "evt:saved", "evt:s*", None)]
    found = verdicts(capture(tmp_path, "seneca", "\n".join(map(json.dumps, spoken)).encode()))
    assert [(each.row or {})["topic"] for each in found] == ["saved", "saved", "", ""]


def test_blank_lines_are_none_and_a_line_over_the_limit_is_refused_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b'\r\n \t\r\n{"role":"a"}\r\n\n{"role":"%b"}\n  {"role":"b"}  ' % (b"x" * 100)
    found = capture(tmp_path, "seneca", content)
    small = config.Config(listen=config.Listen(wires=(SenecaWire(body_limit=50),)))
    for pieces in (65_536, 2):
        monkeypatch.setattr(lines, "PIECE_MESSAGES", pieces)
        first, second, third = verdicts(found, small)
        assert ((first.row or {})["topic"], (third.row or {})["topic"]) == ("a", "b")
        assert (second.code, second.reason) == ("too_large", "seneca: message exceeds 50 bytes")


def test_times_of_senders_never_go_back_nor_past_the_end_of_the_file(tmp_path: Path) -> None:
    sent = [5, 3, None, 7, 10**15, 8]
    spoken = [{"role": "a", "meta$": META | {"trk": [{"mid": "m1", "tms": [time]}]}} for time in sent]
    found = verdicts(capture(tmp_path, "seneca", "\n".join(map(json.dumps, spoken)).encode(), time_us=9_500))
    assert [(each.row or {})["time_us"] for each in found] == [5000, 5000, 5000, 7000, 9000, 9000]
    assert [(each.row or {})["sent_ms"] for each in found] == sent
