"""Queues and their consumers, as wires see them."""

from __future__ import annotations

import msgspec

from raceway.broker.queues.consumer import QueueConsumer
from raceway.broker.queues.pubsub import PubSubQueue
from raceway.broker.queues.queue import Queue
from raceway.broker.queues.table import QueueTable


class QueueConsumerRow(msgspec.Struct, frozen=True, gc=False):
    """A consumer of a queue. `topics` is None in ordinary queues."""

    address: str
    armed: bool
    topics: tuple[str, ...] | None


class QueueSummary(msgspec.Struct, frozen=True, gc=False):
    """A queue. `backlog` is the number of messages that were not delivered."""

    name: str
    mode: int
    maker: str
    made_ms: int
    guarded: bool
    backlog: int
    consumers: tuple[QueueConsumerRow, ...]


class QueueView:
    def __init__(self, queues: QueueTable) -> None:
        self._queues = queues

    def rows(self) -> list[QueueSummary]:
        """Return all queues, in order of creation."""
        return [
            QueueSummary(
                name,
                record.mode,
                record.maker,
                record.made_ms,
                bool(record.token),
                queue.backlog if isinstance(queue, Queue) else 0,
                _consumers(queue),
            )
            for name, record, queue in self._queues
        ]

    def is_subscriber(self, peer: QueueConsumer) -> bool:
        """Return whether the peer consumes from any publish/subscribe queue."""
        return bool(self._queues.subscribed(peer))

    def is_behind(self, peer: QueueConsumer) -> bool:
        """Return whether one of the peer's publish/subscribe queues is catching up from the journal."""
        return self._queues.is_behind(peer)


def _consumers(queue: Queue | PubSubQueue) -> tuple[QueueConsumerRow, ...]:
    if isinstance(queue, PubSubQueue):
        return tuple(
            QueueConsumerRow(each.address, queue.is_armed(each), tuple(queue.topics_of(each)))
            for each in queue.consumers
        )
    return tuple(QueueConsumerRow(each.address, queue.is_armed(each), None) for each in queue.consumers)
