"""Return paths: an answer that comes late, or one of several, goes to the address its caller named."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest

from raceway.wires.seneca.settings import SenecaWire
from tests.rigs.seneca_bus import FAST, Received, hang_up, raw_service, respond, seneca_bus, web
from tests.rigs.server import wait_until

HELD = SenecaWire(hold_ms=100, return_timeout_ms=5000, request_timeout_ms=700)


def report(urn: str, mid: str = "m24", **more: Any) -> dict[str, Any]:
    meta = {"sid": "A", "mid": mid, "cid": "c24", "snc": True, "rtn": {"urn": urn}, "trk": []} | more
    meta["trk"] = [{"sid": "A", "mid": mid, "tms": [600]}]
    return {"role": "report", "meta$": meta}


class Slow:
    """A service that answers when it is let."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def __call__(self, received: Received, connection: socket.socket) -> None:
        if received.document.get("role") != "seneca":
            self.go.wait(10)
        web(lambda document: {"rows": 7})(received, connection)


def taken(received: Received, connection: socket.socket) -> None:
    respond(connection, {})


def test_an_answer_in_time_goes_back_in_band() -> None:
    with seneca_bus(wire=HELD) as bus, raw_service(web(lambda d: {"rows": 7})) as service, raw_service(taken) as caller:
        bus.attach("role:report", service.url)
        answer = bus.act(report(caller.url + "/rtn"))
        assert (answer.status, answer.body["rows"]) == (200, 7)
        assert "rtn" not in service.messages[0]["meta$"], "it is the sender's, never the next hop's"
        assert caller.received == []


def test_a_late_answer_goes_to_the_return_path_once() -> None:
    slow = Slow()
    with seneca_bus(wire=HELD) as bus, raw_service(slow) as service, raw_service(taken) as caller:
        bus.attach("role:report", service.url)
        answer = bus.act(report(caller.url + "/rtn"))
        assert (answer.status, answer.body) == (202, {})
        slow.go.set()
        (document,) = caller.wait_for(1)
        meta = document.pop("meta$")
        assert document == {"rows": 7}
        assert (meta["res"], meta["mid"], meta["cid"], meta["rid"]) == (True, "m24", "c24", "B")
        assert [(hop["mid"], hop["tms"][0], len(hop["tms"])) for hop in meta["trk"]] == [("m24", 600, 3)]
        assert caller.received[0].headers["content-type"] == "application/json"
        assert bus.act(report(caller.url + "/rtn")).body["rows"] == 7, "a repeat gets it in-band"
        assert len(caller.received) == 1


def test_a_call_that_is_never_answered_is_told_so_on_its_return_path() -> None:
    wire = SenecaWire(hold_ms=50, return_timeout_ms=300)
    silent = raw_service(lambda received, connection: None)
    with seneca_bus(wire=wire) as bus, silent as service, raw_service(taken) as caller:
        bus.attach("role:report", service.url, "W")
        assert bus.act(report(caller.url)).status == 202
        (document,) = caller.wait_for(1)
        assert (document["code"], document["meta$"]["error"]) == ("action_timeout", True)


@pytest.mark.parametrize(
    "urn", ["http://10.1.2.3:80/rtn", "http://bus.example/", "ftp://127.0.0.1:1/", "x", "tcp://127.0.0.1:1"]
)
def test_an_address_off_the_list_is_refused_and_the_call_ends_in_band(urn: str) -> None:
    slow = Slow()
    with seneca_bus(wire=HELD) as bus, raw_service(slow) as service:
        bus.attach("role:report", service.url)
        answer = bus.act(report(urn))
        assert (answer.status, answer.body["code"]) == (500, "action_timeout")
        assert bus.counted("bus.return_refused") >= 1
        slow.go.set()


def test_the_bus_itself_is_no_return_path() -> None:
    slow = Slow()
    with seneca_bus(wire=HELD) as bus, raw_service(slow) as service:
        bus.attach("role:report", service.url)
        answer = bus.act(report(f"http://127.0.0.1:{bus.port_base + 4}/act"))
        assert answer.body["code"] == "action_timeout"
        assert bus.counted("bus.return_refused") >= 1
        slow.go.set()


