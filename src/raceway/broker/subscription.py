"""What every subscription is: a name on a topic, its consumers, and messages handed to them after the commit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol

from raceway.broker.consumers import Consumer, Consumers, Delivery, Sink
from raceway.broker.credits import Credits
from raceway.broker.letters import Letters
from raceway.broker.recent import Piece, RecentRows
from raceway.broker.topics import Topic
from raceway.model.envelope import Batch
from raceway.model.subscriptions import SubscriptionStatus, SubscriptionType

# Of a message beside its payload, attributes and names: numbers, tags, lengths.
MESSAGE_BYTES = 256


class Feed(Protocol):
    """The topic's end, as its subscriptions see it: rows before `end` are committed."""

    topic: Topic
    end: int
    requests: int


class Host(Protocol):
    """What subscriptions need of the table they stand in."""

    @property
    def recent(self) -> RecentRows: ...
    @property
    def letters(self) -> Letters: ...
    @property
    def credits(self) -> Credits: ...
    @property
    def behind_bytes(self) -> int:
        """How far a live subscription may be behind before publishers wait for it."""

    @property
    def counts(self) -> dict[str, int]:
        """The counters of the bus."""

    def now_ms(self) -> float: ...
    def wake(self, subscription: Subscription, at_ms: float) -> None:
        """Call its `tick` at this time."""

    def note_absence(self, subscription: Subscription) -> None:
        """A consumer of it has no stream: it, or all of the subscription, may have to go some day."""

    def note_move(self, subscription: Subscription) -> None:
        """Its cursor may have moved: keep it at the end of the turn."""

    def pump_later(self, subscription: Subscription) -> None:
        """Call its `pump` in a further turn."""

    def dispatch_rate(self, topic: Topic) -> int:
        """Deliveries a second that one subscription of the topic may make; 0: no limit."""


class Handout:
    """Rows chosen for consumers, gathered so that each is handed one delivery per batch."""

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
                    consumer.sink.take(Delivery(self._topic, self._subscription, batch, rows))


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
        """Is anybody there for rows that come in now?"""
        return bool(self.consumers.active)

    def open_stream(self, consumer: Consumer, sink: Sink) -> None:
        """The newest stream of a consumer counts; an older one ends."""
        older, consumer.sink = consumer.sink, sink
        consumer.expected_ms = 0.0
        if older is not None:
            older.end(None)
            self.give_back(consumer)
        self.settle()

    def close_stream(self, consumer: Consumer, sink: Sink, *, lost: bool = False) -> None:
        """May be repeated, and come after a newer one was opened. `lost`: nobody said goodbye."""
        if consumer.sink is sink:
            consumer.sink = None
            consumer.left_ms = self._host.now_ms()
            self._host.note_absence(self)
            self.settle()

    def settle(self) -> None:
        """Consumers came or went, or time passed: who is active now, and what becomes of what the others had?"""
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
        """Active consumers that would take something, and how many bytes."""
        found: dict[Consumer, int] = {}
        for consumer in self.consumers.active:
            if consumer.sink is not None and (room := consumer.sink.room()) > 0:
                found[consumer] = room
        return found

    def next_in_turn(self, rooms: dict[Consumer, int]) -> Consumer:
        """Round robin over those that have room; there must be one."""
        active = self.consumers.active
        while True:
            self._turn = (self._turn + 1) % len(active)
            if active[self._turn] in rooms:
                return active[self._turn]

    @abstractmethod
    def give_back(self, consumer: Consumer) -> None:
        """What it holds and has not acknowledged is to be delivered again."""

    def joined(self) -> None:  # noqa: B027 - most wait for its stream
        """A consumer has subscribed."""

    def regrouped(self) -> None:  # noqa: B027 - most need not know
        """Other consumers are active than before."""

    @abstractmethod
    def grown(self, piece: Piece | None) -> None:
        """Rows were committed; here they are if `is_reading`."""

    @abstractmethod
    def rewind(self, offset: int) -> None:
        """Rows from this offset on were not stored after all."""

    @abstractmethod
    def pump(self) -> None:
        """Hand out what can be."""

    @abstractmethod
    def tick(self) -> None:
        """A time that was asked for has come."""

    @abstractmethod
    def status(self) -> SubscriptionStatus: ...


def message_size(batch: Batch, row: int) -> int:
    """About what a message takes on a wire."""
    payloads, attributes = batch.payload, batch.attributes
    assert type(payloads) is list
    size = len(payloads[row]) + MESSAGE_BYTES  # type: ignore[arg-type]  # every row has one
    return size if attributes is None else size + len(batch.item("attributes", row) or b"")


def maybe_oversize(batch: Batch, row: int, size: int, largest: int) -> int | None:
    """What a message takes at most, if that is over `largest`: attributes grow by their tags and lengths."""
    if 2 * size <= largest:  # almost every one
        return None
    exact = size + len(batch.item("attributes", row) or b"")
    exact += sum(len(batch.item(name, row) or b"") for name in ("producer", "routing_key", "topic"))
    return exact if exact > largest else None
