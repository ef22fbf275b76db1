"""A timer wheel: cheap deadlines for many requests.

A deadline is put into the bucket of its tick. One timer sweeps the buckets whose tick has passed. Keys are not removed
when a request is answered: the owner ignores stale keys, and cleans the wheel now and then (`retain`), because long
deadlines of answered requests would fill the memory. A deadline fires at most one tick late, never early. The clock is
an argument, so tests need not wait.

`Alarms` is for few and long deadlines: nothing runs before the first one is due.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

K = TypeVar("K")

# With the sweep's own tick a deadline fires within 32 ms. Sweeping an empty bucket costs next to nothing.
TICK_MS = 16


class Clock(Protocol):
    """The methods of an event loop that connections and the broker use."""

    def time(self) -> float: ...
    def call_soon(self, callback: Callable[[], Any]) -> Any: ...
    def call_later(self, delay: float, callback: Callable[[], Any]) -> Any: ...


class TimerWheel(Generic[K]):
    """Keys by the tick of their deadline. A key may be added several times."""

    def __init__(self, tick_ms: int = TICK_MS) -> None:
        self._tick_ms = tick_ms
        # Tick number to keys. A dict, not a ring of fixed size: deadlines may be days away.
        self._buckets: dict[int, list[K]] = {}
        self._size = 0
        self._next = 0  # the first tick that has not been swept

    def add(self, deadline_ms: float, now_ms: float, *keys: K) -> float:
        """Add keys with this deadline. Return when they will be due: at the end of their tick."""
        # An empty wheel is not swept, so `_next` may be far in the past.
        if not self._buckets:
            self._next = int(now_ms // self._tick_ms)
        # A deadline in the past goes into the next tick to be swept; an earlier one would never be looked at.
        tick = max(int(deadline_ms // self._tick_ms), self._next)
        bucket = self._buckets.get(tick)
        if bucket is None:
            self._buckets[tick] = [*keys]
        else:
            bucket += keys
        self._size += len(keys)
        return (tick + 1) * self._tick_ms

    def due(self, now_ms: float) -> Iterator[K]:
        """Yield and remove the keys whose tick has passed, earliest first."""
        current = int(now_ms // self._tick_ms)
        for tick in self._ticks_before(current):
            # Before the yield: the caller may add keys in between, and they must not land in a swept tick.
            self._next = tick + 1
            keys = self._buckets.pop(tick, ())
            self._size -= len(keys)
            yield from keys
        self._next = max(self._next, current)

    def _ticks_before(self, current: int) -> Iterable[int]:
        """Return the ticks to sweep, in order."""
        # After a long pause, look at the buckets instead of at all ticks that have passed.
        if current - self._next > len(self._buckets):
            return sorted(tick for tick in self._buckets if tick < current)
        return range(self._next, current)

    @property
    def next_ms(self) -> float | None:
        """Time at which the next sweep will find keys, if there are any."""
        return (min(self._buckets) + 1) * self._tick_ms if self._buckets else None

    def retain(self, wanted: Container[K]) -> None:
        """Remove all keys that are not in `wanted`."""
        kept = {tick: [key for key in keys if key in wanted] for tick, keys in self._buckets.items()}
        self._buckets = {tick: keys for tick, keys in kept.items() if keys}
        self._size = sum(map(len, self._buckets.values()))

    def __len__(self) -> int:
        """Number of keys in the wheel, stale ones included."""
        return self._size

    def __bool__(self) -> bool:
        return bool(self._buckets)


class Sleep(Protocol):
    """The handle that a loop's `call_later` returns."""

    def cancel(self) -> None: ...


class Alarms(Generic[K]):
    """Calls `ring` with each key that is due. Alarms cannot be cancelled: `ring` must ignore stale keys."""

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
        # The one timer of the loop that is pending, and when it fires.
        self._wakes_ms = float("inf")
        self._sleep: Sleep | None = None

    def __len__(self) -> int:
        """Number of alarms that have not fired, stale ones included."""
        return len(self._wheel)

    def retain(self, wanted: Container[K]) -> None:
        """Remove all keys that are not in `wanted`."""
        self._wheel.retain(wanted)

    def set(self, key: K, at_ms: float) -> None:
        now_ms = self._monotonic_ms()
        self._wake(self._wheel.add(at_ms, now_ms, key), now_ms)

    def _wake(self, at_ms: float, now_ms: float) -> None:
        """Make sure that a timer fires at this time or earlier; there is one timer at a time."""
        if at_ms < self._wakes_ms:
            self._wakes_ms = at_ms
            if self._sleep is not None:
                self._sleep.cancel()
            self._sleep = self._call_later(max(0.0, at_ms - now_ms) / 1000, self._sweep)

    def _sweep(self) -> None:
        now_ms = self._monotonic_ms()
        # Reset first: `ring` may set new alarms.
        self._wakes_ms, self._sleep = float("inf"), None
        for key in self._wheel.due(now_ms):
            self._ring(key)
        next_ms = self._wheel.next_ms
        if next_ms is not None:
            self._wake(next_ms, now_ms)
