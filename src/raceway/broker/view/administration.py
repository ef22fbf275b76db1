"""Namespaces, topics and subscriptions, as administrators see them."""

from __future__ import annotations

from raceway.broker.broker import Broker


class AdministrationView:
    """The reading half of `TopicRecords`, `TopicAdministration` and `SubscriptionAdministration`: see there."""

    def __init__(self, broker: Broker) -> None:
        self._journal = broker.journal
        records, topics, subscriptions = broker.topic_records, broker.topic_admin, broker.subscription_admin
        self.namespaces, self.policies = records.namespaces, records.namespace_policies
        self.topic_policies, self.partitions = records.topic_policies, topics.partitions
        self.topics, self.describe = topics.topics, topics.describe
        self.subscriptions, self.delivery = subscriptions.subscriptions, subscriptions.delivery

    @property
    def next_sequence(self) -> int:
        """The sequence of the next row of the journal."""
        return self._journal.next_sequence
