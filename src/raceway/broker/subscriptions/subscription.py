"""Base of all subscriptions: a name on a topic, its consumers, and delivery after the commit; the committed end of the
topic, which they follow, and what they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import msgspec

from raceway.broker.bus import Bus
from raceway.broker.delivery.recent import RecentRows, RowRange
from raceway.broker.queues.queue import CURSORS
from raceway.broker.subscriptions.consumers import Consumer, Consumers
from raceway.broker.subscriptions.settings import SubscriptionSettings
from raceway.broker.topic_records import TopicRecords
from raceway.broker.topics import Topic
from raceway.broker.undelivered.dead_letters import Letters
from raceway.errors import RacewayError, UnavailableError
from raceway.journal.contract import OnCommit
from raceway.model.envelope import REQUEST, Batch
from raceway.model.intents.subscriptions import Handover, Sink
from raceway.model.subscriptions import FailurePolicy, SubscriptionStatus, SubscriptionType
from raceway.net.timers import Alarms

# Estimated size of a message on the wire besides payload, attributes and names.
MESSAGE_BYTES = 256


class SubscriptionRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Stored subscription. `policy` and `max_unacked` are from earlier releases; see `subscription_settings`."""

    topic: str
    name: str
    type: SubscriptionType
    reliable: bool
    policy: FailurePolicy | None = None
    max_unacked: int | None = None

    @property
    def key(self) -> str:
        """The key of its row in the state. Names of topics contain no colon."""
        return f"{self.topic}:{self.name}"

    @property
    def cursor_key(self) -> str:
        return f"subscription:{self.key}"


class TopicFeed:
    """A `Reader` of its topic. Rows before `end` are committed; `requests` counts the requests among them since the
    topic first had a subscription, because lag counts publishes only."""

    def __init__(
        self, topic: Topic, end: int, requests: int, recent: RecentRows, counted: Callable[[TopicFeed], None]
    ) -> None:
        self.topic = topic
        self.end = end
        self.requests = requests
        self.subscriptions: dict[str, Subscription] = {}
        self._recent = recent
        self._counted = counted

    def committed(self, batch: Batch, rows: Sequence[int]) -> None:
        first = batch.item("offset", rows[0])
        if first < self.end:  # earlier rows could not be stored: their offsets are assigned again
            self._rewind(first)
        self.end = first + len(rows)
        self._count_requests(batch, rows)
        reading = [each for each in self.subscriptions.values() if each.is_reading]
        piece: RowRange | None = None
        if reading:  # a subscription that waits must not keep other topics' rows in memory
            own = batch if len(rows) == batch.count else batch.keep(list(rows))
            piece = self._recent.add(self.topic, own, first)
        for subscription in reading:
            subscription.grown(piece)

    def withdrawn(self, batch: Batch, row: int) -> None:
        self._rewind(batch.item("offset", row))

    def _rewind(self, offset: int) -> None:
        self.end = min(self.end, offset)
        self._recent.forget(self.topic, offset)
        for subscription in self.subscriptions.values():
            subscription.rewind(offset)

    def _count_requests(self, batch: Batch, rows: Sequence[int]) -> None:
        kind = batch.kind
        if kind == REQUEST:
            self.requests += len(rows)
            self._counted(self)
        elif type(kind) is list:
            found = sum(kind[row] == REQUEST for row in rows)
            self.requests += found
            if found:
                self._counted(self)


