"""Limits of topics, messages sent again, and topics that somebody has to make: as Danube clients see them."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator

import pytest

from raceway.wires.danube.codec.pb.danube_admin_pb2 import (
    NamespaceRequest,
    NamespaceResponse,
    NewTopicRequest,
    Reliable,
    SetPoliciesRequest,
    TopicResponse,
)
from tests.rigs.danube_process import DanubeProcess, RefusedError, danube_process
from tests.rigs.danube_wire import DanubeWire, danube_url, danube_wire
from tests.rigs.server import Server, running_server

TOPIC, NAMESPACE = "danube_admin.TopicAdmin/", "danube_admin.NamespaceAdmin/"
SHARED = 1
RATE = 40
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
    return f"/default/l{next(_numbers)}"


def limit(wire: DanubeWire, topic: str, **limits: int) -> None:
    wire.producer(topic)
    request = SetPoliciesRequest(name=topic, policies=json.dumps(limits))
    wire.ask(TOPIC + "SetTopicPolicies", request, TopicResponse)


# ---- how many --------------------------------------------------------------------------------------------------------


def test_subscriptions_of_a_topic(wire: DanubeWire, topic: str) -> None:
    limit(wire, topic, max_subscriptions_per_topic=2)
    wire.consumer(topic, subscription="a")
    wire.consumer(topic, subscription="b")
    wire.consumer(topic, subscription="a")  # that is no new one
    with pytest.raises(RefusedError, match="RESOURCE_EXHAUSTED"):
        wire.consumer(topic, subscription="c")


def test_consumers_of_a_subscription_and_of_a_topic(wire: DanubeWire, topic: str) -> None:
    limit(wire, topic, max_consumers_per_subscription=2, max_consumers_per_topic=3)
    for name, subscription in (("1", "a"), ("2", "a"), ("3", "b")):
        wire.consumer(topic, name, subscription, SHARED)
    with pytest.raises(RefusedError, match="RESOURCE_EXHAUSTED"):
        wire.consumer(topic, "4", "a", SHARED)
    with pytest.raises(RefusedError, match="RESOURCE_EXHAUSTED"):
        wire.consumer(topic, "4", "b", SHARED)
    wire.consumer(topic, "2", "a", SHARED)  # it is one of them


def test_producers_of_a_topic(client: DanubeProcess, wire: DanubeWire, topic: str) -> None:
    limit(wire, topic, max_producers_per_topic=1)
    wire.producer(topic)
    with pytest.raises(RefusedError, match="RESOURCE_EXHAUSTED"):
        wire.producer(topic, "second")
    limit(wire, topic)
    wire.producer(topic, "second")


# ---- how fast --------------------------------------------------------------------------------------------------------


def send_at_once(wire: DanubeWire, producer_id: int, topic: str, count: int) -> None:
    for _ in range(count):
        wire.send(producer_id, topic)


def test_sends_over_the_rate_are_refused_and_the_client_slows_down(
    client: DanubeProcess, wire: DanubeWire, topic: str
) -> None:
    limit(wire, topic, max_publish_rate=RATE)
    producer_id = wire.producer(topic)
    with pytest.raises(RefusedError, match="RESOURCE_EXHAUSTED"):
        send_at_once(wire, producer_id, topic, 10 * RATE)
    client.create(topic, topic)
    client.subscribe("c" + topic, topic, "s")
    sent = [b"%d" % number for number in range(2 * RATE)]
    began = time.monotonic()
    client.send(topic, *sent)
    assert time.monotonic() - began > 0.8, "one second of messages was used up, the next one may come at once"
    assert [message.payload for message in client.receive("c" + topic, len(sent), ack=True)] == sent


def test_deliveries_keep_to_their_rate(client: DanubeProcess, wire: DanubeWire, topic: str) -> None:
    limit(wire, topic, max_subscription_dispatch_rate=RATE)
    client.create(topic, topic)
    client.subscribe("c" + topic, topic, "s")
    sent = [b"%d" % number for number in range(2 * RATE)]
    began = time.monotonic()
    client.send(topic, *sent)
    assert [message.payload for message in client.receive("c" + topic, len(sent), ack=True)] == sent
    assert time.monotonic() - began > 0.8


def test_a_namespace_limits_topics_that_are_made_later(wire: DanubeWire) -> None:
    wire.ask(NAMESPACE + "CreateNamespace", NamespaceRequest(name="narrow"), NamespaceResponse)
    limits = json.dumps({"max_subscriptions_per_topic": 1})
    wire.ask(NAMESPACE + "SetNamespacePolicies", SetPoliciesRequest(name="narrow", policies=limits), NamespaceResponse)
    wire.producer("/narrow/t")
    wire.consumer("/narrow/t", subscription="a")
    with pytest.raises(RefusedError, match="RESOURCE_EXHAUSTED"):
        wire.consumer("/narrow/t", subscription="b")


# ---- the same message again ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict() -> Iterator[Server]:
    """Topics are made by administrators only."""
    with running_server(RACEWAY_BROKER__SUBSCRIPTIONS__AUTO_CREATE="false") as server:
        yield server


def make(wire: DanubeWire, topic: str) -> None:
    wire.ask(TOPIC + "CreateTopic", NewTopicRequest(name=topic, dispatch_strategy=Reliable), TopicResponse)


def test_a_message_sent_again_with_its_dedup_id_is_answered_and_not_stored_again(strict: Server, topic: str) -> None:
    with danube_wire(strict) as wire:
        make(wire, topic)
        p, q, consumer_id = wire.producer(topic, "p"), wire.producer(topic, "q"), wire.consumer(topic)
        wire.send(p, topic, b"0", attributes={"x-dedup-id": "a"})
        wire.send(p, topic, b"again", attributes={"x-dedup-id": "a"})
        assert strict.metric("raceway_repeated_messages_total") == 1
    strict.kill()
    strict.start()
    with danube_wire(strict) as wire:
        wire.send(p, topic, b"again", attributes={"x-dedup-id": "a"})
        wire.send(p, topic, b"1", attributes={"x-dedup-id": "b"})
        wire.send(q, topic, b"2", attributes={"x-dedup-id": "a"})  # of another producer
        wire.send(p, topic, b"3")
        stream = wire.listen(consumer_id)
        found = [(message.msg_id.topic_offset, message.payload) for message in itertools.islice(stream, 4)]
        assert found == [(number, b"%d" % number) for number in range(4)]
        stream.cancel()


# ---- topics that somebody has to make --------------------------------------------------------------------------------


def test_without_auto_create_a_producer_makes_no_topic(strict: Server, topic: str) -> None:
    with danube_wire(strict) as wire:
        with pytest.raises(RefusedError, match="NOT_FOUND"):
            wire.producer(topic)
        make(wire, topic)
        wire.send(wire.producer(topic), topic)
