"""Danube's durable subscriptions over topics that other wires feed: every type of them, replay, and a pulled plug."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
from typer.testing import CliRunner

from raceway.cli.app import app
from tests.rigs.danube_process import Received, danube_process
from tests.rigs.danube_wire import danube_url
from tests.rigs.http_door import get
from tests.rigs.http_door import post as http_post
from tests.rigs.mb_wire import SUCCESS, connect
from tests.rigs.one_bus import DanubeEar, OneBus, Place, fresh
from tests.rigs.seneca_wire import post, seed
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.zbus_wire import dial_server

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


# ---- replay ----------------------------------------------------------------------------------------------------------


def replay(bus: OneBus, place: Place, subscription: str | None, begin: str) -> int:
    wanted = {"topic": place.topic, "subscription": subscription, "from": begin}
    return http_post(bus.server, "/api/replay", json.dumps(wanted).encode()).status


@pytest.mark.parametrize("kind", ["EXCLUSIVE", "KEY_SHARED"])
def test_a_subscription_replays_what_other_wires_published(bus: OneBus, place: Place, kind: str) -> None:
    """T4, S2. From the first message, or from an offset; acknowledged or not; requests are stepped over."""
    bus.bear(place)
    name = f"again{place.word}"
    bus.danube.subscribe(c := fresh("c"), place.danube, name, kind)
    sent = feed(bus, place)
    assert json.loads(bus.mb().ask(place.topic, b"{}").payload)["error"]["code"] == "NO_ROUTE_FOUND"
    assert len(bus.danube.receive(c, MESSAGES, ack=True)) == MESSAGES
    wait_until(lambda: bus.server.metric("raceway_subscription_lag", topic=place.topic) == 0)
    assert replay(bus, place, name, "first") == 200
    again = bus.danube.receive(c, MESSAGES + 1, ack=True)
    assert sorted(message.payload for message in again) == sorted([b"{}", *sent])
    if kind == "EXCLUSIVE":
        assert [message.payload for message in again] == [b"{}", *sent]
        assert [message.offset for message in again] == list(range(MESSAGES + 1))
    wait_until(lambda: bus.server.metric("raceway_subscription_lag", topic=place.topic) == 0)
    assert replay(bus, place, name, str(MESSAGES - 1)) == 200
    last = bus.danube.receive(c, 2, ack=True)
    assert sorted(message.payload for message in last) == sorted(sent[-2:])
    wait_until(lambda: bus.server.metric("raceway_subscription_lag", topic=place.topic) == 0)


def test_a_replay_holds_over_a_restart_and_a_queue_can_be_replayed_too(place: Place) -> None:
    """T4. The cursor is on the disk when the tool is told so. By `raceway replay`."""
    with running_server() as server, danube_process(danube_url(server)) as danube:
        with connect(server, "tcp") as peer, dial_server(server) as client:
            peer.publish(place.topic, b"0")
            danube.subscribe("c", place.danube, "s")
            client.create(place.topic)
            peer.publish(place.topic, b"1")
            client.produce(place.topic, b"2")
            assert [client.take(place.topic).body, client.take(place.topic).body] == [b"1", b"2"]
            assert len(danube.receive("c", 2, ack=True)) == 2
        said = [told(server, place.topic, "s", "--from", "first"), told(server, place.topic, "--from", "1")]
        assert said == [{"topic": place.topic, "subscription": "s", "from": "0"},
                        {"topic": place.topic, "subscription": None, "from": "1"}]  # fmt: skip
        danube.close("c")
        server.kill()
        server.start()
        danube.subscribe("c", place.danube, "s")
        assert [message.payload for message in danube.receive("c", 3, ack=True, within_s=30)] == [b"0", b"1", b"2"]
        with dial_server(server) as client:
            assert [client.take(place.topic).body, client.take(place.topic).body] == [b"1", b"2"]


def told(server: Server, *arguments: str) -> Any:
    done = CliRunner().invoke(app, ["replay", *arguments, "--data", str(server.data), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_what_cannot_be_replayed_is_refused(bus: OneBus, place: Place) -> None:
    """T4. A topic, a subscription or a place that is not there, and a subscription that keeps nothing."""
    assert replay(bus, place, "s", "first") == 404
    live = DanubeEar(bus, place, reliable=False)
    assert live is not None
    assert replay(bus, place, "nobody", "first") == 404
    assert replay(bus, place, None, "first") == 404
    (name,) = [row["name"] for row in named(bus) if row["topic"] == place.topic]
    assert replay(bus, place, name, "first") == 400
    assert replay(bus, place, name, "yesterday") == 400
    wrong = http_post(bus.server, "/api/replay", b'{"topic": 7}')
    assert (wrong.status, wrong.code) == (400, "malformed")


def named(bus: OneBus) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = get(bus.server, "/api/subscriptions/named").json()["subscriptions"]
    return rows
