"""Queues and their consumers, as rows."""

from __future__ import annotations

from collections.abc import Iterator

from raceway.broker.queues.pubsub import PubSubQueue
from raceway.broker.queues.queue import Queue
from raceway.broker.queues.table import QueueRecord, QueueTable
from raceway.model.intents.queues import QueueConsumerRow, QueueSummary


def summaries(queues: QueueTable) -> Iterator[QueueSummary]:
    """Yield all queues, in order of creation."""
    return (_summary(*each) for each in queues)


def _summary(name: str, record: QueueRecord, queue: Queue | PubSubQueue) -> QueueSummary:
    backlog = queue.backlog if isinstance(queue, Queue) else 0
    return QueueSummary(name, record.mode, record.maker, record.made_ms, bool(record.token), backlog, _consumers(queue))


def _consumers(queue: Queue | PubSubQueue) -> tuple[QueueConsumerRow, ...]:
    return tuple(
        QueueConsumerRow(
            each.address, seat.window != 0, tuple(sorted(seat.topics)) if seat.topics is not None else None
        )
        for each, seat in queue.consumers.items()
    )
