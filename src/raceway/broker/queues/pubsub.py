"""Publish/subscribe queues: every message to each subscriber whose topics contain the message's topic.

There is no hierarchy and no history. A subscriber gets one message per consume; in between messages wait in its own
buffer, which is dropped with its connection. While the buffer is above its mark publishers wait; a subscriber that
holds them back too long gets the rest from the journal, at its own pace.
"""

from __future__ import annotations

from collections import deque

from raceway.broker.bus import Bus
from raceway.broker.delivery.catch_up import CatchUp, CatchUps
from raceway.broker.peers import Encoder, no_copies
from raceway.broker.queues.consumer import Copy, QueueConsumer
from raceway.broker.runs import Run
from raceway.broker.topics import Topic
from raceway.errors import TooLargeError
from raceway.model.envelope import Batch, decode_attributes
from raceway.model.intents.peers import SubscriptionKind
from raceway.model.wires import SUBJECTS
from raceway.net.ids import random_id

ALL_TOPICS = "*"


# Multiple of the mark at which publishers no longer wait for a subscriber.
HARD = 2


class _Subscriber:
    """A consumer on a queue: its buffer, filled live or from the journal."""

    def __init__(self, queue: PubSubQueue, consumer: QueueConsumer) -> None:
        self.topics: set[str] = set()
        self.waiting: deque[Copy] = deque()
        self.size = 0
        self.ticket = b""
        self.window = 0
        self.open = True
        self._leaving = False
        # Its topics at the position its catch-up has reached.
        self.wanted: set[str] = set()
        self.catch_up: CatchUp | None = None
        self._queue, self._consumer = queue, consumer
        self._taken = 0

    def add_topics(self, topics: tuple[str, ...]) -> None:
        self.topics.update(topics)
        if self.catch_up is not None and not self.wanted.issuperset(topics):
            self.catch_up.change(lambda: self.wanted.update(topics))

    def offer(self, run: Run) -> None:
        """Take live copies, or pass them to the catch-up."""
        if self.catch_up is not None:
            self.catch_up.offer(run, b"")
        else:
            self._take(run, self.topics)

    def pump(self) -> None:
        """Deliver buffered copies and update the flow control."""
        self._hand()
        self._look()

    def _hand(self) -> None:
        consumer, waiting = self._consumer, self.waiting
        while self.window and waiting and consumer.has_room():
            copy = waiting.popleft()
            size = _size(copy)
            self.size -= size
            self._taken += size + 1
            if self.window > 0:
                self.window -= 1
            consumer.hand_copy(self._queue.name, self.ticket, copy)

    def leave(self) -> None:
        self.open = False
        if self.catch_up is not None:
            self.catch_up.close()
        self._queue.credits.forget(self)

    def _take(self, run: Run, topics: set[str]) -> None:
        everything = ALL_TOPICS in topics
        for row in range(run.span.start, run.span.stop):
            topic = _subject(run.batch, row, self._queue.name)
            if topic is not None and (everything or topic in topics):
                self._buffer(Copy(run.batch, row))
                self._hand()
        self._look()

    def _buffer(self, copy: Copy) -> None:
        if not self.window and copy.batch.count > 1:  # a waiting copy must not keep its whole batch in memory
            copy = Copy(copy.batch.keep([copy.row]), 0)
        self.waiting.append(copy)
        self.size += _size(copy)

    def _look(self) -> None:
        """Compare the buffer with its mark: make publishers wait, detach, or let them continue."""
        credits = self._queue.credits
        share = self._queue.share(len(self.waiting), self.size)
        if share > 1 and self.catch_up is None:
            credits.fill(self)
            if share > HARD and not self._leaving:  # later: this batch may contain more for it
                self._leaving = True
                self._queue.call_soon(self._leave_live)
        elif share <= 0.5:
            credits.drain(self)
            if self.catch_up is not None:
                self.catch_up.wake()

    def _leave_live(self) -> None:
        self._leaving = False
        if self in self._queue.credits.full:
            self._queue.credits.detach(self)

    # ---- backpressure and catch-up -----------------------------------------------------------------------------------

    def taken(self) -> int:
        return self._taken

    def detach(self) -> bool:
        if self.catch_up is not None or not self.open:
            return False
        self.wanted = set(self.topics)
        self.catch_up = self._queue.catch_ups.open(self)
        return True

    def has_room(self) -> bool:
        return self.open and self._queue.share(len(self.waiting), self.size) <= 0.5

    def wants(self, topic: Topic) -> bool:
        return self._queue.wants(topic)

    def emit(self, run: Run) -> None:
        self._take(run, self.wanted)

    def join(self, aside: list[tuple[Run, bytes]]) -> None:
        self.catch_up = None
        for run, _ in aside:
            self._take(run, self.topics)

    def tell_gap(self, first: int, stop: int, reason: str) -> None:
        self._queue.catch_ups.tell_gap(self._queue.topic.name, first, stop, reason)


