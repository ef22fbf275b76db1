"""Deadlines for many requests at little cost: a timer wheel.

A deadline falls into the bucket of its tick. One timer sweeps the buckets whose tick is over; whether a key is still
waiting is the owner's business, so an answered request costs nothing to forget; now and then the owner says which keys
still count (`retain`), or long deadlines of answered requests would fill the memory. A deadline is met late by one tick
at most, never early. The clock comes in as an argument, so tests need not wait.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")

# 16 ms: with the sweep's own tick a deadline is met within 32 ms, and a sweep of an empty bucket costs nothing.
TICK_MS = 16


class TimerWheel(Generic[K]):
    def __init__(self, tick_ms: int = TICK_MS) -> None:
        self._tick_ms = tick_ms
        self._buckets: dict[int, list[K]] = {}
        self._size = 0
        self._next = 0  # the first tick that has not been swept

    def add(self, deadline_ms: float, now_ms: float, key: K) -> None:
        if not self._buckets:
            self._next = int(now_ms // self._tick_ms)
        tick = max(int(deadline_ms // self._tick_ms), self._next)
        bucket = self._buckets.get(tick)
        if bucket is None:
            self._buckets[tick] = [key]
        else:
            bucket.append(key)
        self._size += 1

    def due(self, now_ms: float) -> Iterator[K]:
        """Keys whose tick is over, earliest first; each is given once."""
        current = int(now_ms // self._tick_ms)
        for tick in range(self._next, current):
            self._next = tick + 1
            keys = self._buckets.pop(tick, ())
            self._size -= len(keys)
            yield from keys

    def retain(self, wanted: Container[K]) -> None:
        """Forget all other keys."""
        kept = {tick: [key for key in keys if key in wanted] for tick, keys in self._buckets.items()}
        self._buckets = {tick: keys for tick, keys in kept.items() if keys}
        self._size = sum(map(len, self._buckets.values()))

    def __len__(self) -> int:
        """Keys that were not given yet, wanted or not."""
        return self._size

    def __bool__(self) -> bool:
        return bool(self._buckets)
