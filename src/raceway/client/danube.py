"""A client of the Danube wire: topics with subscriptions that remember what was acknowledged.

    async with connect("danube://127.0.0.1:6650") as bus:
        await bus.publish("orders", {"id": 7})
        async with await bus.subscribe("orders", "billing") as orders:
            order = await orders.get(timeout_s=1)
            await orders.ack(order)

A topic is named as everywhere on the bus (`orders`) or as Danube does (`/default/orders`). What is published is on disk
when the call returns, unless the topic is one that is not reliable. A refusal is a RemoteError whose `reported` is the
status of gRPC, such as `NOT_FOUND`.

Lost connections come back by themselves (`Options.reconnect`); consumers go on with what they had not acknowledged. A
publish in flight at the loss raises ConnectionLostError: it may have been taken already, so the caller decides.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self
from weakref import WeakSet

import msgspec

from raceway.client.address import Address
from raceway.client.chain import PARENT_ATTRIBUTE, with_parent
from raceway.client.channel import Channel
from raceway.client.danube_consumer import DanubeConsumer
from raceway.client.messages import Payload, encode_payload, fresh_ids, parts
from raceway.client.options import Options
from raceway.codec.danube_pb.danube_admin_pb2 import (
    GetSubscriptionDispatchConfigRequest,
    GetSubscriptionDispatchConfigResponse,
    GetSubscriptionFailurePolicyRequest,
    GetSubscriptionFailurePolicyResponse,
    SetSubscriptionDispatchConfigRequest,
    SetSubscriptionFailurePolicyRequest,
    SubscriptionDispatchConfig,
    SubscriptionFailurePolicy,
    SubscriptionRequest,
    SubscriptionResponse,
)
from raceway.codec.danube_pb.danube_api_pb2 import (
    ConsumerRequest,
    DispatchStrategy,
    MessageResponse,
    MsgID,
    NonReliable,
    ProducerRequest,
    ProducerResponse,
    Reliable,
    SchemaReference,
    StreamMessage,
    TopicLookupRequest,
    TopicPartitionsResponse,
)
from raceway.codec.danube_pb.schema_registry_pb2 import GetLatestSchemaRequest, GetSchemaResponse
from raceway.codec.danube_policies import failure_policy_message, read_failure_policy
from raceway.errors import ConfigError, RemoteError
from raceway.model.hashing import fnv1a64
from raceway.model.subscriptions import FailurePolicy
from raceway.model.topics import canonical_name, danube_topic, parse_danube_topic

SEND = b"/danube.ProducerService/SendMessage"
CREATE = b"/danube.ProducerService/CreateProducer"
PARTITIONS = b"/danube.Discovery/TopicPartitions"
UNSUBSCRIBE = b"/danube_admin.TopicAdmin/Unsubscribe"
GET_POLICY = b"/danube_admin.TopicAdmin/GetSubscriptionFailurePolicy"
SET_POLICY = b"/danube_admin.TopicAdmin/SetSubscriptionFailurePolicy"
GET_DISPATCH = b"/danube_admin.TopicAdmin/GetSubscriptionDispatchConfig"
SET_DISPATCH = b"/danube_admin.TopicAdmin/SetSubscriptionDispatchConfig"
LATEST = b"/danube_schema.SchemaRegistry/GetLatestSchema"

# The name under which `publish` sends. One for all: the bus remembers every producer's name.
NAME = "raceway-client"
# Publishes of `publish_many` that are on their way together.
BLOCK = 4096

SUBSCRIPTION_TYPES = {
    "exclusive": ConsumerRequest.Exclusive,
    "shared": ConsumerRequest.Shared,
    "failover": ConsumerRequest.Failover,
    "key_shared": ConsumerRequest.KeyShared,
}


def wire_name(topic: str) -> str:
    """A topic as Danube spells it. Raises NameInvalidError."""
    return danube_topic(parse_danube_topic(topic) if topic.startswith("/") else canonical_name(topic))


class _Lane(NamedTuple):
    """A producer on one partition, or on a topic that has none."""

    topic: str
    producer_id: int
    name: str


class Producer:
    """Sends to one topic, in order to each of its partitions. Made by `DanubeClient.producer`."""

    def __init__(self, channel: Channel, lanes: list[_Lane], schema: tuple[int, int] | None) -> None:
        self._channel = channel
        self._lanes = lanes
        self._schema = schema
        self._turn = itertools.cycle(lanes)
        self._requests = itertools.count(2)

    async def send(
        self, payload: Payload = b"", *, key: str | None = None, attributes: Mapping[str, str] | None = None
    ) -> None:
        """Returns when the bus has it. Messages of one `key` stay in order and go to one consumer at a time."""
        await self._channel.call(SEND, self._message(payload, key, attributes), MessageResponse)

    async def send_many(self, payloads: Iterable[Payload], *, key: str | None = None) -> int:
        """In order, many at a time; gives their number. The first refusal is raised when its block is answered."""
        count = 0
        for part in parts(payloads, BLOCK):
            messages = [self._message(payload, key, None).SerializeToString() for payload in part]
            await self._channel.call_many(SEND, messages)
            count += len(part)
        return count

    def _message(self, payload: Payload, key: str | None, attributes: Mapping[str, str] | None) -> StreamMessage:
        lane = self._lanes[fnv1a64(key.encode()) % len(self._lanes)] if key is not None else next(self._turn)
        message = StreamMessage(
            request_id=next(self._requests),
            msg_id=MsgID(producer_id=lane.producer_id, topic_name=lane.topic),
            payload=encode_payload(payload),
            publish_time=time.time_ns() // 1_000_000,
            producer_name=lane.name,
            attributes=with_parent(PARENT_ATTRIBUTE, attributes),
            routing_key=key,
        )
        if self._schema is not None:
            message.schema_id, message.schema_version = self._schema
        return message


class DanubeClient:
    """See the module. Made by `raceway.client.connect`; belongs to one event loop."""

    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self._channel = Channel(address, options)
        self._producers: dict[str, Producer] = {}
        self._requests = itertools.count(1)
        # Closed ones go by themselves.
        self._consumers: WeakSet[DanubeConsumer] = WeakSet()

    # ---- life --------------------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Connect. Raises ConnectionLostError when no bus is there."""
        await self._channel.open()
        return self

    async def close(self) -> None:
        """Consumers end, open calls fail. May be repeated."""
        for consumer in list(self._consumers):
            await consumer.close()
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def reconnects(self) -> int:
        """How often the connection was lost and came back."""
        return self._channel.reconnects

    # ---- producing ---------------------------------------------------------------------------------------------------

    async def publish(
        self, topic: str, payload: Payload = b"", *, key: str | None = None, attributes: Mapping[str, str] | None = None
    ) -> None:
        """To a topic, made if there is none. Raises RemoteError."""
        await (await self._usual_producer(topic)).send(payload, key=key, attributes=attributes)

    async def publish_many(self, topic: str, payloads: Iterable[Payload], *, key: str | None = None) -> int:
        """In order, many at a time; gives their number. Raises RemoteError."""
        return await (await self._usual_producer(topic)).send_many(payloads, key=key)

    async def _usual_producer(self, topic: str) -> Producer:
        """The producer that `publish` uses. A topic that is not reliable is taken as it is."""
        producer = self._producers.get(topic)
        if producer is None:
            try:
                producer = await self.producer(topic, NAME)
            except RemoteError as error:
                if error.reported != "FAILED_PRECONDITION":
                    raise
                producer = await self.producer(topic, NAME, reliable=False)
            self._producers[topic] = producer
        return producer

    async def producer(
        self, topic: str, name: str = NAME, *, reliable: bool = True, subject: str | None = None, partitions: int = 0
    ) -> Producer:
        """A producer of its own name. With `subject` its messages carry the latest version of that schema.

        `partitions` makes a topic that is not there yet with so many; a topic that is there has those it has.
        """
        base = wire_name(topic)
        names = await self._partitions(base)
        names = names or [f"{base}-part-{number}" for number in range(partitions)] or [base]
        lanes = []
        for number, partition in enumerate(names):
            own = name if names == [base] else f"{name}-{number}"
            lanes.append(await self._create(partition, own, Reliable if reliable else NonReliable, subject))
        return Producer(self._channel, lanes, await self._schema(subject) if subject is not None else None)

    async def _partitions(self, topic: str) -> list[str]:
        """Those of a topic that has some, else its own name; none if nobody made it."""
        asked = TopicLookupRequest(request_id=next(self._requests), topic=topic)
        return list((await self._channel.call(PARTITIONS, asked, TopicPartitionsResponse)).partitions)

    async def _create(self, topic: str, name: str, strategy: DispatchStrategy.ValueType, subject: str | None) -> _Lane:
        reference = SchemaReference(subject=subject, use_latest=True) if subject is not None else None
        request = ProducerRequest(
            request_id=next(self._requests), producer_name=name, topic_name=topic, schema_ref=reference,
            dispatch_strategy=strategy,
        )  # fmt: skip
        answer = await self._channel.call(CREATE, request, ProducerResponse)
        return _Lane(topic, answer.producer_id, answer.producer_name)

    async def _schema(self, subject: str) -> tuple[int, int]:
        found = await self._channel.call(LATEST, GetLatestSchemaRequest(subject=subject), GetSchemaResponse)
        return found.schema_id, found.version

    # ---- consuming ---------------------------------------------------------------------------------------------------

    async def subscribe(
        self,
        topic: str,
        subscription: str,
        *,
        type: str = "exclusive",
        name: str | None = None,
        filters: Iterable[str] = (),
        in_flight: int | None = None,
        start: str | int = "last",
        create_topic: bool = False,
    ) -> DanubeConsumer:
        """Consume from a subscription, made if it is new; from all partitions of the topic.

        `type` is exclusive, shared, failover or key_shared; `filters` are globs over keys, for key_shared. `in_flight`:
        messages that this consumer has at once, instead of as many as its acknowledgements let the bus give it. A
        subscription that is new begins at `start`: `first`, `last`, an offset, or a time such as
        2026-01-31T12:00:00Z; with `create_topic` a topic that is missing is made. Raises RemoteError.
        """
        if type not in SUBSCRIPTION_TYPES:
            raise ConfigError("type", f"is {type!r} and must be one of {', '.join(SUBSCRIPTION_TYPES)}")
        base = wire_name(topic)
        names = await self._partitions(base)
        if not names and not create_topic:
            raise RemoteError("NOT_FOUND", f"topic {base!r} not found")
        wanted = ConsumerRequest(
            consumer_name=name or f"raceway-{fresh_ids(1)[0].decode()[:8]}", subscription=subscription,
            subscription_type=SUBSCRIPTION_TYPES[type], key_filters=filters, in_flight=in_flight, start=str(start),
            create_topic=create_topic,
        )  # fmt: skip
        consumer = DanubeConsumer(self._channel, wanted, names or [base])
        self._consumers.add(consumer)
        try:
            await consumer.open()
        except BaseException:
            await consumer.close()
            raise
        return consumer

    async def unsubscribe(self, topic: str, subscription: str) -> None:
        """End a subscription that nobody consumes from any more; otherwise it waits for its consumers for ever."""
        request = SubscriptionRequest(topic=wire_name(topic), subscription=subscription)
        await self._channel.call(UNSUBSCRIBE, request, SubscriptionResponse)

    # ---- what becomes of messages that fail --------------------------------------------------------------------------

    async def failure_policy(self, topic: str, subscription: str) -> FailurePolicy:
        """What becomes of messages that are not acknowledged. Raises RemoteError (NOT_FOUND: no such subscription)."""
        request = GetSubscriptionFailurePolicyRequest(topic=wire_name(topic), subscription=subscription)
        answer = await self._channel.call(GET_POLICY, request, GetSubscriptionFailurePolicyResponse)
        return read_failure_policy(answer.failure_policy)

    async def set_failure_policy(self, topic: str, subscription: str, policy: FailurePolicy | None) -> None:
        """Holds at once, or from the moment the subscription is made; None: what the settings of the bus say.

        Raises RemoteError, InvalidValueError for a policy that cannot be.
        """
        request = SetSubscriptionFailurePolicyRequest(topic=wire_name(topic), subscription=subscription)
        if policy is None:
            request.remove = True
        else:
            request.failure_policy.CopyFrom(_checked_message(policy))
        await self._channel.call(SET_POLICY, request, SubscriptionResponse)

    async def in_flight(self, topic: str, subscription: str) -> int | None:
        """How many messages one consumer has at once, if it was set. Raises RemoteError."""
        request = GetSubscriptionDispatchConfigRequest(topic=wire_name(topic), subscription=subscription)
        answer = await self._channel.call(GET_DISPATCH, request, GetSubscriptionDispatchConfigResponse)
        return answer.dispatch_config.in_flight or None

    async def set_in_flight(self, topic: str, subscription: str, count: int | None) -> None:
        """For all consumers that do not say it themselves (`subscribe`); None: as their acknowledgements say.

        Raises RemoteError.
        """
        config = SubscriptionDispatchConfig(in_flight=count or 0)
        request = SetSubscriptionDispatchConfigRequest(
            topic=wire_name(topic), subscription=subscription, dispatch_config=config
        )
        await self._channel.call(SET_DISPATCH, request, SubscriptionResponse)


def _checked_message(policy: FailurePolicy) -> SubscriptionFailurePolicy:
    policy.check()
    if policy.dead_letter_topic is not None:
        letters = parse_danube_topic(wire_name(policy.dead_letter_topic))
        policy = msgspec.structs.replace(policy, dead_letter_topic=letters)
    return failure_policy_message(policy)
