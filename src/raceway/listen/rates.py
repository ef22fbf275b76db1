"""Messages a second, where a limit is set: a token bucket per service, per topic, and per both.

A bucket holds one second's worth, so a burst of that size passes. Nothing is counted while no limit is set.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from raceway import config
from raceway.model.topics import fold

# Names come from peers. A bucket that falls out starts full again, which only ever lets more pass.
KEPT_BUCKETS = 10_000


class RateLimits:
    def __init__(self, settings: config.MbWire, time: Callable[[], float]) -> None:
        self._time = time
        self._per_service = settings.rate_per_service
        self._per_topic = settings.rate_per_topic
        self._by_topic = {fold(topic): rate for topic, rate in settings.topic_rate_per_service.items()}
        self._buckets: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()
        self.active = bool(self._per_service or self._per_topic or self._by_topic)

    def admits(self, service: str, topic: str) -> bool:
        """Take one token from each bucket concerned; False if one of them is empty."""
        topic = fold(topic)
        wanted = [
            ((service, ""), self._per_service),
            (("", topic), self._per_topic),
            ((service, topic), self._by_topic.get(topic, 0)),
        ]
        return all(self._take(key, rate) for key, rate in wanted if rate)

    def _take(self, key: tuple[str, str], rate: int) -> bool:
        now = self._time()
        tokens, before = self._buckets.get(key, (float(rate), now))
        tokens = min(float(rate), tokens + (now - before) * rate)
        self._buckets[key] = (tokens - 1 if tokens >= 1 else tokens, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > KEPT_BUCKETS:
            self._buckets.popitem(last=False)
        return tokens >= 1
