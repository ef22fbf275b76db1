"""Which status each call of the Danube wire is answered with, case by case, through grpcio.

The client raises most statuses at once and repeats a call for ever on others, so the right one matters as much as the
refusal.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from raceway.wires.danube.codec.pb.danube_api_pb2 import (
    DESCRIPTOR,
    AckRequest,
    AckResponse,
    ConsumerRequest,
    ConsumerResponse,
    HealthCheckRequest,
    HealthCheckResponse,
    MessageResponse,
    MsgID,
    NackRequest,
    NackResponse,
    ProducerRequest,
    ProducerResponse,
    ReceiveRequest,
    SchemaReference,
    StreamMessage,
    TopicLookupRequest,
    TopicLookupResponse,
    TopicPartitionsResponse,
)
from raceway.wires.danube.codec.pb.health_pb2 import HealthCheckRequest as ServingRequest
from raceway.wires.danube.codec.pb.health_pb2 import HealthCheckResponse as ServingResponse
from raceway.wires.danube.codec.pb.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse
from tests.rigs.danube_process import RefusedError
from tests.rigs.danube_wire import DanubeWire, danube_url, danube_wire
from tests.rigs.server import Server, running_server

SEND = "danube.ProducerService/SendMessage"
CREATE = "danube.ProducerService/CreateProducer"
SUBSCRIBE = "danube.ConsumerService/Subscribe"
ACK, NACK = "danube.ConsumerService/Ack", "danube.ConsumerService/Nack"
HEALTH = "danube.HealthCheck/HealthCheck"
LOOKUP, PARTITIONS = "danube.Discovery/TopicLookup", "danube.Discovery/TopicPartitions"

REFUSAL_MS = 300
BAD_NAMES = ["", "orders", "/orders", "/default/", "//orders", "/default/a/b", "x/default/orders", "/default/a b",
             "/de.fault/orders", "/default/orders\0", "/default/" + "x" * 300]  # fmt: skip
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(RACEWAY_LISTEN__DANUBE__REFUSAL_MS=REFUSAL_MS) as server:
        yield server


@pytest.fixture(scope="module")
def wire(server: Server) -> Iterator[DanubeWire]:
    with danube_wire(server) as wire:
        yield wire


@pytest.fixture
def topic() -> str:
    return f"/default/s{next(_numbers)}"


def status(wire: DanubeWire, method: str, request: Any, kind: Any) -> str:
    with pytest.raises(RefusedError) as refused:
        wire.ask(method, request, kind)
    return refused.value.status


# ---- discovery -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_is_none_is_an_invalid_argument(wire: DanubeWire, name: str) -> None:
    calls: list[tuple[str, Any, Any]] = [
        (LOOKUP, TopicLookupRequest(topic=name), TopicLookupResponse),
        (PARTITIONS, TopicLookupRequest(topic=name), TopicPartitionsResponse),
        (CREATE, ProducerRequest(producer_name="p", topic_name=name), ProducerResponse),
        (SUBSCRIBE, ConsumerRequest(topic_name=name, consumer_name="c", subscription="s"), ConsumerResponse),
        (SEND, StreamMessage(msg_id=MsgID(topic_name=name)), MessageResponse),
        (ACK, AckRequest(msg_id=MsgID(topic_name=name)), AckResponse),
        (NACK, NackRequest(msg_id=MsgID(topic_name=name)), NackResponse),
    ]
    for call in calls:
        assert status(wire, *call) == "INVALID_ARGUMENT"


def test_a_topic_that_is_served_here_says_where(server: Server, wire: DanubeWire, topic: str) -> None:
    wire.producer(topic)
    answer = wire.ask(LOOKUP, TopicLookupRequest(request_id=7, topic=topic), TopicLookupResponse)
    assert (answer.request_id, answer.response_type, answer.proxy) == (7, TopicLookupResponse.Connect, False)
    assert answer.connect_url == answer.broker_url == danube_url(server)


def test_an_unknown_topic_is_not_found_and_has_no_partitions(wire: DanubeWire, topic: str) -> None:
    assert status(wire, LOOKUP, TopicLookupRequest(topic=topic), TopicLookupResponse) == "NOT_FOUND"
    answer = wire.ask(PARTITIONS, TopicLookupRequest(request_id=9, topic=topic), TopicPartitionsResponse)
    assert (answer.request_id, list(answer.partitions)) == (9, [])


def test_partitions_are_listed_by_number_and_nothing_that_only_begins_alike(wire: DanubeWire, topic: str) -> None:
    for number in range(11):
        wire.producer(f"{topic}-part-{number}")
    for other in (f"{topic}-parts", f"{topic}x-part-1", f"{topic}-part-1-part-x"):
        wire.producer(other)
    answer = wire.ask(PARTITIONS, TopicLookupRequest(topic=topic), TopicPartitionsResponse)
    assert list(answer.partitions) == [f"{topic}-part-{number}" for number in range(11)]
    plain = wire.ask(PARTITIONS, TopicLookupRequest(topic=f"{topic}-parts"), TopicPartitionsResponse)
    assert list(plain.partitions) == [f"{topic}-parts"]


# ---- producers -------------------------------------------------------------------------------------------------------


def create(wire: DanubeWire, **fields: Any) -> str:
    return status(wire, CREATE, ProducerRequest(producer_name="p", **fields), ProducerResponse)


def test_a_namespace_nobody_made_is_not_found(wire: DanubeWire) -> None:
    assert create(wire, topic_name="/nowhere/orders") == "NOT_FOUND"


def test_another_dispatch_strategy_is_a_failed_precondition(wire: DanubeWire, topic: str) -> None:
    wire.producer(topic, reliable=True)
    assert create(wire, topic_name=topic, dispatch_strategy=0) == "FAILED_PRECONDITION"


def test_a_topic_is_plain_or_partitioned(wire: DanubeWire, topic: str) -> None:
    wire.producer(topic)
    assert create(wire, topic_name=f"{topic}-part-0", dispatch_strategy=1) == "ALREADY_EXISTS"
    wire.producer(f"{topic}b-part-0")
    assert create(wire, topic_name=f"{topic}b", dispatch_strategy=1) == "ALREADY_EXISTS"


def test_a_subject_nobody_registered_makes_no_topic(wire: DanubeWire, topic: str) -> None:
    reference = SchemaReference(subject="nobody", use_latest=True)
    assert create(wire, topic_name=topic, schema_ref=reference) == "FAILED_PRECONDITION"
    assert status(wire, LOOKUP, TopicLookupRequest(topic=topic), TopicLookupResponse) == "NOT_FOUND"


@pytest.mark.parametrize("name", ["/default/system.message", "/default/raceway.rejected", "/default/SYSTEM.log"])
def test_the_brokers_own_names_are_refused(wire: DanubeWire, name: str) -> None:
    assert create(wire, topic_name=name) == "INVALID_ARGUMENT"


def test_a_name_that_differs_only_in_case_exists_already(wire: DanubeWire, topic: str) -> None:
    wire.producer(topic)
    assert create(wire, topic_name=topic.replace("/s", "/S")) == "ALREADY_EXISTS"


@pytest.mark.parametrize("fields", [{"dispatch_strategy": 7}, {"producer_access_mode": 7}])
def test_a_number_no_enum_has_is_an_invalid_argument(wire: DanubeWire, topic: str, fields: dict[str, int]) -> None:
    assert create(wire, topic_name=topic, **fields) == "INVALID_ARGUMENT"


# ---- sending ---------------------------------------------------------------------------------------------------------


def send(wire: DanubeWire, message: StreamMessage | bytes) -> str:
    return status(wire, SEND, message, MessageResponse)


def test_an_answer_names_the_request(wire: DanubeWire, topic: str) -> None:
    identity = MsgID(producer_id=wire.producer(topic), topic_name=topic)
    for request_id in (0, 2, 2**64 - 1):
        answer = wire.ask(SEND, StreamMessage(request_id=request_id, msg_id=identity), MessageResponse)
        assert answer.request_id == request_id


def test_an_unknown_producer_is_not_found(wire: DanubeWire, topic: str) -> None:
    wire.producer(topic)
    for producer_id in (0, 12345, 2**63, 2**64 - 1):
        assert send(wire, StreamMessage(msg_id=MsgID(producer_id=producer_id, topic_name=topic))) == "NOT_FOUND"


def test_a_producer_of_another_topic_is_denied(wire: DanubeWire, topic: str) -> None:
    producer_id = wire.producer(topic)
    wire.producer(topic + "b")
    assert (
        send(wire, StreamMessage(msg_id=MsgID(producer_id=producer_id, topic_name=topic + "b"))) == "PERMISSION_DENIED"
    )


def test_a_message_without_identity_is_an_invalid_argument(wire: DanubeWire) -> None:
    assert send(wire, StreamMessage(payload=b"x")) == "INVALID_ARGUMENT"


@pytest.mark.parametrize("data", [b"\xff", b"\x12\x7f", b"\x0a\x01", b"\x2a\x02\xc3\x28"])
def test_bytes_that_are_no_message_are_an_invalid_argument(wire: DanubeWire, data: bytes) -> None:
    assert send(wire, data) == "INVALID_ARGUMENT"


def test_attributes_have_limits(wire: DanubeWire, topic: str) -> None:
    identity = MsgID(producer_id=wire.producer(topic), topic_name=topic)
    many = StreamMessage(msg_id=identity, attributes={str(number): "" for number in range(129)})
    large = StreamMessage(msg_id=identity, attributes={"k": "x" * 70_000})
    assert (send(wire, many), send(wire, large)) == ("INVALID_ARGUMENT", "INVALID_ARGUMENT")


def test_the_largest_message_is_taken_and_delivered_and_one_byte_more_is_refused(wire: DanubeWire, topic: str) -> None:
    identity = MsgID(producer_id=wire.producer(topic), topic_name=topic)
    stream = wire.listen(wire.consumer(topic))
    limit = 4 * 1024 * 1024 - 64 * 1024
    message = StreamMessage(msg_id=identity, payload=b"x" * (limit - 100))
    message.payload += b"x" * (limit - message.ByteSize())
    assert message.ByteSize() == limit
    wire.ask(SEND, message, MessageResponse)
    assert next(stream).payload == message.payload
    stream.cancel()
    message.payload += b"x"
    assert send(wire, message) == "INVALID_ARGUMENT"


# ---- consuming -------------------------------------------------------------------------------------------------------


def subscribe(wire: DanubeWire, **fields: Any) -> str:
    wanted = {"consumer_name": "c", "subscription": "s"} | fields
    return status(wire, SUBSCRIBE, ConsumerRequest(**wanted), ConsumerResponse)


def test_consumers_make_no_topics(wire: DanubeWire, topic: str) -> None:
    assert subscribe(wire, topic_name=topic) == "NOT_FOUND"


def test_an_exclusive_subscription_has_one_consumer(wire: DanubeWire, topic: str) -> None:
    wire.producer(topic)
    wire.consumer(topic, "first")
    assert subscribe(wire, topic_name=topic, consumer_name="second") == "PERMISSION_DENIED"


def test_another_type_is_a_failed_precondition_while_consumers_are_there(wire: DanubeWire, topic: str) -> None:
    wire.producer(topic)
    wire.consumer(topic, type=1)
    assert subscribe(wire, topic_name=topic, consumer_name="d", subscription_type=2) == "FAILED_PRECONDITION"


def test_a_type_that_does_not_exist_is_an_invalid_argument(wire: DanubeWire, topic: str) -> None:
    wire.producer(topic)
    assert subscribe(wire, topic_name=topic, subscription_type=4) == "INVALID_ARGUMENT"


def test_the_same_name_gets_its_id_again(wire: DanubeWire, topic: str) -> None:
    wire.producer(topic)
    assert wire.consumer(topic, type=1) == wire.consumer(topic, type=1) != wire.consumer(topic, "other", type=1)


def test_an_unknown_consumer_is_refused_after_a_pause(wire: DanubeWire) -> None:
    began = time.monotonic()
    stream = wire.listen(12345)
    with pytest.raises(grpc.RpcError) as refused:
        next(stream)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert REFUSAL_MS / 1000 <= time.monotonic() - began < 5


def test_the_newest_stream_of_a_consumer_wins(wire: DanubeWire, topic: str) -> None:
    producer_id, consumer_id = wire.producer(topic), wire.consumer(topic)
    older = wire.listen(consumer_id)
    wire.send(producer_id, topic, b"1")
    assert next(older).payload == b"1"
    newer = wire.listen(consumer_id)
    wire.ack(next(newer))
    assert list(older) == []  # ended, and with OK
    wire.send(producer_id, topic, b"2")
    assert next(newer).payload == b"2"
    newer.cancel()


def test_bytes_that_are_no_request_are_an_invalid_argument(wire: DanubeWire) -> None:
    call = wire.channel.unary_stream("/danube.ConsumerService/ReceiveMessages")
    with pytest.raises(grpc.RpcError) as refused:
        next(call(b"\xff"))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    for method, kind in ((CREATE, ProducerResponse), (SUBSCRIBE, ConsumerResponse), (ACK, AckResponse)):
        assert status(wire, method, b"\xff", kind) == "INVALID_ARGUMENT"


# ---- acknowledging ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "kind", "answer"), [(ACK, AckRequest, AckResponse), (NACK, NackRequest, NackResponse)]
)
def test_acknowledging_what_is_not_there(
    wire: DanubeWire, topic: str, method: str, kind: type[Any], answer: type[Any]
) -> None:
    wire.producer(topic)
    wire.consumer(topic)
    identity = MsgID(producer_id=1, topic_name=topic, topic_offset=77)
    assert status(wire, method, kind(subscription_name="s"), answer) == "INVALID_ARGUMENT"
    assert status(wire, method, kind(msg_id=identity, subscription_name="nobody"), answer) == "NOT_FOUND"
    unknown = MsgID(topic_name=topic + "x")
    assert status(wire, method, kind(msg_id=unknown, subscription_name="s"), answer) == "NOT_FOUND"
    for offset in (77, 2**63, 2**64 - 1):  # not in flight: no fault
        identity.topic_offset = offset
        request = kind(request_id=5, msg_id=identity, subscription_name="s")
        assert wire.ask(method, request, answer).request_id == 5


def test_a_message_acknowledged_for_another_subscription_stays(wire: DanubeWire, topic: str) -> None:
    producer_id = wire.producer(topic)
    stream = wire.listen(wire.consumer(topic, subscription="mine"))
    wire.consumer(topic, subscription="other")
    wire.send(producer_id, topic)
    message = next(stream)
    stream.cancel()
    wire.ask(ACK, AckRequest(msg_id=message.msg_id, subscription_name="other"), AckResponse)
    again = wire.listen(wire.consumer(topic, subscription="mine"))
    assert next(again) == message
    again.cancel()


def test_nothing_is_in_flight_on_a_topic_that_is_not_reliable(wire: DanubeWire, topic: str) -> None:
    producer_id = wire.producer(topic, reliable=False)
    stream = wire.listen(wire.consumer(topic))
    wire.send(producer_id, topic)
    wire.ack(next(stream))
    stream.cancel()


# ---- health ----------------------------------------------------------------------------------------------------------


def test_health_is_of_producers_and_consumers_that_are_known(wire: DanubeWire, topic: str) -> None:
    producer_id, consumer_id = wire.producer(topic), wire.consumer(topic)
    p, c = HealthCheckRequest.Producer, HealthCheckRequest.Consumer
    found = [
        wire.ask(HEALTH, HealthCheckRequest(client=client, id=number), HealthCheckResponse).status
        for client, number in ((p, producer_id), (p, 1), (c, consumer_id), (c, 1), (c, 2**64 - 1))
    ]
    ok, close = HealthCheckResponse.OK, HealthCheckResponse.CLOSE
    assert found == [ok, close, ok, close, close]


def test_a_client_type_that_does_not_exist_is_an_invalid_argument(wire: DanubeWire) -> None:
    assert status(wire, HEALTH, b"\x10\x07", HealthCheckResponse) == "INVALID_ARGUMENT"


# ---- what is not there -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", ["danube.StorageService/ListSegmentDescriptors", "danube.Nothing/AtAll", "danube.Discovery/Nothing"]
)
def test_what_is_not_served_is_unimplemented(wire: DanubeWire, method: str) -> None:
    assert status(wire, method, b"", ReceiveRequest) == "UNIMPLEMENTED"


# ---- where the broker is ---------------------------------------------------------------------------------------------


def test_clients_are_told_the_advertised_address() -> None:
    with running_server(RACEWAY_LISTEN__DANUBE__ADVERTISED="bus.example:6650") as server, danube_wire(server) as wire:
        producer_id = wire.producer("/default/t")
        answer = wire.ask(LOOKUP, TopicLookupRequest(topic="/default/t"), TopicLookupResponse)
        assert answer.connect_url == answer.broker_url == "http://bus.example:6650"
        stream = wire.listen(wire.consumer("/default/t"))
        wire.send(producer_id, "/default/t")
        assert next(stream).msg_id.broker_addr == "http://bus.example:6650"
        stream.cancel()


def test_a_bus_that_listens_everywhere_names_the_address_clients_came_to() -> None:
    with (
        running_server(RACEWAY_LISTEN__HOST="0.0.0.0", RACEWAY_LISTEN__INSECURE="true") as server,
        danube_wire(server) as wire,
    ):
        wire.producer("/default/t")
        answer = wire.ask(LOOKUP, TopicLookupRequest(topic="/default/t"), TopicLookupResponse)
        assert answer.connect_url == danube_url(server)


def test_the_door_says_what_it_serves_and_that_it_is_well(wire: DanubeWire) -> None:
    health = wire.ask("grpc.health.v1.Health/Check", ServingRequest(service="danube.ProducerService"), ServingResponse)
    assert health.status == ServingResponse.SERVING
    call = wire.channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        request_serializer=ServerReflectionRequest.SerializeToString,
        response_deserializer=ServerReflectionResponse.FromString,
    )
    questions = [
        ServerReflectionRequest(list_services=""),
        ServerReflectionRequest(file_containing_symbol="danube.ConsumerService"),
    ]
    listed, described = call(iter(questions))
    names = {each.name for each in listed.list_services_response.service}
    assert {"danube.Discovery", "danube_schema.SchemaRegistry", "danube_admin.TopicAdmin"} <= names
    assert described.file_descriptor_response.file_descriptor_proto[0] == DESCRIPTOR.serialized_pb
