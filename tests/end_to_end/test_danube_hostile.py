"""Danube clients that mean harm, or have a fault: the right status, a bus that lives, and bounded memory.

What the door below refuses (floods of frames, lying lengths, bombs of headers) is in `test_grpc_hostile`; here it is
well-formed gRPC with calls that no client should make.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from raceway.wires.danube.codec.pb import danube_admin_pb2, danube_api_pb2, schema_registry_pb2
from raceway.wires.danube.codec.pb.danube_api_pb2 import (
    AckRequest,
    AckResponse,
    ConsumerRequest,
    ConsumerResponse,
    MessageResponse,
    MsgID,
    NackRequest,
    NackResponse,
    ProducerRequest,
    ProducerResponse,
    ReceiveRequest,
    StreamMessage,
    TopicLookupRequest,
    TopicPartitionsResponse,
)
from tests.rigs.danube_process import DanubeProcess, RefusedError, danube_process
from tests.rigs.danube_wire import DanubeWire, danube_url, danube_wire
from tests.rigs.rounds import rounds, seeded
from tests.rigs.server import Server, running_server

MIB = 1 << 20
SEND, ACK, NACK = "danube.ProducerService/SendMessage", "danube.ConsumerService/Ack", "danube.ConsumerService/Nack"
RECEIVE = "/danube.ConsumerService/ReceiveMessages"
# Answers that say whose fault it is. Ours would be INTERNAL or UNKNOWN; UNAVAILABLE makes clients repeat it for ever.
THEIR_FAULT = {"INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "PERMISSION_DENIED",
               "RESOURCE_EXHAUSTED", "UNIMPLEMENTED"}  # fmt: skip
METHODS: list[MethodDescriptor] = [
    method
    for module in (danube_api_pb2, schema_registry_pb2, danube_admin_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
NUMBERS = [0, 1, 2, 7, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1]
TEXTS = ["", "x", "/default/fuzz", "/default/fuzz-part-0", "/default/Fuzz", "/default/system.x", "/default/raceway.x",
         "/nowhere/x", "/default/..", "//", "s", "fuzz", "json_schema", "avro", "protobuf", "backward", "enforce",
         "{}", "[" * 5000, "\0", "ж" * 300, "a\nb", "*" * 200, "x" * 70_000]  # fmt: skip
REFUSAL_MS = 500
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(RACEWAY_LISTEN__DANUBE__REFUSAL_MS=REFUSAL_MS) as server:
        yield server


@pytest.fixture(scope="module")
def wire(server: Server) -> Iterator[DanubeWire]:
    with danube_wire(server) as wire:
        yield wire


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[DanubeProcess]:
    with danube_process(danube_url(server)) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"/default/h{next(_numbers)}"


def status(wire: DanubeWire, method: str, request: Any, kind: Any) -> str:
    with pytest.raises(RefusedError) as refused:
        wire.ask(method, request, kind)
    return refused.value.status


def assert_at_work(wire: DanubeWire) -> None:
    topic = f"/default/alive{next(_numbers)}"
    producer_id, consumer_id = wire.producer(topic), wire.consumer(topic)
    wire.send(producer_id, topic, b"alive")
    stream = wire.listen(consumer_id)
    message = next(stream)
    wire.ack(message)
    stream.cancel()
    assert message.payload == b"alive"


# ---- anything at all -------------------------------------------------------------------------------------------------


def fill(message: Message, dice: random.Random) -> None:
    """Fields with values from the edges, some left out."""
    for field in message.DESCRIPTOR.fields:
        if dice.random() < 0.3:
            continue
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            getattr(message, field.name).update({dice.choice(TEXTS): dice.choice(TEXTS) for _ in range(3)})
        elif kind is not None:
            sub = getattr(message, field.name)
            fill(sub.add() if field.is_repeated else sub, dice)
        elif field.is_repeated:
            getattr(message, field.name).extend(value(field, dice) for _ in range(3))
        else:
            setattr(message, field.name, value(field, dice))


def value(field: Any, dice: random.Random) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return dice.choice(TEXTS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return dice.choice(TEXTS).encode() + dice.randbytes(dice.choice([0, 3]))
    if field.type == FieldDescriptor.TYPE_BOOL:
        return dice.random() < 0.5
    top = {
        FieldDescriptor.TYPE_UINT64: 2**64, FieldDescriptor.TYPE_UINT32: 2**32, FieldDescriptor.TYPE_INT32: 2**31,
        FieldDescriptor.TYPE_ENUM: 9,
    }.get(field.type, 2**31)  # fmt: skip
    return dice.choice([number for number in NUMBERS if number < top])


def damaged(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data) + 1)
    return data[:at] + dice.randbytes(dice.randrange(5)) + data[at + dice.randrange(3) :]


def test_whatever_is_said_to_whatever_method_the_answer_is_whose_fault_it_is() -> None:
    dice = seeded("danube calls")
    with running_server(RACEWAY_LISTEN__DANUBE__REFUSAL_MS=0) as server, danube_wire(server) as wire:
        wire.producer("/default/fuzz")
        wire.consumer("/default/fuzz")
        for _ in range(rounds(12)):
            for method in METHODS:
                request = GetMessageClass(method.input_type)()
                fill(request, dice)
                data = request.SerializeToString()
                for body in (data, damaged(data, dice), dice.randbytes(dice.randrange(40))):
                    assert_their_fault(wire, method, body)
        wire.ask("danube_admin.BrokerAdmin/ListNamespaces", b"", danube_admin_pb2.NamespaceListResponse)
        assert_at_work(wire)
        assert "Traceback" not in server.stderr, server.stderr[-3000:]


def assert_their_fault(wire: DanubeWire, method: MethodDescriptor, body: bytes) -> None:
    path = f"{method.containing_service.full_name}/{method.name}"
    found = maybe_status(wire, path, method, body)
    assert found is None or found in THEIR_FAULT, (path, body, found)


def maybe_status(wire: DanubeWire, path: str, method: MethodDescriptor, body: bytes) -> str | None:
    """None: it was done, or a stream was opened."""
    try:
        if method.server_streaming:
            call = wire.channel.unary_stream(f"/{path}")(body, timeout=5)
            call.initial_metadata()
            call.cancel()
        else:
            wire.ask(path, body, GetMessageClass(method.output_type))
    except RefusedError as refused:
        return refused.status
    except grpc.RpcError as refused:
        return str(refused.code().name)
    return None


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", ["system.message", "raceway.rejected", "raceway.made-up", "SYSTEM.log"])
def test_nobody_writes_under_the_brokers_own_names_whatever_id_it_shows(wire: DanubeWire, topic: str, own: str) -> None:
    producer_id = wire.producer(topic)
    for number in (producer_id, 0, 1):
        message = StreamMessage(msg_id=MsgID(producer_id=number, topic_name=f"/default/{own}"), payload=b"forged")
        assert status(wire, SEND, message, MessageResponse) in THEIR_FAULT
    request = danube_admin_pb2.NewTopicRequest(name=f"/default/{own}")
    made = status(wire, "danube_admin.TopicAdmin/CreateTopic", request, danube_admin_pb2.TopicResponse)
    assert made == "INVALID_ARGUMENT"
    forged = danube_admin_pb2.TopicRequest(name=f"/default/{own}")
    assert status(wire, "danube_admin.TopicAdmin/DeleteTopic", forged, danube_admin_pb2.TopicResponse) in THEIR_FAULT


def test_a_name_that_differs_only_in_case_is_nobodys(wire: DanubeWire, topic: str) -> None:
    producer_id = wire.producer(topic)
    wire.consumer(topic)
    other = topic.upper().replace("/DEFAULT", "/default")
    create = ProducerRequest(producer_name="p", topic_name=other, dispatch_strategy=1)  # type: ignore[arg-type]
    assert status(wire, "danube.ProducerService/CreateProducer", create, ProducerResponse) == "ALREADY_EXISTS"
    message = StreamMessage(msg_id=MsgID(producer_id=producer_id, topic_name=other))
    assert status(wire, SEND, message, MessageResponse) in THEIR_FAULT
    subscribe = ConsumerRequest(topic_name=other, consumer_name="c", subscription="s")
    assert status(wire, "danube.ConsumerService/Subscribe", subscribe, ConsumerResponse) in THEIR_FAULT
    listed = wire.ask("danube.Discovery/TopicPartitions", TopicLookupRequest(topic=other), TopicPartitionsResponse)
    assert list(listed.partitions) == []


@pytest.mark.parametrize("name", ["", "x" * 300, "ж" * 300])
def test_names_of_producers_consumers_and_subscriptions_have_bounds(wire: DanubeWire, topic: str, name: str) -> None:
    wire.producer(topic)
    create = ProducerRequest(producer_name=name, topic_name=topic, dispatch_strategy=1)  # type: ignore[arg-type]
    assert status(wire, "danube.ProducerService/CreateProducer", create, ProducerResponse) == "INVALID_ARGUMENT"
    for consumer, subscription in ((name, "s"), ("c", name)):
        request = ConsumerRequest(topic_name=topic, consumer_name=consumer, subscription=subscription)
        assert status(wire, "danube.ConsumerService/Subscribe", request, ConsumerResponse) == "INVALID_ARGUMENT"


def test_whatever_is_in_a_name_it_comes_back_as_it_was_and_is_nobody_elses(wire: DanubeWire, topic: str) -> None:
    names = ["a\0b", "a", "\n", ":", f"{topic}:a", "../a", "💥"]
    streams = {name: wire.listen(wire.consumer(topic, "c", name)) for name in names if wire.producer(topic, name)}
    for name in names:
        wire.send(wire.producer(topic, name), topic, name.encode())
    for name, stream in streams.items():
        got = list(itertools.islice(stream, len(names)))
        assert [(message.producer_name, message.payload.decode()) for message in got] == [(n, n) for n in names]
        assert {message.subscription_name for message in got} == {name}
        stream.cancel()


# ---- other people's messages -----------------------------------------------------------------------------------------


def test_an_acknowledgement_for_somebody_elses_subscription_changes_nothing_of_ours(
    client: DanubeProcess, wire: DanubeWire, topic: str
) -> None:
    client.create(topic, topic)
    client.subscribe("c" + topic, topic, "ours")
    wire.consumer(topic, subscription="theirs")
    client.send(topic, b"0", b"1")
    got = client.receive("c" + topic, 2)
    for offset in (0, 1, 2, 2**63, 2**64 - 1):
        identity = MsgID(producer_id=got[0].producer_id, topic_name=topic, topic_offset=offset)
        wire.ask(ACK, AckRequest(msg_id=identity, subscription_name="theirs"), AckResponse)
        wire.ask(NACK, NackRequest(msg_id=identity, subscription_name="theirs"), NackResponse)
    assert status(wire, ACK, AckRequest(subscription_name="ours"), AckResponse) == "INVALID_ARGUMENT"
    assert status(wire, NACK, NackRequest(subscription_name="ours"), NackResponse) == "INVALID_ARGUMENT"
    client.close("c" + topic)
    client.subscribe("c" + topic, topic, "ours")
    assert client.receive("c" + topic, 2) == got


# ---- too much --------------------------------------------------------------------------------------------------------


def test_large_messages_from_all_sides_are_refused_and_leave_nothing_behind(
    server: Server, wire: DanubeWire, topic: str
) -> None:
    identity = MsgID(producer_id=wire.producer(topic), topic_name=topic)
    huge = StreamMessage(msg_id=identity, payload=bytes(20 * MIB)).SerializeToString()
    before = server.rss()
    server.forget_peak()

    def send(_: int) -> str:
        with danube_wire(server) as own:
            return status(own, SEND, huge, MessageResponse)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(send, range(16))) == {"INVALID_ARGUMENT"}
    # Twice what one may be, for each that is on its way; not all that was sent.
    assert server.peak_rss() - before < 100 * MIB
    wire.send(identity.producer_id, topic)


def test_a_flood_of_streams_that_nobody_has_is_refused_one_by_one_after_the_pause(
    server: Server, wire: DanubeWire
) -> None:
    """As a thousand clients whose consumers were forgotten: each opens its stream again as soon as it is told."""
    before = server.rss()
    with danube_wire(server) as other:
        call = other.channel.unary_stream(RECEIVE)
        began = time.monotonic()
        streams = [
            call(ReceiveRequest(consumer_id=number).SerializeToString(), timeout=30) for number in range(1, 3001)
        ]
        assert_at_work(wire)
        assert {stream.code() for stream in streams} == {grpc.StatusCode.NOT_FOUND}
        assert time.monotonic() - began >= REFUSAL_MS / 1000
    assert server.rss() - before < 50 * MIB


def test_a_client_whose_consumer_is_unknown_asks_seldom(wire: DanubeWire) -> None:
    call = wire.channel.unary_stream(RECEIVE)
    end, count = time.monotonic() + 2 * REFUSAL_MS / 1000, 0
    while time.monotonic() < end:
        assert call(ReceiveRequest(consumer_id=5).SerializeToString()).code() is grpc.StatusCode.NOT_FOUND
        count += 1
    assert count <= 2


def test_a_thousand_streams_of_one_consumer_end_in_one(wire: DanubeWire, topic: str) -> None:
    producer_id, consumer_id = wire.producer(topic), wire.consumer(topic)
    streams = [wire.listen(consumer_id) for _ in range(1000)]
    wire.send(producer_id, topic, b"x")
    assert [message.payload for message in itertools.islice(streams[-1], 1)] == [b"x"]
    assert all(list(stream) == [] for stream in streams[:-1])
    streams[-1].cancel()


def test_many_consumers_that_read_nothing_do_not_fill_the_memory(server: Server, wire: DanubeWire, topic: str) -> None:
    """Sixty subscriptions of a topic, none of which reads, and 40 MiB sent to each of them."""
    producer_id = wire.producer(topic)
    with danube_wire(server) as other:
        streams = [other.listen(other.consumer(topic, subscription=f"s{number}")) for number in range(60)]
        before = server.rss()
        for _ in range(40):
            wire.send(producer_id, topic, bytes(MIB))
        assert_at_work(wire)
        assert server.rss() - before < 250 * MIB
        for stream in streams:
            stream.cancel()


def test_filters_without_end_are_refused(wire: DanubeWire, topic: str) -> None:
    wire.producer(topic)
    for filters in ([str(number) for number in range(100_000)], ["*" * MIB]):
        request = ConsumerRequest(
            topic_name=topic, consumer_name="c", subscription="s", subscription_type=ConsumerRequest.KeyShared,
            key_filters=filters,
        )  # fmt: skip
        assert status(wire, "danube.ConsumerService/Subscribe", request, ConsumerResponse) == "INVALID_ARGUMENT"
