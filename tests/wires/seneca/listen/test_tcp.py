"""The TCP door of the Seneca wire, from a raw socket."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from raceway.model.intents.schemas import RegisterSchema
from raceway.wires.seneca.settings import SenecaWire
from tests.rigs.seneca_bus import TCP, seneca_bus
from tests.rigs.server import wait_until

SUM = {"role": "math", "cmd": "sum", "a": 1}


def line(mid: str = "m1", act: Any = None, **more: Any) -> bytes:
    wrapped = {"id": f"{mid}/c1", "kind": "act", "origin": "A", "act": SUM if act is None else act, "sync": True}
    return json.dumps(wrapped | more).encode() + b"\n"


def read(connection: socket.socket) -> Any:
    """One line; each call must read all there is."""
    stream = connection.makefile("rb")
    return json.loads(stream.readline())


def test_answers_come_when_they_are_ready() -> None:
    with seneca_bus() as bus, bus.connect(TCP) as connection:
        responder = bus.responder("math.sum")
        connection.sendall(line("m1") + line("m2"))
        responder.asked(2)
        stream = connection.makefile("rb")
        for row in (1, 0):
            responder.reply(row, b'{"row":%d}' % row)
            told = json.loads(stream.readline())
            assert (told["id"], told["kind"], told["origin"], told["res"]) == (
                f"m{row + 1}/c1",
                "res",
                "A",
                {"row": row},
            )


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_calls_that_come_together_are_judged_by_their_own_payloads(wrong: int) -> None:
    with seneca_bus() as bus, bus.connect(TCP) as connection:
        responder = bus.responder("math.sum")
        schemas = bus.broker.schemas
        bus.call(
            lambda: schemas.register(RegisterSchema("numbers", "json", b'{"properties": {"a": {"type": "number"}}}'))
        )
        bus.call(lambda: schemas.configure(bus.broker.topics.own("math.sum"), "numbers", "enforce", True))
        connection.sendall(b"".join(line(f"m{row}", SUM | {"a": "one" if row == wrong else row}) for row in range(3)))
        right = [row for row in range(3) if row != wrong]
        assert [json.loads(payload)["a"] for payload in responder.asked(2)] == right
        for at, row in enumerate(right):
            responder.reply(at, b'{"row":%d}' % row)
        stream = connection.makefile("rb")
        told = {
            each["id"]: each["res"] or each["error"]["code"]
            for each in map(json.loads, [stream.readline() for _ in range(3)])
        }
        assert told == {f"m{wrong}/c1": "act_invalid_msg"} | {f"m{row}/c1": {"row": row} for row in right}


def test_a_line_may_come_byte_by_byte_and_blank_ones_are_nothing() -> None:
    with seneca_bus() as bus, bus.connect(TCP) as connection:
        responder = bus.responder("math.sum")
        for byte in b"\r\n\n" + line().replace(b"\n", b"\r\n"):
            connection.sendall(bytes((byte,)))
        responder.asked()
        responder.reply(0, b'{"sum":3}')
        assert read(connection)["res"] == {"sum": 3}


def test_a_message_that_wants_no_answer_gets_none() -> None:
    with seneca_bus() as bus, bus.connect(TCP) as connection:
        connection.sendall(line("m1", {"role": "log"}, sync=False) + line("m2", {"role": "nobody"}))
        told = read(connection)
        assert (told["id"], told["res"], told["error"]["code"]) == ("m2/c1", None, "act_not_found")
        assert [row.kind for row in bus.rows("log")] == ["publish"]


def test_a_document_with_meta_data_is_answered_by_a_document() -> None:
    with seneca_bus() as bus, bus.connect(TCP) as connection:
        responder = bus.responder("math.sum")
        meta = {"sid": "A", "mid": "m1", "cid": "c1", "snc": True, "trk": [{"sid": "A", "mid": "m1", "tms": [7]}]}
        connection.sendall(json.dumps(SUM | {"meta$": meta}).encode() + b"\n")
        responder.asked()
        responder.reply(0, b'{"sum":3}')
        told = read(connection)
        assert (told["sum"], told["meta$"]["mid"], told["meta$"]["trk"][0]["tms"][0]) == (3, "m1", 7)


def test_several_answers_come_on_one_line() -> None:
    with seneca_bus() as bus, bus.connect(TCP) as connection:
        responders = [bus.responder("math.sum") for _ in range(2)]
        meta = {"sid": "A", "mid": "m1", "cid": "c1", "snc": True, "multiple": True}
        connection.sendall(json.dumps(SUM | {"meta$": meta}).encode() + b"\n")
        for row, responder in enumerate(responders):
            responder.asked()
            responder.reply(0, b'{"row":%d}' % row)
        assert [document["row"] for document in read(connection)["array$"]] == [0, 1]


@pytest.mark.parametrize("data", [b"hello\n", b"[1]\n", b'{"a":\n', b"\xff\n"])
def test_what_is_no_message_ends_the_connection(data: bytes) -> None:
    """A line that is not JSON would end a real client; a client that sends one cannot be trusted with the next."""
    with seneca_bus() as bus, bus.connect(TCP) as connection:
        connection.sendall(data)
        assert connection.recv(1000) == b""
        with bus.connect(TCP) as other:
            other.sendall(line("m2", {"role": "nobody"}))
            assert read(other)["error"]["code"] == "act_not_found"


def test_a_line_without_an_end_is_not_read_for_ever() -> None:
    with seneca_bus(wire=SenecaWire(body_limit=10_000)) as bus, bus.connect(TCP) as connection:
        connection.sendall(b'{"a":"' + b"x" * 20_000)
        assert connection.recv(1000) == b""


def test_a_line_that_stalls_ends_the_connection() -> None:
    with seneca_bus(wire=SenecaWire(sweep_ms=20), head_s=0.1) as bus, bus.connect(TCP) as connection:
        connection.sendall(b'{"id":')
        assert connection.recv(1) == b""
        assert bus.counted("bus.stalled_closed") == 1


def test_a_client_that_has_said_all_still_gets_its_answers() -> None:
    with seneca_bus() as bus, bus.connect(TCP) as connection:
        responder = bus.responder("math.sum")
        connection.sendall(line())
        connection.shutdown(socket.SHUT_WR)
        responder.asked()
        responder.reply(0, b'{"sum":3}')
        stream = connection.makefile("rb")
        assert json.loads(stream.readline())["res"] == {"sum": 3}
        assert stream.read() == b""


def test_a_connection_that_only_listens_is_kept_while_it_is_answered() -> None:
    wire = SenecaWire(idle_ms=150, sweep_ms=20)
    with seneca_bus(wire=wire) as bus, bus.connect(TCP) as connection:
        responder = bus.responder("math.sum")
        connection.sendall(line())
        responder.asked()
        wait_until(
            lambda: bus.call(
                lambda: next(iter(bus.doors.wires["seneca"].gate.sessions)).silence_ms(bus.loop.time()) > 300
            )
        )
        responder.reply(0, b'{"sum":3}')
        assert read(connection)["res"] == {"sum": 3}
        assert connection.recv(1) == b""
