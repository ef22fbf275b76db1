"""Rate limits: a token bucket, and the publish limits of topics.

A bucket holds the tokens of one second, so a burst of that size passes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from raceway.broker.runs import Refused, RowSpan
from raceway.broker.topic_records import TopicRecords
from raceway.broker.topics import Topic
from raceway.errors import LimitError, TooLargeError
from raceway.model.envelope import Batch

# A bucket that is evicted starts full again, which is harmless.
KEPT_BUCKETS = 10_000


class TokenBucket:
    __slots__ = ("_at", "_tokens")

    def __init__(self, rate: int, now: float) -> None:
        self._tokens, self._at = float(rate), now

    def take(self, wanted: int, rate: int, now: float) -> int:
        """Take up to `wanted` tokens. Return how many."""
        self._fill(rate, now)
        taken = min(wanted, int(self._tokens))
        self._tokens -= taken
        return taken

    def give_back(self, unused: int) -> None:
        self._tokens += unused

    def wait_s(self, rate: int, now: float) -> float:
        """Return the time until the next token."""
        self._fill(rate, now)
        return max(0.0, (1 - self._tokens) / rate)

    def _fill(self, rate: int, now: float) -> None:
        self._tokens = min(float(rate), self._tokens + (now - self._at) * rate)
        self._at = now


class PublishLimits:
    def __init__(self, records: TopicRecords, time: Callable[[], float]) -> None:
        self._records = records
        self._time = time
        self._buckets: OrderedDict[Topic, TokenBucket] = OrderedDict()

    def refuse(self, batch: Batch, spans: list[RowSpan], refused: Refused) -> None:
        """Add rows to `refused` that are too large or above the publish rate of their topic."""
        for topic, _, start, stop in spans:
            policies = self._records.policies(topic)
            if policies.max_message_size:
                _refuse_large(batch, start, stop, policies.max_message_size, refused)
            rate = policies.max_publish_rate
            if rate:
                passing = self._bucket(topic, rate).take(stop - start, rate, self._time())
                if start + passing < stop:
                    refused.append((start + passing, stop, LimitError(f"publishes a second on {topic.name!r}", rate)))

    def _bucket(self, topic: Topic, rate: int) -> TokenBucket:
        bucket = self._buckets.get(topic)
        if bucket is None:
            bucket = self._buckets[topic] = TokenBucket(rate, self._time())
            if len(self._buckets) > KEPT_BUCKETS:
                self._buckets.popitem(last=False)
        return bucket


def _refuse_large(batch: Batch, start: int, stop: int, limit: int, refused: Refused) -> None:
    for row in range(start, stop):
        size = len(batch.item("payload", row))
        if size > limit:
            refused.append((row, row + 1, TooLargeError("payload", size, limit)))
