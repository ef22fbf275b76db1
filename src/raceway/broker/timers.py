"""Deadlines for many requests at little cost: a timer wheel.

A deadline falls into the bucket of its tick. One timer sweeps the buckets whose tick is over; whether a key is still
waiting is the owner's business, so an answered request costs nothing to forget; now and then the owner says which keys
still count (`retain`), or long deadlines of answered requests would fill the memory. A deadline is met late by one tick
at most, never early. The clock comes in as an argument, so tests need not wait.

`Alarms` is for the rare and the long: nothing runs before the first one is due.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

K = TypeVar("K")

# 16 ms: with the sweep's own tick a deadline is met within 32 ms, and a sweep of an empty bucket costs nothing.
TICK_MS = 16


class TimerWheel(Generic[K]):
    def __init__(self, tick_ms: int = TICK_MS) -> None:
        self._tick_ms = tick_ms
        self._buckets: dict[int, list[K]] = {}
        self._size = 0
        self._next = 0  # the first tick that has not been swept

    def add(self, deadline_ms: float, now_ms: float, *keys: K) -> float:
        """When they will be due: their tick is over then."""
        if not self._buckets:
            self._next = int(now_ms // self._tick_ms)
        tick = max(int(deadline_ms // self._tick_ms), self._next)
        bucket = self._buckets.get(tick)
        if bucket is None:
            self._buckets[tick] = [*keys]
        else:
            bucket += keys
        self._size += len(keys)
        return (tick + 1) * self._tick_ms

    def due(self, now_ms: float) -> Iterator[K]:
        """Keys whose tick is over, earliest first; each is given once."""
        current = int(now_ms // self._tick_ms)
        for tick in self._ticks_before(current):
            self._next = tick + 1
            keys = self._buckets.pop(tick, ())
            self._size -= len(keys)
            yield from keys
        self._next = max(self._next, current)

    def _ticks_before(self, current: int) -> Iterable[int]:
        """After a long pause there are more ticks than buckets."""
        if current - self._next > len(self._buckets):
            return sorted(tick for tick in self._buckets if tick < current)
        return range(self._next, current)

    @property
    def next_ms(self) -> float | None:
        """When the next sweep will find something."""
        return (min(self._buckets) + 1) * self._tick_ms if self._buckets else None

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


class Sleep(Protocol):
    """What a loop's `call_later` gives."""

    def cancel(self) -> None: ...


class Alarms(Generic[K]):
    """`ring` is called with each key whose time has come. Keys that want no alarm any more must bear one."""

    def __init__(
        self,
        ring: Callable[[K], None],
        monotonic_ms: Callable[[], float],
        call_later: Callable[[float, Callable[[], None]], Sleep],
    ) -> None:
        self._ring = ring
        self._monotonic_ms = monotonic_ms
        self._call_later = call_later
        self._wheel: TimerWheel[K] = TimerWheel()
        self._wakes_ms = float("inf")
        self._sleep: Sleep | None = None

    def __len__(self) -> int:
        """Alarms that were set and have not rung, wanted or not."""
        return len(self._wheel)

    def retain(self, wanted: Container[K]) -> None:
        """Forget all other keys."""
        self._wheel.retain(wanted)

    def set(self, key: K, at_ms: float) -> None:
        now_ms = self._monotonic_ms()
        self._wake(self._wheel.add(at_ms, now_ms, key), now_ms)

    def _wake(self, at_ms: float, now_ms: float) -> None:
        """One sleep at a time, for what is due first."""
        if at_ms < self._wakes_ms:
            self._wakes_ms = at_ms
            if self._sleep is not None:
                self._sleep.cancel()
            self._sleep = self._call_later(max(0.0, at_ms - now_ms) / 1000, self._sweep)

    def _sweep(self) -> None:
        now_ms = self._monotonic_ms()
        self._wakes_ms, self._sleep = float("inf"), None
        for key in self._wheel.due(now_ms):
            self._ring(key)
        next_ms = self._wheel.next_ms
        if next_ms is not None:
            self._wake(next_ms, now_ms)
