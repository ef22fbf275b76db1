"""Administration of subscriptions: create, move, list, remove; failure policy, messages in flight."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from raceway.broker.bus import Bus, IntentHandler
from raceway.broker.peers import Peer
from raceway.broker.places import count_requests, find_offset, find_place
from raceway.broker.queues.table import QueueTable
from raceway.broker.reading import Reading, topic_name
from raceway.broker.steps import Steps
from raceway.broker.subscriptions.durable import DurableSubscription
from raceway.broker.subscriptions.table import SubscriptionTable, check_name
from raceway.broker.topic_records import TopicRecords
from raceway.broker.topics import Topic
from raceway.errors import InUseError, InvalidValueError, UnknownTopicError
from raceway.model.intents import administration as intents
from raceway.model.intents.administration import DeliverySettings, ReaderMoved, TopicDone
from raceway.model.intents.reading import END, FIRST
from raceway.model.intents.subscriptions import RemoveSubscription, SetDispatch, SetFailurePolicy
from raceway.model.subscriptions import LAST, ConsumerWanted, Start, parse_start


class SubscriptionAdministration:
    def __init__(
        self, bus: Bus, records: TopicRecords, subscriptions: SubscriptionTable, queues: QueueTable, reading: Reading
    ) -> None:
        self._bus, self._records, self._reading = bus, records, reading
        self._subscriptions, self._queues = subscriptions, queues

    def calls(self) -> dict[type, IntentHandler]:
        return {
            intents.CreateSubscription: self._create,
            intents.MoveReader: self._move,
            intents.SetDelivery: self._set_delivery,
            intents.ResetDelivery: self._reset_delivery,
            RemoveSubscription: self._bus.changing(self._remove),
            SetFailurePolicy: self._bus.changing(self._set_policy),
            SetDispatch: self._bus.changing(self._set_dispatch),
        }

    def subscriptions(self, topic: str) -> list[str]:
        """Return the names of a topic's subscriptions. Raises UnknownTopicError."""
        return sorted({name for part in self._records.parts(topic) for name in self._subscriptions.of_topic(part)})

    # ---- creating, moving, removing ----------------------------------------------------------------------------------

    def _create(self, peer: Peer, call: intents.CreateSubscription) -> Steps[TopicDone]:
        name, start, security = topic_name(self._bus, call.topic), parse_start(call.start), self._bus.security
        security.check(peer.principal, "Consume", name)
        if not self._records.partitions(name):
            if not call.creates_topic:
                raise UnknownTopicError(name)
            security.check(peer.principal, "Produce", name)
            self._records.create_reliable(name, peer.network)
        made = False
        for part in self._records.partitions(name):
            made |= yield from self._create_one(part.name, call, start)
        yield self._bus.commit
        return TopicDone(name, made)

    def _create_one(self, topic: str, call: intents.CreateSubscription, start: Start) -> Steps[bool]:
        place = None
        if start != LAST:
            place = yield self._bus.aside(partial(find_place, self._bus.journal, topic, start))
        if call.in_flight is not None:
            self.change(topic, call.name, in_flight=call.in_flight)
        return self._subscriptions.make(ConsumerWanted(topic, "", call.name, call.type, start=start), place)

    def _move(self, peer: Peer, call: intents.MoveReader) -> Steps[ReaderMoved]:
        topics = self._reading.readable(peer.principal, call.topic)
        begin = yield from self._begin(topics, call.start)
        self._bus.journal.check_writable()
        gaps = yield from self._reading.find_gaps(topics, begin)
        if call.subscription is None:
            name = topics[0].spoken.decode()  # a queue has one topic
            self._queues.find(name, call.token)
            self._queues.move(name, begin[0])
        else:
            yield from self._move_subscriptions(call.subscription, topics, begin)
        yield self._bus.commit
        return ReaderMoved(begin, gaps)

    def _begin(self, topics: Sequence[Topic], text: str) -> Steps[list[int]]:
        """Return the offset in each topic. Raises MalformedError, InvalidValueError."""
        if text in ("", FIRST, END) or text.replace(",", "").isdigit():
            return self._reading.positions(topics, text)
        start, begin = parse_start(text), []
        for topic in topics:
            offset: int = yield self._bus.aside(partial(find_offset, self._bus.journal, topic.name, start))
            begin.append(offset)
        return begin

    def _move_subscriptions(self, name: str, topics: Sequence[Topic], begin: Sequence[int]) -> Steps[None]:
        found = [self._subscriptions.find(topic.name, name) for topic in topics]
        for subscription, offset in zip(found, begin, strict=True):
            if not isinstance(subscription, DurableSubscription):
                raise InvalidValueError(f"subscription {name!r}", "not reliable: it has no stored position")
            feed = subscription.feed
            passed = feed.requests  # of the rows before `end`; later ones are counted by the feed
            counting = partial(count_requests, self._bus.journal, feed.topic.name, offset, feed.end)
            behind = yield self._bus.aside(counting)
            self._subscriptions.move(subscription, offset, passed - behind)

    def _remove(self, call: RemoveSubscription) -> None:
        for part in self._records.parts(call.topic):
            self.unsubscribe(part.name, call.name)

    def unsubscribe(self, topic: str, subscription: str) -> None:
        """Remove a subscription. Raises UnknownTopicError, UnknownSubscriptionError; InUseError with live consumers."""
        found = self._subscriptions.find(topic, subscription)
        live = len(found.consumers.live)
        if live:
            raise InUseError(f"subscription {subscription!r}", f"{live} live consumer{'s' * (live > 1)}")
        self._subscriptions.remove(found)

    # ---- settings ----------------------------------------------------------------------------------------------------

    def delivery(self, topic: str, subscription: str) -> DeliverySettings:
        """Return how a subscription delivers. One that has only settings so far counts as exclusive.

        Raises UnknownTopicError, UnknownSubscriptionError.
        """
        part, settings = self._records.parts(topic)[0], self._subscriptions.settings
        self._check_known(part, subscription)
        found = self._subscriptions.of_topic(part).get(subscription)
        place = (part.name, subscription)
        return DeliverySettings(
            topic, found.kind if found else "exclusive", settings.get(*place).policy is not None,
            settings.policy(*place), settings.get(*place).in_flight, settings.max_unacked(*place),
        )  # fmt: skip

    def _set_delivery(self, peer: Peer, call: intents.SetDelivery) -> Steps[DeliverySettings]:
        topic, policy = self._managed(peer, call.topic), None
        if call.policy:
            policy = msgspec.structs.replace(self._subscriptions.settings.default, **call.policy)
            if policy.dead_letter_topic:
                letters = topic_name(self._bus, policy.dead_letter_topic)
                # Otherwise dead letters would be a way to write to a topic without the permission.
                self._bus.security.check(peer.principal, "Produce", letters)
                policy = msgspec.structs.replace(policy, dead_letter_topic=letters)
        for part in self._records.parts(topic):
            self.change(part.name, call.subscription, policy=policy, in_flight=call.in_flight)
        yield self._bus.commit
        return self.delivery(topic, call.subscription)

    def _reset_delivery(self, peer: Peer, call: intents.ResetDelivery) -> Steps[TopicDone]:
        topic = self._managed(peer, call.topic)
        before = self.delivery(topic, call.subscription)
        for part in self._records.parts(topic):
            self._check_known(part, call.subscription)
            self.change(part.name, call.subscription, policy=None, in_flight=None)
        yield self._bus.commit
        return TopicDone(topic, before.is_own or before.in_flight is not None)

    def _set_policy(self, call: SetFailurePolicy) -> None:
        for part in self._records.parts(call.topic):
            if call.policy is None:
                self._check_known(part, call.name)
            self.change(part.name, call.name, policy=call.policy)

    def _set_dispatch(self, call: SetDispatch) -> None:
        for part in self._records.parts(call.topic):
            if call.in_flight is not None:
                self.change(part.name, call.name, in_flight=call.in_flight or None)
            if call.max_unacked is not None:
                self.change(part.name, call.name, max_unacked=call.max_unacked)

    def change(self, topic: str, subscription: str, **facts: Any) -> None:
        """Change settings (fields of `Given`), also of a subscription that does not exist yet.

        None restores the default of the bus. Raises UnknownTopicError, InvalidValueError, NameReservedError.
        """
        check_name("subscription", subscription)
        known, settings = self._records.topic(topic), self._subscriptions.settings
        settings.change(topic, subscription, **facts)
        self._subscriptions.apply_settings(topic, subscription)
        # The record of a subscription that neither exists nor has settings is dropped.
        if subscription not in self._subscriptions.of_topic(known) and subscription not in settings.names(topic):
            settings.forget(topic, subscription)

    def _managed(self, peer: Peer, text: str) -> str:
        """Return the topic's name, if the peer may change its subscriptions."""
        topic = topic_name(self._bus, text)
        self._bus.security.check(peer.principal, "ManageTopic", topic)
        self._bus.journal.check_writable()
        return topic

    def _check_known(self, topic: Topic, subscription: str) -> None:
        """Check that a subscription exists or has settings. Raises UnknownSubscriptionError."""
        if subscription not in self._subscriptions.settings.names(topic.name):
            self._subscriptions.find(topic.name, subscription)
