"""A client of the Danube wire: topics, and durable subscriptions with acknowledgements.

    async with connect("danube://127.0.0.1:6650") as bus:
        await bus.publish("orders", {"id": 7})
        async with await bus.subscribe("orders", "billing") as orders:
            order = await orders.get(timeout_s=1)
            await orders.ack(order)

A topic is named as on other wires (`orders`) or in Danube's form (`/default/orders`). A message is on disk when
`publish` returns, unless the topic is non-reliable. A refusal is a RemoteError whose `reported` is the name of the gRPC
status, such as `NOT_FOUND`.

A lost connection is reestablished (`Options.reconnect`), and consumers receive unacknowledged messages again. A publish
in flight at the loss raises ConnectionLostError: it may have been stored, so it is not repeated; the caller decides.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self
from weakref import WeakSet

import msgspec

from raceway.errors import ConfigError, RemoteError
from raceway.model.hashing import fnv1a64
from raceway.model.subscriptions import SUBSCRIPTION_TYPES, FailurePolicy
from raceway.model.topics import canonical_name, namespaced_topic, parse_namespaced_topic
from raceway.net.client.address import Address
from raceway.net.client.chain import PARENT_ATTRIBUTE, with_parent
from raceway.net.client.channel import Channel
from raceway.net.client.client import Client
from raceway.net.client.messages import Payload, Published, Receipt, encode_payload, parts
from raceway.net.client.options import Options
from raceway.net.ids import random_ids
from raceway.wires.danube.client.consumer import DanubeConsumer
from raceway.wires.danube.codec.pb import danube_admin_pb2 as admin_pb
from raceway.wires.danube.codec.pb import danube_api_pb2 as pb
from raceway.wires.danube.codec.pb import schema_registry_pb2 as schema_pb
from raceway.wires.danube.codec.policies import failure_policy_message, read_failure_policy

SEND = b"/danube.ProducerService/SendMessage"
CREATE = b"/danube.ProducerService/CreateProducer"
PARTITIONS = b"/danube.Discovery/TopicPartitions"
UNSUBSCRIBE = b"/danube_admin.TopicAdmin/Unsubscribe"
GET_POLICY = b"/danube_admin.TopicAdmin/GetSubscriptionFailurePolicy"
SET_POLICY = b"/danube_admin.TopicAdmin/SetSubscriptionFailurePolicy"
GET_DISPATCH = b"/danube_admin.TopicAdmin/GetSubscriptionDispatchConfig"
SET_DISPATCH = b"/danube_admin.TopicAdmin/SetSubscriptionDispatchConfig"
LATEST = b"/danube_schema.SchemaRegistry/GetLatestSchema"
TOPIC_SCHEMA = b"/danube_schema.SchemaRegistry/GetTopicSchemaConfig"

# Producer name of `publish`, shared by all clients: the bus keeps every producer name it has seen.
NAME = "raceway-client"
# Publishes of `publish_many` in flight at once.
BLOCK = 4096


def wire_name(topic: str) -> str:
    """Convert a topic name to Danube's form. Raises NameInvalidError."""
    return namespaced_topic(parse_namespaced_topic(topic) if topic.startswith("/") else canonical_name(topic))


class _Lane(NamedTuple):
    """A producer on one partition, or on an unpartitioned topic."""

    topic: str
    producer_id: int
    name: str


