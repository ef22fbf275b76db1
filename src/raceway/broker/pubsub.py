"""Publish/subscribe queues: every message to each subscriber whose topics hold the message's own, exactly.

There is no hierarchy and no history. A subscriber takes one message per consume; between two of them messages wait in a
buffer of its own, which dies with its connection. A full buffer loses its oldest message, and that is counted.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

from raceway import config
from raceway.broker.metrics import Meter
from raceway.broker.peers import Encoder, no_copies
from raceway.broker.runs import Run
from raceway.broker.topics import Topic
from raceway.broker.tracing import random_id
from raceway.errors import TooLargeError
from raceway.model.envelope import ZBUS, Batch, decode_attributes
from raceway.model.intents import SubscriptionKind

ALL_TOPICS = "*"
TOPIC_ATTRIBUTE = "zbus.topic"


class Copy(NamedTuple):
    batch: Batch
    row: int


class PubSubConsumer(Protocol):
    """A connection that subscribes. Compared by identity."""

    def hand_copy(self, queue: PubSubQueue, ticket: bytes, copy: Copy) -> None: ...


class _Subscriber:
    __slots__ = ("size", "ticket", "topics", "waiting", "window")

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.waiting: deque[Copy] = deque()
        self.size = 0
        self.ticket = b""
        self.window = 0


class PubSubQueue:
    """A `Subscriber` of its topic that hands copies on."""

    def __init__(self, topic: Topic, meter: Meter, settings: config.Broker) -> None:
        self.id = random_id().decode()
        self.encoder: Encoder = no_copies  # they are encoded per consumer: each carries the id of a consume
        self.subscriptions: dict[tuple[SubscriptionKind, str], float] = {}
        self.topic = topic
        self.consumers: dict[PubSubConsumer, _Subscriber] = {}
        self._meter = meter
        self._max_messages, self._max_bytes = settings.pubsub_messages, settings.pubsub_bytes
        self._max_topic_bytes = settings.pubsub_topic_bytes

    def spells(self, name: str) -> bool:
        return True

    def check_topics(self, consumer: PubSubConsumer, topics: tuple[str, ...]) -> None:
        """Topics only ever add up on a connection. Raises TooLargeError if these would be more than it may gather."""
        known = self.consumers[consumer].topics if consumer in self.consumers else set()
        size = sum(map(len, known.union(topics)))
        if size > self._max_topic_bytes:
            raise TooLargeError("A subscription", size, self._max_topic_bytes)

    def arm(self, consumer: PubSubConsumer, ticket: bytes, topics: tuple[str, ...], window: int = 1) -> None:
        """A further call replaces the waiting one."""
        subscriber = self.consumers.setdefault(consumer, _Subscriber())
        subscriber.topics.update(topics)
        subscriber.ticket, subscriber.window = ticket, window
        self._pump(consumer, subscriber)

    def leave(self, consumer: PubSubConsumer) -> None:
        self.consumers.pop(consumer, None)

    def dismiss(self, consumer: PubSubConsumer) -> bytes:
        """It is given no more. The ticket under which it waited, if it did."""
        subscriber = self.consumers.pop(consumer)
        return subscriber.ticket if subscriber.window else b""

    def topics_of(self, consumer: PubSubConsumer) -> list[str]:
        return sorted(self.consumers[consumer].topics)

    def is_armed(self, consumer: PubSubConsumer) -> bool:
        return self.consumers[consumer].window != 0

    def deliver(self, run: Run, data: bytes) -> None:
        for row in range(run.span.start, run.span.stop):
            topic = message_topic(run.batch, row, self.topic)
            if topic is not None:
                self._deliver_row(topic, Copy(run.batch, row))

    def _deliver_row(self, topic: str, copy: Copy) -> None:
        for consumer, subscriber in list(self.consumers.items()):
            if topic in subscriber.topics or ALL_TOPICS in subscriber.topics:
                self._buffer(subscriber, copy)
                self._pump(consumer, subscriber)

    def _buffer(self, subscriber: _Subscriber, copy: Copy) -> None:
        waiting = subscriber.waiting
        if not subscriber.window and copy.batch.count > 1:  # one that waits must not keep its whole batch
            copy = Copy(copy.batch.keep([copy.row]), 0)
        waiting.append(copy)
        subscriber.size += _size(copy)
        while len(waiting) > 1 and (len(waiting) > self._max_messages or subscriber.size > self._max_bytes):
            subscriber.size -= _size(waiting.popleft())
            self._meter.counts["bus.pubsub_dropped"] += 1

    def _pump(self, consumer: PubSubConsumer, subscriber: _Subscriber) -> None:
        while subscriber.window and subscriber.waiting:
            copy = subscriber.waiting.popleft()
            subscriber.size -= _size(copy)
            if subscriber.window > 0:
                subscriber.window -= 1
            consumer.hand_copy(self, subscriber.ticket, copy)


def message_topic(batch: Batch, row: int, topic: Topic) -> str | None:
    """The key `topic` of a zbus message; one from another wire has the name under which it is known here as topic."""
    if batch.item("wire", row) != ZBUS:
        return topic.spoken.decode()
    return decode_attributes(batch.item("attributes", row)).get(TOPIC_ATTRIBUTE)


def _size(copy: Copy) -> int:
    return len(copy.batch.item("payload", copy.row))