class SubscriptionHost:
    """State and services that all subscriptions share. `counts` are the counters of the bus;
    `behind_bytes`: what a live subscription may be behind before publishers wait for it.
    """

    # Notes that a consumer of a subscription has no stream, to start its expiry.
    note_absence: Callable[[Subscription], None]

    def __init__(self, bus: Bus, records: TopicRecords, letters: Letters) -> None:
        settings = bus.settings.subscriptions
        self._bus, self._records, self._settings = bus, records, settings
        self.letters = letters
        self.settings = SubscriptionSettings(bus)
        self.release_ms, self.unwanted_ms = settings.exclusive_release_s * 1000, settings.unwanted_key_s * 1000
        self.recent = RecentRows(bus.journal, settings.recent_bytes)
        self.counts = bus.meter.counts
        self.credits, self.behind_bytes = bus.credits, settings.behind_bytes
        self._alarms: Alarms[Subscription] = Alarms(self._ring, self.now_ms, bus.loop.call_later)
        self.bring_back = bus.bring_back
        # Calls `tick` of a subscription at a time, in milliseconds.
        self.wake = self._alarms.set
        self._kept: dict[Subscription, SubscriptionRecord] = {}
        self._moved: dict[Subscription, None] = {}
        # Those whose cursor the journal has refused: what moved it is not stored, whoever asks again.
        self._refused: dict[Subscription, None] = {}
        self._dones: list[OnCommit] = []

    def now_ms(self) -> float:
        return self._bus.loop.time() * 1000

    def _ring(self, subscription: Subscription) -> None:
        if subscription in self._kept:
            subscription.tick()

    def pump_later(self, subscription: Subscription) -> None:
        """Call its `pump` in the next turn."""
        self._bus.turn.call_soon(subscription.pump)

    def dispatch_rate(self, topic: Topic) -> int:
        """Return the limit of deliveries a second for one subscription of the topic; 0 means none."""
        return self._records.policies(topic).max_subscription_dispatch_rate or 0

    # ---- cursors -----------------------------------------------------------------------------------------------------

    def note_move(self, subscription: Subscription) -> None:
        """Note that the cursor may have moved, to be stored at the end of the turn."""
        if not self._moved and not self._dones:
            self._bus.turn.owe(self)
        self._moved[subscription] = None

    def flush(self) -> None:
        """Store the cursors that moved in this turn, then notify the callers that wait for it."""
        moved, self._moved, self._refused = self._refused | self._moved, {}, {}
        dones, self._dones = self._dones, []
        refusal: UnavailableError | None = None
        for subscription in moved:
            if subscription in self._kept:
                try:
                    self._keep_cursor(subscription)
                except UnavailableError as error:
                    refusal = error
                    self._refused[subscription] = None
        for done in dones:
            self._bus.after_commit(partial(_told, done, refusal), patient=True)

    def _keep_cursor(self, subscription: Subscription) -> None:
        key, value = self._kept[subscription].cursor_key, subscription.progress()
        if value and self._bus.journal.state.get(CURSORS, key) != value:
            self._bus.set_state(CURSORS, key, value)


def _told(done: OnCommit, refusal: RacewayError | None, error: RacewayError | None) -> None:
    done(refusal or error)


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

    def __init__(self, feed: TopicFeed, record: SubscriptionRecord, host: SubscriptionHost) -> None:
        self.feed, self.topic, self.name, self.kind = feed, feed.topic, record.name, record.type
        self.encoded = record.name.encode()
        self.consumers = Consumers(record.type, host.release_ms)
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

    def maybe_size(self, consumer: Consumer, batch: Batch, row: int) -> int | None:
        """Return the estimated size of a message; None if it is too large for the consumer's wire, which is noted."""
        sink, size = consumer.sink, message_size(batch, row)
        assert sink is not None
        if 2 * size <= sink.largest:  # almost always
            return size
        exact = size + len(batch.item("attributes", row) or b"")
        exact += sum(len(batch.item(name, row) or b"") for name in ("producer", "routing_key", "topic"))
        if exact <= sink.largest:
            return size
        self.undeliverable += 1
        self._host.letters.note_undeliverable(self.topic, self.name, batch, row, exact, sink)
        return None

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
        """Handle the time requested with `SubscriptionHost.wake`."""

    def progress(self) -> dict[str, Any]:
        """Return the state to be stored; empty if there is none."""
        return {}

    @abstractmethod
    def status(self) -> SubscriptionStatus: ...


def message_size(batch: Batch, row: int) -> int:
    """Return the estimated size of a message on the wire."""
    payloads, attributes = batch.payload, batch.attributes
    assert type(payloads) is list
    size = len(payloads[row]) + MESSAGE_BYTES  # type: ignore[arg-type]  # every row has one
    return size if attributes is None else size + len(batch.item("attributes", row) or b"")
