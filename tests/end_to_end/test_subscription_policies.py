"""Failure policies over the console port of a started server: shown, set, taken back, and what then holds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from raceway.client import sync
from raceway.wires.danube.client.consumer import DanubeMessage
from raceway.wires.danube.codec.pb.danube_admin_pb2 import Binding, Role, SecurityResponse
from tests.rigs import http_door
from tests.rigs.danube_tokens import ISSUER, SECRET, token
from tests.rigs.danube_wire import danube_wire
from tests.rigs.http_door import Answer
from tests.rigs.server import Server, running_server, wait_until

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(RACEWAY_BROKER__SUBSCRIPTIONS__FAILURE__BASE_REDELIVERY_DELAY_MS=10) as server:
        yield server


@pytest.fixture(scope="module")
def bus(server: Server) -> Iterator[sync.SyncDanubeClient]:
    with sync.connect(f"danube://127.0.0.1:{server.port('danube')}", wire="danube") as bus:
        yield bus


@pytest.fixture
def topic(bus: sync.SyncDanubeClient) -> str:
    name = f"policies.t{next(_numbers)}"
    bus.publish(name, b"before")
    return name


def address(topic: str, name: str = "s") -> str:
    return f"/api/subscriptions/policy?{urlencode({'topic': topic, 'name': name})}"


def put(server: Server, topic: str, name: str = "s", who: str = "", **facts: Any) -> Answer:
    headers = {"authorization": f"Bearer {who}"} if who else {}
    return http_door.call(server, "PUT", address(topic, name), json.dumps(facts).encode(), **headers)


def show(server: Server, topic: str, name: str = "s") -> Answer:
    return http_door.get(server, address(topic, name))


def remove(server: Server, topic: str, name: str = "s") -> Answer:
    return http_door.call(server, "DELETE", address(topic, name))


def status(server: Server, topic: str) -> Any:
    (row,) = http_door.get(server, f"/api/topics/{topic}").json()["subscriptions"]
    return row


def received(consumer: sync.SyncDanubeConsumer) -> DanubeMessage:
    message = consumer.get(10)
    assert message is not None
    return message


def fail(consumer: sync.SyncDanubeConsumer, times: int) -> None:
    for _ in range(times):
        consumer.nack(received(consumer), delay_ms=0, reason="no such order")


def test_without_one_of_its_own_a_subscription_has_the_policy_of_the_bus(
    server: Server, bus: sync.SyncDanubeClient, topic: str
) -> None:
    assert show(server, topic).status == 404, "there is no such subscription"
    with bus.subscribe(topic, "s"):
        found = show(server, topic).json()
    assert (found["topic"], found["name"], found["is_own"], found["poison"]) == (topic, "s", False, "block")
    assert (found["base_redelivery_delay_ms"], found["in_flight"]) == (10, None)


def test_a_policy_set_before_its_subscription_sends_failures_to_the_dead_letters(
    server: Server, bus: sync.SyncDanubeClient, topic: str
) -> None:
    facts: dict[str, Any] = {
        "max_redelivery_count": 1,
        "poison": "dead_letter",
        "dead_letter_topic": f"{topic}.failed",
        "in_flight": 3,
    }
    answer = put(server, topic, **facts)
    assert answer.status == 200
    assert answer.json()["is_own"]
    assert {name: answer.json()[name] for name in facts} == facts
    assert answer.json()["base_redelivery_delay_ms"] == 10, "what is left out is as the bus has it"
    with bus.subscribe(f"{topic}.failed", "all", create_topic=True) as letters, bus.subscribe(topic, "s") as consumer:
        bus.publish(topic, b"poison")
        fail(consumer, 2)
        letter = received(letters)
        assert (letter.payload, letter.attributes["x-failure-reason"]) == (b"poison", "no such order")
        wait_until(lambda: status(server, topic)["dead_letters"] == 1)


def test_in_flight_of_the_policy_is_how_many_a_consumer_has(
    server: Server, bus: sync.SyncDanubeClient, topic: str
) -> None:
    assert put(server, topic, in_flight=2).json()["is_own"] is False, "nothing is said of failures"
    with bus.subscribe(topic, "s") as consumer:
        bus.publish_many(topic, [b"%d" % number for number in range(9)])
        received(consumer)
        wait_until(lambda: status(server, topic)["in_flight"] == 2)
        assert (status(server, topic)["lag"], status(server, topic)["in_flight_limit"]) == (9, 2)
        put(server, topic, in_flight=5)
        wait_until(lambda: status(server, topic)["in_flight"] == 5, what="a change holds at once")
        assert status(server, topic)["in_flight_limit"] == 5


def test_another_policy_lets_a_blocked_subscription_go_on(
    server: Server, bus: sync.SyncDanubeClient, topic: str
) -> None:
    put(server, topic, max_redelivery_count=0)
    with bus.subscribe(topic, "s") as consumer:
        bus.publish_many(topic, [b"poison", b"behind"])
        consumer.nack(received(consumer), delay_ms=0, reason="no such order")
        wait_until(lambda: status(server, topic)["poisoned"] == 1)
        assert status(server, topic)["blocked_by"] == "no such order"
        put(server, topic, max_redelivery_count=0, poison="drop")
        wait_until(lambda: status(server, topic)["poisoned"] == 0)
        assert status(server, topic)["dropped"] == 1


def test_a_policy_that_is_taken_back_is_gone(server: Server, bus: sync.SyncDanubeClient, topic: str) -> None:
    assert remove(server, topic).status == 404
    put(server, topic, max_redelivery_count=7, in_flight=4)
    assert remove(server, topic).json() == {"topic": topic, "name": "s", "removed": True}
    assert show(server, topic).status == 404, "nothing is left of one that never was"
    bus.subscribe(topic, "s").close()
    put(server, topic, max_redelivery_count=7, in_flight=4)
    assert remove(server, topic).json()["removed"]
    found = show(server, topic).json()
    assert (found["is_own"], found["max_redelivery_count"], found["in_flight"]) == (False, 5, None)
    assert not remove(server, topic).json()["removed"]


def test_policies_and_their_removal_outlast_a_restart() -> None:
    with running_server() as server:
        with sync.connect(f"danube://127.0.0.1:{server.port('danube')}", wire="danube") as bus:
            for topic in ("a", "b"):
                bus.publish(topic, b"x")
                bus.subscribe(topic, "s").close()
                put(server, topic, max_redelivery_count=7, in_flight=4)
            remove(server, "b")
        server.restart()
        kept, gone = show(server, "a").json(), show(server, "b").json()
    assert (kept["is_own"], kept["max_redelivery_count"], kept["in_flight"]) == (True, 7, 4)
    assert (gone["is_own"], gone["max_redelivery_count"], gone["in_flight"]) == (False, 5, None)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({}, "no field is set"),
        ({"poison": "dead_letter"}, "dead_letter_topic"),
        ({"poison": "explode"}, "explode"),
        ({"max_redelivery_count": -1}, "max_redelivery_count"),
        ({"max_redelivery_count": 1 << 32}, "max_redelivery_count"),
        ({"ack_timeout_ms": 0}, "ack_timeout_ms"),
        ({"in_flight": 0, "poison": "drop"}, "in_flight"),
        ({"max_redeliveries": 3}, "max_redeliveries"),
        ({"dead_letter_topic": "raceway.rejected", "poison": "dead_letter"}, "raceway.rejected"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    server: Server, topic: str, wrong: dict[str, Any], told: str
) -> None:
    refused = put(server, topic, **wrong)
    assert refused.status == 400
    assert told in refused.json()["error"]["message"]
    assert show(server, topic).status == 404
    assert put(server, topic, poison="dead_letter", dead_letter_topic=topic).status == 400, "its own dead letters"
    assert put(server, topic + ".unknown", poison="drop").status == 404


def test_partitions_have_the_policy_of_their_base(server: Server, bus: sync.SyncDanubeClient) -> None:
    base = f"policies.t{next(_numbers)}"
    bus.producer(base, "p", partitions=2).send(b"x")
    assert put(server, base, max_redelivery_count=2).status == 200
    for part in (base, f"{base}-part-0", f"{base}-part-1"):
        assert show(server, part).json()["max_redelivery_count"] == 2
    assert remove(server, base).status == 200
    assert show(server, f"{base}-part-1").status == 404


def test_whoever_sets_a_policy_manages_the_topic_and_may_write_to_its_dead_letters() -> None:
    with running_server(
        RACEWAY_SECURITY__ENABLED="true", RACEWAY_SECURITY__FREE_FAILURES=0, RACEWAY_SECURITY__TOKEN_SECRET=SECRET,
        RACEWAY_SECURITY__TOKEN_ISSUER=ISSUER, RACEWAY_SECURITY__SUPER_ADMINS="root",
    ) as server:  # fmt: skip
        with danube_wire(server, authorization=f"Bearer {token('root')}") as root:
            role = Role(name="manager", permissions=["ManageTopic"])
            root.ask("danube_admin.SecurityAdmin/CreateRole", role, SecurityResponse)
            bound = Binding(
                principal_type="service_account", principal_name="manager", role="manager", scope="topic",
                resource="/default/orders",
            )  # fmt: skip
            root.ask("danube_admin.SecurityAdmin/CreateBinding", bound, Binding)
        for topic in ("orders", "others"):
            assert (
                http_door.post(server, f"/topics/{topic}", b"x", authorization=f"Bearer {token('root')}").status < 300
            )
        manager = token("manager")
        assert put(server, "orders", who=manager, poison="drop").status == 200
        assert put(server, "others", who=manager, poison="drop").status == 403
        letters = {"poison": "dead_letter", "dead_letter_topic": "others"}
        assert put(server, "orders", who=manager, **letters).status == 403
        assert put(server, "orders", who=token("root"), **letters).status == 200
        for stranger in ("", token("somebody")):
            assert put(server, "orders", who=stranger, poison="drop").status in (401, 403)
        assert show(server, "orders").status in (401, 403)
