"""Danube calls one by one, through grpcio, for what the published client never sends.

    with danube_wire(server) as wire:
        answer = wire.ask("danube.Discovery/TopicLookup", TopicLookupRequest(topic="/default/x"), TopicLookupResponse)

A refusal is a `RefusedError` with the status's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from raceway.wires.danube.codec.pb.danube_api_pb2 import (
    AckRequest,
    AckResponse,
    ConsumerRequest,
    ConsumerResponse,
    MessageResponse,
    MsgID,
    NonReliable,
    ProducerRequest,
    ProducerResponse,
    ReceiveRequest,
    Reliable,
    StreamMessage,
)
from tests.rigs.danube_process import RefusedError
from tests.rigs.server import Server

R = TypeVar("R", bound=Message)
DEADLINE_S = 20.0


class DanubeWire:
    def __init__(self, channel: Any, metadata: Sequence[tuple[str, str]] = ()) -> None:
        self.channel = channel
        self.metadata = list(metadata)

    def ask(self, method: str, request: Message | bytes, kind: type[R], timeout_s: float = DEADLINE_S) -> R:
        """Raises RefusedError."""
        call = self.channel.unary_unary(f"/{method}")
        data = request if isinstance(request, bytes) else request.SerializeToString()
        try:
            return kind.FromString(call(data, timeout=timeout_s, metadata=self.metadata))
        except grpc.RpcError as error:
            raise RefusedError(error.code().name, error.details() or "") from error

    def listen(self, consumer_id: int) -> Any:
        """The open stream: iterate it, `cancel` it."""
        call = self.channel.unary_stream(
            "/danube.ConsumerService/ReceiveMessages", response_deserializer=StreamMessage.FromString
        )
        return call(ReceiveRequest(consumer_id=consumer_id).SerializeToString(), metadata=self.metadata)

    # ---- the usual ---------------------------------------------------------------------------------------------------

    def producer(self, topic: str, name: str = "p", *, reliable: bool = True) -> int:
        request = ProducerRequest(
            request_id=1, producer_name=name, topic_name=topic, dispatch_strategy=Reliable if reliable else NonReliable
        )
        return self.ask("danube.ProducerService/CreateProducer", request, ProducerResponse).producer_id

    def send(self, producer_id: int, topic: str, payload: bytes = b"x", **fields: Any) -> None:
        message = StreamMessage(
            request_id=2, msg_id=MsgID(producer_id=producer_id, topic_name=topic), payload=payload, publish_time=1,
            **fields,
        )  # fmt: skip
        self.ask("danube.ProducerService/SendMessage", message, MessageResponse)

    def consumer(
        self, topic: str, name: str = "c", subscription: str = "s", type: int = 0, filters: Sequence[str] = ()
    ) -> int:
        request = ConsumerRequest(
            topic_name=topic, consumer_name=name, subscription=subscription, key_filters=filters,
            subscription_type=type,  # type: ignore[arg-type]  # enums are numbers
        )  # fmt: skip
        return self.ask("danube.ConsumerService/Subscribe", request, ConsumerResponse).consumer_id

    def ack(self, message: StreamMessage) -> None:
        request = AckRequest(msg_id=message.msg_id, subscription_name=message.subscription_name)
        self.ask("danube.ConsumerService/Ack", request, AckResponse)


@contextmanager
def danube_wire(server: Server, **metadata: str) -> Iterator[DanubeWire]:
    # A connection of its own: channels to one address would share it, and with it the window that slow readers fill.
    options = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_send_message_length", -1),
        ("grpc.enable_http_proxy", 0),
    ]
    with grpc.insecure_channel(f"127.0.0.1:{server.port('danube')}", options) as channel:
        yield DanubeWire(channel, [(name.replace("_", "-"), value) for name, value in metadata.items()])


def danube_url(server: Server) -> str:
    return f"http://127.0.0.1:{server.port('danube')}"
