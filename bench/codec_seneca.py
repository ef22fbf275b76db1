"""Cases of `bench.codec` for Seneca: one call at a time, as listeners and callers see them.

Requests include the headers that a real client of the web dialect sends, so that their cost is included.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from itertools import count

from raceway.model.envelope import Batch
from raceway.wires.seneca.codec.answer import Result, Stamp, answer_http, answer_line, http_bytes
from raceway.wires.seneca.codec.call import Call, Dialect, batch_of
from raceway.wires.seneca.codec.line import read_line
from raceway.wires.seneca.codec.outgoing import (
    ListenerReply,
    call_http,
    call_line,
    read_answer_line,
    read_http_answer,
)
from raceway.wires.seneca.codec.patterns import Pin, PinTable
from raceway.wires.seneca.codec.request import read_http
from raceway.wires.seneca.codec.rows import ReplyRow, answer_batch, outcome_of, outgoing_of

Case = Callable[[], tuple[Callable[[], object], int]]

DATA = {"role": "math", "cmd": "sum", "a": 1, "b": 2}
INSTANCE = "h2j4k6m8n0p1/1700000000000/4711/3.38.0/-"
IDENTITY = "k3v0a1b2c3d4/t9x8y7w6v5u4"
MID, CID = IDENTITY.split("/")
NOW = 1_700_000_000_123
RESULT = b'{"sum":3}'
STAMP = Stamp("B", NOW + 3, NOW + 4, "cmd:sum,role:math")

WEB = {
    **DATA,
    "meta$": {
        "id": IDENTITY, "mi": MID, "tx": CID, "sync": True, "custom": {}, "parents": [], "instance": INSTANCE,
        "tag": "-", "seneca": "3.38.0", "version": "0.1.0", "gate": False, "fatal": False, "local": False,
        "start": NOW, "timeout": 22222, "pattern": "", "action": "(root$/web_client/1)", "plugin": {"name": "root$"},
        "remote": True, "trace": [], "sub": False, "data": None, "err": None, "err_trace": None, "error": None,
        "empty": None, "explain": None,
    },
}  # fmt: skip
SEED = {
    **DATA,
    "meta$": {
        "vin": 1, "sid": INSTANCE, "act": True, "mid": MID, "cid": CID, "snc": True, "pat": "role:math",
        "trk": [{"sid": INSTANCE, "mid": MID, "tms": [NOW]}],
    },
}  # fmt: skip
LEGACY = {**DATA, "custom$": {}}
HEADERS = {
    b"host": b"127.0.0.1:10101", b"content-type": b"application/json", b"seneca-id": IDENTITY.encode(),
    b"seneca-kind": b"req", b"seneca-origin": INSTANCE.encode(), b"seneca-track": json.dumps([INSTANCE]).encode(),
    b"seneca-time-client-sent": b"%d" % NOW,
}  # fmt: skip
LINE = {
    "id": IDENTITY, "kind": "act", "origin": INSTANCE, "track": [INSTANCE], "time": {"client_sent": NOW}, "act": LEGACY,
    "sync": True, "msg$": {"vin": 1, "sid": INSTANCE, "out": True, "mid": MID, "cid": CID, "snc": True, "pat": ""},
}  # fmt: skip


def fresh() -> Callable[[], str]:
    numbers = count()
    return lambda: f"{next(numbers):012d}"


def packed(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def call_of(document: object, headers: dict[bytes, bytes]) -> Call:
    call = read_http(headers, packed(document), fresh())
    assert isinstance(call, Call)
    return call


def reading(document: object, headers: dict[bytes, bytes]) -> tuple[Callable[[], object], int]:
    return partial(read_http, headers, packed(document), fresh()), 1


def reading_line() -> tuple[Callable[[], object], int]:
    return partial(read_line, packed(LINE), fresh()), 1


def answering(document: object, headers: dict[bytes, bytes]) -> tuple[Callable[[], object], int]:
    call, result = call_of(document, headers), Result(RESULT)
    return lambda: http_bytes(answer_http(call, result, STAMP)), 1


def answering_line() -> tuple[Callable[[], object], int]:
    call = read_line(packed(LINE), fresh())
    assert isinstance(call, Call)
    return partial(answer_line, call, Result(RESULT), STAMP), 1


def as_row() -> tuple[Callable[[], object], int]:
    return partial(batch_of, call_of(WEB, {}), b"math.sum"), 1


def calling(dialect: Dialect) -> tuple[Callable[[], object], int]:
    """From a row to the bytes sent to a service."""
    batch, keys, new = batch_of(call_of(WEB, {}), b"math.sum"), {"role": "math", "cmd": "sum"}, fresh()
    if dialect is Dialect.TCP:
        return lambda: call_line(dialect, outgoing_of(batch, 0, keys, new, NOW)[0]), 1
    return lambda: call_http(dialect, outgoing_of(batch, 0, keys, new, NOW)[0]).to_bytes(b"127.0.0.1:10101", b"/act"), 1


def row_of(reply: ListenerReply) -> Batch:
    batch = answer_batch([ReplyRow(reply, b"m", lambda: reply.hops)])
    batch.complete()
    return batch


def hearing() -> tuple[Callable[[], object], int]:
    """From a service's HTTP answer to a row."""
    body = answer_http(call_of(WEB, {}), Result(RESULT), STAMP).body
    return lambda: row_of(read_http_answer(Dialect.WEB, 200, {}, body)), 1


def hearing_line() -> tuple[Callable[[], object], int]:
    """From a service's line to a row."""
    call = read_line(packed(LINE), fresh())
    assert isinstance(call, Call)
    line = answer_line(call, Result(RESULT), STAMP)
    assert line is not None
    data = line[:-1]

    def hear() -> object:
        reply = read_answer_line(data)
        assert reply is not None
        return row_of(reply)

    return hear, 1


def hearing_row() -> tuple[Callable[[], object], int]:
    """From a row to the outcome for the requester."""
    body = answer_http(call_of(WEB, {}), Result(RESULT), STAMP).body
    batch = row_of(read_http_answer(Dialect.WEB, 200, {}, body))
    batch.source = None
    return partial(outcome_of, batch, 0), 1


def routing(pins: int) -> tuple[Callable[[], object], int]:
    table: PinTable[int] = PinTable()
    for number in range(pins):
        table.add(Pin.of({"role": f"r{number}", "cmd": f"c{number}"}), number)
    table.add(Pin.of({"role": "math", "cmd": "*"}), pins)
    call = call_of(WEB, {})

    def route() -> str:
        found = table.maybe_find(call.look)
        assert found is not None
        return found[0].topic_for(call.look)

    return route, 1


CASES: dict[str, Case] = {
    "seneca W request": partial(reading, WEB, {}),
    "seneca L request": partial(reading, LEGACY, HEADERS),
    "seneca S request": partial(reading, SEED, {}),
    "seneca bare request": partial(reading, DATA, {b"user-agent": b"curl/8.5.0"}),
    "seneca T request": reading_line,
    "seneca route, 100 pins": partial(routing, 100),
    "seneca request to row": as_row,
    "seneca row to W service": partial(calling, Dialect.WEB),
    "seneca row to L service": partial(calling, Dialect.LEGACY),
    "seneca row to T service": partial(calling, Dialect.TCP),
    "seneca W service to row": hearing,
    "seneca T service to row": hearing_line,
    "seneca row to outcome": hearing_row,
    "seneca W answer": partial(answering, WEB, {}),
    "seneca L answer": partial(answering, LEGACY, HEADERS),
    "seneca S answer": partial(answering, SEED, {}),
    "seneca T answer": answering_line,
}
