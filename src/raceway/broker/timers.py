"""Deadlines for many requests at little cost: a timer wheel.

A deadline falls into the bucket of its tick. One timer sweeps the buckets whose tick is over; whether a key is still
waiting is the owner's business, so an answered request costs nothing to forget. A deadline is met late by one tick at
most, never early. The clock comes in as an argument, so tests need not wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")

# 64 ms: short against the default deadline of 5 s, long enough that a busy sweep handles many at a time.
TICK_MS = 64


class TimerWheel(Generic[K]):
    def __init__(self, tick_ms: int = TICK_MS) -> None:
        self._tick_ms = tick_ms
        self._buckets: dict[int, list[K]] = {}

    def add(self, deadline_ms: float, key: K) -> None:
        tick = int(deadline_ms // self._tick_ms)
        bucket = self._buckets.get(tick)
        if bucket is None:
            self._buckets[tick] = [key]
        else:
            bucket.append(key)

    def due(self, now_ms: float) -> Iterator[K]:
        """Keys whose tick is over, earliest first; each is given once."""
        current = int(now_ms // self._tick_ms)
        for tick in sorted(tick for tick in self._buckets if tick < current):
            yield from self._buckets.pop(tick)

    def __bool__(self) -> bool:
        return bool(self._buckets)