class Producer:
    """A producer on one topic, made by `DanubeClient.producer`. Messages to the same partition stay in order."""

    def __init__(
        self, channel: Channel, lanes: list[_Lane], schema: tuple[int, int] | None, reliable: bool = True
    ) -> None:
        self._channel = channel
        self._reliable = reliable
        self._lanes = lanes
        self._schema = schema
        self._turn = itertools.cycle(lanes)
        self._requests = itertools.count(2)

    async def send(
        self, payload: Payload = b"", *, key: str | None = None, attributes: Mapping[str, str] | None = None
    ) -> Receipt:
        """Publish a message; returns when the bus has acknowledged it.

        Messages with the same `key` stay in order and go to one consumer at a time. `attributes` are delivered with the
        message. Raises RemoteError, RequestTimeoutError, ConnectionLostError.
        """
        message = self._message(payload, key, attributes)
        await self._channel.call(SEND, message, pb.MessageResponse)
        return Receipt(topic=message.msg_id.topic_name, stored=self._reliable)

    async def send_many(self, payloads: Iterable[Payload], *, key: str | None = None) -> Published:
        """Publish many messages in order and return their number.

        They are sent in blocks; the first refusal is raised when its block is answered, and later blocks are not sent.
        Raises RemoteError, RequestTimeoutError, ConnectionLostError.
        """
        count = 0
        for part in parts(payloads, BLOCK):
            messages = [self._message(payload, key, None).SerializeToString() for payload in part]
            await self._channel.call_many(SEND, messages)
            count += len(part)
        return Published(count)

    def _message(self, payload: Payload, key: str | None, attributes: Mapping[str, str] | None) -> pb.StreamMessage:
        lane = self._lanes[fnv1a64(key.encode()) % len(self._lanes)] if key is not None else next(self._turn)
        message = pb.StreamMessage(
            request_id=next(self._requests),
            msg_id=pb.MsgID(producer_id=lane.producer_id, topic_name=lane.topic),
            payload=encode_payload(payload),
            publish_time=time.time_ns() // 1_000_000,
            producer_name=lane.name,
            attributes=with_parent(PARENT_ATTRIBUTE, attributes),
            routing_key=key,
        )
        if self._schema is not None:
            message.schema_id, message.schema_version = self._schema
        return message


