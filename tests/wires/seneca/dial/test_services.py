from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest

from raceway.errors import ConfigError, ForbiddenError, MalformedError, NameInvalidError, PinTakenError, RacewayError
from raceway.model.intents.batches import Request
from raceway.wires.seneca.settings import AttachedServiceSettings, SenecaDial, SenecaWire
from tests.rigs.doubles import Message, RecordingPeer, batch_of
from tests.rigs.seneca_bus import (
    RawService,
    Received,
    SenecaBus,
    hang_up,
    legacy,
    lines,
    now_ms,
    raw_service,
    respond,
    seneca_bus,
    web,
)
from tests.rigs.server import wait_until

SUM = {"role": "math", "cmd": "sum", "a": 1, "b": 2}
PIN = "role:math,cmd:sum"


def add(document: dict[str, Any]) -> dict[str, Any]:
    return {"sum": document["a"] + document["b"]}


def named(name: str) -> Any:
    """A service that says who it is."""
    return web(lambda document: {"by": name}, name)


def gone() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def state(bus: SenecaBus, url: str) -> str:
    return next(row.state for row in bus.call(bus.services.rows) if row.url == url)


# ---- dialects -------------------------------------------------------------------------------------------------------


def test_a_call_reaches_a_service_in_the_dialect_it_speaks() -> None:
    with seneca_bus() as bus, raw_service(web(add)) as w, raw_service(legacy(add)) as old:
        assert [row.dialect for row in bus.attach(PIN, w.url)] == ["W"]
        assert [row.dialect for row in bus.attach("role:old,cmd:sum", old.url)] == ["L"]
        assert bus.act(SUM).body == {"sum": 3}
        assert bus.act(SUM | {"role": "old"}).body == {"sum": 3}
        assert "meta$" in w.messages[0]
        assert "seneca-id" in old.received[-1].headers
        assert old.messages == [SUM | {"role": "old", "custom$": {}}]


def test_a_service_on_tcp_keeps_one_connection_for_many_calls() -> None:
    with seneca_bus() as bus, raw_service(lines(add), lines=True) as service:
        assert [(row.dialect, row.state) for row in bus.attach("role:math,cmd:*", service.url)] == [("T", "up")]
        for a in range(5):
            assert bus.act(SUM | {"a": a}).body == {"sum": a + 2}
        assert {one.connection for one in service.received} == {service.received[0].connection}


def test_the_dialect_may_be_said_by_option_or_address_and_then_nobody_is_asked() -> None:
    with seneca_bus() as bus, raw_service(legacy(add)) as service:
        bus.attach("role:a", service.url, "L")
        bus.attach("role:b", service.url + "/act#L")
        assert service.received == []
        assert [row.dialect for row in bus.call(bus.services.rows)] == ["L", "L"]


def test_a_service_that_writes_its_own_history_is_believed() -> None:
    """Seed, chained flow: B answers with its own times and those of the call it made."""
    trk = [
        {"sid": "A", "rid": "B", "mid": "m3", "tms": [1, 200, 800]},
        {"sid": "B", "rid": "C", "mid": "m4", "tms": [300, 500, 600, 700]},
    ]

    def handle(received: Received, connection: socket.socket) -> None:
        meta = received.document["meta$"]
        answer = {"rid": "B", "res": True, "mid": meta["mid"], "cid": meta["cid"], "trk": trk, "usr": {"k": 1}}
        respond(connection, {"x": 2, "meta$": answer})

    with seneca_bus() as bus, raw_service(handle) as service:
        bus.attach("order:price", service.url, "S")
        sent = {"sid": "A", "mid": "m3", "cid": "c3", "snc": True, "trk": [{"sid": "A", "mid": "m3", "tms": [1]}]}
        answer = bus.act({"order": "price", "meta$": sent}).body
        assert answer["x"] == 2
        assert answer["meta$"]["trk"] == trk
        assert service.messages[0]["meta$"]["trk"] == sent["trk"], "the bus adds no entry and fills no time"
        request, response = bus.rows("price")
        assert [hop.mid for hop in response.hops] == ["m3", "m4"]
        assert "seneca.times" not in response.attributes
        assert (request.correlation_id, response.correlation_id, response.answers) == ("c3", "c3", request.sequence)


