"""Queues and their consumers."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from raceway.broker.queues.consumer import QueueConsumer
from raceway.broker.queues.pubsub import PubSubQueue
from raceway.broker.queues.queue import Queue
from raceway.broker.queues.table import PUBSUB, QueueRecord, QueueTable


class QueueConsumerRow(msgspec.Struct, frozen=True, gc=False):
    """A consumer of a queue. `topics` is None in ordinary queues."""

    address: str
    armed: bool
    topics: tuple[str, ...] | None


class QueueSummary(msgspec.Struct, frozen=True, gc=False):
    """A queue. `guarded`: a token is required to use it. `backlog` counts messages that were not delivered; it is 0
    for publish/subscribe."""

    name: str
    mode: int
    maker: str
    made_ms: int
    guarded: bool
    backlog: int
    consumers: tuple[QueueConsumerRow, ...]

    @property
    def is_pubsub(self) -> bool:
        return bool(self.mode & PUBSUB)


class QueueView:
    def __init__(self, queues: QueueTable) -> None:
        self._queues = queues

    def __iter__(self) -> Iterator[QueueSummary]:
        """Yield all queues, in order of creation."""
        return (_summary(*each) for each in self._queues)

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
