"""Danube's durable subscriptions over topics that other wires feed: every type of them, replay, and a pulled plug."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest

from tests.danube_process import Received, danube_process
from tests.danube_wire import danube_url
from tests.mb_wire import SUCCESS, connect
from tests.one_bus_rig import OneBus, Place, fresh
from tests.seneca_wire import post, seed
from tests.server import running_server
from tests.zbus_wire import dial_server

KEYS = ("red", "green", "blue", "white")
MESSAGES = 24


def feed(bus: OneBus, place: Place) -> list[bytes]:
    """From zbus, with keys; the same number from MB, which has none."""
    client, peer = bus.zbus(), bus.mb()
    sent = [b"%d" % number for number in range(MESSAGES)]
    for number, payload in enumerate(sent):
        if number % 2:
            client.produce(place.topic, payload, **{"routing-key": KEYS[number // 2 % len(KEYS)]})
        else:
            peer.publish(place.topic, payload)
    return sent


@pytest.mark.parametrize("kind", ["EXCLUSIVE", "SHARED", "FAILOVER", "KEY_SHARED"])
def test_each_type_of_subscription_gets_every_foreign_message_once(bus: OneBus, place: Place, kind: str) -> None:
    """S2. Exclusive and failover in order; key-shared with each key at one consumer."""
    bus.bear(place)
    consumers = [fresh("c")] if kind == "EXCLUSIVE" else [fresh("c"), fresh("c")]
    for consumer in consumers:
        bus.danube.subscribe(consumer, place.danube, "s", kind)
    sent = feed(bus, place)
    got: dict[str, list[Received]] = defaultdict(list)
    for _ in range(2 * MESSAGES):
        for consumer in consumers:
            got[consumer] += bus.danube.receive(consumer, MESSAGES, ack=True, within_s=0.2)
        if sum(map(len, got.values())) >= MESSAGES:
            break
    everything = [message for each in got.values() for message in each]
    assert sorted(int(message.payload) for message in everything) == list(range(MESSAGES)), "once each"
    if kind in ("EXCLUSIVE", "FAILOVER"):
        assert [message.payload for message in everything] == sent
    if kind == "KEY_SHARED":
        owners = {(message.key, consumer) for consumer, each in got.items() for message in each}
        assert len(owners) == len({key for key, _ in owners}), "a key has one consumer"


def test_what_was_not_acknowledged_comes_again_after_the_plug_was_pulled(place: Place) -> None:
    """S2, S8. Acknowledged by the bus on three wires, read by Danube after a kill, with the same offsets."""
    with running_server() as server, danube_process(danube_url(server)) as danube:
        with connect(server, "tcp") as peer, dial_server(server) as client:
            peer.publish(place.topic, b"birth")
            danube.subscribe("c", place.danube, "s")
            assert peer.publish(place.topic, b'{"n":0}').payload == SUCCESS
            client.produce(place.topic, b'{"n":1}')
            assert post(server, seed(place.keys | {"n": 2}, sync=False)).status == 202
            before = danube.receive("c", 3)
            danube.ack("c", before[0])
        server.kill()
        server.start()
        after = danube.receive("c", 2, ack=True, within_s=30)
        assert [json.loads(message.payload)["n"] for message in after] == [1, 2]
        assert [message.offset for message in after] == [message.offset for message in before[1:]]