def test_where_a_service_writes_no_times_the_bus_fills_them_and_marks_the_row() -> None:
    with seneca_bus() as bus, raw_service(legacy(add, "L1")) as service:
        bus.attach(PIN, service.url)
        began = now_ms()
        meta = {"sid": "A", "mid": "m1", "cid": "c1", "snc": True, "trk": [{"sid": "A", "mid": "m1", "tms": [5]}]}
        answer = bus.act(SUM | {"meta$": meta}).body
        (entry,) = answer["meta$"]["trk"]
        assert (entry["sid"], entry["rid"], entry["mid"], entry["tms"][0]) == ("A", "L1", "m1", 5)
        assert began <= entry["tms"][1] <= entry["tms"][2] <= now_ms()
        _, response = bus.rows("math.sum")
        assert response.attributes == {"seneca.times": "bus"}
        assert [(hop.sid, hop.rid, list(hop.tms)) for hop in response.hops] == [("A", "L1", entry["tms"])]
        assert (response.producer, response.wire) == ("L1", "seneca")


def test_custom_data_goes_there_and_back() -> None:
    def handle(received: Received, connection: socket.socket) -> None:
        meta = received.document["meta$"]
        custom = meta["custom"] | {"region": "eu", "n": [1, {"x": None}]}
        respond(connection, {"ok": True, "meta$": {"id": meta["id"], "instance": "B", "custom": custom}})

    with seneca_bus() as bus, raw_service(handle) as service:
        bus.attach("role:who", service.url, "W")
        answer = bus.act({"role": "who", "meta$": {"id": "m/c", "sync": True, "custom": {"tenant": "t1", "n": 7}}}).body
        assert service.messages[0]["meta$"]["custom"] == {"tenant": "t1", "n": 7}
        assert answer["meta$"]["custom"] == {"tenant": "t1", "region": "eu", "n": [1, {"x": None}]}


def test_an_error_keeps_its_code_and_details() -> None:
    def fail(document: dict[str, Any]) -> Any:
        raise ArithmeticError("division by zero")

    with seneca_bus() as bus, raw_service(web(fail)) as service:
        bus.attach(PIN, service.url)
        answer = bus.act(SUM | {"meta$": {"id": "m/c", "sync": True}})
        assert answer.status == 500
        assert (answer.body["code"], answer.body["message"], answer.body["details"]) == (
            "div_zero", "division by zero", {"a": 1},
        )  # fmt: skip
        assert answer.body["meta$"]["error"] is True
        assert bus.rows("math.sum")[1].error == "div_zero"
        in_lines = bus.connect(5)
        line = {"id": "m2/c", "kind": "act", "origin": "A", "act": SUM, "sync": True}
        in_lines.sendall(json.dumps(line).encode() + b"\n")
        told = json.loads(in_lines.makefile("rb").readline())
        in_lines.close()
        assert (told["res"], told["error"]["code"], told["error"]["orig"]["code"]) == (None, "act_execute", "div_zero")


# ---- several services -----------------------------------------------------------------------------------------------


def test_services_of_a_pin_are_asked_in_turn() -> None:
    with seneca_bus() as bus, raw_service(named("B")) as b, raw_service(named("C")) as c, raw_service(named("D")) as d:
        for service in (b, c, d):
            bus.attach(PIN, service.url)
        answered = [bus.act(SUM).body["by"] for _ in range(9)]
        assert sorted(answered[:3]) == ["B", "C", "D"]
        assert answered == answered[:3] * 3


def test_a_dead_service_is_passed_over_and_found_again_when_it_is_back() -> None:
    with seneca_bus() as bus, raw_service(named("B")) as b:
        c = RawService(named("C"))
        for service in (b, c):
            bus.attach(PIN, service.url)
        c.close()
        assert {bus.act(SUM).body["by"] for _ in range(4)} == {"B"}, "nobody notices that it died"
        wait_until(lambda: state(bus, c.url) == "down")
        with raw_service(named("C"), port=c.port):
            wait_until(lambda: state(bus, c.url) == "up")
            assert {bus.act(SUM).body["by"] for _ in range(4)} == {"B", "C"}


