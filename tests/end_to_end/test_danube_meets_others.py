"""One bus: what a Danube consumer is given of other wires' messages, and they of Danube's."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator

import pytest

from raceway.model.hashing import sender_id
from tests.rigs.danube_process import DanubeProcess, danube_process
from tests.rigs.danube_wire import danube_url, danube_wire
from tests.rigs.mb_wire import Peer, connect
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.zbus_wire import Client, dial_server

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="module")
def danube(server: Server) -> Iterator[DanubeProcess]:
    with danube_process(danube_url(server)) as client:
        yield client


@pytest.fixture
def mb(server: Server) -> Iterator[Peer]:
    with connect(server, "tcp") as peer:
        yield peer


@pytest.fixture
def zbus(server: Server) -> Iterator[Client]:
    with dial_server(server) as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"meet.t{next(_numbers)}"


@pytest.mark.parametrize("reliable", [True, False], ids=["reliable", "non-reliable"])
def test_an_mb_publish_looks_like_a_danube_message(
    server: Server, danube: DanubeProcess, mb: Peer, name: str, reliable: bool
) -> None:
    danube.create(name, f"/default/{name}", reliable=reliable)
    danube.subscribe(name, f"/default/{name}", "s")
    # Its stream is on its way on another connection, and what is not reliable begins with it.
    wait_until(lambda: json.loads(server.http(f"/api/lag?contains={name}")[1])["rows"][0]["consumers"] == 1)
    mb.register("clock", "a test")
    began_ms = time.time_ns() // 1_000_000
    mb.publish(name, b'{"a":1}')
    [message] = danube.receive(name, ack=True)
    assert (message.payload, message.offset, message.request_id) == (b'{"a":1}', 0, 0)
    assert (message.topic, message.subscription) == (f"/default/{name}", "s")
    assert message.producer == "clock", "its name on its own wire"
    assert message.producer_id == sender_id(name.encode(), message.producer.encode())
    assert began_ms <= message.sent_ms <= time.time_ns() // 1_000_000
    assert (message.key, message.schema_id) == (None, None)


def test_offsets_are_counted_over_all_wires(danube: DanubeProcess, mb: Peer, zbus: Client, name: str) -> None:
    zbus.create(name)
    danube.create(name, f"/default/{name}")
    danube.subscribe(name, f"/default/{name}", "s")
    mb.publish(name, b"mb")
    danube.send(name, b"danube")
    zbus.produce(name, b"zbus", ack="true")
    got = danube.receive(name, 3, ack=True)
    assert [(message.payload, message.offset) for message in got] == [(b"mb", 0), (b"danube", 1), (b"zbus", 2)]
    assert [zbus.take(name).body for _ in range(3)] == [b"mb", b"danube", b"zbus"]


def test_a_topic_born_elsewhere_is_consumed_reliably(danube: DanubeProcess, mb: Peer, name: str) -> None:
    mb.publish(name, b"0")
    danube.subscribe(name, f"/default/{name}", "s")
    mb.publish(name, b"1")
    [message] = danube.receive(name)
    danube.close(name)
    danube.subscribe(name, f"/default/{name}", "s")
    assert danube.receive(name, ack=True) == [message]


def test_headers_of_zbus_become_attributes_and_a_routing_key(danube: DanubeProcess, zbus: Client, name: str) -> None:
    zbus.create(name)
    danube.subscribe(name, f"/default/{name}", "s")
    zbus.produce(name, b"x", **{"colour": "red", "routing-key": "k"})
    [message] = danube.receive(name, ack=True)
    assert message.attributes["colour"] == "red"
    assert message.key == "k"


def test_attributes_and_the_routing_key_become_headers_of_zbus(danube: DanubeProcess, zbus: Client, name: str) -> None:
    zbus.create(name)
    danube.create(name, f"/default/{name}")
    danube.send(name, b"x", attributes={"colour": "red", "x-shade": "dark"}, key="k")
    headers = zbus.take(name).headers
    assert (headers["colour"], headers["x-shade"], headers["routing-key"]) == ("red", "dark", "k")


def test_bytes_pass_between_danube_and_zbus_unharmed(danube: DanubeProcess, zbus: Client, name: str) -> None:
    zbus.create(name)
    danube.create(name, f"/default/{name}")
    danube.subscribe(name, f"/default/{name}", "s")
    payload = bytes(range(256)) + os.urandom(100_000)
    danube.send(name, payload)
    assert zbus.take(name).body == payload
    zbus.produce(name, payload, ack="true")
    assert [message.payload for message in danube.receive(name, 2, ack=True)] == [payload, payload]


def test_a_danube_message_reaches_mb_subscribers(danube: DanubeProcess, mb: Peer) -> None:
    name = f"meet.m{next(_numbers)}"
    mb.subscribe("meet.+")
    danube.create(name, f"/default/{name}")
    danube.send(name, b"hello")
    message = mb.wait_for(lambda message: message.topic == name)
    assert (message.action, message.payload) == ("publish", b"hello")


def test_a_message_too_large_for_danube_is_stepped_over(
    server: Server, danube: DanubeProcess, zbus: Client, name: str
) -> None:
    zbus.create(name)
    danube.subscribe(name, f"/default/{name}", "s")
    zbus.produce(name, b"x" * (10 << 20), ack="true")
    zbus.produce(name, b"small", ack="true")
    [message] = danube.receive(name, ack=True)
    assert (message.payload, message.offset) == (b"small", 1)


def test_a_publish_to_a_base_goes_to_one_partition_and_its_subscribers_get_all(danube: DanubeProcess, mb: Peer) -> None:
    name = f"meet.p{next(_numbers)}"
    danube.create(name, f"/default/{name}", partitions=3)
    danube.subscribe(name, f"/default/{name}", "s")
    mb.subscribe(name)
    mb.publish(name, b"from mb")
    [message] = danube.receive(name, ack=True)
    assert (message.payload, message.topic[:-1]) == (b"from mb", f"/default/{name}-part-")
    danube.send(name, b"0", b"1", b"2")
    got = {mb.wait_for(lambda message: message.action == "publish").payload for _ in range(4)}
    assert got == {b"from mb", b"0", b"1", b"2"}


def test_nobody_writes_to_the_brokers_own_streams(server: Server) -> None:
    with danube_wire(server) as wire:
        for own in ("system.message", "raceway.undeliverable"):
            with pytest.raises(Exception, match="INVALID_ARGUMENT"):
                wire.producer(f"/default/{own}")
