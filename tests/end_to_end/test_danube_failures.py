"""Messages that consumers fail on: waits between deliveries, acknowledgements that do not come, poison.

Delays are measured from the refusal to the next delivery; a busy machine makes them longer, never shorter.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from raceway.wires.danube.codec.pb.danube_admin_pb2 import (
    Block,
    DeadLetter,
    Drop,
    Exponential,
    Fixed,
    SetSubscriptionFailurePolicyRequest,
    SubscriptionFailurePolicy,
    SubscriptionResponse,
)
from raceway.wires.danube.codec.pb.schema_registry_pb2 import RegisterSchemaRequest, RegisterSchemaResponse
from tests.rigs.danube_process import DanubeProcess, Received, danube_process
from tests.rigs.danube_wire import DanubeWire, danube_url, danube_wire
from tests.rigs.server import Server, running_server, wait_until

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[DanubeProcess]:
    with danube_process(danube_url(server)) as client:
        yield client


@pytest.fixture(scope="module")
def wire(server: Server) -> Iterator[DanubeWire]:
    with danube_wire(server) as wire:
        yield wire


@pytest.fixture
def topic() -> str:
    return f"/default/f{next(_numbers)}"


def payloads(messages: list[Received]) -> list[bytes]:
    return [message.payload for message in messages]


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "raceway", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | {"COLUMNS": "400"})


def set_policy(wire: DanubeWire, topic: str, **fields: Any) -> None:
    """Quick, and fatal only after many failures, unless `fields` say otherwise."""
    given: dict[str, Any] = {
        "max_redelivery_count": 50, "ack_timeout_ms": 30_000, "base_redelivery_delay_ms": 1,
        "max_redelivery_delay_ms": 60_000, "backoff_strategy": Fixed, "poison_policy": Block,
    }  # fmt: skip
    request = SetSubscriptionFailurePolicyRequest(
        topic=topic, subscription="s", failure_policy=SubscriptionFailurePolicy(**given | fields)
    )
    wire.ask("danube_admin.TopicAdmin/SetSubscriptionFailurePolicy", request, SubscriptionResponse)


@pytest.fixture
def consumer(client: DanubeProcess, topic: str) -> str:
    """One that is alone on the topic, which has a producer of its own name."""
    client.create(topic, topic)
    client.subscribe("c" + topic, topic, "s")
    return "c" + topic


def refuse(client: DanubeProcess, consumer: str, message: Received, **nack: Any) -> tuple[Received, float]:
    """The message when it comes again, and how long that took."""
    began = time.monotonic()
    client.nack(consumer, message, **nack)
    [again] = client.receive(consumer)
    assert again == message
    return again, time.monotonic() - began


# ---- waits -----------------------------------------------------------------------------------------------------------


def test_waits_double_from_failure_to_failure_up_to_the_most(
    client: DanubeProcess, wire: DanubeWire, topic: str, consumer: str
) -> None:
    set_policy(
        wire, topic, base_redelivery_delay_ms=100, max_redelivery_delay_ms=400, backoff_strategy=Exponential
    )  # fmt: skip
    client.send(topic, b"x")
    [message] = client.receive(consumer)
    for wanted_s in (0.1, 0.2, 0.4, 0.4):
        message, waited_s = refuse(client, consumer, message)
        assert wanted_s <= waited_s
    assert waited_s < 0.8, "the fourth would have waited so long"


def test_a_consumer_may_ask_for_more_than_the_policy_and_not_for_more_than_the_most(
    client: DanubeProcess, wire: DanubeWire, topic: str, consumer: str
) -> None:
    set_policy(wire, topic, base_redelivery_delay_ms=100, max_redelivery_delay_ms=300)
    client.send(topic, b"x")
    [message] = client.receive(consumer)
    for delay_ms, wanted_s in ((0, 0.1), (50, 0.1), (200, 0.2), (3_600_000, 0.3), (2**64 - 1, 0.3)):
        message, waited_s = refuse(client, consumer, message, delay_ms=delay_ms)
        assert wanted_s <= waited_s < wanted_s + 2


def test_what_is_not_acknowledged_in_time_comes_again_and_that_is_no_failure(
    client: DanubeProcess, wire: DanubeWire, topic: str, consumer: str
) -> None:
    set_policy(wire, topic, ack_timeout_ms=300, base_redelivery_delay_ms=100, max_redelivery_count=0)
    client.send(topic, b"x")
    [message] = client.receive(consumer)
    began = time.monotonic()
    assert client.receive(consumer) == [message]
    assert 0.3 <= time.monotonic() - began < 1.5
    client.ack(consumer, message)
    assert client.receive(consumer, within_s=0.6) == []


# ---- poison ----------------------------------------------------------------------------------------------------------


def fail(client: DanubeProcess, consumer: str, times: int, **nack: Any) -> Received:
    """The first message, refused as often."""
    for _ in range(times):
        [message] = client.receive(consumer)
        client.nack(consumer, message, **nack)
    return message


def test_a_poisonous_message_blocks_until_the_policy_lets_it_go(
    server: Server, client: DanubeProcess, wire: DanubeWire, topic: str, consumer: str
) -> None:
    set_policy(wire, topic, max_redelivery_count=2)
    client.send(topic, b"poison")
    fail(client, consumer, 3)
    client.send(topic, b"behind")
    assert client.receive(consumer, within_s=0.4) == [], "nothing is dispatched past it"
    assert server.metric("raceway_subscriptions_poisoned") == 1
    blocked = f"subscription s of {topic[9:]} is blocked by the message at offset 0"
    for command in ("topics", "doctor"):
        told = run_cli(command, "--data", str(server.data))
        assert blocked in " ".join((told.stdout + told.stderr).split()), told
        assert "--from 1" in " ".join((told.stdout + told.stderr).split())
    assert json.loads(server.http("/api/overview")[1])["blocked"] == 1
    assert "subscription blocked" in server.stderr
    dropped = server.metric("raceway_poison_dropped_messages_total")
    set_policy(wire, topic, max_redelivery_count=2, poison_policy=Drop)
    assert payloads(client.receive(consumer, ack=True)) == [b"behind"], "a changed policy holds at once"
    assert server.metric("raceway_poison_dropped_messages_total") == dropped + 1
    assert server.metric("raceway_subscriptions_poisoned") == 0


def test_a_poisonous_key_stops_alone(client: DanubeProcess, wire: DanubeWire, topic: str) -> None:
    consumer = "k" + topic
    client.create(topic, topic)
    client.subscribe(consumer, topic, "s", "KEY_SHARED")
    set_policy(wire, topic, max_redelivery_count=0)
    client.send(topic, b"poison", key="bad")
    fail(client, consumer, 1)
    client.send(topic, b"behind it", key="bad")
    client.send(topic, b"beside it", key="good")
    assert payloads(client.receive(consumer, 2, within_s=0.4, ack=True)) == [b"beside it"]
    set_policy(wire, topic, max_redelivery_count=0, poison_policy=Drop)
    assert payloads(client.receive(consumer, ack=True)) == [b"behind it"]


def test_a_dropped_message_is_skipped_for_its_subscription_only(
    client: DanubeProcess, wire: DanubeWire, topic: str, consumer: str
) -> None:
    client.subscribe("other" + topic, topic, "other")
    set_policy(wire, topic, max_redelivery_count=1, poison_policy=Drop)
    client.send(topic, b"poison")
    fail(client, consumer, 2)
    client.send(topic, b"good")
    assert payloads(client.receive(consumer, ack=True)) == [b"good"]
    assert payloads(client.receive("other" + topic, 2, ack=True)) == [b"poison", b"good"]


def test_a_dead_letter_keeps_its_schema_and_its_key_and_says_why(
    server: Server, client: DanubeProcess, wire: DanubeWire, topic: str
) -> None:
    subject = f"dead-{next(_numbers)}"
    schema = RegisterSchemaRequest(subject=subject, schema_type="string", schema_definition=b"x")
    made = wire.ask("danube_schema.SchemaRegistry/RegisterSchema", schema, RegisterSchemaResponse)
    client.create(topic, topic, subject=subject)
    client.subscribe("c" + topic, topic, "s")
    letters = server.metric("raceway_dead_letters_total")
    set_policy(wire, topic, max_redelivery_count=1, poison_policy=DeadLetter, dead_letter_topic=topic + "-dead")
    wire.producer(topic + "-dead")
    client.subscribe("d" + topic, topic + "-dead", "morgue")
    client.send(topic, b"late", key="k", attributes={"kept": "yes"})
    fail(client, "c" + topic, 2, reason="no such order")
    [dead] = client.receive("d" + topic, ack=True)
    assert (dead.payload, dead.key) == (b"late", "k")
    assert (dead.schema_id, dead.schema_version) == (made.schema_id, 1)
    assert (dead.attributes["x-original-topic"], dead.attributes["x-delivery-attempt"]) == (topic, "2")
    assert dead.attributes["x-failure-reason"] == "no such order"
    assert server.metric("raceway_dead_letters_total") == letters + 1
    wait_until(lambda: server.metric("raceway_subscription_lag", topic=topic[9:], subscription="s") == 0)


def test_the_topic_of_dead_letters_is_made_when_the_first_comes_and_is_reliable(
    client: DanubeProcess, wire: DanubeWire, topic: str, consumer: str
) -> None:
    set_policy(
        wire, topic, max_redelivery_count=0, poison_policy=DeadLetter, dead_letter_topic=topic + "-dead"
    )  # fmt: skip
    client.send(topic, b"x")
    fail(client, consumer, 1, reason="no")
    client.send(topic, b"y")
    assert payloads(client.receive(consumer, ack=True)) == [b"y"], "the cursor moves on"
    client.create("d" + topic, topic + "-dead", reliable=True)
    client.subscribe("d" + topic, topic + "-dead", "morgue")
    client.send("d" + topic, b"ours")
    [message] = client.receive("d" + topic)
    assert message.offset == 1, "the dead letter has offset 0"


def test_a_message_that_ends_its_consumer_reaches_the_dead_letters(
    server: Server, client: DanubeProcess, wire: DanubeWire, topic: str
) -> None:
    client.create(topic, topic)
    wire.consumer(topic, "nobody", type=1)
    set_policy(wire, topic, max_redelivery_count=2, poison_policy=DeadLetter, dead_letter_topic=topic + "-dead")
    wire.producer(topic + "-dead")
    client.subscribe("d" + topic, topic + "-dead", "morgue")
    client.send(topic, b"deadly", b"good")
    for _ in range(3):
        with danube_process(danube_url(server)) as victim:
            victim.subscribe("victim", topic, "s", "SHARED")
            assert payloads(victim.receive("victim"))[:1] == [b"deadly"]
            victim.kill()
    [dead] = client.receive("d" + topic, ack=True)
    assert (dead.payload, dead.attributes["x-failure-reason"]) == (b"deadly", "the consumer was lost")
    client.subscribe("c" + topic, topic, "s", "SHARED")
    assert payloads(client.receive("c" + topic, ack=True)) == [b"good"]


def test_a_slow_consumer_does_its_work_once(
    server: Server, client: DanubeProcess, wire: DanubeWire, topic: str
) -> None:
    """With the usual window of the client: a hundred messages would wait three time-outs long in its buffer."""
    client.create(topic, topic)
    client.subscribe("slow" + topic, topic, "s", "SHARED")
    set_policy(wire, topic, ack_timeout_ms=1000, max_redelivery_count=0)
    again = server.metric("raceway_redelivered_messages_total")
    client.send(topic, *(b"%d" % number for number in range(100)))
    client.keep_receiving("slow" + topic, work_s=0.03)
    wait_until(lambda: server.metric("raceway_subscription_lag", topic=topic[9:], subscription="s") == 0, 60)
    assert [each.number for each in client.came("slow" + topic)] == list(range(100)), "once, and in order"
    assert server.metric("raceway_redelivered_messages_total") == again
    assert server.metric("raceway_subscriptions_poisoned") == 0


def test_a_consumer_slower_than_the_timeout_is_not_poisoned_and_does_not_stop_its_subscription(
    server: Server, client: DanubeProcess, wire: DanubeWire, topic: str
) -> None:
    client.create(topic, topic)
    client.subscribe("slow" + topic, topic, "s", "SHARED")
    set_policy(wire, topic, ack_timeout_ms=150, max_redelivery_count=0)
    client.send(topic, *(b"%d" % number for number in range(15)))
    client.keep_receiving("slow" + topic, work_s=0.2)
    wait_until(lambda: len({each.number for each in client.came("slow" + topic)}) >= 8, 30, "half of it")
    assert server.metric("raceway_subscriptions_poisoned") == 0
    client.close("slow" + topic)
    client.subscribe("fresh" + topic, topic, "s", "SHARED")
    client.keep_receiving("fresh" + topic)
    wait_until(lambda: server.metric("raceway_subscription_lag", topic=topic[9:], subscription="s") == 0, 30)


def test_a_consumer_that_leaves_is_no_failure(
    client: DanubeProcess, wire: DanubeWire, topic: str, consumer: str
) -> None:
    set_policy(wire, topic, max_redelivery_count=0)
    client.send(topic, b"x")
    for _ in range(3):
        assert payloads(client.receive(consumer)) == [b"x"]
        client.close(consumer)
        client.subscribe(consumer, topic, "s")
    assert payloads(client.receive(consumer, ack=True)) == [b"x"]