def test_a_return_path_that_fails_is_tried_again_and_then_the_answer_is_parked() -> None:
    answers = iter((500, 503, 502, 500))
    slow = Slow()

    def handle(received: Received, connection: socket.socket) -> None:
        respond(connection, {}, next(answers))

    with seneca_bus(wire=HELD) as bus, raw_service(slow) as service, raw_service(handle) as caller:
        bus.attach("role:report", service.url)
        assert bus.act(report(caller.url + "/rtn")).status == 202
        slow.go.set()
        wait_until(lambda: bus.counted("bus.undeliverable") == 1)
        assert len(caller.received) == 4
        (row,) = bus.rows("raceway.undeliverable")
        assert row.attributes["receiver"] == caller.url + "/rtn"
        assert json.loads(row.payload)["rows"] == 7
        assert (row.message_id, row.correlation_id) == ("m24", "c24")


def test_a_return_path_that_does_not_know_the_call_is_not_tried_again() -> None:
    slow = Slow()
    unknown = raw_service(lambda received, connection: respond(connection, {}, 404))
    with seneca_bus(wire=HELD) as bus, raw_service(slow) as service, unknown as caller:
        bus.attach("role:report", service.url)
        bus.act(report(caller.url))
        slow.go.set()
        wait_until(lambda: bus.counted("bus.undeliverable") == 1)
        assert len(caller.received) == 1


def test_a_return_path_that_is_away_for_a_moment_gets_its_answer() -> None:
    slow, tries = Slow(), []

    def handle(received: Received, connection: socket.socket) -> None:
        tries.append(received)
        if len(tries) < 3:
            hang_up(connection)
        else:
            respond(connection, {})

    with seneca_bus(wire=HELD) as bus, raw_service(slow) as service, raw_service(handle) as caller:
        bus.attach("role:report", service.url)
        bus.act(report(caller.url))
        slow.go.set()
        caller.wait_for(3)
        wait_until(lambda: bus.call(lambda: bus.returns._courier.waiting) == 0)
        assert bus.counted("bus.undeliverable") == 0


def test_with_multiple_and_a_return_path_each_answer_is_sent_there() -> None:
    def quoting(name: str) -> Any:
        return web(lambda document: {"by": name}, name)

    with (
        seneca_bus(FAST, wire=HELD) as bus,
        raw_service(quoting("C")) as c,
        raw_service(quoting("D")) as d,
        raw_service(taken) as caller,
    ):
        for service in (c, d):
            bus.attach("role:report", service.url)
        answer = bus.act(report(caller.url, multiple=True))
        assert (answer.status, answer.body) == (202, {})
        documents = caller.wait_for(2)
        assert sorted(document["by"] for document in documents) == ["C", "D"]
        assert {document["meta$"]["mid"] for document in documents} == {"m24"}


def test_with_multiple_and_nobody_there_the_caller_is_told_in_band() -> None:
    with seneca_bus(wire=HELD) as bus, raw_service(taken) as caller:
        answer = bus.act(report(caller.url, multiple=True))
        assert (answer.status, answer.body["code"]) == (500, "act_not_found")
        assert caller.received == []


def test_an_address_that_is_not_needed_is_no_reason_to_complain() -> None:
    with seneca_bus(wire=HELD) as bus, raw_service(web(lambda document: {"rows": 7})) as service:
        bus.attach("role:report", service.url)
        assert bus.act(report("http://192.168.0.1/rtn")).body["rows"] == 7
        assert bus.counted("bus.return_refused") == 0


def test_an_asynchronous_message_uses_no_return_path() -> None:
    with seneca_bus(wire=HELD) as bus, raw_service(web(lambda d: {})) as service, raw_service(taken) as caller:
        bus.attach("role:report", service.url)
        assert bus.act(report(caller.url, snc=False)).status == 202
        service.wait_for(1)
        assert caller.received == []
