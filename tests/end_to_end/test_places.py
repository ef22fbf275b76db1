"""Subscriptions and queues that are made over HTTP, before anybody consumes, and begin where they are told to."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.rigs import http_door
from tests.rigs.danube_wire import DanubeWire, danube_wire
from tests.rigs.http_door import Answer
from tests.rigs.server import Server, running_server
from tests.rigs.zbus_wire import dial_server

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="module")
def wire(server: Server) -> Iterator[DanubeWire]:
    with danube_wire(server) as wire:
        yield wire


@pytest.fixture
def topic() -> str:
    return f"places.t{next(_numbers)}"


def make(server: Server, what: str, **facts: Any) -> Answer:
    return http_door.post(server, f"/api/{what}", json.dumps(facts).encode(), content_type="application/json")


def first_offsets(wire: DanubeWire, topic: str, name: str, count: int) -> list[int]:
    stream = wire.listen(wire.consumer(f"/default/{topic}", subscription=name, type=1))
    try:
        return [next(stream).msg_id.topic_offset for _ in range(count)]
    finally:
        stream.cancel()


def test_a_subscription_is_there_before_the_first_publish(server: Server, wire: DanubeWire, topic: str) -> None:
    assert make(server, "subscriptions", topic=topic, name="s").status == 404
    made = make(server, "subscriptions", topic=topic, name="s", create_topic=True)
    assert (made.status, made.json()) == (201, {"topic": topic, "name": "s", "made": True})
    assert make(server, "subscriptions", topic=topic, name="s").status == 200
    http_door.post(server, f"/topics/{topic}", b"0")
    assert first_offsets(wire, topic, "s", 1) == [0]


@pytest.mark.parametrize(("start", "first"), [("first", 0), (3, 3), ("2001-01-01T00:00:00Z", 0)])
def test_it_begins_where_it_is_told_to(
    server: Server, wire: DanubeWire, topic: str, start: str | int, first: int
) -> None:
    for number in range(5):
        http_door.post(server, f"/topics/{topic}", b"%d" % number)
    assert make(server, "subscriptions", topic=topic, name="s", start=start, in_flight=2).status == 201
    assert first_offsets(wire, topic, "s", 2) == [first, first + 1]


@pytest.mark.parametrize(
    "wrong", [{"start": "yesterday"}, {"type": "round"}, {"name": ""}, {"in_flight": 0}, {"begin": "first"}]
)
def test_what_cannot_be_is_refused(server: Server, topic: str, wrong: dict[str, Any]) -> None:
    http_door.post(server, f"/topics/{topic}", b"0")
    assert make(server, "subscriptions", **{"topic": topic, "name": "s"} | wrong).status == 400
    status, listed = server.http(f"/api/subscriptions/named?after={topic}:")
    assert status == 200
    assert topic not in listed


def test_a_queue_begins_where_it_is_told_to(server: Server, topic: str) -> None:
    for number in range(3):
        http_door.post(server, f"/topics/{topic}", b"%d" % number)
    made = make(server, "queues", name=topic, start="first")
    assert (made.status, made.json()) == (201, {"name": topic, "made": True})
    assert make(server, "queues", name=topic).status == 200
    with dial_server(server) as client:
        for number in range(3):
            client.arm(topic)
            assert client.receive().body == b"%d" % number
    assert make(server, "queues", name=topic + "x", start="never").status == 400
