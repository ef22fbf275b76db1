"""Consuming from a Danube subscription, from all partitions of a topic.

Unread messages stay on the bus: a stream's flow-control window is replenished only as its messages are read. After a
reconnect the stream is opened again, and unacknowledged messages are delivered again.
"""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from raceway.errors import ConnectionLostError, RacewayError, RemoteError
from raceway.net.client.channel import Channel
from raceway.net.client.inbox import Inbox
from raceway.net.client.link import Link
from raceway.net.client.messages import Content
from raceway.net.client.streams import MessageStream
from raceway.wires.danube.codec.pb import danube_api_pb2 as pb

SUBSCRIBE = b"/danube.ConsumerService/Subscribe"
RECEIVE = b"/danube.ConsumerService/ReceiveMessages"
ACK, NACK = b"/danube.ConsumerService/Ack", b"/danube.ConsumerService/Nack"

# Pause between the end of a stream and the next one, so that a refusing bus is not asked in a busy loop.
REOPEN_S = 0.2


class DanubeMessage(Content, msgspec.Struct, frozen=True):
    """A message. (`topic`, `offset`) identifies it; `topic` is that of its partition, if the topic has any."""

    topic: str
    offset: int
    payload: bytes
    key: str | None
    attributes: dict[str, str]
    producer: str
    producer_id: int
    sent_ms: int
    schema_id: int | None
    schema_version: int | None
    request_id: int

    @property
    def id(self) -> str:
        """`topic@offset`."""
        return f"{self.topic}@{self.offset}"


def _message(found: pb.StreamMessage) -> DanubeMessage:
    return DanubeMessage(
        topic=found.msg_id.topic_name,
        offset=found.msg_id.topic_offset,
        payload=found.payload,
        key=found.routing_key if found.HasField("routing_key") else None,
        attributes=dict(found.attributes),
        producer=found.producer_name,
        producer_id=found.msg_id.producer_id,
        sent_ms=found.publish_time,
        schema_id=found.schema_id if found.HasField("schema_id") else None,
        schema_version=found.schema_version if found.HasField("schema_version") else None,
        request_id=found.request_id,
    )


class _Partition:
    """The stream of one partition, reopened when it ends, until the consumer is closed."""

    def __init__(self, inbox: PartitionInbox, channel: Channel, wanted: pb.ConsumerRequest) -> None:
        self._inbox, self._channel, self._wanted = inbox, channel, wanted
        self._link: Link | None = None
        self._stream = self._consumer_id = 0
        self._ended: asyncio.Future[RacewayError | None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self._subscribe()
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._link is not None:
            self._channel.forget(self._link, self._stream)

    def answered(self, stream: int, message: bytes) -> None:
        self._inbox.put((self, message))

    def ended(self, stream: int, error: RacewayError | None) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(error)

    def give_back(self, message: bytes) -> None:
        if self._link is not None:
            self._link.calls.give_back(self._stream, message)

    async def _subscribe(self) -> None:
        self._consumer_id = (await self._channel.call(SUBSCRIBE, self._wanted, pb.ConsumerResponse)).consumer_id

    async def _run(self) -> None:
        while True:
            try:
                await self._listen()
            except ConnectionLostError as error:
                if not self._channel.returns:
                    self._inbox.end(error)
                    return
            except RacewayError as error:
                self._inbox.end(error)
                return
            await asyncio.sleep(REOPEN_S)

    async def _listen(self) -> None:
        """Read the stream to its end. Subscribe again if the bus no longer knows the consumer."""
        self._ended = asyncio.get_running_loop().create_future()
        request = pb.ReceiveRequest(consumer_id=self._consumer_id)
        self._link, self._stream = await self._channel.listen(RECEIVE, request, self)
        error = await self._ended
        self._link = None
        if isinstance(error, RemoteError) and error.reported == "NOT_FOUND":
            await self._subscribe()
        elif isinstance(error, RemoteError) and error.reported not in ("UNAVAILABLE", "CANCELLED", "INTERNAL"):
            raise error


# Partitions and their serialized messages.
PartitionInbox = Inbox[tuple[_Partition, bytes]]


class DanubeConsumer(MessageStream[DanubeMessage]):
    """An asynchronous iterator of messages, made by `DanubeClient.subscribe`. It ends when it or the client is closed.

    async with await bus.subscribe("orders", "billing") as orders:
        async for order in orders:
            …
            await orders.ack(order)
    """

    def __init__(self, channel: Channel, wanted: pb.ConsumerRequest, topics: list[str]) -> None:
        self.subscription = wanted.subscription
        self.name = wanted.consumer_name
        self._channel = channel
        self._inbox: PartitionInbox = Inbox()
        self._partitions = []
        for topic in topics:
            request = pb.ConsumerRequest()
            request.CopyFrom(wanted)
            request.topic_name = topic
            self._partitions.append(_Partition(self._inbox, channel, request))

    async def open(self) -> None:
        """Subscribe on every partition. Raises RemoteError, ConnectionLostError."""
        for partition in self._partitions:
            await partition.open()

    async def __anext__(self) -> DanubeMessage:
        partition, data = await self._inbox.take()
        partition.give_back(data)
        return _message(pb.StreamMessage.FromString(data))

    async def ack(self, message: DanubeMessage) -> None:
        """Acknowledge a message; returns when that is on disk. Raises RemoteError, ConnectionLostError."""
        request = pb.AckRequest(
            request_id=message.request_id, msg_id=_identity(message), subscription_name=self.subscription
        )
        await self._channel.call(ACK, request, pb.AckResponse)

    async def nack(self, message: DanubeMessage, *, delay_ms: int | None = None, reason: str | None = None) -> None:
        """Ask for redelivery, after the pause of the subscription's failure policy (1 s at first) and not earlier than
        `delay_ms`.

        `reason` goes with the message if it becomes a dead letter. Raises RemoteError, ConnectionLostError.
        """
        request = pb.NackRequest(
            request_id=message.request_id, msg_id=_identity(message), subscription_name=self.subscription,
            delay_ms=delay_ms, reason=reason,
        )  # fmt: skip
        await self._channel.call(NACK, request, pb.NackResponse)

    def parent_id(self, message: DanubeMessage) -> str | None:
        """The id that the bus gave a message of another wire, or makes of those of its producer and of the request."""
        return message.attributes.get("x-message-id", f"{message.producer_id}-{message.request_id}")

    async def settle(self, message: DanubeMessage, error: Exception | None) -> None:
        """Acknowledge a message, or ask for redelivery with `error` as the reason."""
        if error is None:
            await self.ack(message)
        else:
            await self.nack(message, reason=f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        """Stop consuming; unacknowledged messages are delivered again, to any consumer. Idempotent."""
        self._inbox.end(None)
        self._inbox.clear()
        for partition in self._partitions:
            await partition.close()


def _identity(message: DanubeMessage) -> pb.MsgID:
    return pb.MsgID(producer_id=message.producer_id, topic_name=message.topic, topic_offset=message.offset)
