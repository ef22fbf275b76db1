"""Who reads: live, durable, queue, observer, responder; what they are given, and in which form."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from raceway.wires.danube.codec.pb.danube_admin_pb2 import (
    SetSubscriptionFailurePolicyRequest,
    SubscriptionFailurePolicy,
    SubscriptionResponse,
)
from tests.rigs.danube_wire import danube_wire
from tests.rigs.http_door import event_stream
from tests.rigs.mb_wire import SUCCESS
from tests.rigs.mb_wire import new_id as new_uuid
from tests.rigs.one_bus import WIRES, DanubeEar, OneBus, Place, fresh, mouth
from tests.rigs.schema_rest import bind, register
from tests.rigs.seneca_bus import raw_service
from tests.rigs.seneca_wire import answering, attached, journal_end, post, rows, seed, serving, wait_for_rows
from tests.rigs.server import wait_until

EVERY_BYTE = bytes(range(256))


def undeliverable(bus: OneBus, place: Place, since: int) -> list[dict[str, Any]]:
    found = rows(bus.server, since, topic="raceway.undeliverable")
    return [row for row in found if dict(row["attributes"])["topic"] == place.topic]


def test_a_live_subscription_gets_what_comes_while_it_is_there(bus: OneBus, place: Place) -> None:
    """S1. MB, zbus publish/subscribe, Danube non-reliable and HTTP: neither what was before nor what comes after."""
    speaking = bus.mb()
    speaking.publish(place.topic, b"before")
    peer, client = bus.mb(), bus.zbus()
    client.create(place.topic, mode=2)
    peer.subscribe(place.topic)
    by_level, by_rest = bus.mb(), bus.mb()
    by_level.subscribe(f"+.{place.cmd}")
    by_rest.subscribe(f"{place.word}.#")
    live = DanubeEar(bus, place, reliable=False)
    armed = client.arm(place.topic, topic="*", window="-1")
    events = bus.open(event_stream(bus.server, f"/topics/{place.topic}")).events()
    speaking.publish(place.topic, b"now")
    assert next(events).data["payload"] == "now"
    assert [each.receive().payload for each in (by_level, by_rest)] == [b"now", b"now"]
    assert peer.receive().payload == b"now"
    assert client.reply(armed).body == b"now"
    assert live.take(1) == [b"now"]
    peer.unsubscribe(place.topic)
    speaking.publish(place.topic, b"after")
    assert peer.settled() == []


@pytest.mark.parametrize("source", [wire for wire in WIRES if wire != "danube"])
def test_a_durable_subscription_gets_every_publish_of_other_wires_also_those_it_was_away_for(
    bus: OneBus, place: Place, source: str
) -> None:
    """S2."""
    bus.bear(place)
    bus.danube.subscribe(c := fresh("c"), place.danube, "s")
    bus.danube.close(c)
    speaking = mouth(bus, source, place)
    for number in range(3):
        speaking.say(b'{"n":%d}' % number)
    wait_for_rows(bus.server, 3, topic=place.topic, wire=source)
    bus.danube.subscribe(c, place.danube, "s")
    got = bus.danube.receive(c, 3)
    assert [json.loads(one.payload)["n"] for one in got] == [0, 1, 2]
    bus.danube.ack(c, got[0])
    bus.danube.nack(c, got[1], delay_ms=0)
    again = bus.danube.receive(c, 1)
    assert again[0].payload == got[1].payload


def test_a_foreign_message_that_nobody_can_handle_becomes_a_dead_letter(bus: OneBus, place: Place) -> None:
    """S2. With its own bytes and headers, where it came from, and its place in its chain."""
    dead = f"{place.danube}-dead"
    bus.danube.create(fresh("p"), dead)
    bus.bear(place)
    bus.danube.subscribe(c := fresh("c"), place.danube, "s")
    bus.danube.subscribe(d := fresh("c"), dead, "morgue")
    policy = SubscriptionFailurePolicy(
        max_redelivery_count=0, ack_timeout_ms=30_000, base_redelivery_delay_ms=10, max_redelivery_delay_ms=100,
        dead_letter_topic=dead,
    )  # fmt: skip
    with danube_wire(bus.server) as wire:
        request = SetSubscriptionFailurePolicyRequest(topic=place.danube, subscription="s", failure_policy=policy)
        wire.ask("danube_admin.TopicAdmin/SetSubscriptionFailurePolicy", request, SubscriptionResponse)
    client = bus.zbus()
    message_id = client.produce(place.topic, EVERY_BYTE, colour="red")
    [message] = bus.danube.receive(c)
    bus.danube.nack(c, message, reason="cannot read it")
    [letter] = bus.danube.receive(d)
    assert letter.payload == EVERY_BYTE
    wanted = {"colour": "red", "x-original-topic": place.danube, "x-failure-reason": "cannot read it"}
    assert wanted.items() <= letter.attributes.items()
    assert letter.attributes["x-message-id"] == message_id


def test_a_queue_has_publishes_of_all_wires_and_requests_of_its_own_in_offset_order(bus: OneBus, place: Place) -> None:
    """S3. A request of another wire enters it only while a consumer is connected."""
    client, peer = bus.zbus(), bus.mb()
    client.create(place.topic)
    peer.publish(place.topic, b"1")
    bus.zbus().request(place.topic, b"2", ack="0")
    assert json.loads(peer.ask(place.topic, b"{}").payload)["error"]["code"] == "NO_ROUTE_FOUND"
    post(bus.server, seed(place.keys | {"n": 3}, sync=False))
    wait_for_rows(bus.server, 4, topic=place.topic)
    got = [client.take(place.topic) for _ in range(3)]
    assert [one.headers["cmd"] for one in got] == ["produce", "request", "produce"]
    assert [got[0].body, got[1].body, json.loads(got[2].body)["n"]] == [b"1", b"2", 3]


def test_whoever_armed_first_is_served_first_whatever_wire_it_comes_from(bus: OneBus, place: Place) -> None:
    """S3. Each message once."""
    first, second, third = bus.zbus(), bus.zbus(), bus.zbus()
    first.create(place.topic)
    armed = [(client, client.arm(place.topic)) for client in (first, second, third)]
    bus.mb().publish(place.topic, b"1")
    post(bus.server, seed(place.keys | {"n": 2}, sync=False))
    bus.zbus().produce(place.topic, b"3")
    bodies = [client.reply(msgid).body for client, msgid in armed]
    assert [bodies[0], json.loads(bodies[1])["n"], bodies[2]] == [b"1", 2, b"3"]


def test_a_line_that_was_written_counts_as_taken(bus: OneBus, place: Place) -> None:
    """S4. A service on TCP says nothing to a message that wants no answer: it is told once, and nothing is parked."""
    since = journal_end(bus.server)
    service = bus.open(raw_service(lambda received, connection: None, lines=True))
    bus.open(attached(bus.server, place.pin, service.url, "T"))
    for number in range(3):
        bus.mb().publish(place.topic, b'{"n":%d}' % number)
    service.wait_for(3)
    assert [document["act"]["n"] for document in service.messages] == [0, 1, 2]
    assert undeliverable(bus, place, since) == []


def test_an_observer_that_does_not_take_a_message_is_tried_again_and_then_it_is_parked(
    bus: OneBus, place: Place
) -> None:
    """S4. Three retries, then `raceway.undeliverable`, in topic order behind it."""
    since = journal_end(bus.server)

    def react(got: Any) -> tuple[int, Any]:
        return (503, {}) if got.json().get("n") == 0 else (200, {})

    with serving(bus.server, place.pin, react) as service:
        before = bus.server.metric("raceway_undeliverable_messages_total")
        for number in range(2):
            bus.mb().publish(place.topic, b'{"n":%d}' % number)
        service.wait_for(5)
        assert [got.json()["n"] for got in service.got] == [0, 0, 0, 0, 1]
        parked = wait_until(lambda: undeliverable(bus, place, since), 10, "a row of raceway.undeliverable")
    assert [row["payload"] for row in parked] == [b'{"n":0}']
    assert "503" in dict(parked[0]["attributes"])["reason"]
    assert bus.server.metric("raceway_undeliverable_messages_total") > before


def test_a_responder_is_asked_while_it_is_there(bus: OneBus, place: Place) -> None:
    """S5. An MB subscription and an attached service; afterwards nobody is."""
    peer, asking = bus.mb(), bus.mb()
    peer.subscribe(place.topic, "request")
    asked = new_uuid()
    asking.send(f"request:{place.topic}:1.0.0:{asked}", b"{}")
    peer.serve_one(b'"mb"')
    assert asking.reply(asked).payload == b'"mb"'
    peer.close()
    with serving(bus.server, place.pin, answering({"by": "seneca"})):
        wait_until(lambda: asking.ask(place.topic).payload == b'{"by":"seneca"}')
    assert json.loads(asking.ask(place.topic).payload)["error"]["code"] == "NO_ROUTE_FOUND"


@pytest.mark.parametrize("reader", ["queue", "pubsub", "danube", "seneca", "mb", "http"])
def test_a_reader_on_any_wire_is_a_route(bus: OneBus, place: Place, reader: str) -> None:
    """S7. `NO_ROUTE_FOUND` means that nobody reads on any wire; the message is stored even so."""
    peer, client = bus.mb(), bus.zbus()
    answer = json.loads(peer.publish(place.topic, b"{}").payload)
    assert answer["error"]["code"] == "NO_ROUTE_FOUND"
    assert len(wait_for_rows(bus.server, 1, topic=place.topic)) == 1
    if reader == "queue":
        client.create(place.topic)
    elif reader == "pubsub":
        client.create(place.topic, mode=2)
        client.arm(place.topic, topic="*")
    elif reader == "danube":
        bus.danube.subscribe(fresh("c"), place.danube, "s")
    elif reader == "mb":
        bus.mb().subscribe(place.topic)
    elif reader == "http":
        assert bus.open(event_stream(bus.server, f"/topics/{place.topic}")).status == 200
    else:
        bus.open(serving(bus.server, place.pin, answering({})))
    assert peer.publish(place.topic, b"{}").payload == SUCCESS


def test_requests_take_offsets_and_answers_do_not_and_lag_counts_publishes(bus: OneBus, place: Place) -> None:
    """S8, S9. Subscriptions step over requests and answers."""
    bus.bear(place)
    bus.danube.subscribe(c := fresh("c"), place.danube, f"lag{place.word}")
    live = bus.mb()
    live.subscribe(place.topic)
    with serving(bus.server, place.pin, answering({"ok": True})):
        peer = bus.mb()
        peer.publish(place.topic, b"{}")
        for _ in range(3):
            assert peer.ask(place.topic, {}).json() == {"ok": True}
        peer.publish(place.topic, b"[]")
    found = wait_for_rows(bus.server, 9, topic=place.topic)
    assert [row["offset"] for row in found if row["kind"] != "response"] == [0, 1, 2, 3, 4, 5]
    asked = {row["sequence"] for row in found if row["kind"] == "request"}
    answers = [row for row in found if row["kind"] == "response"]
    assert {row["offset"] for row in answers} == {None}
    assert {row["answers"] for row in answers} == asked
    assert bus.server.metric("raceway_subscription_lag", topic=place.topic) == 2
    assert [one.offset for one in bus.danube.receive(c, 2, ack=True)] == [1, 5]
    assert [one.payload for one in (live.receive(), live.receive())] == [b"{}", b"[]"]
    wait_until(lambda: bus.server.metric("raceway_subscription_lag", topic=place.topic) == 0)


def test_deliveries_are_no_rows_and_an_answer_carries_the_hop(bus: OneBus, place: Place) -> None:
    """S10. Requester, responder, accepted, handed over, answered: all by one clock."""
    for _ in range(3):
        bus.mb().subscribe(place.topic)
    service, asking = bus.mb(), bus.mb()
    service.subscribe(place.topic, "request")
    asking.publish(place.topic, b"x")
    asked, began_ms = new_uuid(), time.time_ns() // 1_000_000
    asking.send(f"request:{place.topic}:1.0.0:{asked}", b"{}")
    service.serve_one(b"{}")
    asking.reply(asked)
    published, request, answer = wait_for_rows(bus.server, 3, topic=place.topic)
    assert (published["kind"], request["kind"], answer["kind"]) == ("publish", "request", "response")
    assert rows(bus.server, topic=place.topic)[3:] == []
    (hop,) = answer["hops"]
    assert (hop["sid"], hop["rid"], hop["mid"]) == (asking.service_id(), service.service_id(), asked)
    accepted, handed, answered = hop["tms"]
    assert began_ms <= accepted <= handed <= answered <= time.time_ns() // 1_000_000
    assert hop["tms"][0] == request["time_us"] // 1000


@pytest.mark.parametrize(
    "payload",
    [EVERY_BYTE, b"", os.urandom(100_000), b"a" * 1_000_000, b'{"a": 1.0e3 ,"a":2}', b"\xef\xbb\xbf{}", b"\r\n\r\n\0"],
    ids=["every byte", "nothing", "random", "a megabyte", "json", "bom", "ends of lines"],
)
def test_bytes_are_the_same_on_danube_and_zbus_and_in_the_journal_and_text_on_mb(
    bus: OneBus, place: Place, payload: bytes
) -> None:
    """S11, S12."""
    client, peer = bus.zbus(), bus.mb()
    client.create(place.topic)
    bus.danube.create(p := fresh("p"), place.danube)
    bus.danube.subscribe(c := fresh("c"), place.danube, "s")
    peer.subscribe(place.topic)
    bus.danube.send(p, payload)
    client.produce(place.topic, payload)
    assert [one.payload for one in bus.danube.receive(c, 2, ack=True)] == [payload, payload]
    assert [client.take(place.topic).body, client.take(place.topic).body] == [payload, payload]
    assert [row["payload"] for row in wait_for_rows(bus.server, 2, topic=place.topic)] == [payload, payload]
    text = payload.decode("utf-8", "replace").encode()
    assert [peer.receive().payload, peer.receive().payload] == [text, text]


@pytest.mark.parametrize(
    ("payload", "member"),
    [
        (b"hello", {"data": "hello"}),
        (b"[1, 2]", {"data": [1, 2]}),
        (b"17", {"data": 17}),
        (b'"text"', {"data": "text"}),
        (b"\xff\x00", {"data_base64": "/wA="}),
        (b'{"a": {"b": 1.0}}', {"a": {"b": 1.0}}),
    ],
)
@pytest.mark.parametrize("asking", ["mb", "zbus"])
def test_what_is_no_object_goes_to_seneca_in_a_member_and_comes_back_as_what_it_was(
    bus: OneBus, place: Place, asking: str, payload: bytes, member: dict[str, Any]
) -> None:
    """S13. An echo of it is the same payload again."""

    def react(got: Any) -> tuple[int, Any]:
        document = got.json()
        return 200, {name: document[name] for name in member}

    with serving(bus.server, place.pin, react, "L") as service:
        if asking == "mb":
            if payload == b"\xff\x00":
                payload = b"\xc3\xa9"
                member = {"data": "é"}
            answer = bus.mb().ask(place.topic, payload).payload
        else:
            client = bus.zbus()
            answer = client.reply(client.request(place.topic, payload)).body
        asked = service.got[-1].json()
    assert {name: asked[name] for name in member} == member
    is_object = payload.startswith(b"{")
    assert (json.loads(answer) == member) if is_object else (answer == payload)


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b"hello", {"data": "hello"}),
        (b"[1, 2]", {"data": [1, 2]}),
        (b"null", {"data": None}),
        (b"\xff\x00", {"data_base64": "/wA="}),
        (b'{"a": {"b": 1.0}}', {"a": {"b": 1.0}}),
    ],
)
@pytest.mark.parametrize("responder", ["mb", "zbus"])
def test_an_answer_that_is_no_object_goes_to_a_seneca_caller_in_a_member(
    bus: OneBus, place: Place, responder: str, payload: bytes, told: dict[str, Any]
) -> None:
    """S13. Bytes that are no text, too."""
    peer, client = bus.mb(), bus.zbus()
    with ThreadPoolExecutor(1) as pool:
        if responder == "mb":
            peer.subscribe(place.topic, "request")
            asked = pool.submit(post, bus.server, seed(place.keys))
            peer.serve_one(payload)
        else:
            client.create(place.topic)
            armed = client.arm(place.topic)
            asked = pool.submit(post, bus.server, seed(place.keys))
            client.answer(client.reply(armed), payload)
        answer = asked.result(10).data
    assert answer == told


def test_nested_values_keep_their_text_on_the_way_through_seneca(bus: OneBus, place: Place) -> None:
    """S13. A number too long for any machine, and an exponent, are what they were."""
    client = bus.zbus()
    client.create(place.topic)
    body = b'{"role":"%s","cmd":"%s","n":{"x":1.50,"y":123456789012345678901234567890,"z":1E+2}}'
    body = body % (place.word.encode(), place.cmd.encode())
    with serving(bus.server, place.pin, answering({"ok": True})) as service:
        client.produce(place.topic, body)
        (got,) = service.wait_for(1)
    for text in (b'"x":1.50', b'"y":123456789012345678901234567890', b'"z":1E+2'):
        assert text in got.body


def test_a_foreign_message_looks_like_one_of_the_receivers_own(bus: OneBus, place: Place) -> None:
    """S14. Version 1.0.0 on MB; every field on Danube."""
    bus.bear(place)
    peer, client = bus.mb(), bus.zbus()
    peer.subscribe(place.topic)
    bus.danube.subscribe(c := fresh("c"), place.danube, "s")
    began_ms = time.time_ns() // 1_000_000
    message_id = client.produce(place.topic, b"x", colour="red", **{"routing-key": "k", "traceparent": "00-a-b-01"})
    assert peer.receive().fields[:3] == ["publish", place.topic, "1.0.0"]
    [message] = bus.danube.receive(c, ack=True)
    assert (message.request_id, message.key, message.schema_id) == (0, "k", None)
    assert message.producer.startswith("127.0.0.1:")
    assert began_ms <= message.sent_ms <= time.time_ns() // 1_000_000
    assert message.attributes == {
        "colour": "red", "traceparent": "00-a-b-01", "x-message-id": message_id, "x-correlation-id": message_id,
    }  # fmt: skip
    sent_ms = 1_700_000_000_123
    document = seed(place.keys, sync=False, sid="A/1")
    document["meta$"]["trk"][-1]["tms"] = [sent_ms]
    post(bus.server, document)
    [message] = bus.danube.receive(c, ack=True)
    assert (message.producer, message.sent_ms) == ("A/1", sent_ms)
    assert message.attributes["x-correlation-id"] == document["meta$"]["cid"]


def test_a_foreign_message_that_was_checked_names_its_schema_on_danube(bus: OneBus, place: Place) -> None:
    """S14. The subject's id and version, of the topic's own subject."""
    found = register(bus.server, place.word)
    bus.bear(place)
    bind(bus.server, place.topic, place.word, "enforce")
    bus.danube.subscribe(c := fresh("c"), place.danube, "s")
    bus.mb().publish(place.topic, b'{"id":1}')
    [message] = bus.danube.receive(c, ack=True)
    assert (message.schema_id, message.schema_version) == (found["schema_id"], found["version"])


def test_what_only_one_wire_can_say_comes_back_on_that_wire(bus: OneBus, place: Place) -> None:
    """S15. A status, a topic, a charset, a version: no business of others, and there again on the way back."""
    client, peer = bus.zbus(), bus.mb()
    client.create(place.topic)
    peer.subscribe(place.topic)
    keys = {"topic": "hk", "reply-code": "404", "encoding": "gbk", "content-type": "text/plain", "x-shop": "Nord"}
    client.produce(place.topic, b"x", **keys)
    delivery = client.take(place.topic)
    assert delivery.status == 404
    assert {name: delivery.headers[name] for name in keys if name != "reply-code"} == {
        name: value for name, value in keys.items() if name != "reply-code"
    }
    bus.mb().publish(place.topic, b"y", version="2.3.4")
    assert [peer.receive().fields[2], peer.receive().fields[2]] == ["1.0.0", "2.3.4"]
    with serving(bus.server, place.pin, answering({})) as service:
        document = seed(place.keys | {"n": 1}, sync=False, vin=2, ctm={"tenant": "t", "deep": {"n": [1]}}, extra=7)
        post(bus.server, document)
        meta = service.wait_for(1)[0].meta
    assert (meta["vin"], meta["extra"], meta["ctm"]) == (2, 7, {"tenant": "t", "deep": {"n": [1]}})
    assert (meta["mid"], meta["cid"]) == (document["meta$"]["mid"], document["meta$"]["cid"])
