"""Administration of namespaces and topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raceway.broker.bus import Bus, IntentHandler
from raceway.broker.producers import Producers
from raceway.broker.queues.table import QueueTable
from raceway.broker.registry.schemas import Schemas
from raceway.broker.subscriptions.table import SubscriptionTable
from raceway.broker.topic_records import MAX_PARTITIONS, TopicRecords, partition_of
from raceway.broker.topics import Topic
from raceway.errors import InUseError, InvalidValueError, TopicKindError, UnknownNamespaceError
from raceway.model.intents.topics import (
    CreateNamespace,
    CreateTopic,
    DeleteNamespace,
    DeleteTopic,
    SetLimits,
    SetTopicSchema,
)
from raceway.model.subscriptions import TopicRow
from raceway.model.topics import is_reserved, namespace_of, refuse_reserved


class TopicAdministration:
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

    def calls(self) -> dict[type, IntentHandler]:
        calls: dict[type, Callable[[Any], None]] = {
            CreateNamespace: lambda call: self._records.create_namespace(call.name),
            DeleteNamespace: lambda call: self._records.delete_namespace(call.name),
            SetLimits: lambda call: self._records.set_policies(call.scope, call.name, call.policies),
            CreateTopic: self._create,
            SetTopicSchema: self._set_schema,
            DeleteTopic: lambda call: self.delete_topic(call.name),
        }
        return {kind: self._bus.changing(work) for kind, work in calls.items()}

    def partitions(self, name: str) -> list[str]:
        """Return the names of the partitions by number; of the topic itself if it has none; empty if it is unknown."""
        return [each.name for each in self._records.partitions(name)]

    def _create(self, call: CreateTopic) -> None:
        if call.partitions is None:
            self.create_topic(call.name, call.reliable, call.subject)
        else:
            self.create_partitioned_topic(call.name, call.partitions, call.reliable, call.subject)

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

    def _set_schema(self, call: SetTopicSchema) -> None:
        for topic in self._records.parts(call.topic):
            if call.subject is None:
                self._schemas.update_policy(topic, call.policy, call.validate_payload)
            else:
                self._schemas.configure(topic, call.subject, call.policy, call.validate_payload)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its producers, subscriptions and partitions. Its rows stay in the journal.

        Raises UnknownTopicError; NameReservedError; InUseError if a queue has the name; InvalidValueError for a single
        partition.
        """
        refuse_reserved(name)
        found = partition_of(name)
        if found is not None and self._records.partitions(found[0]):
            raise InvalidValueError("name", f"a partition cannot be deleted by itself; delete {found[0]!r}")
        topics = self._records.parts(name)
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
        parts = self._records.parts(name)
        if parts[0].name == name:
            return self._row(parts[0])
        return TopicRow(name, self._records.reliable(parts[0]), (), tuple(part.name for part in parts))

    def topics(self, namespace: str | None = None) -> list[TopicRow]:
        """Return topics sorted by name; each partition is listed as a topic. Raises UnknownNamespaceError."""
        if namespace is not None and namespace not in self._records.namespaces():
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
