"""Publishes to attached services: every one of them gets each, in order, or it is kept as undeliverable."""

from __future__ import annotations

import json
import socket
from typing import Any

from raceway.model.envelope import Batch
from raceway.model.intents.batches import Publish
from raceway.wires.seneca.settings import SenecaDial
from tests.rigs.doubles import RecordingPeer
from tests.rigs.seneca_bus import (
    FAST,
    RawService,
    Received,
    SenecaBus,
    legacy,
    lines,
    raw_service,
    respond,
    seneca_bus,
    web,
)
from tests.rigs.server import wait_until

SAVED = {"evt": "saved", "id": 9}


def nothing(document: dict[str, Any]) -> dict[str, Any]:
    return {}


def publish(bus: SenecaBus, topic: str, *payloads: bytes) -> RecordingPeer:
    """From another wire, in one batch."""
    peer = RecordingPeer("mb-1")
    ids: list[bytes | None] = [b"%d" % row for row in range(len(payloads))]
    batch = Batch(len(payloads), wire=b"mb", kind=b"publish", topic=topic.encode(), message_id=ids)
    batch.payload = list(payloads)
    bus.call(lambda: bus.broker.perform(peer, Publish(batch)))
    return peer


def test_an_asynchronous_message_reaches_every_service_of_its_pin() -> None:
    with seneca_bus() as bus, raw_service(web(nothing)) as b, raw_service(legacy(nothing)) as c:
        for service in (b, c):
            bus.attach("evt:saved", service.url)
        meta = {"sid": "A", "mid": "m12", "cid": "c12", "snc": False, "trk": [{"sid": "A", "mid": "m12", "tms": [100]}]}
        answer = bus.act(SAVED | {"meta$": meta})
        assert (answer.status, answer.body) == (202, {})
        (at_b,), (at_c,) = b.wait_for(1), c.wait_for(1)
        assert (at_b["evt"], at_b["meta$"]["id"], at_b["meta$"]["sync"]) == ("saved", "m12/c12", False)
        assert at_c["id"] == 9
        assert c.received[-1].headers["seneca-id"] == "m12/c12"
        (row,) = bus.rows("saved")
        assert (row.kind, row.message_id, row.correlation_id, row.producer) == ("publish", "m12", "c12", "A")


def test_a_service_on_tcp_is_told_by_a_line_that_wants_no_answer() -> None:
    with seneca_bus() as bus, raw_service(lines(nothing), lines=True) as service:
        bus.attach("evt:saved", service.url)
        assert bus.act(SAVED | {"meta$": {"id": "m/c", "sync": False}}).body["meta$"]["empty"] is True
        (line,) = service.wait_for(1)
        assert (line["kind"], line["sync"], line["act"]["id"]) == ("act", False, 9)


def test_publishes_of_another_wire_arrive_in_order_with_the_keys_of_the_pin() -> None:
    with seneca_bus() as bus, raw_service(web(nothing)) as service:
        bus.attach("role:stock,cmd:*", service.url)
        publish(bus, "stock.moved", *(b'{"n":%d}' % n for n in range(50)))
        messages = service.wait_for(50)
        assert [message["n"] for message in messages] == list(range(50))
        assert {(message["role"], message["cmd"]) for message in messages} == {("stock", "moved")}
        assert all(message["meta$"]["id"].partition("/")[0] not in ("0", "49") for message in messages), "masked"


def test_a_payload_that_is_no_object_is_wrapped() -> None:
    with seneca_bus() as bus, raw_service(web(nothing)) as service:
        bus.attach("role:log", service.url)
        publish(bus, "log", b"hello", b"[1,2]", b"\xff\x00")
        messages = service.wait_for(3)
        assert [(message.get("data"), message.get("data_base64")) for message in messages] == [
            ("hello", None), ([1, 2], None), (None, "/wA="),
        ]  # fmt: skip


def test_a_message_that_is_refused_is_tried_again_under_the_same_id() -> None:
    answers = iter((500, 503, 200))

    def handle(received: Received, connection: socket.socket) -> None:
        respond(connection, {"meta$": {"id": received.document["meta$"]["id"]}}, next(answers))

    with seneca_bus() as bus, raw_service(handle) as service:
        bus.attach("evt:saved", service.url, "W")
        bus.act(SAVED | {"meta$": {"id": "m/c", "sync": False}})
        messages = service.wait_for(3)
        assert [message["meta$"]["id"] for message in messages] == ["m/c"] * 3
        wait_until(lambda: bus.call(lambda: bus.services.rows()[0].waiting) == 0)
        assert bus.counted("bus.undeliverable") == 0


