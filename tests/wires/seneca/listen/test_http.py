"""The HTTP door of the Seneca wire, from a raw socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import Any

import pytest

from raceway.client import connect
from raceway.errors import RemoteError, RequestTimeoutError
from raceway.wires.seneca.settings import SenecaWire
from tests.rigs.seneca_bus import HTTP, Answer, SenecaBus, post, read_answer, seneca_bus
from tests.rigs.server import wait_until

SUM = {"role": "math", "cmd": "sum", "a": 1}


def exchange(bus: SenecaBus, data: bytes) -> tuple[Answer, bytes]:
    """Send all at once; the first answer, and what follows it until the bus closes."""
    with bus.connect() as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        stream = connection.makefile("rb")
        return read_answer(stream), stream.read()


# ---- keeping order, keeping alive -----------------------------------------------------------------------------------


def test_requests_sent_ahead_are_answered_in_their_order() -> None:
    with seneca_bus() as bus, bus.connect() as connection:
        responder = bus.responder("math.sum")
        connection.sendall(b"".join(post(SUM | {"a": a}) for a in range(3)))
        responder.asked(3)
        for row in (2, 0, 1):
            responder.reply(row, b'{"row":%d}' % row)
        stream = connection.makefile("rb")
        assert [read_answer(stream).body["row"] for _ in range(3)] == [0, 1, 2]


def test_a_client_that_sends_far_ahead_is_read_from_no_further_until_it_has_answers() -> None:
    with seneca_bus() as bus, bus.connect() as connection:
        responder = bus.responder("math.sum")
        connection.sendall(b"".join(post(SUM | {"a": a}) for a in range(250)))
        responder.asked(100)
        stream = connection.makefile("rb")
        for row in range(250):
            responder.asked(row + 1)
            responder.reply(row, b'{"row":%d}' % row)
            assert read_answer(stream).body == {"row": row}


def test_a_connection_is_kept_and_one_that_is_not_wanted_is_closed() -> None:
    with seneca_bus() as bus, bus.connect() as connection:
        stream = connection.makefile("rb")
        for _ in range(3):
            connection.sendall(post({"x": 1}))
            assert read_answer(stream).headers["connection"] == "keep-alive"
        connection.sendall(post({"x": 1}, Connection="close"))
        assert read_answer(stream).headers["connection"] == "close"
        assert stream.read() == b""


def test_http_1_0_is_closed_unless_it_asks_otherwise() -> None:
    with seneca_bus() as bus:
        answer, rest = exchange(bus, post({"x": 1}).replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert (answer.headers["connection"], rest) == ("close", b"")
        keep = post({"x": 1}, Connection="keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0")
        with bus.connect() as connection:
            stream = connection.makefile("rb")
            for _ in range(2):
                connection.sendall(keep)
                assert read_answer(stream).headers["connection"] == "keep-alive"


def test_a_client_that_has_said_all_still_gets_its_answer() -> None:
    with seneca_bus() as bus, bus.connect() as connection:
        responder = bus.responder("math.sum")
        connection.sendall(post(SUM))
        connection.shutdown(socket.SHUT_WR)
        responder.asked()
        responder.reply(0, b'{"sum":3}')
        stream = connection.makefile("rb")
        assert read_answer(stream).body == {"sum": 3}
        assert stream.read() == b""


def test_an_idle_connection_is_closed_in_the_end_but_not_one_that_waits() -> None:
    wire = SenecaWire(idle_ms=200, sweep_ms=20)
    with seneca_bus(wire=wire) as bus, bus.connect() as waiting, bus.connect() as idle:
        responder = bus.responder("math.sum")
        waiting.sendall(post(SUM))
        responder.asked()
        assert idle.recv(1) == b""
        responder.reply(0, b'{"sum":3}')
        assert read_answer(waiting.makefile("rb")).body == {"sum": 3}


def test_a_body_may_come_in_chunks_and_pieces() -> None:
    with seneca_bus() as bus, bus.connect() as connection:
        responder = bus.responder("math.sum")
        body = json.dumps(SUM).encode()
        head = b"POST /act HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        data = head + b"".join(b"%x\r\n%b\r\n" % (1, body[at : at + 1]) for at in range(len(body))) + b"0\r\n\r\n"
        for at in range(len(data)):
            connection.sendall(data[at : at + 1])
        assert [json.loads(payload) for payload in responder.asked()] == [SUM]
        responder.reply(0, '{"x":"größer"}'.encode())
        answer = read_answer(connection.makefile("rb"))
        assert answer.body == {"x": "größer"}


def test_a_client_that_waits_for_leave_to_send_gets_it() -> None:
    with seneca_bus() as bus, bus.connect() as connection:
        data = post({"x": 1}, Expect="100-continue")
        head, _, body = data.partition(b"\r\n\r\n")
        connection.sendall(head + b"\r\n\r\n")
        stream = connection.makefile("rb")
        assert stream.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert stream.readline() == b"\r\n"
        connection.sendall(body)
        assert read_answer(stream).body["code"] == "act_not_found"


def test_leave_to_send_comes_behind_the_answers_before_it() -> None:
    with seneca_bus() as bus, bus.connect() as connection:
        responder = bus.responder("math.sum")
        data = post({"x": 1}, Expect="100-continue")
        connection.sendall(post(SUM) + data)
        responder.asked()
        responder.reply(0, b'{"sum":3}')
        stream = connection.makefile("rb")
        assert read_answer(stream).body == {"sum": 3}
        assert stream.readline() == b"HTTP/1.1 100 Continue\r\n"


# ---- refusals -------------------------------------------------------------------------------------------------------


def status(bus: SenecaBus, data: bytes) -> tuple[int, str]:
    answer, rest = exchange(bus, data)
    assert rest == b"", "one answer"
    assert int(answer.headers["content-length"]) == len(json.dumps(answer.body, separators=(",", ":")).encode())
    return answer.status, answer.body["code"]


def test_what_is_not_a_message_for_us_is_refused() -> None:
    small = SenecaWire(body_limit=1000, head_limit=2000)
    with seneca_bus(wire=small) as bus:
        assert status(bus, post({}, path="/")) == (404, "not_found")
        assert status(bus, post({}, path="/act/x")) == (404, "not_found")
        assert status(bus, post(b"", method="OPTIONS")) == (405, "method_not_allowed")
        assert status(bus, b"GET /act HTTP/1.1\r\n\r\n") == (400, "invalid_json")
        assert status(bus, post(b"")) == (400, "invalid_json")
        assert status(bus, post(b"null")) == (400, "invalid_message")
        assert status(bus, post(b"[1]")) == (400, "invalid_message")
        assert status(bus, post(b'"x"')) == (400, "invalid_message")
        assert status(bus, post(b'{"a":')) == (400, "invalid_json")
        assert status(bus, post(b"\xff")) == (400, "invalid_json")
        assert status(bus, b"hello\r\n\r\n")[0] == 400
        assert status(bus, post({}, Content_Length="12x"))[0] == 400
        assert status(bus, post({"a": "x" * 1000})) == (413, "too_large")
        assert status(bus, post({}, x="y" * 2000)) == (431, "too_large")
        assert status(bus, b"POST /act HTTP/1.1\r\nx: " + b"y" * 5000) == (431, "too_large")
        assert bus.act({"x": 1}).status == 500, "and it lives on"


def test_a_client_that_sends_a_large_body_regardless_can_read_why_it_was_refused() -> None:
    """Closed at once, the answer would be lost: the client would see its connection reset."""
    with seneca_bus(wire=SenecaWire(body_limit=1000)) as bus, bus.connect() as connection:
        connection.sendall(post(b"x" * 3_000_000))
        stream = connection.makefile("rb")
        answer = read_answer(stream)
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert stream.read() == b""


def test_chunks_over_the_limit_are_refused_before_they_end() -> None:
    with seneca_bus(wire=SenecaWire(body_limit=1000)) as bus, bus.connect() as connection:
        head = b"POST /act HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head + b"800\r\n" + b"x" * 0x800)
        assert read_answer(connection.makefile("rb")).status == 413


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Host": "evil.example"},
        {"Host": "evil.example:10101"},
    ],
)
def test_pages_of_other_sites_and_foreign_names_are_refused(headers: dict[str, str]) -> None:
    with seneca_bus() as bus:
        answer = bus.act(SUM, **headers)
        assert (answer.status, answer.body["code"]) == (403, "forbidden")


def test_programs_and_our_own_pages_are_welcome() -> None:
    with seneca_bus(hosts=("bus.example",)) as bus:
        for headers in ({"Host": "localhost:1"}, {"Host": "bus.example"}, {"Origin": "http://127.0.0.1:8600"}):
            assert bus.act(SUM, **headers).body["code"] == "act_not_found"
        answer, _ = exchange(bus, post(SUM).replace(b"Host: 127.0.0.1\r\n", b""))
        assert answer.body["code"] == "act_not_found", "an absent Host is no browser's"


def test_an_unfinished_head_ends_the_connection() -> None:
    with seneca_bus(wire=SenecaWire(sweep_ms=20), head_s=0.1) as bus, bus.connect() as connection:
        connection.sendall(b"POST /act HTTP/1.1\r\nHost: loc")
        assert connection.recv(1) == b""
        assert bus.counted("bus.stalled_closed") == 1


def test_a_body_that_drips_ends_the_connection_but_a_steady_one_does_not() -> None:
    settings: dict[str, Any] = {"head_s": 0.2, "body_rate": 2000, "wire": SenecaWire(sweep_ms=20)}
    with seneca_bus(**settings) as bus, bus.connect() as connection:
        connection.sendall(post(b"{" + b" " * 100_000)[:300])
        assert connection.recv(1) == b""
        assert bus.counted("bus.stalled_closed") == 1


# ---- what is asked --------------------------------------------------------------------------------------------------


def test_a_get_reads_the_query() -> None:
    with seneca_bus() as bus:
        responder = bus.responder("math.sum")
        with bus.connect() as connection:
            connection.sendall(b"GET /act?role=math&cmd=sum&a=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert json.loads(responder.asked()[0]) == SUM | {"a": "1"}
            responder.reply(0, b'{"sum":3}')
            assert read_answer(connection.makefile("rb")).body == {"sum": 3}


@pytest.mark.parametrize("keys", [{"role": "seneca", "cmd": "stats"}, {"sys": "seneca"}, {"role": "transport"}])
def test_what_is_seneca_s_own_is_never_reached(keys: dict[str, str]) -> None:
    with seneca_bus() as bus:
        bus.responder("#")
        assert bus.act(keys).body["code"] == "act_not_found"


def test_a_name_that_cannot_be_a_topic_is_refused() -> None:
    with seneca_bus() as bus:
        for keys in ({"role": "a b"}, {"role": "system", "cmd": "message"}, {"role": "x" * 300}):
            answer = bus.act(keys)
            assert (answer.status, answer.body["code"]) == (400, "invalid_message")


def test_a_legacy_call_is_answered_before_its_client_gives_up() -> None:
    wire = SenecaWire(legacy_timeout_ms=100, request_timeout_ms=60_000)
    with seneca_bus(wire=wire) as bus:
        bus.responder("math.sum")
        answer = bus.act(SUM, seneca_id="m/c", seneca_origin="A")
        assert (answer.status, answer.body["code"], answer.headers["seneca-id"]) == (500, "action_timeout", "m/c")


@pytest.mark.parametrize(("own_ms", "held_ms"), [(100, 100), (100.0, 100), (60_000, 300), (None, 300), (0, 300)])
def test_a_web_call_says_how_long_it_waits_and_the_bus_waits_no_longer(own_ms: float | None, held_ms: int) -> None:
    with seneca_bus(wire=SenecaWire(request_timeout_ms=300)) as bus:
        bus.responder("math.sum")
        answer = bus.act(SUM | {"meta$": {"id": "m/c", "sync": True, "timeout": own_ms}})
        assert (answer.status, answer.body["code"]) == (500, "action_timeout")
        (request,) = bus.rows("math.sum")
        assert request.timeout_ms == held_ms


def test_a_client_of_ours_says_how_long_it_waits_where_the_dialect_can() -> None:
    with seneca_bus() as bus:
        bus.responder("math.sum")

        async def ask(dialect: str) -> None:
            async with connect(f"seneca://127.0.0.1:{bus.port_base + HTTP}", wire="seneca", dialect=dialect) as client:
                with contextlib.suppress(RemoteError, RequestTimeoutError):
                    await client.act("role:math,cmd:sum", timeout_ms=100)

        for dialect in ("W", "S"):
            asyncio.run(ask(dialect))
        assert [row.timeout_ms for row in bus.rows("math.sum")] == [100, 22_222]


def test_an_answer_of_another_wire_is_an_answer() -> None:
    with seneca_bus() as bus, bus.connect() as connection:
        responder = bus.responder("math.sum")
        meta = {"sid": "A", "mid": "m1", "cid": "c1", "snc": True, "trk": [{"sid": "A", "mid": "m1", "tms": [5]}]}
        connection.sendall(post(SUM | {"meta$": meta}))
        assert [json.loads(payload) for payload in responder.asked()] == [SUM]
        responder.reply(0, b"42")
        body = read_answer(connection.makefile("rb")).body
        assert body["data"] == 42
        (entry,) = body["meta$"]["trk"]
        assert (entry["rid"], entry["mid"], len(entry["tms"])) == (responder.id, "m1", 3)
        request, response = bus.rows("math.sum")
        assert (request.sent_ms, request.timeout_ms, request.producer) == (5, 22_222, "A")
        assert [(hop.sid, hop.rid, hop.mid) for hop in response.hops] == [("A", responder.id, "m1")]


def test_a_chain_is_joined_by_its_correlation_id_and_parents() -> None:
    with seneca_bus() as bus:
        trk = [{"sid": "A", "rid": "B", "mid": "m14", "tms": [200, 210]}, {"sid": "B", "mid": "m15", "tms": [215]}]
        bus.act({"role": "tax", "meta$": {"sid": "B", "mid": "m15", "cid": "c14", "snc": False, "trk": trk}})
        (row,) = bus.rows("tax")
        assert (row.message_id, row.parent_id, row.correlation_id) == ("m15", "m14", "c14")
        assert [(hop.mid, hop.tms) for hop in row.hops] == [("m14", (200, 210)), ("m15", (215,))]


def test_a_message_that_wants_no_answer_is_acknowledged_when_it_is_stored() -> None:
    with seneca_bus() as bus:
        assert bus.act({"role": "log", "meta$": {"mid": "m1", "snc": False}}).status == 202
        answer = bus.act({"role": "log", "meta$": {"id": "m2/c2", "sync": False}})
        assert (answer.status, answer.body["meta$"]["empty"]) == (200, True)
        assert [row.message_id for row in bus.rows("log")] == ["m1", "m2"]
        bus.call(bus.journal.refuse_writes)
        refused = bus.act({"role": "log", "meta$": {"mid": "m3", "cid": "c3", "snc": False}})
        assert (refused.status, refused.body["code"]) == (500, "overloaded")
        bus.call(bus.journal.take_writes)
        assert bus.act({"role": "log", "meta$": {"mid": "m3", "cid": "c3", "snc": False}}).status == 202


def test_a_message_whose_commit_fails_is_not_acknowledged() -> None:
    with seneca_bus() as bus:
        bus.call(bus.journal.fail_next_commit)
        answer = bus.act({"role": "log", "meta$": {"mid": "m1", "cid": "c1", "snc": False}})
        assert (answer.status, answer.body["code"]) == (500, "overloaded")


def test_a_client_that_leaves_does_not_disturb_anybody() -> None:
    with seneca_bus() as bus:
        responder = bus.responder("math.sum")
        connection = bus.connect(HTTP)
        connection.sendall(post(SUM))
        responder.asked()
        connection.close()
        responder.reply(0, b'{"sum":3}')
        wait_until(lambda: bus.call(lambda: not bus.doors.wires["seneca"].gate.sessions))
        assert bus.act({"x": 1}).status == 500


# ---- repeats --------------------------------------------------------------------------------------------------------


def test_a_repeat_waits_for_the_first_and_gets_its_result() -> None:
    meta = {"sid": "A", "mid": "m11", "cid": "c11", "snc": True, "trk": [{"sid": "A", "mid": "m11", "tms": [0]}]}
    with seneca_bus() as bus, bus.connect() as first, bus.connect() as second:
        responder = bus.responder("math.sum")
        first.sendall(post(SUM | {"meta$": meta}))
        responder.asked()
        second.sendall(post(SUM | {"meta$": meta}))
        wait_until(lambda: bus.counted("bus.repeated") == 1)
        responder.reply(0, b'{"sum":3}')
        one, other = (read_answer(each.makefile("rb")).body for each in (first, second))
        assert one["sum"] == other["sum"] == 3
        assert one["meta$"]["mid"] == other["meta$"]["mid"] == "m11"
        again = bus.act(SUM | {"meta$": meta}).body
        assert (again["sum"], again["meta$"]["trk"][0]["rid"]) == (3, responder.id)
        assert again["meta$"]["trk"][0]["tms"][1] >= one["meta$"]["trk"][0]["tms"][2], "times of its own delivery"
        assert len(responder.requests) == 1, "the action ran once"


def test_a_call_that_nobody_could_answer_may_be_repeated() -> None:
    meta = {"mid": "m1", "cid": "c1", "snc": True}
    with seneca_bus() as bus, bus.connect() as connection:
        assert bus.act(SUM | {"meta$": meta}).body["code"] == "act_not_found"
        responder = bus.responder("math.sum")
        connection.sendall(post(SUM | {"meta$": meta}))
        responder.asked()
        responder.reply(0, b'{"sum":3}')
        assert read_answer(connection.makefile("rb")).body["sum"] == 3


def test_a_message_that_wants_no_answer_is_stored_once_however_often_it_comes() -> None:
    with seneca_bus() as bus:
        for _ in range(3):
            assert bus.act({"role": "log", "meta$": {"mid": "m1", "cid": "c1", "snc": False}}).status == 202
        assert len(bus.rows("log")) == 1
