"""A call that goes on as it came must be what its row would have said."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from raceway.broker.door import Door
from raceway.config import MIB
from raceway.wires.seneca.codec.call import Call, batch_of
from raceway.wires.seneca.codec.line import read_line
from raceway.wires.seneca.codec.patterns import Pin, PinTable
from raceway.wires.seneca.codec.request import read_http
from raceway.wires.seneca.dial.pins import PinGroup
from tests.rigs.doubles import Bench

PIN = Pin.of({"role": "math", "cmd": "*"})
SUM = {"role": "math", "cmd": "sum", "a": 1.50, "b": [2, {"x": "ü"}]}
TRK = [{"sid": "Z", "rid": "A", "mid": "m0", "tms": [1, 2]}, {"sid": "A", "mid": "m1", "tms": [3]}]
CUSTOM = {"tenant": "t1", "n": 7, "deep": {"x": [None]}, "schema_id": 3}
PARENTS = [["p", "m0/c", "Z", "-", "0", 1, 2, True, "x"]]
SEED = {"sid": "A", "mid": "m1", "cid": "c1", "snc": True}


def over_http(document: dict[str, Any], headers: dict[bytes, bytes] | None = None) -> Call:
    call = read_http(headers or {b"user-agent": b"curl/8"}, json.dumps(document).encode(), lambda: "fresh")
    assert isinstance(call, Call)
    return call


def over_tcp(**more: Any) -> Call:
    line = {"id": "m1/c1", "kind": "act", "origin": "A", "act": SUM | {"custom$": CUSTOM}, "sync": True} | more
    call = read_line(json.dumps(line).encode(), lambda: "fresh")
    assert isinstance(call, Call)
    return call


CALLS = {
    "bare": over_http(SUM),
    "S": over_http(SUM | {"meta$": SEED | {"trk": TRK, "ctm": CUSTOM, "pat": "role:math"}}),
    "S of a newer version": over_http(SUM | {"meta$": SEED | {"vin": 7, "zzz": {"k": 1}}}),
    "W": over_http(SUM | {"meta$": {"id": "m1/c1", "sync": True, "instance": "A", "custom": CUSTOM, "start": 5}}),
    "W in a chain": over_http(SUM | {"meta$": {"id": "m1/c1", "sync": True, "parents": PARENTS}}),
    "L": over_http(SUM | {"custom$": CUSTOM}, {b"seneca-id": b"m1/c1", b"seneca-origin": b"A"}),
    "T": over_tcp(time={"client_sent": 9}),
}


def group() -> PinGroup:
    pins: PinTable[PinGroup] = PinTable()
    return PinGroup(Door(Bench().broker), PIN, 22_222, MIB, pins)


def asked(call: Call, pattern: str = PIN.text) -> Any:
    """The call as the gate hands it on."""
    batch = batch_of(call, b"math.sum", pattern)
    batch.source = [call]
    return batch


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_a_call_goes_on_as_its_row_says(call: Call) -> None:
    answerer, batch = group(), asked(call)
    from_row, _ = answerer.outgoing(batch, 0, b"masked")
    same = answerer._maybe_same(batch.item("source", 0))
    assert same is not None
    assert same.document_bytes is None or same.document_bytes >= same.data_bytes
    assert msgspec.structs.replace(same, document_bytes=None) == from_row


def test_a_chain_of_the_web_dialect_goes_on_as_received() -> None:
    same = group()._maybe_same(CALLS["W in a chain"])
    assert same is not None
    assert json.loads(same.parents or "") == PARENTS