def test_where_no_service_can_be_reached_the_caller_is_told_at_once() -> None:
    with seneca_bus() as bus:
        (row,) = bus.attach(PIN, gone(), "W")
        assert row.state == "down"
        assert "refused" in row.reason.lower() or "connect" in row.reason.lower()
        answer = bus.act(SUM | {"meta$": {"id": "m/c", "sync": True}})
        assert (answer.status, answer.body["code"]) == (500, "act_execute")
        assert "cannot be reached" in answer.body["message"]


def test_a_service_whose_dialect_is_not_known_yet_is_asked_when_it_comes_up() -> None:
    url = gone()
    with seneca_bus() as bus:
        (row,) = bus.attach(PIN, url)
        assert (row.state, row.dialect) == ("down", "unknown")
        meta = {"mid": "m", "cid": "c", "snc": True, "trk": [{"sid": "A", "mid": "m", "tms": [5]}]}
        told = bus.act(SUM | {"meta$": meta}).body
        assert (told["code"], "cannot be reached" in told["message"]) == ("act_execute", True)
        (entry,) = told["meta$"]["trk"]
        assert 5 < entry["tms"][1] <= entry["tms"][2], "times of the bus"
        with raw_service(legacy(add), port=int(url.rpartition(":")[2])):
            wait_until(lambda: state(bus, url) == "up")
            assert bus.act(SUM).body == {"sum": 3}


def test_a_call_that_comes_before_a_service_was_found_waits_for_that() -> None:
    with raw_service(legacy(add)) as service:
        settings = SenecaDial(services=(AttachedServiceSettings(pin=PIN, url=service.url),), retry_ms=50)
        with seneca_bus(settings, open_doors=False) as bus:
            asked = RecordingPeer()
            bus.call(lambda: bus.broker.connect(asked))

            def start_and_ask() -> None:
                bus.services.open()
                batch = batch_of(b"request", Message(b"math.sum", b'{"a":1,"b":2}', id=b"550e8400"))
                bus.broker.perform(asked, Request(batch))

            bus.call(start_and_ask)
            wait_until(lambda: asked.answers)
            assert json.loads(asked.answers[0][1]) == {"sum": 3}


# ---- faults of a service --------------------------------------------------------------------------------------------


def fault(handler: Any) -> str:
    """What a caller is told of a service that behaves like this."""

    def handle(received: Received, connection: socket.socket) -> None:
        handler(connection)

    with seneca_bus() as bus, raw_service(handle) as service:
        bus.attach(PIN, service.url, "W")
        answer = bus.act(SUM | {"meta$": {"id": "m/c", "sync": True}})
        assert bus.act(SUM | {"role": "nobody"}).body["code"] == "act_not_found", "the bus lives on"
        assert len(service.messages) == 1, "nothing was repeated"
        assert (answer.status, answer.body["code"]) == (500, "act_execute")
        return str(answer.body["message"])


def test_a_service_that_dies_in_the_middle_of_a_call_is_an_error_at_once() -> None:
    assert "lost" in fault(hang_up)


def test_a_service_that_dies_in_the_middle_of_its_answer_is_an_error_at_once() -> None:
    def half(connection: socket.socket) -> None:
        connection.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"sum"')
        hang_up(connection)

    assert "lost" in fault(half)


def test_an_answer_that_is_no_http_is_an_error() -> None:
    assert "malformed HTTP response" in fault(lambda connection: connection.sendall(b"hello\r\n\r\n"))


def test_an_answer_that_is_too_large_is_an_error_before_it_is_read() -> None:
    huge = b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n"
    assert "over the limit" in fault(lambda connection: connection.sendall(huge))