class PubSubQueue:
    """A publish/subscribe queue: one `Subscriber` of its topic that passes copies to its consumers."""

    def __init__(self, topic: Topic, bus: Bus, catch_ups: CatchUps) -> None:
        self.id = random_id().decode()
        self.encoder: Encoder = no_copies  # encoded per consumer: each copy carries the id of a consume
        self.subscriptions: dict[tuple[SubscriptionKind, str], float] = {}
        self.topic = topic
        self.name = topic.spoken.decode()
        self.consumers: dict[QueueConsumer, _Subscriber] = {}
        self.catch_ups, self.credits = catch_ups, bus.credits
        self.call_soon = bus.loop.call_soon
        self._bus = bus
        settings = bus.settings
        self._max_messages, self._max_bytes = settings.pubsub_messages, settings.pubsub_bytes
        self._max_topic_bytes = settings.pubsub_topic_bytes

    def spells(self, name: str) -> bool:
        return True

    def share(self, messages: int, size: int) -> float:
        """Return the fill of a buffer relative to its mark; a single message never exceeds it."""
        return 0.0 if messages <= 1 else max(messages / self._max_messages, size / self._max_bytes)

    def wants(self, topic: Topic) -> bool:
        """Return whether publishes of the topic reach this queue."""
        return self._bus.routing.reaches({pattern for _, pattern in self.subscriptions}, topic)

    def check_topics(self, consumer: QueueConsumer, topics: tuple[str, ...]) -> None:
        """Check the total size of a connection's topics, which only grow. Raises TooLargeError."""
        known = self.consumers[consumer].topics if consumer in self.consumers else set()
        size = sum(map(len, known.union(topics)))
        if size > self._max_topic_bytes:
            raise TooLargeError("A subscription", size, self._max_topic_bytes)

    def arm(self, consumer: QueueConsumer, ticket: bytes, topics: tuple[str, ...], window: int = 1) -> None:
        """Ask for `window` messages. A further call replaces the pending one."""
        subscriber = self.consumers.get(consumer)
        if subscriber is None:
            subscriber = self.consumers[consumer] = _Subscriber(self, consumer)
        subscriber.add_topics(topics)
        subscriber.ticket, subscriber.window = ticket, window
        subscriber.pump()

    def pump(self, consumer: QueueConsumer) -> None:
        """Continue delivering to a consumer that has room again."""
        if consumer in self.consumers:
            self.consumers[consumer].pump()

    def leave(self, consumer: QueueConsumer) -> None:
        subscriber = self.consumers.pop(consumer, None)
        if subscriber is not None:
            subscriber.leave()

    def dismiss(self, consumer: QueueConsumer) -> bytes:
        """Stop delivering to this consumer. Return its pending ticket, if any."""
        subscriber = self.consumers.pop(consumer)
        subscriber.leave()
        return subscriber.ticket if subscriber.window else b""

    def is_behind(self, consumer: QueueConsumer) -> bool:
        return self.consumers[consumer].catch_up is not None

    def deliver(self, run: Run, data: bytes) -> None:
        if self.credits.full:
            self.credits.note_fed(self.consumers.values())
        for subscriber in list(self.consumers.values()):
            subscriber.offer(run)


def _subject(batch: Batch, row: int, queue: str) -> str | None:
    """Return the subject of a message: an attribute on wires that have one, the queue's name on others."""
    attribute = SUBJECTS.get(batch.item("wire", row))
    return queue if attribute is None else decode_attributes(batch.item("attributes", row)).get(attribute)


def _size(copy: Copy) -> int:
    return len(copy.batch.item("payload", copy.row))
