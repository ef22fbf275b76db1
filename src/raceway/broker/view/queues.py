"""Queues and their consumers."""

from __future__ import annotations

from collections.abc import Iterator

from raceway.broker.queues.consumer import QueueConsumer
from raceway.broker.queues.listing import summaries
from raceway.broker.queues.table import QueueTable
from raceway.model.intents.queues import QueueSummary


class QueueView:
    def __init__(self, queues: QueueTable) -> None:
        self._queues = queues

    def __iter__(self) -> Iterator[QueueSummary]:
        """Yield all queues, in order of creation."""
        return summaries(self._queues)

    def __len__(self) -> int:
        return sum(1 for _ in self._queues)

    def maybe(self, name: str) -> QueueSummary | None:
        return next((each for each in self if each.name == name), None)

    def guarded(self) -> frozenset[str]:
        """Return the names of queues that require a token."""
        return frozenset(name for name, record, _ in self._queues if record.token)

    def is_subscriber(self, peer: QueueConsumer) -> bool:
        """Return whether the peer consumes from any publish/subscribe queue."""
        return bool(self._queues.subscribed(peer))

    def is_behind(self, peer: QueueConsumer) -> bool:
        """Return whether one of the peer's publish/subscribe queues is catching up from the journal."""
        return self._queues.is_behind(peer)
