"""Lines of TCP: however they are cut, whatever stands in them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.model.envelope import Hop
from raceway.wires.seneca.codec.answer import Result, Stamp, answer_line
from raceway.wires.seneca.codec.call import Call, Dialect
from raceway.wires.seneca.codec.line import LineReceiver, LineRefused, read_line
from tests.rigs.seneca_calls import custom_of, fresh_ids, line_call, line_refused
from tests.rigs.vectors.seneca import VECTORS

LINES = [VECTORS[name].sent[0] for name in ("V29", "V30", "V31")]
STAMP = Stamp("B", 10, 20)


def act(**more: Any) -> dict[str, Any]:
    return {"id": "m1/c1", "kind": "act", "act": {"role": "math"}, "sync": True, **more}


# ---- cutting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_lines_come_out_whole_however_they_are_cut(size: int) -> None:
    stream = b"\n\r\n" + b"\r\n".join(LINES) + b"\n \t\r\n" + LINES[0] + b"\n"
    receiver = LineReceiver(10_000)
    found = [line for at in range(0, len(stream), size) for line in receiver.receive_data(stream[at : at + size])]
    assert found == [*LINES, LINES[0]]
    assert (receiver.pending, receiver.overflow) == (0, False)


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=5), st.data())
def test_any_cut_gives_the_same_lines(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b"rest"
    receiver = LineReceiver(100)
    found: list[bytes] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += receiver.receive_data(stream[:size])
        stream = stream[size:]
    stripped = [line.strip(b" \t\r") for line in lines]
    assert found == [line for line in stripped if line]
    assert receiver.pending == 4


def test_a_line_that_is_too_long_ends_the_reading() -> None:
    receiver = LineReceiver(10)
    assert receiver.receive_data(b"short\n" + b"x" * 11 + b"\nmore\n") == [b"short"]
    assert receiver.overflow
    assert receiver.receive_data(b"more\n") == []
    unfinished = LineReceiver(10)
    for _ in range(11):
        assert unfinished.receive_data(b"x") == []
    assert unfinished.overflow


def test_a_line_of_just_the_limit_is_taken() -> None:
    assert LineReceiver(10).receive_data(b"x" * 10 + b"\n") == [b"x" * 10]


# ---- the legacy wrapper ---------------------------------------------------------------------------------------------


def test_a_wrapped_message_is_told_by_its_wrapper() -> None:
    side = {"vin": 2, "sid": "other", "out": True, "mid": "x", "cid": "y", "snc": False, "pat": "role:math"}
    call = line_call(
        act(
            origin="A",
            track=["A"],
            time={"client_sent": 5},
            act={"role": "math", "custom$": {"t": 1}, "fatal$": 1},
            **{"msg$": side},
        )
    )
    assert (call.dialect, call.id, call.sid, call.sync) == (Dialect.TCP, "m1/c1", "A", True)
    assert (call.vin, call.pattern, call.echo.track, custom_of(call)) == (2, "role:math", b'["A"]', {"t": 1})
    assert call.hops == (Hop(sid="A", mid="m1", tms=(5,)),)
    assert call.payload == b'{"role":"math"}'


def test_the_smallest_message_is_answered() -> None:
    line = answer_line(line_call(act()), Result(b"null"), STAMP)
    assert line is not None
    assert json.loads(line) == {
        "id": "m1/c1", "kind": "res", "accept": "B", "time": {"listen_recv": 10, "listen_sent": 20}, "sync": True,
        "res": None,
    }  # fmt: skip


@pytest.mark.parametrize("sync", [None, False, "true", 1])
def test_anything_but_true_wants_no_answer(sync: Any) -> None:
    assert not line_call(act(sync=sync)).sync


@pytest.mark.parametrize(
    "fault", [{"kind": "res"}, {"kind": None}, {"id": None}, {"id": 5}, {"id": ""}, {"error": {}}, {"act": [1]}]
)
def test_what_a_real_listener_drops_is_answered_with_an_error(fault: dict[str, Any]) -> None:
    refusal = line_refused(act(origin="A", **fault))
    assert not refusal.close
    assert refusal.line is not None
    told = json.loads(refusal.line)
    assert (told["kind"], told["origin"], told["res"]) == ("res", "A", None)
    assert told["id"] == fault.get("id", "m1/c1")
    assert told["error"]["code"] == "invalid_message"
    assert line_refused(act(sync=False, **fault)) == LineRefused()


def test_an_error_that_is_null_is_none() -> None:
    assert line_call(act(error=None)).mid == "m1"


@pytest.mark.parametrize("line", [b"{", b"[1]", b"null", b'"x"', b"\xff", b"GET / HTTP/1.1", b'{"a":' * 10_000])
def test_what_is_no_json_object_ends_the_connection(line: bytes) -> None:
    assert line_refused(line) == LineRefused(close=True)


# ---- documents on lines ---------------------------------------------------------------------------------------------


def test_a_document_on_a_line_is_answered_by_one() -> None:
    call = line_call({"role": "math", "meta$": {"mid": "m1", "cid": "c1", "sid": "A"}})
    line = answer_line(call, Result(b'{\n"sum": 3\r\n}'), STAMP)
    assert line is not None
    assert (line.count(b"\n"), line.count(b"\r")) == (1, 0)
    assert json.loads(line)["sum"] == 3
    assert json.loads(line)["meta$"]["mid"] == "m1"


def test_a_document_without_meta_data_gets_it() -> None:
    call = line_call({"role": "math"})
    assert (call.dialect, call.id, call.sid, call.sync) == (Dialect.SEED_LINE, "new1/new2", "UNKNOWN", True)


def test_a_response_is_refused_and_the_connection_goes_on() -> None:
    refusal = line_refused({"meta$": {"mid": "m1", "res": True}})
    assert not refusal.close
    assert refusal.line is not None
    assert json.loads(refusal.line)["code"] == "invalid_message"


def test_too_much_custom_data_is_refused_on_lines_too() -> None:
    custom = {"a": "x" * 70_000}
    for document in ({"meta$": {"mid": "m1", "ctm": custom}}, act(act={"custom$": custom})):
        refusal = line_refused(document)
        assert refusal.line is not None
        assert json.loads(refusal.line)["code"] == "too_large"


@given(
    st.dictionaries(
        st.sampled_from(["id", "kind", "act", "sync", "origin", "track", "time", "msg$", "error"]),
        st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.just({}) | st.just([]) | st.just("act"),
    )
)
def test_no_wrapper_is_a_reason_to_break(wrapper: dict[str, Any]) -> None:
    found = read_line(json.dumps(wrapper).encode(), fresh_ids())
    if isinstance(found, Call):
        line = answer_line(found, Result(b"{}"), STAMP)
        assert line is None or json.loads(line)
    elif found.line is not None:
        assert json.loads(found.line)