def test_a_redirect_is_not_followed() -> None:
    def redirect(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")

    assert "redirect" in fault(redirect)


def test_a_length_that_is_too_short_spoils_only_its_own_answer() -> None:
    """The bytes beyond it are an answer that nobody asked for: the connection is not used again."""

    def handle(received: Received, connection: socket.socket) -> None:
        body = json.dumps({"sum": 3, "meta$": {"id": received.document["meta$"]["id"]}}).encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b{}" % (len(body), body))

    with seneca_bus() as bus, raw_service(handle) as service:
        bus.attach(PIN, service.url, "W")
        assert [bus.act(SUM).status for _ in range(3)] == [500, 500, 500]
        assert service.connections >= 3


def test_an_answer_that_is_too_late_is_an_error_and_the_late_answer_is_a_row() -> None:
    late = threading.Event()

    def handle(received: Received, connection: socket.socket) -> None:
        late.wait(10)
        respond(connection, {"sum": 3, "meta$": {"id": received.document["meta$"]["id"]}})

    wire = SenecaWire(request_timeout_ms=200)
    with seneca_bus(wire=wire) as bus, raw_service(handle) as service:
        bus.attach(PIN, service.url, "W")
        answer = bus.act(SUM | {"meta$": {"id": "m/c", "sync": True}})
        assert (answer.status, answer.body["code"]) == (500, "action_timeout")
        late.set()
        wait_until(lambda: bus.counted("bus.answer.late") == 1)
        assert [row.error for row in bus.rows("math.sum")] == [None, "late"]


def test_a_kept_connection_that_the_service_has_closed_costs_the_caller_nothing() -> None:
    """Node closes idle connections after five seconds, perhaps at the very moment of the next call."""
    calls: list[int] = []

    def handle(received: Received, connection: socket.socket) -> None:
        calls.append(received.connection)
        if len(calls) == 2:  # the second call meets a connection that is just being closed
            hang_up(connection)
            return
        respond(connection, {"sum": 3, "meta$": {"id": received.document["meta$"]["id"]}})

    with seneca_bus() as bus, raw_service(handle) as service:
        bus.attach(PIN, service.url, "W")
        assert [bus.act(SUM).body for _ in range(3)] == [{"sum": 3}] * 3
        first, second, repeated, third = calls
        assert first == second != repeated == third
        assert service.messages[1] == service.messages[2], "the repeat has the same id"


def test_concurrent_calls_do_not_wait_for_one_another() -> None:
    release = threading.Event()

    def handle(received: Received, connection: socket.socket) -> None:
        if received.document["a"] == 0:
            release.wait(10)
        web(add)(received, connection)

    with seneca_bus() as bus, raw_service(handle) as service:
        bus.attach(PIN, service.url, "W")
        slow: list[Any] = []
        thread = threading.Thread(target=lambda: slow.append(bus.act(SUM | {"a": 0}).body))
        thread.start()
        service.wait_for(1)
        assert bus.act(SUM | {"a": 5}).body == {"sum": 7}
        assert slow == []
        release.set()
        thread.join(10)
        assert slow == [{"sum": 2}]


def test_more_calls_than_connections_wait_for_their_turn() -> None:
    settings = SenecaDial(connections=2, retry_ms=50)
    with seneca_bus(settings) as bus, raw_service(web(add)) as service:
        bus.attach(PIN, service.url, "W")
        answers: list[Any] = []
        threads = [threading.Thread(target=lambda a=a: answers.append(bus.act(SUM | {"a": a}).body)) for a in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert sorted(answer["sum"] for answer in answers) == list(range(2, 22))
        assert service.connections <= 3, "one of them to look whether it is there"


# ---- attaching ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pin", "url", "error"),
    [
        ("role:seneca,cmd:stats", "http://127.0.0.1:1", NameInvalidError),
        ("sys:seneca", "http://127.0.0.1:1", NameInvalidError),
        ("role:transport", "http://127.0.0.1:1", NameInvalidError),
        ("role:ma*", "http://127.0.0.1:1", NameInvalidError),
        ("role:system,cmd:message", "http://127.0.0.1:1", RacewayError),
        ("", "http://127.0.0.1:1", RacewayError),
        ("a", "http://127.0.0.1:1", RacewayError),
        ("role:a", "http://10.0.0.5:80", ForbiddenError),
        ("role:a", "http://169.254.169.254/", ForbiddenError),
        ("role:a", "ftp://127.0.0.1:1", MalformedError),
        ("role:a", "http://u@127.0.0.1:1", MalformedError),
        ("role:a", "tcp://127.0.0.1", MalformedError),
        ("role:a", "tcp://127.0.0.1:1#W", MalformedError),
        ("role:a", "http://127.0.0.1:1#T", MalformedError),
        ("role:a", "http://127.0.0.1:1/a\r\nx: y", MalformedError),
        ("role:a", "http://127.0.0.1:99999", MalformedError),
    ],
)
def test_what_cannot_be_attached_is_refused(pin: str, url: str, error: type[RacewayError]) -> None:
    with seneca_bus() as bus:
        with pytest.raises(error):
            bus.attach(pin, url)
        assert bus.call(bus.services.rows) == []
        assert bus.call(lambda: dict(bus.journal.state.section("seneca.services"))) == {}


def test_the_bus_is_not_attached_to_itself() -> None:
    with seneca_bus() as bus, pytest.raises(ForbiddenError):
        bus.attach("role:a", f"http://127.0.0.1:{bus.port_base + 4}")


def test_a_pin_with_a_taken_name_is_refused() -> None:
    with seneca_bus() as bus:
        bus.attach("role:math,cmd:sum", gone(), "W")
        with pytest.raises(PinTakenError):
            bus.attach("area:math,aim:sum", gone(), "W")


def test_a_name_may_be_given_to_a_pin_that_has_none() -> None:
    settings = SenecaDial(names={"role:ma*": "maths"}, retry_ms=50)
    with seneca_bus(settings) as bus, raw_service(web(lambda document: {"role": document["role"]})) as service:
        (row,) = bus.attach("role:ma*", service.url)
        assert row.topic == "maths"
        assert bus.act({"role": "math"}).body == {"role": "math"}
        assert [each.topic for each in bus.rows("maths")] == ["maths", "maths"]


def test_services_of_the_settings_are_attached_at_the_start() -> None:
    with raw_service(web(add)) as service:
        settings = SenecaDial(services=(AttachedServiceSettings(pin=PIN, url=service.url),), retry_ms=50)
        with seneca_bus(settings) as bus:
            wait_until(lambda: state(bus, service.url) == "up")
            assert bus.act(SUM).body == {"sum": 3}
            assert [row.origin for row in bus.call(bus.services.rows)] == ["settings"]


def test_settings_that_cannot_be_used_keep_the_bus_from_starting() -> None:
    settings = SenecaDial(services=(AttachedServiceSettings(pin="role:seneca", url="http://127.0.0.1:1"),))
    with pytest.raises(ConfigError, match=r"seneca\.services"), seneca_bus(settings):
        pass


def test_several_pins_in_one_go() -> None:
    with seneca_bus() as bus, raw_service(web(add)) as service:
        rows = bus.attach("role:math,cmd:sum;role:math,cmd:add", service.url)
        assert [row.topic for row in rows] == ["math.sum", "math.add"]
        assert bus.act(SUM | {"cmd": "add"}).body == {"sum": 3}
        assert bus.detach("role:math,cmd:sum;role:math,cmd:add", service.url) == 2


def test_attaching_again_changes_nothing_but_the_dialect() -> None:
    with seneca_bus() as bus, raw_service(legacy(add)) as service:
        bus.attach(PIN, service.url)
        bus.attach(PIN, service.url)
        assert [row.dialect for row in bus.call(bus.services.rows)] == ["L"]
        bus.attach(PIN, service.url, "W")
        assert [row.dialect for row in bus.call(bus.services.rows)] == ["W"]


def test_a_detached_service_is_asked_no_more() -> None:
    with seneca_bus() as bus, raw_service(web(add)) as service:
        bus.attach(PIN, service.url)
        assert bus.act(SUM).body == {"sum": 3}
        assert bus.detach("cmd:sum,role:math", service.url) == 1
        assert bus.detach(PIN, service.url) == 0
        assert bus.act(SUM).body["code"] == "act_not_found"
        assert bus.call(bus.services.rows) == []
        assert bus.call(lambda: dict(bus.journal.state.section("seneca.services"))) == {}


def test_the_pin_that_wins_is_asked_also_where_names_overlap() -> None:
    """`role:math,cmd:*` is `math.+`, under which `math.sum` lies too."""
    with seneca_bus() as bus, raw_service(named("any")) as wide, raw_service(named("sum")) as narrow:
        bus.attach("role:math,cmd:*", wide.url)
        assert bus.act(SUM).body == {"by": "any"}
        bus.attach(PIN, narrow.url)
        assert {bus.act(SUM).body["by"] for _ in range(6)} == {"sum"}
        assert bus.act(SUM | {"cmd": "other"}).body == {"by": "any"}
        bus.detach(PIN, narrow.url)
        assert bus.act(SUM).body == {"by": "any"}


def test_a_pin_that_the_router_misses_is_reached_by_its_name() -> None:
    """Seneca's router takes the branch of the literal `cmd:sum` and does not come back to the glob."""
    with seneca_bus() as bus, raw_service(named("any")) as wide, raw_service(named("other")) as other:
        bus.attach("role:math,cmd:*", wide.url)
        bus.attach("role:physics,cmd:sum", other.url)
        assert bus.act(SUM).body == {"by": "any"}
        assert bus.act(SUM | {"role": "physics"}).body == {"by": "other"}
        assert bus.ask("math.sum", {"a": 1})["by"] == "any"


# ---- everybody is asked ---------------------------------------------------------------------------------------------


def test_with_multiple_every_service_answers() -> None:
    with seneca_bus() as bus, raw_service(named("C")) as c, raw_service(named("D")) as d:
        for service in (c, d):
            bus.attach("role:quote", service.url)
        meta = {"sid": "A", "mid": "m23", "cid": "c23", "snc": True, "multiple": True}
        answer = bus.act({"role": "quote", "sku": "k7", "meta$": meta}).body
        assert answer["meta$"]["multiple"] is True
        assert sorted(document["by"] for document in answer["array$"]) == ["C", "D"]
        assert {document["meta$"]["rid"] for document in answer["array$"]} == {"C", "D"}
        assert {document["meta$"]["mid"] for document in answer["array$"]} == {"m23"}
        assert [row.kind for row in bus.rows("quote")] == ["request", "response", "response"]


def test_with_multiple_those_who_answer_in_time_count() -> None:
    wire = SenecaWire(request_timeout_ms=300)
    silent = raw_service(lambda received, connection: None)
    with seneca_bus(wire=wire) as bus, raw_service(named("C")) as c, silent as d:
        for service in (c, d):
            bus.attach("role:quote", service.url, "W")
        meta = {"sid": "A", "mid": "m", "cid": "c", "snc": True, "multiple": True}
        answer = bus.act({"role": "quote", "meta$": meta}).body
        assert [document["by"] for document in answer["array$"]] == ["C"]


def test_with_multiple_a_service_that_is_down_is_not_waited_for() -> None:
    with seneca_bus() as bus, raw_service(named("C")) as c:
        bus.attach("role:quote", c.url)
        bus.attach("role:quote", gone(), "W")
        answer = bus.act({"role": "quote", "meta$": {"mid": "m", "cid": "c", "snc": True, "multiple": True}}).body
        assert [document["by"] for document in answer["array$"]] == ["C"]


def test_with_multiple_not_more_are_asked_than_the_limit() -> None:
    wire = SenecaWire(several_limit=1)
    with seneca_bus(wire=wire) as bus, raw_service(named("C")) as c, raw_service(named("D")) as d:
        for service in (c, d):
            bus.attach("role:quote", service.url)
        answer = bus.act({"role": "quote", "meta$": {"mid": "m", "cid": "c", "snc": True, "multiple": True}}).body
        assert len(answer["array$"]) == 1


def test_with_multiple_and_nobody_there_the_answer_is_that_nobody_is_there() -> None:
    with seneca_bus() as bus:
        answer = bus.act({"role": "quote", "meta$": {"mid": "m", "cid": "c", "snc": True, "multiple": True}})
        assert (answer.status, answer.body["code"]) == (500, "act_not_found")
