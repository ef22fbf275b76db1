"""Consumers of the published Danube client that die, come twice, are slow or of another type; each in a process of its
own where it has to die.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import grpc
import pytest

from raceway.wires.danube.codec.pb.danube_admin_pb2 import (
    SetSubscriptionDispatchConfigRequest,
    SubscriptionDispatchConfig,
    SubscriptionListResponse,
    SubscriptionResponse,
    TopicRequest,
    TopicResponse,
)
from raceway.wires.danube.codec.pb.danube_api_pb2 import HealthCheckRequest, HealthCheckResponse, StreamMessage
from tests.rigs.danube_process import DanubeProcess, Received, RefusedError, danube_process
from tests.rigs.danube_wire import DanubeWire, danube_url, danube_wire
from tests.rigs.server import Server, running_server, wait_until

RELEASE_S, REMOVAL_S, UNWANTED_S = 0.8, 1.0, 0.5
# What "at once" may take on a machine that is busy with other tests.
SOON_S = 2.0
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(
        RACEWAY_BROKER__SUBSCRIPTIONS__EXCLUSIVE_RELEASE_S=RELEASE_S,
        RACEWAY_BROKER__SUBSCRIPTIONS__LIVE_REMOVAL_S=REMOVAL_S,
        RACEWAY_BROKER__SUBSCRIPTIONS__UNWANTED_KEY_S=UNWANTED_S,
        RACEWAY_LISTEN__DANUBE__REFUSAL_MS=200,
    ) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[DanubeProcess]:
    with danube_process(danube_url(server)) as client:
        yield client


@pytest.fixture
def other(server: Server) -> Iterator[DanubeProcess]:
    """To be killed."""
    with danube_process(danube_url(server)) as other:
        yield other


@pytest.fixture(scope="module")
def wire(server: Server) -> Iterator[DanubeWire]:
    with danube_wire(server) as wire:
        yield wire


@pytest.fixture
def topic() -> str:
    return f"/default/c{next(_numbers)}"


def payloads(messages: list[Received]) -> list[bytes]:
    return [message.payload for message in messages]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


# ---- death -----------------------------------------------------------------------------------------------------------


def test_a_standby_goes_on_the_moment_the_active_consumer_dies(
    client: DanubeProcess, other: DanubeProcess, topic: str
) -> None:
    client.create(topic, topic)
    other.subscribe("first", topic, "s", "FAILOVER")
    client.subscribe("second" + topic, topic, "s", "FAILOVER")
    client.send(topic, *numbered(10))
    got = other.receive("first", 10)
    for message in (got[0], got[1], got[4]):
        other.ack("first", message)
    assert client.receive("second" + topic, within_s=0.2) == []
    other.kill()
    began = time.monotonic()
    again = client.receive("second" + topic, 7, ack=True)
    assert time.monotonic() - began < SOON_S
    assert payloads(again) == [b"2", b"3", b"5", b"6", b"7", b"8", b"9"]
    assert client.receive("second" + topic, within_s=0.2) == []


def test_what_a_dead_consumer_had_goes_to_the_others_that_share(
    client: DanubeProcess, other: DanubeProcess, topic: str
) -> None:
    client.create(topic, topic)
    other.subscribe("first", topic, "s", "SHARED")
    client.subscribe("second" + topic, topic, "s", "SHARED")
    client.send(topic, *numbered(20))
    lost = other.receive("first", 10)
    mine = client.receive("second" + topic, 10, ack=True)
    other.kill()
    rest = client.receive("second" + topic, 10, ack=True, within_s=SOON_S)
    assert payloads(rest) == payloads(lost)
    assert sorted(payloads(mine + rest), key=int) == numbered(20)


def test_an_exclusive_subscription_is_released_some_time_after_its_owner_died(
    client: DanubeProcess, other: DanubeProcess, topic: str
) -> None:
    client.create(topic, topic)
    other.subscribe("first", topic, "s")
    client.send(topic, *numbered(3))
    other.ack("first", other.receive("first", 3)[0])
    other.kill()
    began = time.monotonic()

    def is_free() -> bool:
        try:
            client.subscribe("second" + topic, topic, "s")
        except RefusedError as refusal:
            assert refusal.status == "PERMISSION_DENIED"  # noqa: PT017
            return False
        return True

    wait_until(is_free)
    # The bus may have seen it die a little before we looked at the clock.
    assert RELEASE_S - 0.2 <= time.monotonic() - began < RELEASE_S + SOON_S
    assert payloads(client.receive("second" + topic, 2, ack=True)) == [b"1", b"2"]


# ---- shared keys -----------------------------------------------------------------------------------------------------


def test_one_message_of_a_key_is_out_at_a_time(client: DanubeProcess, topic: str) -> None:
    keys = [f"k{number}" for number in range(8)]
    client.create(topic, topic)
    for each in "ab":
        client.subscribe(each + topic, topic, "s", "KEY_SHARED")
    for turn, key in itertools.product(range(3), keys):
        client.send(topic, b"%s %d" % (key.encode(), turn), key=key)
    for turn in range(3):
        out = {each: client.receive(each + topic, 8, within_s=0.4) for each in "ab"}
        got = sorted(payloads(out["a"] + out["b"]))
        assert got == [b"%s %d" % (key.encode(), turn) for key in keys], "one of each key, and no second one"
        for each, messages in out.items():
            for message in messages:
                client.ack(each + topic, message)


def test_a_key_whose_consumer_dies_loses_nothing_and_keeps_its_order(
    client: DanubeProcess, other: DanubeProcess, topic: str
) -> None:
    keys = [f"k{number}" for number in range(12)]
    client.create(topic, topic)
    other.subscribe("first", topic, "s", "KEY_SHARED")
    client.subscribe("second" + topic, topic, "s", "KEY_SHARED")
    for turn, key in itertools.product(range(4), keys):
        client.send(topic, b"%s %d" % (key.encode(), turn), key=key)
    acknowledged = other.receive("first", 3, ack=True)
    out = other.receive("first", 12, within_s=0.5)
    assert len({message.key for message in out}) == len(out) > 0
    other.kill()
    rest = client.receive("second" + topic, 48 - len(acknowledged), ack=True)
    assert len(rest) == 48 - len(acknowledged), "none is lost and none came twice"
    for key in keys:
        got = [message.payload for message in acknowledged + rest if message.key == key]
        assert got == [b"%s %d" % (key.encode(), turn) for turn in range(4)]


def test_without_a_key_the_sender_is_the_key(client: DanubeProcess, topic: str) -> None:
    for name in ("x", "y"):
        client.create(name + topic, topic)
    client.subscribe("c" + topic, topic, "s", "KEY_SHARED")
    for name in ("x", "y"):
        client.send(name + topic, b"0", b"1")
    out = client.receive("c" + topic, 4, within_s=0.4)
    assert sorted((message.producer, message.payload) for message in out) == [
        ("x" + topic, b"0"),
        ("y" + topic, b"0"),
    ]


def test_a_key_that_nobody_wants_is_skipped(server: Server, client: DanubeProcess, topic: str) -> None:
    skipped = server.metric("raceway_unwanted_keys_total")
    client.create(topic, topic)
    client.subscribe("c" + topic, topic, "s", "KEY_SHARED", ("eu-*",))
    for key in ("us-1", "eu-1", "us-1", "eu-2"):
        client.send(topic, key.encode(), key=key)
    assert payloads(client.receive("c" + topic, 4, ack=True, within_s=UNWANTED_S + 1)) == [b"eu-1", b"eu-2"]
    wait_until(lambda: server.metric("raceway_unwanted_keys_total") == skipped + 2)


# ---- two of one name -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type", ["EXCLUSIVE", "FAILOVER", "SHARED"])
def test_the_second_client_of_a_name_takes_over_and_the_first_is_back_when_it_dies(
    client: DanubeProcess, other: DanubeProcess, topic: str, type: str
) -> None:
    name = "same" + topic
    client.create(topic, topic)
    client.subscribe(name, topic, "s", type)
    client.send(topic, *numbered(4))
    first = client.receive(name, 4)
    client.ack(name, first[0])
    other.subscribe(name, topic, "s", type)
    taken_over = other.receive(name, 3)
    assert payloads(taken_over) == [b"1", b"2", b"3"]
    client.send(topic, b"4")
    assert payloads(other.receive(name)) == [b"4"]
    assert client.receive(name, within_s=0.3) == []  # parked: open, and given nothing
    other.ack(name, taken_over[0])
    other.kill()
    client.send(topic, b"5")
    assert payloads(client.receive(name, 4, ack=True, within_s=5)) == [b"2", b"3", b"4", b"5"]


# ---- types -----------------------------------------------------------------------------------------------------------


def test_a_subscription_nobody_is_attached_to_takes_another_type_and_keeps_its_place(
    client: DanubeProcess, topic: str
) -> None:
    client.create(topic, topic)
    client.subscribe("a" + topic, topic, "s", "SHARED")
    client.send(topic, *numbered(3))
    client.ack("a" + topic, client.receive("a" + topic, 3)[0])
    with pytest.raises(RefusedError) as refusal:
        client.subscribe("b" + topic, topic, "s", "FAILOVER")
    assert refusal.value.status == "FAILED_PRECONDITION"
    client.close("a" + topic)

    def is_taken() -> bool:
        try:
            client.subscribe("b" + topic, topic, "s", "FAILOVER")
        except RefusedError as refusal:
            assert refusal.status == "FAILED_PRECONDITION"  # noqa: PT017
            return False
        return True

    wait_until(is_taken, 20)
    assert payloads(client.receive("b" + topic, 2, ack=True)) == [b"1", b"2"]


def set_window(wire: DanubeWire, topic: str, count: int) -> None:
    config = SubscriptionDispatchConfig(max_unacked_messages=count)
    request = SetSubscriptionDispatchConfigRequest(topic=topic, subscription="s", dispatch_config=config)
    wire.ask("danube_admin.TopicAdmin/SetSubscriptionDispatchConfig", request, SubscriptionResponse)


def test_ten_messages_are_out_to_a_consumer_that_acknowledges_none_and_more_to_one_that_does(
    client: DanubeProcess, topic: str
) -> None:
    client.create(topic, topic)
    client.subscribe("c" + topic, topic, "s")
    client.send(topic, *numbered(60))
    first = client.receive("c" + topic, 11, within_s=0.5)
    assert payloads(first) == numbered(10)
    for message in first:
        client.ack("c" + topic, message)
    assert len(client.receive("c" + topic, 50, within_s=0.5)) > 12


def test_a_hundred_messages_are_out_without_an_acknowledgement(
    client: DanubeProcess, wire: DanubeWire, topic: str
) -> None:
    client.create(topic, topic)
    set_window(wire, topic, 100)
    client.subscribe("c" + topic, topic, "s")
    client.send(topic, *numbered(120))
    got = client.receive("c" + topic, 101, within_s=0.5)
    assert payloads(got) == numbered(100)
    # Not cumulative, in any order: each lets one more out.
    for message in (got[99], got[50], got[0]):
        client.ack("c" + topic, message)
    assert payloads(client.receive("c" + topic, 4, within_s=0.5)) == [b"100", b"101", b"102"]


@pytest.mark.parametrize("type", ["EXCLUSIVE", "KEY_SHARED"])
def test_a_backlog_of_more_than_a_stream_takes_at_once_follows_by_itself(
    client: DanubeProcess, wire: DanubeWire, topic: str, type: str
) -> None:
    """Nobody acknowledges, nobody sends: only the room of the stream lets the rest out."""
    client.create(topic, topic)
    set_window(wire, topic, 100)
    client.subscribe("c" + topic, topic, "s", type)
    client.close("c" + topic)
    for number in range(100):
        client.send(topic, b"%d" % number + bytes(3000), key=str(number))
    client.subscribe("c" + topic, topic, "s", type)
    got = client.receive("c" + topic, 100)
    assert [message.payload.rstrip(b"\0") for message in got] == numbered(100)


# ---- what is not reliable --------------------------------------------------------------------------------------------


def test_a_slow_consumer_of_a_live_topic_holds_up_nobody_and_misses_nothing(
    server: Server, wire: DanubeWire, topic: str
) -> None:
    producer_id = wire.producer(topic, reliable=False)
    with danube_wire(server) as slow_wire:
        slow = slow_wire.listen(slow_wire.consumer(topic, subscription="slow"))
        quick = wire.listen(wire.consumer(topic, subscription="quick"))
        before = server.metric("raceway_detached_subscribers_total")
        sent, payload = 0, bytes(100_000)
        while server.metric("raceway_detached_subscribers_total") == before:
            for _ in range(20):
                wire.send(producer_id, topic, payload)
                assert next(quick).msg_id.topic_offset == sent, "others are not held up"
                sent += 1
            assert sent < 2000, "somebody keeps it all in memory"
        got: list[StreamMessage] = [next(slow) for _ in range(sent)]
        assert [message.msg_id.topic_offset for message in got] == list(range(sent))
        wire.send(producer_id, topic, b"last")
        assert next(slow).payload == b"last"
        wait_until(lambda: server.metric("raceway_rejoined_subscribers_total") > 0, what="it to be live again")
        slow.cancel()
        quick.cancel()


def test_a_live_stream_of_which_nothing_is_taken_ends_and_the_rest_of_its_connection_lives(topic: str) -> None:
    """All streams are on one connection, which is read from all the time."""
    with running_server(RACEWAY_LISTEN__STALL_S=2) as server, danube_wire(server) as wire:
        producer_id, kept_id = wire.producer(topic, reliable=False), wire.producer(f"{topic}.kept")
        stalled, quick = (wire.listen(wire.consumer(topic, subscription=name)) for name in ("stalled", "quick"))
        slow = wire.listen(wire.consumer(f"{topic}.kept", subscription="slow"))
        sent, payload = 0, bytes(100_000)

        def send_until_closed() -> bool:
            nonlocal sent
            for _ in range(20):
                wire.send(producer_id, topic, payload)
                assert next(quick).msg_id.topic_offset == sent
                sent += 1
            if sent <= 200:
                wire.send(kept_id, f"{topic}.kept", payload)
            return server.metric("raceway_slow_peers_closed_total") > 0

        wait_until(send_until_closed, 60, "the stalled one to be closed")
        with pytest.raises(grpc.RpcError) as ended:
            list(stalled)
        assert ended.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "stream reset" in server.stderr
        assert next(slow).msg_id.topic_offset == 0, "who reads late from a reliable topic is not closed"
        again = wire.listen(wire.consumer(topic, subscription="stalled"))
        wire.send(producer_id, topic, b"last")
        assert next(again).payload == next(quick).payload == b"last"
        assert server.metric("raceway_slow_peers_closed_total") == 1
        for stream in (again, quick, slow):
            stream.cancel()


def test_a_live_subscription_without_consumers_misses_messages_and_then_goes(
    client: DanubeProcess, wire: DanubeWire, topic: str
) -> None:
    def subscriptions() -> list[str]:
        answer = wire.ask(
            "danube_admin.TopicAdmin/ListSubscriptions", TopicRequest(name=topic), SubscriptionListResponse
        )
        return list(answer.subscriptions)

    client.create(topic, topic, reliable=False)
    client.subscribe("c" + topic, topic, "s")
    client.send(topic, b"0")
    assert payloads(client.receive("c" + topic)) == [b"0"]
    client.close("c" + topic)
    client.send(topic, b"1")
    client.subscribe("c" + topic, topic, "s")
    client.send(topic, b"2")
    [message] = client.receive("c" + topic)
    assert (message.payload, message.offset) == (b"2", 2)
    client.close("c" + topic)
    assert subscriptions() == ["s"]
    wait_until(lambda: subscriptions() == [], REMOVAL_S + 5)


# ---- health ----------------------------------------------------------------------------------------------------------


def test_a_consumer_is_well_before_its_stream_and_as_long_as_it_is_known(wire: DanubeWire, topic: str) -> None:
    wire.producer(topic)
    consumer_id = wire.consumer(topic)

    def health() -> int:
        request = HealthCheckRequest(client=HealthCheckRequest.Consumer, id=consumer_id)
        return wire.ask("danube.HealthCheck/HealthCheck", request, HealthCheckResponse).status

    assert health() == HealthCheckResponse.OK
    stream = wire.listen(consumer_id)
    wire.producer(topic)  # the stream came before this
    assert health() == HealthCheckResponse.OK
    stream.cancel()
    wire.producer(topic)
    assert health() == HealthCheckResponse.OK, "a client whose stream broke opens the next one"


def test_a_topic_deleted_under_its_consumer_is_said_once_in_a_while(
    client: DanubeProcess, wire: DanubeWire, topic: str
) -> None:
    """The client opens its stream again at once, whatever it is told: the pause before each refusal slows it down."""
    client.create(topic, topic)
    client.subscribe("c" + topic, topic, "s")
    consumer_id = wire.consumer(topic, "raw", "t")
    stream = wire.listen(consumer_id)
    wire.producer(topic)
    wire.ask("danube_admin.TopicAdmin/DeleteTopic", TopicRequest(name=topic), TopicResponse)
    health = HealthCheckRequest(client=HealthCheckRequest.Consumer, id=consumer_id)
    answer = wire.ask("danube.HealthCheck/HealthCheck", health, HealthCheckResponse)
    assert answer.status == HealthCheckResponse.CLOSE, "CLOSE comes before the end of the stream"
    with pytest.raises(Exception, match="NOT_FOUND"):
        next(stream)
    assert client.receive("c" + topic, within_s=0.5) == []
    client.close("c" + topic)
