"""Rate limits of the MB wire: a token bucket per service, per topic, and per service and topic.

A bucket holds the tokens of one second, so a burst of that size passes. Nothing is counted while no limit is set.
"""

from __future__ import annotations

from collections.abc import Callable

from raceway.model.buckets import Buckets
from raceway.model.topics import fold
from raceway.wires.mb.settings import MbWire


class RateLimits:
    def __init__(self, settings: MbWire, time: Callable[[], float]) -> None:
        self._per_service = settings.rate_per_service
        self._per_topic = settings.rate_per_topic
        self._by_topic = {fold(topic): rate for topic, rate in settings.topic_rate_per_service.items()}
        self._buckets = Buckets(time)
        self.active = bool(self._per_service or self._per_topic or self._by_topic)

    def admits(self, service: str, topic: str) -> bool:
        """Take one token from each bucket concerned; False if one of them is empty."""
        topic = fold(topic)
        wanted = [
            ((service, ""), self._per_service),
            (("", topic), self._per_topic),
            ((service, topic), self._by_topic.get(topic, 0)),
        ]
        return all(self._buckets.take(key, rate, rate) for key, rate in wanted if rate)