def test_what_nobody_takes_is_undeliverable() -> None:
    def handle(received: Received, connection: socket.socket) -> None:
        respond(connection, {}, 500)

    with seneca_bus() as bus, raw_service(handle) as service:
        bus.attach("evt:saved", service.url, "W")
        watcher = bus.responder("x")
        bus.call(lambda: bus.broker.routing.subscribe(watcher, "publish", "raceway.undeliverable", 0))
        bus.act(SAVED | {"meta$": {"id": "m/c", "sync": False, "instance": "A"}})
        wait_until(lambda: bus.counted("bus.undeliverable") == 1)
        assert len(service.messages) == 4, "once, and three times more"
        (row,) = bus.rows("raceway.undeliverable")
        assert row.attributes == {
            "topic": "saved", "receiver": service.url, "reason": "answered with status 500",
            "attributes": '{"seneca.pat":"evt:saved"}',
        }  # fmt: skip
        assert (json.loads(row.payload), row.message_id, row.correlation_id) == (SAVED, "m", "c")
        assert [copy.payload for copy in watcher.copies] == [row.payload]


def test_a_message_that_the_service_faults_is_not_tried_again() -> None:
    with seneca_bus() as bus, raw_service(lambda received, connection: respond(connection, {}, 400)) as service:
        bus.attach("evt:saved", service.url, "W")
        bus.act(SAVED | {"meta$": {"id": "m/c", "sync": False}})
        wait_until(lambda: bus.counted("bus.undeliverable") == 1)
        assert len(service.messages) == 1


def test_a_service_that_is_away_for_a_moment_misses_nothing() -> None:
    settings = SenecaDial(retry_ms=50, retries_ms=(200, 400, 800))
    with seneca_bus(settings) as bus:
        gone = RawService(web(nothing))
        bus.attach("evt:saved", gone.url, "W")
        gone.close()
        bus.act(SAVED | {"meta$": {"id": "m/c", "sync": False}})
        with raw_service(web(nothing), port=gone.port) as back:
            assert back.wait_for(1)[0]["id"] == 9


def test_what_waits_for_a_detached_service_is_undeliverable() -> None:
    with (
        seneca_bus(SenecaDial(retries_ms=(60_000,))) as bus,
        raw_service(lambda received, connection: respond(connection, {}, 500)) as service,
    ):
        bus.attach("evt:saved", service.url, "W")
        bus.act(SAVED | {"meta$": {"id": "m/c", "sync": False}})
        service.wait_for(1)
        bus.detach("evt:saved", service.url)
        (row,) = bus.rows("raceway.undeliverable")
        assert row.attributes["reason"] == "the service was detached"


def test_what_waits_when_the_bus_stops_is_undeliverable() -> None:
    with (
        raw_service(lambda received, connection: respond(connection, {}, 500)) as service,
        seneca_bus(SenecaDial(retries_ms=(60_000,))) as bus,
    ):
        bus.attach("evt:saved", service.url, "W")
        bus.act(SAVED | {"meta$": {"id": "m/c", "sync": False}})
        service.wait_for(1)
        bus.call(bus.services.close)
        (row,) = bus.rows("raceway.undeliverable")
        assert row.attributes["reason"] == "the bus stops"


def test_all_pins_that_a_message_matches_observe_it() -> None:
    """Unlike requests, which go to the one that wins."""
    with seneca_bus(FAST) as bus, raw_service(web(nothing)) as wide, raw_service(web(nothing)) as narrow:
        bus.attach("role:math,cmd:*", wide.url)
        bus.attach("role:math,cmd:sum", narrow.url)
        bus.act({"role": "math", "cmd": "sum", "meta$": {"id": "m/c", "sync": False}})
        assert [service.wait_for(1)[0]["cmd"] for service in (wide, narrow)] == ["sum", "sum"]


def test_a_message_of_this_wire_is_not_told_to_a_pin_that_it_does_not_match() -> None:
    """`plugin:zz,cmd:*` is `zz.+`, under which the topic of `role:zz,cmd:sum` lies. Other wires have only the topic."""
    with seneca_bus(FAST) as bus, raw_service(web(nothing)) as wide, raw_service(web(nothing)) as narrow:
        bus.attach("plugin:zz,cmd:*", wide.url)
        bus.attach("role:zz,cmd:sum", narrow.url)
        before = bus.counted("bus.delivered")
        bus.act({"role": "zz", "cmd": "sum", "n": 1, "meta$": {"id": "m1/c", "sync": False}})
        publish(bus, "zz.sum", b'{"n":2}')
        assert [message["n"] for message in narrow.wait_for(2)] == [1, 2]
        ((told),) = wide.wait_for(1)
        assert (told["n"], told["plugin"], told["cmd"]) == (2, "zz", "sum")
        first = narrow.messages[0]
        assert {key: value for key, value in first.items() if key != "meta$"} == {"role": "zz", "cmd": "sum", "n": 1}
        assert bus.counted("bus.delivered") - before == 3
