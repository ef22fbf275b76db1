"""The published Danube client, unmodified, in a process of its own: what it sends is what it receives, on every kind of
subscription."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator

import pytest

from raceway.model.hashing import fnv1a64
from raceway.wires.danube.codec.pb.danube_admin_pb2 import (
    SetSubscriptionFailurePolicyRequest,
    SubscriptionFailurePolicy,
    SubscriptionResponse,
)
from tests.rigs.danube_process import DanubeProcess, Received, RefusedError, danube_process
from tests.rigs.danube_wire import danube_url, danube_wire
from tests.rigs.server import Server, running_server

MIB = 1 << 20
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(
        RACEWAY_BROKER__SUBSCRIPTIONS__FAILURE__BASE_REDELIVERY_DELAY_MS=20,
        RACEWAY_BROKER__SUBSCRIPTIONS__EXCLUSIVE_RELEASE_S=0.5,
    ) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[DanubeProcess]:
    with danube_process(danube_url(server)) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"/default/t{next(_numbers)}.orders"


@pytest.fixture
def name() -> str:
    """Of whatever has one; the client process holds producers and consumers by name."""
    return f"n{next(_numbers)}"


def payloads(messages: list[Received]) -> list[bytes]:
    return [message.payload for message in messages]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


# ---- a message -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reliable", [True, False], ids=["reliable", "non-reliable"])
def test_every_field_is_filled(server: Server, client: DanubeProcess, topic: str, name: str, reliable: bool) -> None:
    client.create(name, topic, reliable=reliable)
    client.subscribe("c" + name, topic, "billing")
    began_ms = time.time_ns() // 1_000_000
    attributes = {"source": "till 4", "größe": "ж", "": "empty name", "empty": ""}
    sent = client.send(name, b"first", b"second", attributes=attributes)
    first, second = client.receive("c" + name, 2)
    assert (first.payload, first.attributes, first.request_id) == (b"first", attributes, sent[0])
    assert (first.topic, first.broker, first.subscription) == (topic, danube_url(server), "billing")
    assert (first.offset, second.offset) == (0, 1)
    assert (first.producer, first.producer_id) == (name, second.producer_id)
    assert began_ms <= first.sent_ms <= time.time_ns() // 1_000_000
    assert (first.key, first.schema_id, first.schema_version) == (None, None, None)


def test_a_payload_is_kept_byte_for_byte(client: DanubeProcess, topic: str, name: str) -> None:
    sent = [b"", bytes(range(256)), os.urandom(70_000), b"\0" * 17, os.urandom(4 * MIB - 70_000)]
    client.create(name, topic)
    client.subscribe("c" + name, topic, "s")
    client.send(name, *sent)
    assert payloads(client.receive("c" + name, len(sent), ack=True)) == sent


def test_a_message_over_the_limit_is_refused_at_once_and_the_producer_lives(
    client: DanubeProcess, topic: str, name: str
) -> None:
    client.create(name, topic)
    began = time.monotonic()
    with pytest.raises(RefusedError) as refused:
        client.send(name, b"x" * (5 * MIB))
    assert (refused.value.status, time.monotonic() - began < 5) == ("INVALID_ARGUMENT", True)
    client.send(name, b"fits")


def test_offsets_and_order_of_one_producer_have_no_gaps(client: DanubeProcess, topic: str, name: str) -> None:
    client.create(name, topic)
    client.subscribe("c" + name, topic, "s")
    client.send(name, *numbered(300))
    got = client.receive("c" + name, 300, ack=True)
    assert payloads(got) == numbered(300)
    assert [message.offset for message in got] == list(range(300))


def test_the_same_name_gets_the_same_producer_id(client: DanubeProcess, topic: str, name: str) -> None:
    client.create(name, topic)
    client.subscribe("c" + name, topic, "s")
    client.send(name, b"1")
    client.create(name, topic)
    client.send(name, b"2")
    client.create("other" + name, topic)
    client.send("other" + name, b"3")
    ids = [message.producer_id for message in client.receive("c" + name, 3)]
    assert ids[0] == ids[1] != ids[2]
    assert all(0 < each < 2**63 for each in ids)


# ---- subscriptions ---------------------------------------------------------------------------------------------------


def test_a_new_subscription_starts_at_the_tail(client: DanubeProcess, topic: str, name: str) -> None:
    client.create(name, topic)
    client.send(name, b"before")
    client.subscribe("c" + name, topic, "s")
    client.send(name, b"after")
    [message] = client.receive("c" + name, 2, within_s=0.5)
    assert (message.payload, message.offset) == (b"after", 1)


@pytest.mark.parametrize("reliable", [True, False], ids=["reliable", "non-reliable"])
def test_two_subscriptions_each_get_everything(client: DanubeProcess, topic: str, name: str, reliable: bool) -> None:
    client.create(name, topic, reliable=reliable)
    client.subscribe("a" + name, topic, "one")
    client.subscribe("b" + name, topic, "two")
    client.send(name, *numbered(50))
    first = client.receive("a" + name, 50, ack=True)
    second = client.receive("b" + name, 50, ack=True)
    assert payloads(first) == payloads(second) == numbered(50)
    assert {message.subscription for message in first} == {"one"}
    assert {message.subscription for message in second} == {"two"}


def test_a_second_consumer_of_an_exclusive_subscription_is_refused(
    client: DanubeProcess, topic: str, name: str
) -> None:
    client.create(name, topic)
    client.subscribe("a" + name, topic, "s")
    with pytest.raises(RefusedError) as refused:
        client.subscribe("b" + name, topic, "s")
    assert refused.value.status == "PERMISSION_DENIED"


def test_an_exclusive_subscription_is_free_when_its_owner_is_gone(client: DanubeProcess, topic: str, name: str) -> None:
    client.create(name, topic)
    client.subscribe("a" + name, topic, "s")
    client.send(name, b"1", b"2")
    client.receive("a" + name, 1, ack=True)
    client.close("a" + name)

    def maybe_refusal() -> str | None:
        try:
            client.subscribe("b" + name, topic, "s")
        except RefusedError as refused:
            return refused.status
        return None

    deadline = time.monotonic() + 10
    while (refusal := maybe_refusal()) is not None:
        assert refusal == "PERMISSION_DENIED"
        assert time.monotonic() < deadline
    assert payloads(client.receive("b" + name, 1)) == [b"2"]


@pytest.mark.parametrize("reliable", [True, False], ids=["reliable", "non-reliable"])
def test_a_shared_subscription_is_shared(client: DanubeProcess, topic: str, name: str, reliable: bool) -> None:
    client.create(name, topic, reliable=reliable)
    for each in "ab":
        client.subscribe(each + name, topic, "s", "SHARED")
    client.send(name, *numbered(20))
    first = client.receive("a" + name, 20, ack=True, within_s=1)
    second = client.receive("b" + name, 20, ack=True, within_s=1)
    assert sorted(payloads(first) + payloads(second), key=int) == numbered(20)
    assert len(first) == len(second) == 10


@pytest.mark.parametrize("reliable", [True, False], ids=["reliable", "non-reliable"])
def test_a_standby_takes_over_when_the_active_consumer_goes(
    client: DanubeProcess, topic: str, name: str, reliable: bool
) -> None:
    client.create(name, topic, reliable=reliable)
    for each in "ab":
        client.subscribe(each + name, topic, "s", "FAILOVER")
    client.send(name, *numbered(10))
    assert payloads(client.receive("a" + name, 10, ack=True)) == numbered(10)
    assert client.receive("b" + name, 1, within_s=0.3) == []
    client.close("a" + name)
    client.send(name, b"next")
    assert payloads(client.receive("b" + name, 1, within_s=2)) == [b"next"]


def test_a_standby_begins_with_what_the_active_one_did_not_acknowledge(
    client: DanubeProcess, topic: str, name: str
) -> None:
    client.create(name, topic)
    for each in "ab":
        client.subscribe(each + name, topic, "s", "FAILOVER")
    client.send(name, *numbered(6))
    got = client.receive("a" + name, 6)
    client.ack("a" + name, got[0])
    client.ack("a" + name, got[2])
    client.close("a" + name)
    assert payloads(client.receive("b" + name, 4, within_s=2)) == [b"1", b"3", b"4", b"5"]


@pytest.mark.parametrize("reliable", [True, False], ids=["reliable", "non-reliable"])
def test_one_key_goes_to_one_consumer(client: DanubeProcess, topic: str, name: str, reliable: bool) -> None:
    client.create(name, topic, reliable=reliable)
    for each in "abc":
        client.subscribe(each + name, topic, "s", "KEY_SHARED")
    keys = [f"key-{number}" for number in range(12)]
    for turn in range(3):
        for key in keys:
            client.send(name, b"%d" % turn, key=key)
    owners: dict[str | None, set[str]] = {}
    came: dict[str | None, list[bytes]] = {}
    for each in "abc":
        for message in client.receive(each + name, 36, ack=True, within_s=1):
            owners.setdefault(message.key, set()).add(each)
            came.setdefault(message.key, []).append(message.payload)
    assert set(owners) == set(keys)
    assert all(len(each) == 1 for each in owners.values())
    assert all(each == [b"0", b"1", b"2"] for each in came.values())
    assert len(set().union(*owners.values())) > 1


def test_key_filters_choose_the_consumer(client: DanubeProcess, topic: str, name: str) -> None:
    client.create(name, topic)
    client.subscribe("eu" + name, topic, "s", "KEY_SHARED", ("eu-*", "uk-?"))
    client.subscribe("us" + name, topic, "s", "KEY_SHARED", ("us-*",))
    for key in ("eu-1", "us-1", "uk-7", "us-2", "eu-long"):
        client.send(name, key.encode(), key=key)
    assert payloads(client.receive("eu" + name, 3, ack=True)) == [b"eu-1", b"uk-7", b"eu-long"]
    assert payloads(client.receive("us" + name, 2, ack=True)) == [b"us-1", b"us-2"]


# ---- partitions ------------------------------------------------------------------------------------------------------


def test_partitions_are_used_in_turn_and_read_as_one(client: DanubeProcess, topic: str, name: str) -> None:
    client.create(name, topic, partitions=3)
    client.subscribe("c" + name, topic, "s")
    client.send(name, *numbered(9))
    got = client.receive("c" + name, 9, ack=True)
    by_partition: dict[str, list[tuple[bytes, int, str]]] = {}
    for message in got:
        by_partition.setdefault(message.topic, []).append((message.payload, message.offset, message.producer))
    assert by_partition == {
        f"{topic}-part-{part}": [(b"%d" % number, number // 3, f"{name}-{part}") for number in range(part, 9, 3)]
        for part in range(3)
    }


def test_a_routing_key_chooses_the_partition(client: DanubeProcess, topic: str, name: str) -> None:
    client.create(name, topic, partitions=4)
    client.subscribe("c" + name, topic, "s")
    keys = ["a", "b", "ключ", "user-42", ""]
    for key in keys:
        client.send(name, b"x", key=key)
    got = client.receive("c" + name, len(keys), ack=True)
    assert {message.key: message.topic for message in got} == {
        key: f"{topic}-part-{fnv1a64(key.encode()) % 4}" for key in keys
    }


def test_a_partition_of_a_plain_topic_is_refused(client: DanubeProcess, topic: str, name: str) -> None:
    client.create(name, topic)
    with pytest.raises(RefusedError) as refused:
        client.create("p" + name, topic, partitions=2)
    assert "exists" in refused.value.text  # the client turns ALREADY_EXISTS into an error of its own


# ---- acknowledging ---------------------------------------------------------------------------------------------------


def test_what_is_not_acknowledged_comes_again_with_its_identity(client: DanubeProcess, topic: str, name: str) -> None:
    client.create(name, topic)
    client.subscribe("c" + name, topic, "s")
    client.send(name, b"x", attributes={"a": "b"})
    [first] = client.receive("c" + name)
    client.nack("c" + name, first, delay_ms=0, reason="not now")
    [again] = client.receive("c" + name)
    assert again == first
    client.ack("c" + name, again)
    assert client.receive("c" + name, within_s=0.3) == []


def test_a_nack_waits_as_long_as_it_was_asked_to(client: DanubeProcess, topic: str, name: str) -> None:
    client.create(name, topic)
    client.subscribe("c" + name, topic, "s")
    client.send(name, b"x")
    [first] = client.receive("c" + name)
    client.nack("c" + name, first, delay_ms=600)
    assert client.receive("c" + name, within_s=0.3) == []
    assert payloads(client.receive("c" + name)) == [b"x"]


def test_a_consumer_that_returns_gets_what_it_had_not_acknowledged(
    client: DanubeProcess, topic: str, name: str
) -> None:
    client.create(name, topic)
    client.subscribe("c" + name, topic, "s")
    client.send(name, *numbered(5))
    got = client.receive("c" + name, 5)
    for message in got[:2]:
        client.ack("c" + name, message)
    client.close("c" + name)
    client.send(name, b"5")
    client.subscribe("c" + name, topic, "s")
    assert payloads(client.receive("c" + name, 4)) == [b"2", b"3", b"4", b"5"]


def test_a_poisonous_message_goes_to_the_dead_letters(
    server: Server, client: DanubeProcess, topic: str, name: str
) -> None:
    client.create(name, topic)
    client.create("d" + name, f"{topic}-dead")
    client.subscribe("c" + name, topic, "s")
    client.subscribe("d" + name, f"{topic}-dead", "morgue")
    policy = SubscriptionFailurePolicy(
        max_redelivery_count=1, ack_timeout_ms=30_000, base_redelivery_delay_ms=10, max_redelivery_delay_ms=100,
        dead_letter_topic=f"{topic}-dead",
    )  # fmt: skip
    with danube_wire(server) as wire:
        request = SetSubscriptionFailurePolicyRequest(topic=topic, subscription="s", failure_policy=policy)
        wire.ask("danube_admin.TopicAdmin/SetSubscriptionFailurePolicy", request, SubscriptionResponse)
    client.send(name, b"poison", attributes={"kept": "yes"}, key="k")
    client.send(name, b"good")
    for _ in range(2):
        message = next(each for each in client.receive("c" + name, 2, within_s=1) if each.payload == b"poison")
        client.nack("c" + name, message, reason="cannot read it")
    [dead] = client.receive("d" + name)
    assert (dead.payload, dead.key) == (b"poison", "k")
    assert dead.attributes == {
        "kept": "yes",
        "x-original-topic": topic,
        "x-original-subscription": "s",
        "x-original-topic-offset": "0",
        "x-original-producer-id": str(message.producer_id),
        "x-original-broker-addr": danube_url(server),
        "x-poison-policy": "dead_letter",
        "x-delivery-attempt": "2",
        "x-failure-reason": "cannot read it",
    }


# ---- a connection that breaks ----------------------------------------------------------------------------------------


def test_a_stop_and_a_start_are_invisible() -> None:
    """Kills are in `tests/recovery/test_danube_kill.py`."""
    with running_server() as server, danube_process(danube_url(server)) as client:
        client.create("p", "/default/orders")
        client.subscribe("c", "/default/orders", "billing")
        client.send("p", *numbered(5))
        got = client.receive("c", 5)
        for message in got[:3]:
            client.ack("c", message)
        server.restart()
        client.wait_for_channel()
        client.send("p", b"5")  # producers and consumers come back by themselves
        again = client.receive("c", 3, ack=True)
        assert payloads(again) == [b"3", b"4", b"5"]
        assert [message.offset for message in again] == [3, 4, 5]
        assert {message.producer_id for message in again} == {got[0].producer_id}
