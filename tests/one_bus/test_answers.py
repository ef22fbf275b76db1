"""Who answers: one responder, deadlines, late and forged answers, and what Seneca sees of it."""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from raceway import config
from raceway.wires.seneca.settings import SenecaWire
from raceway.wires.zbus.settings import ZbusWire
from tests.rigs.mb_wire import new_id as new_uuid
from tests.rigs.one_bus import ASKING, OneBus, Place, answerer, asker, fresh, fresh_place
from tests.rigs.seneca_bus import legacy, lines, raw_service, web
from tests.rigs.seneca_wire import answering, attached, new_id, post, seed, serving, wait_for_rows
from tests.rigs.server import wait_until

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def metric(bus: OneBus, name: str) -> float:
    return bus.server.metric(f"raceway_{name}_answers_total")


def test_a_request_goes_to_exactly_one_of_equal_responders_by_chance(bus: OneBus) -> None:
    """A1. A zbus queue with a consumer, a Seneca service and an MB service of priority 0 share."""
    place = fresh_place("sum")
    for wire in ASKING:
        answerer(bus, wire, place, lambda document, wire=wire: {"by": wire})  # type: ignore[misc]
    caller = asker(bus, "mb", place)
    told = [caller.ask({"a": 1, "b": 1}).document for _ in range(60)]
    seen = Counter("seneca" if "sum" in answer else answer["by"] for answer in told)
    assert set(seen) == set(ASKING), "each of them was asked"
    assert sum(seen.values()) == 60
    assert len(wait_for_rows(bus.server, 60, topic=place.topic, kind="response")) == 60, "and each request once"


@pytest.mark.parametrize(("priority", "expected"), [(1, {"mb"}), (-1, {"zbus", "seneca"})])
def test_the_highest_priority_is_asked(bus: OneBus, priority: float, expected: set[str]) -> None:
    """A1. zbus queues and Seneca services count as 0."""
    place = fresh_place("sum")
    answerer(bus, "zbus", place, lambda document: {"by": "zbus"})
    answerer(bus, "seneca", place)
    peer = bus.mb()
    peer.subscribe(place.topic, "request", priority)
    seen = set()
    with ThreadPoolExecutor(1) as pool:
        for _ in range(20):
            asked = pool.submit(asker(bus, "zbus", place).ask, {"a": 1, "b": 1})
            if priority > 0:
                peer.serve_one(b'{"by":"mb"}')
            answer = asked.result(10).document
            seen.add("seneca" if "sum" in answer else answer["by"])
    assert seen == expected


def test_a_zbus_request_is_served_by_whoever_has_the_name(bus: OneBus, place: Place) -> None:
    """A2. And a name nobody knows is 404."""
    client, peer = bus.zbus(), bus.mb()
    assert client.reply(client.request(place.topic, b"x")).status == 404
    peer.subscribe(place.topic, "request")
    asked = client.request(place.topic, b"x")
    peer.serve_one(b"y")
    assert client.reply(asked).body == b"y"


def test_the_deadlines_are_those_of_the_manual() -> None:
    """A3. MB 5,000 ms; Seneca 22,222 ms, its legacy HTTP 5,000; zbus to another wire 22,222 ms."""
    settings = config.Config()
    listen = settings.listen
    assert settings.broker.request_timeout_ms == 5000
    seneca = listen.of(SenecaWire)
    assert (seneca.request_timeout_ms, seneca.legacy_timeout_ms) == (22_222, 5000)
    assert listen.of(ZbusWire).request_timeout_ms == 22_222


def test_mb_may_name_its_own_deadline(bus: OneBus, place: Place) -> None:
    """A3, E2."""
    bus.mb().subscribe(place.topic, "request")
    error = bus.mb().ask(place.topic, {}, timeout_ms=50).json()["error"]
    assert error["code"] == "TIMEOUT"


def test_late_and_second_answers_are_rows_and_counted_and_unknown_ones_are_counted_alone(
    bus: OneBus, place: Place
) -> None:
    """A4. Between MB and zbus, both ways."""
    service, asking = bus.mb(), bus.zbus()
    service.subscribe(place.topic, "request")
    before = {name: metric(bus, name) for name in ("late", "duplicate", "unknown")}
    asked = asking.request(place.topic, b"1")
    request = service.next_request()
    service.answer(request, b"first")
    assert asking.reply(asked).body == b"first"
    service.answer(request, b"second")
    asked = asking.request(place.topic, b"2")
    assert asking.reply(asked).status == 504
    service.answer(service.next_request(), b"late")
    service.send(f"response:{place.topic}:1.0.0:{new_uuid()}", b"unknown")
    service.settled()
    after = {name: metric(bus, name) for name in before}
    assert after == {name: count + 1 for name, count in before.items()}
    found = wait_for_rows(bus.server, 3, topic=place.topic, kind="response")
    assert [(row["payload"], row["error"]) for row in found] == [
        (b"first", None), (b"second", "duplicate"), (b"late", "late"),
    ]  # fmt: skip


