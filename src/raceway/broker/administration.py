"""The intents of administrators: queues, subscriptions and their positions, limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from raceway.broker.bus import Bus
from raceway.broker.peers import Peer
from raceway.broker.places import count_requests, find_place
from raceway.broker.queues.queue import Queue
from raceway.broker.queues.table import QueueTable
from raceway.broker.reading import Reading, topic_name
from raceway.broker.steps import Steps
from raceway.broker.subscriptions.administration import SubscriptionAdministration
from raceway.broker.subscriptions.durable import DurableSubscription
from raceway.broker.subscriptions.table import SubscriptionTable
from raceway.broker.topic_admin import TopicAdministration
from raceway.broker.topic_records import TopicRecords
from raceway.broker.topics import Topic
from raceway.errors import InvalidValueError, QueueKindError, UnknownTopicError
from raceway.model.intents.administration import (
    AddQueue,
    CreateSubscription,
    DeliverySettings,
    MoveReader,
    PeekQueue,
    PurgeQueue,
    QueuePeek,
    ReadDelivery,
    ReaderMoved,
    ReadLimits,
    ResetDelivery,
    SetDelivery,
    TopicDone,
)
from raceway.model.intents.kinds import Done
from raceway.model.subscriptions import LAST, ConsumerWanted, Policies, Start, parse_start

# The mode of an ordinary queue on zbus.
ORDINARY = 1


class AdministrationCalls:
    def __init__(
        self,
        bus: Bus,
        reading: Reading,
        subscriptions: SubscriptionTable,
        queues: QueueTable,
        records: TopicRecords,
        topics: TopicAdministration,
        admin: SubscriptionAdministration,
    ) -> None:
        self._bus, self._reading, self._subscriptions, self._queues = bus, reading, subscriptions, queues
        self._records, self._topics, self._admin = records, topics, admin

    def calls(self) -> dict[type, Callable[[Any, Any], Any]]:
        return {
            AddQueue: self._add_queue,
            PeekQueue: self._peek,
            PurgeQueue: self._purge,
            CreateSubscription: self._create,
            MoveReader: self._move,
            ReadLimits: self._limits,
            ReadDelivery: self._delivery,
            SetDelivery: self._set_delivery,
            ResetDelivery: self._reset_delivery,
        }

    # ---- queues ------------------------------------------------------------------------------------------------------

    def _add_queue(self, peer: Peer, call: AddQueue) -> Steps[Done]:
        self._bus.security.check(peer.principal, "ManageTopic", call.name)
        made, start = not self._queues.exists(call.name), parse_start(call.start)
        self._queues.create(None, str(peer.principal), call.name, ORDINARY, call.token, start)
        yield self._bus.commit
        return Done(made)

    def _peek(self, peer: Peer, call: PeekQueue) -> QueuePeek:
        """Return messages, oldest first, including those handed out and not taken."""
        queue, journal = self._queue(call.name, call.token), self._bus.journal
        name = queue.topic.name
        begin = max(queue.cursor, journal.offsets(name)[0])
        found = journal.read_topic(name, begin, max(call.limit, 1), call.max_bytes, call.columns)
        return QueuePeek(queue.backlog, [row for batch in found for row in batch.to_pylist()][: call.limit])

    def _purge(self, peer: Peer, call: PurgeQueue) -> int:
        return self._queue(call.name, call.token).purge()

    def _queue(self, name: str, token: str | None) -> Queue:
        self._queues.find(name, token)
        queue = next(queue for known, _, queue in self._queues if known == name)
        if not isinstance(queue, Queue):
            raise QueueKindError(name)
        return queue

    # ---- subscriptions -----------------------------------------------------------------------------------------------

    def _create(self, peer: Peer, call: CreateSubscription) -> Steps[TopicDone]:
        name, start, security = topic_name(self._bus, call.topic), parse_start(call.start), self._bus.security
        security.check(peer.principal, "Consume", name)
        if not self._topics.look_up(name):
            if not call.creates_topic:
                raise UnknownTopicError(name)
            security.check(peer.principal, "Produce", name)
            self._records.create_reliable(name)
        made = False
        for part in self._topics.partitions(name):
            made |= yield from self._create_one(part, call, start)
        yield self._bus.commit
        return TopicDone(name, made)

    def _create_one(self, topic: str, call: CreateSubscription, start: Start) -> Steps[bool]:
        place = None
        if start != LAST:
            place = yield self._bus.aside(partial(find_place, self._bus.journal, topic, start))
        if call.in_flight is not None:
            self._admin.set_in_flight(topic, call.name, call.in_flight)
        return self._subscriptions.make(ConsumerWanted(topic, "", call.name, call.type, start=start), place)

    def _move(self, peer: Peer, call: MoveReader) -> Steps[ReaderMoved]:
        topics = self._reading.readable(peer.principal, call.topic)
        begin = self._reading.positions(topics, call.start)
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

    # ---- limits ------------------------------------------------------------------------------------------------------

    def _limits(self, peer: Peer, call: ReadLimits) -> Policies:
        return self._topics.policies(call.name) if call.scope == "namespace" else self._topics.topic_policies(call.name)

    # ---- delivery of subscriptions -----------------------------------------------------------------------------------

    def _delivery(self, peer: Peer, call: ReadDelivery) -> DeliverySettings:
        return self._settings(topic_name(self._bus, call.topic), call.subscription)

    def _set_delivery(self, peer: Peer, call: SetDelivery) -> Steps[DeliverySettings]:
        topic, policy = self._managed(peer, call.topic), None
        if call.policy:
            policy = msgspec.structs.replace(self._admin.usual_failure_policy, **call.policy)
            if policy.dead_letter_topic:
                letters = topic_name(self._bus, policy.dead_letter_topic)
                # Otherwise dead letters would be a way to write to a topic without the permission.
                self._bus.security.check(peer.principal, "Produce", letters)
                policy = msgspec.structs.replace(policy, dead_letter_topic=letters)
        for part in self._parts(topic):
            self._admin.set_delivery(part, call.subscription, policy, call.in_flight)
        yield self._bus.commit
        return self._settings(topic, call.subscription)

    def _reset_delivery(self, peer: Peer, call: ResetDelivery) -> Steps[TopicDone]:
        topic, name, admin = self._managed(peer, call.topic), call.subscription, self._admin
        parts = self._parts(topic)
        removed = admin.has_failure_policy(parts[0], name) or admin.in_flight(parts[0], name) is not None
        for part in parts:
            admin.forget_delivery(part, name)
        yield self._bus.commit
        return TopicDone(topic, removed)

    def _managed(self, peer: Peer, text: str) -> str:
        """Return the topic's name, if the peer may change its subscriptions."""
        topic = topic_name(self._bus, text)
        self._bus.security.check(peer.principal, "ManageTopic", topic)
        self._bus.journal.check_writable()
        return topic

    def _parts(self, topic: str) -> list[str]:
        found = self._topics.partitions(topic)
        if not found:
            raise UnknownTopicError(topic)
        return found

    def _settings(self, topic: str, name: str) -> DeliverySettings:
        part, admin = self._parts(topic)[0], self._admin
        policy, kind = admin.failure_policy(part, name)
        return DeliverySettings(
            topic, kind, admin.has_failure_policy(part, name), policy,
            admin.in_flight(part, name), admin.dispatch_limit(part, name),
        )  # fmt: skip
