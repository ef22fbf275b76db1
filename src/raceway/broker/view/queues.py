"""Queues."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from raceway.broker.queues.pubsub import PubSubQueue
from raceway.broker.queues.queue import Queue
from raceway.broker.queues.table import QueueRecord, QueueTable


class QueueStatus(msgspec.Struct, frozen=True):
    """A queue. `guarded`: a token is required to use it. `waiting`: its backlog; 0 for publish/subscribe."""

    name: str
    mode: int
    is_pubsub: bool
    guarded: bool
    maker: str
    made_ms: int
    waiting: int
    consumers: int


class QueueView:
    def __init__(self, queues: QueueTable) -> None:
        self._queues = queues

    def __iter__(self) -> Iterator[QueueStatus]:
        return (_status(*each) for each in self._queues)

    def __len__(self) -> int:
        return sum(1 for _ in self._queues)

    def maybe(self, name: str) -> QueueStatus | None:
        return next((each for each in self if each.name == name), None)

    def guarded(self) -> frozenset[str]:
        """Return the names of queues that require a token."""
        return frozenset(name for name, record, _ in self._queues if record.token)


def _status(name: str, record: QueueRecord, queue: Queue | PubSubQueue) -> QueueStatus:
    return QueueStatus(
        name, record.mode, record.is_pubsub, bool(record.token), record.maker, record.made_ms,
        queue.backlog if isinstance(queue, Queue) else 0, len(queue.consumers),
    )  # fmt: skip