class DanubeClient(Client):
    """See the module. Made by `raceway.client.connect`; belongs to one event loop."""

    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self._options = options
        self._channel = Channel(address, options)
        self._producers: dict[str, Producer] = {}
        self._requests = itertools.count(1)
        # Weak references: a consumer that the user closed and dropped needs no entry here.
        self._consumers: WeakSet[DanubeConsumer] = WeakSet()

    # ---- life --------------------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Connect. Raises ConnectionLostError if the bus is unreachable."""
        await self._channel.open()
        return self

    async def close(self) -> None:
        """End consumers, fail calls in flight, and disconnect. Idempotent."""
        for consumer in list(self._consumers):
            await consumer.close()
        await self._channel.close()

    @property
    def reconnects(self) -> int:
        """Number of times the connection was lost and reestablished."""
        return self._channel.reconnects

    # ---- producing ---------------------------------------------------------------------------------------------------

    async def publish(
        self, topic: str, payload: Payload = b"", *, key: str | None = None, attributes: Mapping[str, str] | None = None
    ) -> Receipt:
        """Publish to a topic, which is created if it does not exist. Arguments and errors as of `Producer.send`.

        Messages of a topic that enforces a schema name the latest version of its subject, as at the first publish.
        """
        return await (await self._usual_producer(topic)).send(payload, key=key, attributes=attributes)

    async def publish_many(self, topic: str, payloads: Iterable[Payload], *, key: str | None = None) -> Published:
        """Publish many messages in order and return their number. Errors as of `Producer.send_many`."""
        return await (await self._usual_producer(topic)).send_many(payloads, key=key)

    async def _usual_producer(self, topic: str) -> Producer:
        """The producer of `publish`: reliable, or non-reliable if the topic is."""
        producer = self._producers.get(topic)
        if producer is None:
            name, subject = self._options.name or NAME, await self._maybe_subject(topic)
            try:
                producer = await self.producer(topic, name, subject=subject)
            except RemoteError as error:
                if error.reported != "FAILED_PRECONDITION":
                    raise
                producer = await self.producer(topic, name, reliable=False, subject=subject)
            self._producers[topic] = producer
        return producer

    async def _maybe_subject(self, topic: str) -> str | None:
        """The subject that messages of a topic must name, or None; also if the caller may not know."""
        request = schema_pb.GetTopicSchemaConfigRequest(topic_name=wire_name(topic))
        try:
            found = await self._channel.call(TOPIC_SCHEMA, request, schema_pb.GetTopicSchemaConfigResponse)
        except RemoteError:
            return None
        return found.schema_subject if found.validation_policy.lower() == "enforce" else None

    async def producer(
        self, topic: str, name: str = NAME, *, reliable: bool = True, subject: str | None = None, partitions: int = 0
    ) -> Producer:
        """Create a producer with the given name.

        `subject`: messages carry the latest schema version of that subject. `partitions`: number of partitions if the
        topic has to be created; an existing topic keeps those it has. Raises RemoteError, ConnectionLostError.
        """
        base = wire_name(topic)
        names = await self._partitions(base)
        names = names or [f"{base}-part-{number}" for number in range(partitions)] or [base]
        lanes = []
        for number, partition in enumerate(names):
            own = name if names == [base] else f"{name}-{number}"
            lanes.append(await self._create(partition, own, reliable, subject))
        return Producer(self._channel, lanes, await self._schema(subject) if subject is not None else None, reliable)

    async def _partitions(self, topic: str) -> list[str]:
        """Names of the partitions; the topic's own name if it has none, and an empty list if it does not exist."""
        asked = pb.TopicLookupRequest(request_id=next(self._requests), topic=topic)
        return list((await self._channel.call(PARTITIONS, asked, pb.TopicPartitionsResponse)).partitions)

    async def _create(self, topic: str, name: str, reliable: bool, subject: str | None) -> _Lane:
        reference = pb.SchemaReference(subject=subject, use_latest=True) if subject is not None else None
        request = pb.ProducerRequest(
            request_id=next(self._requests), producer_name=name, topic_name=topic, schema_ref=reference,
            dispatch_strategy=pb.Reliable if reliable else pb.NonReliable,
        )  # fmt: skip
        answer = await self._channel.call(CREATE, request, pb.ProducerResponse)
        return _Lane(topic, answer.producer_id, answer.producer_name)

    async def _schema(self, subject: str) -> tuple[int, int]:
        request = schema_pb.GetLatestSchemaRequest(subject=subject)
        found = await self._channel.call(LATEST, request, schema_pb.GetSchemaResponse)
        return found.schema_id, found.version

    # ---- consuming ---------------------------------------------------------------------------------------------------

    async def subscribe(
        self,
        topic: str,
        subscription: str = "",
        *,
        type: str = "exclusive",
        name: str | None = None,
        filters: Iterable[str] = (),
        in_flight: int | None = None,
        start: str | int = "last",
        create_topic: bool = False,
    ) -> DanubeConsumer:
        """Consume from a subscription on all partitions of a topic. The subscription is created if it does not exist.

        `type`: exclusive, shared, failover or key_shared. `name`: that of the consumer (default: a random one, which
        begins with `Options.name`).
        `filters`: globs over keys, for key_shared. `in_flight`: largest number of unacknowledged messages of this
        consumer; by default the bus adapts it to the acknowledgements. `start`: where a new subscription begins:
        `first`, `last`, an offset, or a time such as 2026-01-31T12:00:00Z. `create_topic`: create a missing topic
        instead of raising.

        Raises RemoteError (NOT_FOUND: no such topic), ConfigError for a subscription without a name or an unknown type,
        ConnectionLostError.
        """
        if not subscription:
            raise ConfigError("subscription", "is missing: a Danube subscription has a name, or that of its client")
        if type not in SUBSCRIPTION_TYPES:
            raise ConfigError("type", f"is {type!r} and must be one of {', '.join(SUBSCRIPTION_TYPES)}")
        base = wire_name(topic)
        names = await self._partitions(base)
        if not names and not create_topic:
            raise RemoteError("NOT_FOUND", f"topic {base!r} not found")
        random_name = f"{self._options.name or 'raceway'}-{random_ids(1)[0].decode()[:8]}"
        wanted = pb.ConsumerRequest(
            consumer_name=name or random_name, subscription=subscription,
            subscription_type=SUBSCRIPTION_TYPES.index(type),  # type: ignore[arg-type]  # enums are numbers
            key_filters=filters, in_flight=in_flight, start=str(start), create_topic=create_topic,
        )  # fmt: skip
        consumer = DanubeConsumer(self._channel, wanted, names or [base])
        self._consumers.add(consumer)
        try:
            await consumer.open()
        except BaseException:
            await consumer.close()
            raise
        return consumer

    async def consume(
        self, topic: str, *, name: str = "", start: str | int = "last", in_flight: int | None = None
    ) -> DanubeConsumer:
        """Consume from the shared, durable subscription `name` (default: `Options.name`) of a topic, which is created
        if it does not exist.

        Further arguments and errors as of `subscribe`.
        """
        subscription = name or self._options.name
        return await self.subscribe(
            topic, subscription, type="shared", in_flight=in_flight, start=start, create_topic=True
        )

    async def unsubscribe(self, topic: str, subscription: str) -> None:
        """Delete a subscription that has no consumers. Until then it keeps messages for its consumers indefinitely.

        Raises RemoteError.
        """
        request = admin_pb.SubscriptionRequest(topic=wire_name(topic), subscription=subscription)
        await self._channel.call(UNSUBSCRIBE, request, admin_pb.SubscriptionResponse)

    # ---- failure policies --------------------------------------------------------------------------------------------

    async def failure_policy(self, topic: str, subscription: str) -> FailurePolicy:
        """The policy for unacknowledged messages. Raises RemoteError (NOT_FOUND: no such subscription)."""
        request = admin_pb.GetSubscriptionFailurePolicyRequest(topic=wire_name(topic), subscription=subscription)
        answer = await self._channel.call(GET_POLICY, request, admin_pb.GetSubscriptionFailurePolicyResponse)
        return read_failure_policy(answer.failure_policy)

    async def set_failure_policy(self, topic: str, subscription: str, policy: FailurePolicy | None) -> None:
        """Set the policy for unacknowledged messages; None restores the default of the bus.

        Takes effect immediately; for a subscription that does not exist yet, when it is created. Raises RemoteError,
        InvalidValueError for an invalid policy.
        """
        request = admin_pb.SetSubscriptionFailurePolicyRequest(topic=wire_name(topic), subscription=subscription)
        if policy is None:
            request.remove = True
        else:
            request.failure_policy.CopyFrom(_checked_message(policy))
        await self._channel.call(SET_POLICY, request, admin_pb.SubscriptionResponse)

    async def in_flight(self, topic: str, subscription: str) -> int | None:
        """Largest number of unacknowledged messages per consumer; None if not set. Raises RemoteError."""
        request = admin_pb.GetSubscriptionDispatchConfigRequest(topic=wire_name(topic), subscription=subscription)
        answer = await self._channel.call(GET_DISPATCH, request, admin_pb.GetSubscriptionDispatchConfigResponse)
        return answer.dispatch_config.in_flight or None

    async def set_in_flight(self, topic: str, subscription: str, count: int | None) -> None:
        """Set the largest number of unacknowledged messages per consumer; None lets the bus adapt it to the
        acknowledgements.

        Consumers that pass `in_flight` to `subscribe` keep their own. Raises RemoteError.
        """
        config = admin_pb.SubscriptionDispatchConfig(in_flight=count or 0)
        request = admin_pb.SetSubscriptionDispatchConfigRequest(
            topic=wire_name(topic), subscription=subscription, dispatch_config=config
        )
        await self._channel.call(SET_DISPATCH, request, admin_pb.SubscriptionResponse)


def _checked_message(policy: FailurePolicy) -> admin_pb.SubscriptionFailurePolicy:
    policy.check()
    if policy.dead_letter_topic is not None:
        letters = parse_namespaced_topic(wire_name(policy.dead_letter_topic))
        policy = msgspec.structs.replace(policy, dead_letter_topic=letters)
    return failure_policy_message(policy)
