"""All subscriptions and their consumers: creation, lookup, restore, timers, stored cursors.

Subscriptions, consumers and cursors are stored in the journal's state. A consumer's id survives a restart: common
clients reopen their stream under the old id without subscribing again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import msgspec
import structlog

from raceway import errors
from raceway.broker.bus import Bus, IntentHandler
from raceway.broker.peers import Peer
from raceway.broker.places import Place, count_requests, find_place
from raceway.broker.queues.queue import CURSORS
from raceway.broker.runs import Refused
from raceway.broker.steps import Steps
from raceway.broker.subscriptions.absences import Absences
from raceway.broker.subscriptions.consumers import Consumer, ConsumerRecord
from raceway.broker.subscriptions.durable import DurableSubscription
from raceway.broker.subscriptions.keyed import KeySharedSubscription
from raceway.broker.subscriptions.live import LiveSubscription
from raceway.broker.subscriptions.progress import Ahead
from raceway.broker.subscriptions.settings import Given, check_count
from raceway.broker.subscriptions.subscription import Subscription, SubscriptionHost, SubscriptionRecord, TopicFeed
from raceway.broker.topic_records import TopicRecords
from raceway.broker.topics import Topic
from raceway.broker.undelivered.dead_letters import Letters
from raceway.chance import random_bits
from raceway.journal.contract import OnCommit
from raceway.model.intents.batches import Acknowledge, Return, Taken
from raceway.model.intents.kinds import Done
from raceway.model.intents.subscriptions import AttachConsumer, FindConsumer, OpenStream, Sink
from raceway.model.subscriptions import LAST, ConsumerRow, ConsumerWanted, SubscriptionType

log = structlog.get_logger("raceway.broker")

SUBSCRIPTIONS, CONSUMERS, REQUESTS = "subscriptions", "consumers", "requests"
MAX_NAME, MAX_FILTERS = 255, 100


class Stream:
    """The stream of a consumer: an `OpenedStream`."""

    def __init__(self, table: SubscriptionTable, peer: Peer, consumer_id: int, *, is_live: bool) -> None:
        self._table, self._peer, self._consumer_id, self.is_live = table, peer, consumer_id, is_live
        self._attached: tuple[Subscription, Consumer, Sink] | None = None

    def start(self, sink: Sink) -> None:
        try:
            subscription, consumer = self._table.consumer(self._consumer_id)
        except errors.UnknownConsumerError as error:  # removed since the stream was opened
            sink.end(error)
            return
        self._attached = (subscription, consumer, sink)
        self._peer.streams += 1
        subscription.open_stream(consumer, sink)

    def resume(self) -> None:
        if self._attached is not None:
            subscription, consumer, sink = self._attached
            if consumer.sink is sink:
                subscription.pump()

    def close(self, *, lost: bool = False) -> None:
        if self._attached is not None:
            subscription, consumer, sink = self._attached
            self._attached = None
            self._peer.streams -= 1
            subscription.close_stream(consumer, sink, lost=lost)


class SubscriptionTable(SubscriptionHost):
    def __init__(self, bus: Bus, records: TopicRecords, letters: Letters) -> None:
        super().__init__(bus, records, letters)
        self._absences = Absences(bus, self._forget, self.remove)
        self.note_absence = self._absences.note
        self._feeds: dict[Topic, TopicFeed] = {}
        self._by_consumer: dict[int, tuple[Subscription, Consumer]] = {}
        # Subscriptions whose records are not committed: on a full disk nobody is told that they exist.
        self._unstored: set[Subscription] = set()
        self._numbers = 0
        self._paused = False
        self._restore()

    def calls(self) -> dict[type, IntentHandler]:
        return {
            AttachConsumer: self._attach_consumer,
            FindConsumer: lambda peer, call: Done(self.is_consumer(call.consumer_id)),
            OpenStream: self._open_stream,
        }

    # ---- subscriptions -----------------------------------------------------------------------------------------------

    def find(self, topic: str, name: str) -> Subscription:
        """Return a subscription. Raises UnknownTopicError, UnknownSubscriptionError."""
        feed = self._feeds.get(self._records.topic(topic))
        subscription = None if feed is None else feed.subscriptions.get(name)
        if subscription is None:
            raise errors.UnknownSubscriptionError(name)
        return subscription

    def of_topic(self, topic: Topic) -> dict[str, Subscription]:
        feed = self._feeds.get(topic)
        return {} if feed is None else feed.subscriptions

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def make(self, wanted: ConsumerWanted, place: Place | None = None) -> bool:
        """Create a subscription without consumers. Return False if it exists. Raises as `subscribe`."""
        topic = self._topic(wanted)
        check_name("subscription", wanted.subscription)
        if wanted.subscription in self.of_topic(topic):
            return False
        self._bus.journal.check_writable()
        self._check_room(topic, None)
        self._make(topic, wanted, place)
        return True

    def _attach_consumer(self, peer: Peer, call: AttachConsumer) -> Steps[Any]:
        wanted, place = call.wanted, None
        topic = self._records.maybe_topic(wanted.topic)
        if wanted.start != LAST and topic is not None:
            place = yield self._bus.aside(partial(find_place, self._bus.journal, topic.name, wanted.start))
        row = yield from self._bus.change(lambda: self.subscribe(wanted, place, peer.network), renews=True)
        peer.note_alias(wanted.name)
        return row

    def subscribe(self, wanted: ConsumerWanted, place: Place | None = None, maker: str = "") -> ConsumerRow:
        """Attach a consumer, and create the subscription if it is new: at `place`, the position of `wanted.start`.
        `maker` is the network of the client.

        Known consumers may return while the disk is full. Raises UnknownTopicError, ForbiddenError, MismatchError,
        LimitError, InvalidValueError, DrainingError, UnavailableError.
        """
        topic = self._topic(wanted, maker)
        _check_names(wanted)
        subscription = self.of_topic(topic).get(wanted.subscription)
        now_ms = self.now_ms()
        if subscription is None:
            self._bus.journal.check_writable()
            self._check_room(topic, None)
            subscription = self._make(topic, wanted, place)
        elif subscription in self._unstored:
            self._bus.journal.check_writable()
        if subscription.kind != wanted.type:
            if any(subscription.consumers.is_attached(each, now_ms) for each in subscription.consumers):
                raise errors.MismatchError(f"subscription {wanted.subscription!r}", subscription.kind, wanted.type)
            subscription = self._change_type(subscription, wanted.type)
        subscription.consumers.admit(wanted.name, now_ms)
        consumer = self._attach(subscription, wanted)
        return ConsumerRow(consumer.id, consumer.name)

    def _topic(self, wanted: ConsumerWanted, maker: str = "") -> Topic:
        """Return the topic, created if it is wanted so. Raises as `subscribe`."""
        self._bus.check_open()
        if wanted.create_topic and self._records.maybe_topic(wanted.topic) is None:
            return self._records.create_reliable(wanted.topic, maker)
        return self._records.topic(wanted.topic)

    def _attach(self, subscription: Subscription, wanted: ConsumerWanted) -> Consumer:
        """Reuse a consumer of this name without a stream; otherwise create one, in the seat of the live one, if any."""
        consumers = subscription.consumers
        live = consumers.maybe_newest(wanted.name, live=True)
        known = consumers.maybe_newest(wanted.name, live=False)
        if known is None:
            self._bus.journal.check_writable()
            self._check_room(subscription.topic, subscription)
        self._numbers += 1
        consumer_id = self._free_id() if known is None else known.id
        record = ConsumerRecord(
            subscription.topic.name, subscription.name, wanted.name, self._numbers,
            self._numbers if live is None else live.seat, wanted.filters, wanted.in_flight,
        )  # fmt: skip
        self._bus.set_state(CONSUMERS, str(consumer_id), msgspec.to_builtins(record))
        consumer = self._expect(consumer_id, record)
        self._join(subscription, consumer)
        return consumer

    def _check_room(self, topic: Topic, subscription: Subscription | None) -> None:
        """Check the limits for one more subscription of the topic, or one more consumer. Raises LimitError."""
        policies, subscriptions = self._records.policies(topic), self.of_topic(topic)
        if subscription is None:
            _check_limit(f"subscriptions of {topic.name!r}", len(subscriptions), policies.max_subscriptions_per_topic)
            return
        # Counted only where there is a limit: each consumer of a crowd would be looked at whenever one joins.
        if most := policies.max_consumers_per_subscription:
            _check_limit(f"consumers of subscription {subscription.name!r}", self._attached(subscription), most)
        if most := policies.max_consumers_per_topic:
            attached = sum(map(self._attached, subscriptions.values()))
            _check_limit(f"consumers of {topic.name!r}", attached, most)

    def _attached(self, subscription: Subscription) -> int:
        """Return the number of consumers of a subscription that are connected, or were a moment ago."""
        now_ms = self.now_ms()
        return sum(subscription.consumers.is_attached(each, now_ms) for each in subscription.consumers)

    def _free_id(self) -> int:
        while True:
            found = random_bits(63)
            if found and found not in self._by_consumer:
                return found

    def _expect(self, consumer_id: int, record: ConsumerRecord) -> Consumer:
        """Create a consumer whose stream is expected soon."""
        consumer = Consumer(consumer_id, record, self.now_ms())
        consumer.expected_ms = self.now_ms() + self._settings.arrival_s * 1000
        return consumer

    def _join(self, subscription: Subscription, consumer: Consumer) -> None:
        subscription.consumers.add(consumer)
        subscription.joined()
        self._by_consumer[consumer.id] = (subscription, consumer)
        self.note_absence(subscription)

    def _make(self, topic: Topic, wanted: ConsumerWanted, place: Place | None) -> Subscription:
        record = SubscriptionRecord(
            topic.name, wanted.subscription, wanted.type, self._records.reliable(topic) is not False
        )
        self._bus.set_state(SUBSCRIPTIONS, record.key, msgspec.to_builtins(record))
        feed = self._feed(topic)
        subscription = self._build(feed, record, self._beginning(feed, wanted, place))
        self._keep_cursor(subscription)
        self._unstored.add(subscription)
        self._bus.after_commit(partial(self._note_stored, subscription), patient=True)
        return subscription

    def _note_stored(self, subscription: Subscription, error: errors.RacewayError | None) -> None:
        if error is None:
            self._unstored.discard(subscription)

    def _beginning(self, feed: TopicFeed, wanted: ConsumerWanted, place: Place | None) -> dict[str, int]:
        """Return the start position. The end includes uncommitted rows: they were published before."""
        journal, topic = self._bus.journal, feed.topic.name
        if wanted.start == LAST:
            return {"offset": journal.offsets(topic)[1]}
        found = place or find_place(journal, topic, wanted.start)
        later = count_requests(journal, topic, found.end, feed.end)
        return {"offset": found.offset, "requests": feed.requests - found.requests - later}

    def _feed(self, topic: Topic) -> TopicFeed:
        feed = self._feeds.get(topic)
        if feed is None:
            requests = self._bus.journal.state.get(REQUESTS, topic.name) or 0
            end = self._bus.journal.offsets(topic.name)[1]
            feed = self._feeds[topic] = TopicFeed(topic, end, requests, self.recent, self._note_requests)
            self._bus.readers.add(topic, feed)
        return feed

    def _build(self, feed: TopicFeed, record: SubscriptionRecord, kept: Mapping[str, Any]) -> Subscription:
        """Build a subscription of its type with its stored progress, and register it."""
        subscription: Subscription
        if not record.reliable:
            subscription = LiveSubscription(feed, record, self)
        else:
            make = KeySharedSubscription if record.type == "key_shared" else DurableSubscription
            subscription = make(feed, record, self, kept)
        subscription.paused = self._paused
        feed.subscriptions[record.name] = subscription
        self._kept[subscription] = record
        return subscription

    def _change_type(self, old: Subscription, kind: SubscriptionType) -> Subscription:
        """Change the type of a subscription without consumers. Unacknowledged messages are delivered again."""
        record = msgspec.structs.replace(self._kept[old], type=kind)
        self._bus.set_state(SUBSCRIPTIONS, record.key, msgspec.to_builtins(record))
        del self._kept[old]
        self._absences.dismiss(old)
        feed = self._feeds[old.topic]
        subscription = self._build(feed, record, old.progress())
        self._moved.pop(old, None)
        for consumer in old.consumers:
            self._join(subscription, consumer)
        return subscription

    # ---- changing and removing ---------------------------------------------------------------------------------------

    def apply_settings(self, topic: str, name: str) -> None:
        """Apply changed settings to the subscription, if it exists."""
        known = self._records.maybe_topic(topic)
        subscription = None if known is None else self.of_topic(known).get(name)
        if isinstance(subscription, DurableSubscription):
            subscription.apply_settings()

    def move(self, subscription: DurableSubscription, offset: int, requests: int) -> None:
        """Continue at this offset; `requests` is the number of requests before it. Raises UnavailableError."""
        subscription.move(offset, requests)
        self._keep_cursor(subscription)
        self.pump_later(subscription)

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription and its consumers, and end their streams."""
        for consumer in list(subscription.consumers):
            self._forget(subscription, consumer)
        record = self._kept.pop(subscription)
        self._absences.dismiss(subscription)
        self._moved.pop(subscription, None)
        self._unstored.discard(subscription)
        self._bus.set_state(SUBSCRIPTIONS, record.key, None)
        self._bus.set_state(CURSORS, record.cursor_key, None)
        self.settings.forget(record.topic, record.name)
        feed = self._feeds[subscription.topic]
        del feed.subscriptions[subscription.name]
        if not feed.subscriptions:
            del self._feeds[subscription.topic]
            self._bus.readers.remove(subscription.topic, feed)
            self._bus.set_state(REQUESTS, subscription.topic.name, None)
            self.recent.forget(subscription.topic)

    def remove_topic(self, topic: Topic) -> None:
        for subscription in list(self.of_topic(topic).values()):
            self.remove(subscription)
        self.settings.forget_topic(topic.name)

    def _forget(self, subscription: Subscription, consumer: Consumer) -> None:
        subscription.consumers.remove(consumer)
        del self._by_consumer[consumer.id]
        self._bus.set_state(CONSUMERS, str(consumer.id), None)
        sink, consumer.sink = consumer.sink, None
        if sink is not None:
            sink.end(errors.UnknownConsumerError(str(consumer.id)))

    # ---- streams and acknowledgements --------------------------------------------------------------------------------

    def _open_stream(self, peer: Peer, call: OpenStream) -> Stream:
        """Raises UnknownConsumerError, ForbiddenError."""
        subscription, _ = self.consumer(call.consumer_id)
        self._bus.security.check(peer.principal, "Consume", subscription.topic.name)
        return Stream(self, peer, call.consumer_id, is_live=not subscription.reliable)

    def is_consumer(self, consumer_id: int) -> bool:
        return consumer_id in self._by_consumer

    def consumer(self, consumer_id: int) -> tuple[Subscription, Consumer]:
        """Return a consumer and its subscription. Raises UnknownConsumerError."""
        found = self._by_consumer.get(consumer_id)
        if found is None:
            raise errors.UnknownConsumerError(str(consumer_id))
        return found

    def acknowledge(self, peer: Peer, intent: Acknowledge, done: OnCommit | None) -> Taken:
        """Acknowledge messages. `done` is called after the commit of the moved cursors."""
        refused: Refused = []
        touched: dict[DurableSubscription, None] = {}
        for row, subscription in self._each(intent.topics, intent.subscriptions, refused):
            if isinstance(subscription, DurableSubscription):
                try:
                    subscription.acknowledge(intent.offsets[row])
                except errors.LimitError as error:
                    refused.append((row, row + 1, error))
                touched[subscription] = None
        return self._settle(touched, refused, done)

    def refuse(self, peer: Peer, intent: Return, done: OnCommit | None) -> Taken:
        refused: Refused = []
        touched: dict[DurableSubscription, None] = {}
        for row, subscription in self._each(intent.topics, intent.subscriptions, refused):
            if isinstance(subscription, DurableSubscription):
                try:
                    subscription.refuse(intent.offsets[row], intent.delays_ms[row] or 0, intent.reasons[row] or "")
                except errors.LimitError as error:
                    refused.append((row, row + 1, error))
                touched[subscription] = None
        return self._settle(touched, refused, done)

    def _each(self, topics: list[str], names: list[str], refused: Refused) -> Iterator[tuple[int, Subscription]]:
        found: dict[tuple[str, str], Subscription | errors.RacewayError] = {}
        for row, key in enumerate(zip(topics, names, strict=True)):
            subscription = found.get(key)
            if subscription is None:
                try:
                    subscription = self.find(*key)
                except errors.RacewayError as error:
                    subscription = error
                found[key] = subscription
            if isinstance(subscription, errors.RacewayError):
                refused.append((row, row + 1, subscription))
            else:
                yield row, subscription

    def _settle(self, touched: dict[DurableSubscription, None], refused: Refused, done: OnCommit | None) -> Taken:
        for subscription in touched:
            subscription.pump()
        if done is not None:
            if not self._moved and not self._dones:
                self._bus.turn.owe(self)
            self._dones.append(done)
        return Taken(tuple(refused))

    # ---- turns -------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop delivering, for the shutdown."""
        self._paused = True
        for subscription in self:
            subscription.paused = True

    def _note_requests(self, feed: TopicFeed) -> None:
        with contextlib.suppress(errors.UnavailableError):
            self._bus.set_state(REQUESTS, feed.topic.name, feed.requests)

    # ---- after a restart ---------------------------------------------------------------------------------------------

    def _restore(self) -> None:
        state = self._bus.journal.state
        by_name: dict[tuple[str, str], Subscription] = {}
        for value in list(state.section(SUBSCRIPTIONS).values()):
            record = msgspec.convert(value, SubscriptionRecord)
            self.settings.adopt(record.topic, record.name, Given(record.policy, record.max_unacked))
            feed = self._feed(self._bus.topics.own(record.topic))
            kept = state.get(CURSORS, record.cursor_key) or {"offset": feed.end}
            kept = {**kept, "offset": min(kept["offset"], feed.end)}
            by_name[record.topic, record.name] = self._build(feed, record, kept | self._recounted(feed, kept))
        for consumer_id, value in list(state.section(CONSUMERS).items()):
            joined = msgspec.convert(value, ConsumerRecord)
            self._numbers = max(self._numbers, joined.number)
            subscription = by_name.get((joined.topic, joined.subscription))
            if subscription is not None:
                self._join(subscription, self._expect(int(consumer_id), joined))
            else:  # its row was in a file that is lost; the consumer hears of it and subscribes again
                log.warning("consumer of a lost subscription", topic=joined.topic, subscription=joined.subscription)

    def _recounted(self, feed: TopicFeed, kept: Mapping[str, Any]) -> dict[str, int]:
        """Return the numbers of requests in stored progress whose cursor was moved by retention; otherwise nothing."""
        if "begun" not in kept:
            return {}
        journal, topic = self._bus.journal, feed.topic.name
        first = max(kept["offset"], journal.offsets(topic)[0])
        ahead = Ahead.restored({**kept, "offset": first}, feed.end)
        return {
            "requests": feed.requests - count_requests(journal, topic, first, feed.end),
            "stepped": sum(count_requests(journal, topic, start, stop) for start, stop in ahead),
        }


def _check_names(wanted: ConsumerWanted) -> None:
    check_name("consumer_name", wanted.name)
    check_name("subscription", wanted.subscription)
    if wanted.in_flight is not None:
        check_count("in_flight", wanted.in_flight)
    if len(wanted.filters) > MAX_FILTERS or any(len(glob) > MAX_NAME for glob in wanted.filters):
        raise errors.InvalidValueError("key_filters", f"must be at most {MAX_FILTERS} of at most {MAX_NAME} characters")


def check_name(what: str, text: str) -> None:
    """Check the length of a name. Raises InvalidValueError."""
    if not 0 < len(text) <= MAX_NAME:
        raise errors.InvalidValueError(what, f"must have 1 to {MAX_NAME} characters")


def _check_limit(what: str, count: int, limit: int | None) -> None:
    if limit and count >= limit:
        raise errors.LimitError(what, limit)
