"""Administration of namespaces, topics and subscriptions."""

from __future__ import annotations

from typing import Literal

from raceway.broker.bus import Bus
from raceway.broker.producers import Producers
from raceway.broker.queues.table import QueueTable
from raceway.broker.registry.schemas import Schemas
from raceway.broker.subscriptions.subscription import Subscription
from raceway.broker.subscriptions.table import SubscriptionTable, check_name
from raceway.broker.topic_records import MAX_PARTITIONS, TopicRecords, partition_of
from raceway.broker.topics import Topic
from raceway.errors import InUseError, InvalidValueError, TopicKindError, UnknownNamespaceError, UnknownTopicError
from raceway.model.subscriptions import FailurePolicy, Policies, SubscriptionStatus, SubscriptionType, TopicRow
from raceway.model.topics import is_reserved, namespace_of, parse_namespace, refuse_reserved


class DanubeAdmin:
    def __init__(
        self,
        bus: Bus,
        records: TopicRecords,
        schemas: Schemas,
        producers: Producers,
        subscriptions: SubscriptionTable,
        queues: QueueTable,
    ) -> None:
        self._bus, self._records, self._schemas, self._producers = bus, records, schemas, producers
        self._subscriptions, self._queues = subscriptions, queues

    # ---- namespaces --------------------------------------------------------------------------------------------------

    def namespaces(self) -> list[str]:
        return sorted(self._records.namespaces)

    def create_namespace(self, name: str) -> None:
        """Create a namespace. Raises NameInvalidError, TopicKindError."""
        self._records.create_namespace(parse_namespace(name))

    def delete_namespace(self, name: str) -> None:
        """Delete an empty namespace. Raises UnknownNamespaceError, InUseError."""
        self._records.delete_namespace(name)

    def namespace_topics(self, name: str) -> list[str]:
        """Return the topics of a namespace. Raises UnknownNamespaceError."""
        return [row.name for row in self.topics(name)]

    def policies(self, namespace: str) -> Policies:
        """Return the policies of a namespace. Raises UnknownNamespaceError."""
        return self._records.namespace_policies(namespace)

    def topic_policies(self, name: str) -> Policies:
        """Return the policies of a topic. Raises UnknownTopicError."""
        return self._records.policies(self._topic(name))

    def set_policies(self, scope: Literal["namespace", "topic"], name: str, policies: Policies) -> None:
        """Set the policies of a namespace or topic. Raises UnknownNamespaceError, UnknownTopicError,
        InvalidValueError."""
        if scope == "namespace":
            self._records.set_namespace_policies(name, policies)
        else:
            for topic in self._parts(name):
                self._records.set_topic_policies(topic, policies)

    # ---- topics ------------------------------------------------------------------------------------------------------

    def create_topic(self, name: str, reliable: bool, subject: str | None = None) -> None:
        """Create a topic. Raises TopicKindError if it exists, errors of names, SchemaReferenceError."""
        known = self._records.check(name, reliable)
        if known is not None:
            raise TopicKindError(name, known.name)
        self._make([name], reliable, subject)

    def create_partitioned_topic(self, base: str, partitions: int, reliable: bool, subject: str | None = None) -> None:
        """Create a partitioned topic.

        Raises TopicKindError, InvalidValueError, SchemaReferenceError, errors of names.
        """
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise InvalidValueError("partitions", f"must be from 1 to {MAX_PARTITIONS}")
        if partition_of(base) is not None:
            raise InvalidValueError("base_name", "a partition cannot be partitioned")
        if self._records.partitions(base):
            raise TopicKindError(base, base)
        names = [f"{base}-part-{number}" for number in range(partitions)]
        for name in names:
            self._records.check(name, reliable)
        self._make(names, reliable, subject, fixed=partitions)

    def _make(self, names: list[str], reliable: bool, subject: str | None, fixed: int = 0) -> None:
        if subject is not None:
            self._schemas.check_reference(None, subject)
        for name in names:
            topic = self._records.settle(name, reliable, fixed)
            if subject is not None:
                self._schemas.bind(topic, subject)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its producers, subscriptions and partitions. Its rows stay in the journal.

        Raises UnknownTopicError; NameReservedError; InUseError if a queue has the name; InvalidValueError for a single
        partition.
        """
        refuse_reserved(name)
        found = partition_of(name)
        if found is not None and self._records.partitions(found[0]):
            raise InvalidValueError("name", f"a partition cannot be deleted by itself; delete {found[0]!r}")
        topics = self._parts(name)
        for topic in topics:
            if self._queues.exists(topic.name):
                raise InUseError(f"topic {topic.name!r}", "it is a queue")
        for topic in topics:
            self._subscriptions.remove_topic(topic)
            self._producers.remove_topic(topic)
            self._schemas.forget(topic)
            self._records.delete(topic)

    def describe(self, name: str) -> TopicRow:
        """Describe a topic. Raises UnknownTopicError."""
        parts = self._parts(name)
        if parts[0].name == name:
            return self._row(parts[0])
        return TopicRow(name, self._records.reliable(parts[0]), (), tuple(part.name for part in parts))

    def topics(self, namespace: str | None = None) -> list[TopicRow]:
        """Return topics sorted by name; each partition is listed as a topic. Raises UnknownNamespaceError."""
        if namespace is not None and namespace not in self._records.namespaces:
            raise UnknownNamespaceError(namespace)
        rows = [
            self._row(topic)
            for topic in self._bus.topics
            if not topic.partitions
            and not is_reserved(topic.name)
            and (namespace is None or namespace_of(topic.name) == namespace)
        ]
        return sorted(rows, key=lambda row: row.name)

    def _row(self, topic: Topic) -> TopicRow:
        return TopicRow(topic.name, self._records.reliable(topic), tuple(sorted(self._subscriptions.of_topic(topic))))

    def _topic(self, name: str) -> Topic:
        topic = self._records.maybe_topic(name)
        if topic is None:
            raise UnknownTopicError(name)
        return topic

    def _parts(self, name: str) -> tuple[Topic, ...]:
        topics = self._records.partitions(name)
        if not topics:
            raise UnknownTopicError(name)
        return topics

    # ---- subscriptions -----------------------------------------------------------------------------------------------

    def subscriptions(self, topic: str) -> list[str]:
        """Return the names of a topic's subscriptions. Raises UnknownTopicError."""
        return sorted({name for part in self._parts(topic) for name in self._subscriptions.of_topic(part)})

    def status(self) -> list[SubscriptionStatus]:
        """Return the status of all subscriptions, sorted by topic and name."""
        rows = [subscription.status() for subscription in self._subscriptions]
        return sorted(rows, key=lambda row: (row.topic, row.name))

    def unsubscribe(self, topic: str, subscription: str) -> None:
        """Remove a subscription. Raises UnknownTopicError, UnknownSubscriptionError; InUseError with live consumers."""
        found = self._subscription(topic, subscription)
        live = len(found.consumers.live)
        if live:
            raise InUseError(f"subscription {subscription!r}", f"{live} live consumer{'s' * (live > 1)}")
        self._subscriptions.remove(found)

    def failure_policy(self, topic: str, subscription: str) -> tuple[FailurePolicy, SubscriptionType]:
        """Return the policy and type of a subscription. One that has only settings so far counts as exclusive.

        Raises UnknownTopicError, UnknownSubscriptionError.
        """
        name = self._known(topic, subscription)
        found = self._subscriptions.of_topic(self._topic(topic)).get(subscription)
        return self._subscriptions.settings.policy(name, subscription), found.kind if found else "exclusive"

    def set_failure_policy(self, topic: str, subscription: str, policy: FailurePolicy) -> None:
        """Set the failure policy, also of a subscription that does not exist yet. Raises UnknownTopicError,
        InvalidValueError."""
        name = self._named(topic, subscription)
        self._subscriptions.settings.set_policy(name, subscription, policy)
        self._apply(name, subscription)

    def has_failure_policy(self, topic: str, subscription: str) -> bool:
        """Return whether the subscription has its own policy. Raises UnknownTopicError, UnknownSubscriptionError."""
        return self._subscriptions.settings.has_policy(self._known(topic, subscription), subscription)

    @property
    def usual_failure_policy(self) -> FailurePolicy:
        """The policy of subscriptions that have none of their own."""
        return self._subscriptions.settings.default

    def set_delivery(self, topic: str, subscription: str, policy: FailurePolicy | None, in_flight: int | None) -> None:
        """Set failure policy and messages in flight together; None restores the default of the bus.

        Raises UnknownTopicError, InvalidValueError.
        """
        name = self._named(topic, subscription)
        self._subscriptions.settings.set_delivery(name, subscription, policy, in_flight)
        self._apply(name, subscription)

    def forget_delivery(self, topic: str, subscription: str) -> None:
        """Restore the defaults of the bus. Raises UnknownTopicError, UnknownSubscriptionError."""
        self.set_delivery(self._known(topic, subscription), subscription, None, None)

    def remove_failure_policy(self, topic: str, subscription: str) -> None:
        """Restore the default policy of the bus. Raises UnknownTopicError, UnknownSubscriptionError."""
        self.set_delivery(topic, subscription, None, self.in_flight(topic, subscription))

    def dispatch_limit(self, topic: str, subscription: str) -> int:
        """Return the limit of unacknowledged messages. Raises UnknownTopicError, UnknownSubscriptionError."""
        return self._subscriptions.settings.max_unacked(self._known(topic, subscription), subscription)

    def set_dispatch_limit(self, topic: str, subscription: str, max_unacked: int) -> None:
        """Set the limit of unacknowledged messages. Raises UnknownTopicError, InvalidValueError."""
        name = self._named(topic, subscription)
        self._subscriptions.settings.set_max_unacked(name, subscription, max_unacked)
        self._apply(name, subscription)

    def in_flight(self, topic: str, subscription: str) -> int | None:
        """Return the fixed number of messages in flight, None if it is adaptive. Raises as `dispatch_limit`."""
        return self._subscriptions.settings.maybe_in_flight(self._known(topic, subscription), subscription)

    def set_in_flight(self, topic: str, subscription: str, count: int | None) -> None:
        """Set how many messages one consumer has in flight. Raises UnknownTopicError, InvalidValueError."""
        name = self._named(topic, subscription)
        self._subscriptions.settings.set_in_flight(name, subscription, count)
        self._apply(name, subscription)

    def settings_of(self, topic: str) -> list[str]:
        """Return the names of subscriptions with own settings, existing or not. Raises UnknownTopicError."""
        return self._subscriptions.settings.names(self._topic(topic).name)

    def _apply(self, topic: str, subscription: str) -> None:
        """Apply changed settings. Drop the record of a subscription that neither exists nor has settings."""
        self._subscriptions.apply_settings(topic, subscription)
        settings = self._subscriptions.settings
        is_there = subscription in self._subscriptions.of_topic(self._topic(topic))
        if not is_there and subscription not in settings.names(topic):
            settings.forget(topic, subscription)

    def _named(self, topic: str, subscription: str) -> str:
        """Check both names and return the topic's name. Raises UnknownTopicError, NameInvalidError."""
        check_name("subscription", subscription)
        return self._topic(topic).name

    def _known(self, topic: str, subscription: str) -> str:
        """Return the topic's name if the subscription exists or has settings. Raises UnknownSubscriptionError."""
        name = self._topic(topic).name
        if subscription not in self._subscriptions.settings.names(name):
            self._subscription(topic, subscription)
        return name

    def _subscription(self, topic: str, name: str) -> Subscription:
        return self._subscriptions.find(topic, name)
