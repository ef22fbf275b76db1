"""Base of all subscriptions: a name on a topic, its consumers, and delivery after the commit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol

from raceway.broker.delivery.recent import RecentRows, RowRange
from raceway.broker.subscriptions.consumers import Consumer, Consumers
from raceway.broker.topics import Topic
from raceway.broker.undelivered.dead_letters import Letters
from raceway.model.envelope import Batch
from raceway.model.intents.subscriptions import Handover, Sink
from raceway.model.subscriptions import SubscriptionStatus, SubscriptionType
from raceway.net.credits import Credits

# Estimated size of a message on the wire besides payload, attributes and names.
MESSAGE_BYTES = 256


class Feed(Protocol):
    """The committed end of a topic: rows before `end` are committed."""

    topic: Topic
    end: int
    requests: int


class Host(Protocol):
    """The methods of the table that subscriptions use."""

    @property
    def recent(self) -> RecentRows: ...
    @property
    def letters(self) -> Letters: ...
    @property
    def credits(self) -> Credits: ...
    @property
    def behind_bytes(self) -> int:
        """Bytes that a live subscription may be behind before publishers wait for it."""

    @property
    def counts(self) -> dict[str, int]:
        """The counters of the bus."""

    def now_ms(self) -> float: ...
    def wake(self, subscription: Subscription, at_ms: float) -> None:
        """Call its `tick` at this time."""

    def note_absence(self, subscription: Subscription) -> None:
        """Note that a consumer has no stream, to start its expiry."""

    def note_move(self, subscription: Subscription) -> None:
        """Note that the cursor may have moved, to be stored at the end of the turn."""

    def pump_later(self, subscription: Subscription) -> None:
        """Call its `pump` in the next turn."""

    def dispatch_rate(self, topic: Topic) -> int:
        """Return the limit of deliveries a second for one subscription of the topic; 0 means none."""


class Handout:
    """Rows chosen for consumers, collected so that each gets one delivery per batch."""

    def __init__(self, topic: Topic, subscription: bytes) -> None:
        self._topic, self._subscription = topic, subscription
        self._rows: dict[Consumer, list[tuple[Batch, list[int]]]] = {}

    def add(self, consumer: Consumer, batch: Batch, row: int) -> None:
        parts = self._rows.get(consumer)
        if parts is None:
            self._rows[consumer] = [(batch, [row])]
        elif parts[-1][0] is batch:
            parts[-1][1].append(row)
        else:
            parts.append((batch, [row]))

    def send(self) -> None:
        for consumer, parts in self._rows.items():
            for batch, rows in parts:
                if consumer.sink is not None:
                    consumer.sink.take(Handover(self._topic.name, self._subscription, batch, rows))


class Subscription(ABC):
    reliable: ClassVar[bool]

    def __init__(self, feed: Feed, name: str, kind: SubscriptionType, host: Host, release_ms: float) -> None:
        self.feed, self.topic, self.name, self.kind = feed, feed.topic, name, kind
        self.encoded = name.encode()
        self.consumers = Consumers(kind, release_ms)
        self.paused = False
        self.delivered = self.dropped = self.undeliverable = 0
        self._host = host
        self._turn = 0

    @property
    def is_reading(self) -> bool:
        """Whether there are active consumers."""
        return bool(self.consumers.active)

    def open_stream(self, consumer: Consumer, sink: Sink) -> None:
        """Attach a stream to a consumer. An older stream of the consumer ends."""
        older, consumer.sink = consumer.sink, sink
        consumer.expected_ms = 0.0
        if older is not None:
            older.end(None)
            self.give_back(consumer)
        self.settle()

    def close_stream(self, consumer: Consumer, sink: Sink, *, lost: bool = False) -> None:
        """Detach a stream. Idempotent; ignored if a newer stream was opened. `lost`: the connection broke."""
        if consumer.sink is sink:
            consumer.sink = None
            consumer.left_ms = self._host.now_ms()
            self._host.note_absence(self)
            self.settle()

    def settle(self) -> None:
        """Recompute the active consumers, take back the messages of those that are no longer active, and deliver."""
        before = self.consumers.active
        for consumer in self.consumers.settle(self._host.now_ms()):
            self.give_back(consumer)
        if self.consumers.active != before:
            self.regrouped()
        release_ms = self.consumers.release_at_ms()
        if release_ms is not None:
            self._host.wake(self, release_ms)
        self.pump()

    def rooms(self) -> dict[Consumer, int]:
        """Return the active consumers with room, and how many bytes each accepts."""
        found: dict[Consumer, int] = {}
        for consumer in self.consumers.active:
            if consumer.sink is not None and (room := consumer.sink.room()) > 0:
                found[consumer] = room
        return found

    def next_in_turn(self, rooms: dict[Consumer, int]) -> Consumer:
        """Return the next consumer with room, round robin. There must be one."""
        active = self.consumers.active
        while True:
            self._turn = (self._turn + 1) % len(active)
            if active[self._turn] in rooms:
                return active[self._turn]

    @abstractmethod
    def give_back(self, consumer: Consumer) -> None:
        """Take back the unacknowledged messages of a consumer, to be delivered again."""

    def joined(self) -> None:  # noqa: B027 - optional hook
        """Handle that a consumer has subscribed."""

    def regrouped(self) -> None:  # noqa: B027 - optional hook
        """Handle a change of the active consumers."""

    @abstractmethod
    def grown(self, piece: RowRange | None) -> None:
        """Handle committed rows, which `piece` contains if `is_reading`."""

    @abstractmethod
    def rewind(self, offset: int) -> None:
        """Handle that rows from this offset on could not be stored."""

    @abstractmethod
    def pump(self) -> None:
        """Deliver what can be delivered now."""

    @abstractmethod
    def tick(self) -> None:
        """Handle the time requested with `Host.wake`."""

    @abstractmethod
    def status(self) -> SubscriptionStatus: ...


def message_size(batch: Batch, row: int) -> int:
    """Return the estimated size of a message on the wire."""
    payloads, attributes = batch.payload, batch.attributes
    assert type(payloads) is list
    size = len(payloads[row]) + MESSAGE_BYTES  # type: ignore[arg-type]  # every row has one
    return size if attributes is None else size + len(batch.item("attributes", row) or b"")


def maybe_oversize(batch: Batch, row: int, size: int, largest: int) -> int | None:
    """Return the maximum encoded size of a message if it exceeds `largest`, otherwise None."""
    if 2 * size <= largest:  # almost always
        return None
    exact = size + len(batch.item("attributes", row) or b"")
    exact += sum(len(batch.item(name, row) or b"") for name in ("producer", "routing_key", "topic"))
    return exact if exact > largest else None
