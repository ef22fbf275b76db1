"""Namespaces, topics and subscriptions, as administrators see them."""

from __future__ import annotations

from raceway.broker.broker import Broker


class AdministrationView:
    """The reading half of `TopicAdministration` and `SubscriptionAdministration`: see there."""

    def __init__(self, broker: Broker) -> None:
        self._journal = broker.journal
        topics, subscriptions = broker.topic_admin, broker.subscription_admin
        self.namespaces, self.topics, self.describe = topics.namespaces, topics.topics, topics.describe
        self.policies, self.topic_policies = topics.policies, topics.topic_policies
        self.partitions, self.look_up = topics.partitions, topics.look_up
        self.subscriptions, self.delivery = subscriptions.subscriptions, subscriptions.delivery

    @property
    def next_sequence(self) -> int:
        """The sequence of the next row of the journal."""
        return self._journal.next_sequence
