"""The committed end of a topic, which its subscriptions follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raceway.broker.delivery.recent import RecentRows, RowRange
from raceway.broker.subscriptions.subscription import Subscription
from raceway.broker.topics import Topic
from raceway.model.envelope import REQUEST, Batch


class TopicFeed:
    """A `Reader` of its topic. Rows before `end` are committed; `requests` counts the requests among them since the
    topic first had a subscription, because lag counts publishes only."""

    def __init__(
        self, topic: Topic, end: int, requests: int, recent: RecentRows, counted: Callable[[TopicFeed], None]
    ) -> None:
        self.topic = topic
        self.end = end
        self.requests = requests
        self.subscriptions: dict[str, Subscription] = {}
        self._recent = recent
        self._counted = counted

    def committed(self, batch: Batch, rows: Sequence[int]) -> None:
        first = batch.item("offset", rows[0])
        if first < self.end:  # earlier rows could not be stored: their offsets are assigned again
            self._rewind(first)
        self.end = first + len(rows)
        self._count_requests(batch, rows)
        reading = [each for each in self.subscriptions.values() if each.is_reading]
        piece: RowRange | None = None
        if reading:  # a subscription that waits must not keep other topics' rows in memory
            own = batch if len(rows) == batch.count else batch.keep(list(rows))
            piece = self._recent.add(self.topic, own, first)
        for subscription in reading:
            subscription.grown(piece)

    def withdrawn(self, batch: Batch, row: int) -> None:
        self._rewind(batch.item("offset", row))

    def _rewind(self, offset: int) -> None:
        self.end = min(self.end, offset)
        self._recent.forget(self.topic, offset)
        for subscription in self.subscriptions.values():
            subscription.rewind(offset)

    def _count_requests(self, batch: Batch, rows: Sequence[int]) -> None:
        kind = batch.kind
        if kind == REQUEST:
            self.requests += len(rows)
            self._counted(self)
        elif type(kind) is list:
            found = sum(kind[row] == REQUEST for row in rows)
            self.requests += found
            if found:
                self._counted(self)