def test_a_zbus_answer_to_a_reply_queue_it_was_never_handed_is_forbidden(bus: OneBus, place: Place) -> None:
    """A5, E6. Whoever guesses both names does not answer for another; the caller gets the true answer."""
    service, caller, forger = bus.zbus(), bus.zbus(), bus.zbus()
    service.create(place.topic)
    asked = caller.request(place.topic, b"x", **{"mq-reply": (reply_to := fresh("reply"))})
    delivery = service.take(place.topic)
    assert delivery.headers["mq-reply"] == reply_to
    assert forger.ask("produce", b"forged", mq=reply_to, msgid=asked).status == 403
    service.answer(delivery, b"true")
    assert caller.reply(asked).body == b"true"


def test_a_zbus_service_cannot_answer_for_another_wires_request_it_was_not_handed(bus: OneBus, place: Place) -> None:
    """A5. The reply queue of an MB caller is the caller's id, which it does not keep secret."""
    service, caller, forger = bus.zbus(), bus.mb(), bus.zbus()
    service.create(place.topic)
    armed = service.arm(place.topic)
    asked = new_uuid()
    caller.send(f"request:{place.topic}:1.0.0:{asked}", b"{}")
    delivery = service.reply(armed)
    keys = {"mq": delivery.headers["mq-reply"], "msgid": str(delivery.raw_id)}
    assert forger.ask("produce", b"forged", **keys).status in (403, 404)
    service.answer(delivery, b"true")
    assert caller.reply(asked).payload == b"true"


def test_an_mb_service_cannot_answer_what_another_was_asked(bus: OneBus, place: Place) -> None:
    """A5. Of a forged answer only its arrival is counted."""
    service, caller, forger = bus.mb(), bus.mb(), bus.mb()
    service.subscribe(place.topic, "request")
    asked, before = new_uuid(), metric(bus, "unknown")
    caller.send(f"request:{place.topic}:1.0.0:{asked}", b"{}")
    request = service.next_request()
    forger.answer(request, b"forged")
    forger.settled()
    assert metric(bus, "unknown") == before + 1
    service.answer(request, b"true")
    assert caller.reply(asked).payload == b"true"


@pytest.mark.parametrize("answering_wire", ASKING)
def test_responders_of_every_wire_have_a_uuid_for_mb(bus: OneBus, answering_wire: str) -> None:
    """A6. `targetServiceId` of a request that timed out."""
    place = fresh_place("slow")
    answerer(bus, answering_wire, place)
    error = bus.mb().ask(place.topic, {"do": "slow", "ms": 600}, timeout_ms=50).json()["error"]
    assert (error["code"], bool(UUID.fullmatch(error["details"]["targetServiceId"]))) == ("TIMEOUT", True)
    wait_until(lambda: bus.server.metric("raceway_open_requests") == 0)


def test_the_bus_passes_senecas_ids_on_and_adds_no_hop(bus: OneBus, place: Place) -> None:
    """A7."""
    with serving(bus.server, place.pin, answering({"ok": True})) as service:
        document = seed(place.keys, mid=(mid := new_id()), cid=(cid := new_id("c")), sid="A/1")
        answer = post(bus.server, document)
        (asked,) = service.got
    assert (asked.meta["mid"], asked.meta["cid"]) == (mid, cid)
    assert asked.meta["trk"] == document["meta$"]["trk"]
    (entry,) = answer.meta["trk"]
    assert (entry["sid"], entry["rid"], entry["mid"], len(entry["tms"])) == ("A/1", "B", mid, 3)


@pytest.mark.parametrize("responder", ["L", "W", "T", "mb", "zbus"])
def test_where_the_responder_writes_no_times_the_bus_does(bus: OneBus, responder: str) -> None:
    """A8. `rid` and the middle two times; a row of Seneca's is marked."""
    place = fresh_place("sum")
    if responder == "L":
        service = bus.open(raw_service(legacy(lambda document: {"sum": 3})))
        bus.open(attached(bus.server, place.pin, service.url, "L"))
    elif responder == "W":
        service = bus.open(raw_service(web(lambda document: {"sum": 3})))
        bus.open(attached(bus.server, place.pin, service.url, "W"))
    elif responder == "T":
        service = bus.open(raw_service(lines(lambda document: {"sum": 3}), lines=True))
        bus.open(attached(bus.server, place.pin, service.url, "T"))
    else:
        answerer(bus, responder, place)
    answer = post(bus.server, seed(place.keys | {"a": 1, "b": 2}, sid="A/1"))
    (entry,) = answer.meta["trk"]
    assert entry["rid"]
    assert len(entry["tms"]) == 3
    assert entry["tms"][1] <= entry["tms"][2]
    (row,) = wait_for_rows(bus.server, 1, topic=place.topic, kind="response")
    assert dict(row["attributes"]).get("seneca.times") == ("bus" if responder in ("L", "W", "T") else None)
    (hop,) = row["hops"]
    assert len(hop["tms"]) == 3
