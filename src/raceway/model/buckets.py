"""Token buckets: limits on how often something may happen, in the long run and at once.

Keys come from peers, so their number is bounded. A bucket that is evicted starts full again, which can only let more
pass, never less.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

KEPT_BUCKETS = 10_000


class Buckets:
    """Token buckets by key, at most `kept`. `time` is a monotonic clock, in seconds."""

    def __init__(self, time: Callable[[], float], kept: int = KEPT_BUCKETS) -> None:
        self._time, self._kept = time, kept
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, key: Hashable, rate: float, burst: float) -> bool:
        """Take a token from the bucket of `key`, which gets `rate` per second and holds `burst`; False if empty."""
        now = self._time()
        tokens, before = self._buckets.get(key, (burst, now))
        tokens = min(burst, tokens + (now - before) * rate)
        self._buckets[key] = (tokens - 1 if tokens >= 1 else tokens, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._kept:
            self._buckets.popitem(last=False)
        return tokens >= 1

    def __len__(self) -> int:
        return len(self._buckets)
