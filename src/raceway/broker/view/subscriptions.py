"""Subscriptions by name."""

from __future__ import annotations

from collections.abc import Iterator

from raceway.broker.subscriptions.durable import DurableSubscription
from raceway.broker.subscriptions.table import SubscriptionTable
from raceway.model.subscriptions import SubscriptionStatus


class SubscriptionView:
    def __init__(self, table: SubscriptionTable) -> None:
        self._table = table

    def __iter__(self) -> Iterator[SubscriptionStatus]:
        return (each.status() for each in self._table)

    def __len__(self) -> int:
        return len(self._table)

    def names(self) -> list[tuple[str, str]]:
        """Return topic and name of each."""
        return [(each.topic.name, each.name) for each in self._table]

    def status(self, topic: str, name: str) -> SubscriptionStatus:
        """Return one. Raises UnknownTopicError, UnknownSubscriptionError."""
        return self._table.find(topic, name).status()

    def of_topic(self, topic: str) -> list[SubscriptionStatus]:
        return [each.status() for each in self._table if each.topic.name == topic]

    def blocked(self) -> int:
        """Return how many have a message that failed too often and blocks those after it."""
        return sum(isinstance(each, DurableSubscription) and each.poisoned > 0 for each in self._table)
