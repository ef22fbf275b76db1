"""Backpressure: publishers are not read from while their subscribers have too much output pending.

A subscriber above its high-water mark is *full*. A publisher that feeds full subscribers is paused until all of them
have drained. While only a few of its subscribers are still full, these are *holding* it back, and so is one that reads
next to nothing. A subscriber may hold for `hold_ms` in any `hold_window_ms`; one that holds longer is *detached*:
publishers no longer wait for it, and it reads from the journal until it has caught up.

Nothing is done per message. Delivery checks `full` once per run; everything else happens when some subscriber is full,
and at a tick while some publisher waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable
from typing import Protocol

from raceway.net.timers import Clock

# Stragglers: at most one in eight of a publisher's subscribers, but always one.
FEW = 8
# Bytes a second. A subscriber that reads less counts as holding, however many others do the same.
LEAST_RATE = 64 * 1024
# Measurements of holding per `hold_ms`.
TICKS = 20


class Waiter(Protocol):
    """A connection that publishes. Each `pause` is followed by one `resume`. `holder`: its own subscriber, if any."""

    @property
    def holder(self) -> CreditHolder | None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class CreditHolder(Protocol):
    """A subscriber that may be full. Compared by identity."""

    def taken(self) -> int:
        """Return how many bytes were written to it so far."""

    def detach(self) -> bool:
        """Leave the live path. Return False if there is no other source to read from."""


class Window:
    """Total time for which a subscriber held publishers back within the last `length` seconds."""

    __slots__ = ("_length", "_parts", "total")

    def __init__(self, length: float) -> None:
        self._length = length
        self._parts: deque[tuple[float, float]] = deque()
        self.total = 0.0

    def add(self, now: float, seconds: float) -> None:
        self._parts.append((now, seconds))
        self.total += seconds
        self.forget(now)

    def forget(self, now: float) -> None:
        while self._parts and self._parts[0][0] <= now - self._length:
            self.total -= self._parts.popleft()[1]
        if not self._parts:
            self.total = 0.0


class _Wait:
    """The full subscribers that one publisher waits for, and how many it feeds in all."""

    __slots__ = ("fed", "holders")

    def __init__(self) -> None:
        self.holders: set[CreditHolder] = set()
        self.fed = 1


class Credits:
    """Full subscribers and waiting publishers. `fed` are the full ones that the current read has delivered to."""

    def __init__(self, timers: Clock, hold_s: float, window_s: float) -> None:
        self.full: set[CreditHolder] = set()
        self.fed: set[CreditHolder] = set()
        # Full subscriptions that receive rows after the commit, by topic.
        self.full_on: dict[Hashable, set[CreditHolder]] = {}
        # Off the live path without a catch-up of their own.
        self.behind: set[CreditHolder] = set()
        self._fed_of = 1
        self._timers = timers
        self._hold_s, self._window_s = hold_s, window_s
        self._waits: dict[Waiter, _Wait] = {}
        self._windows: dict[CreditHolder, Window] = {}
        # For each full one: when it was last measured, and how many bytes it had read then.
        self._taken: dict[CreditHolder, tuple[float, int]] = {}
        self._ticked: float | None = None

    # ---- subscribers -------------------------------------------------------------------------------------------------

    def fill(self, holder: CreditHolder) -> None:
        """Note that a subscriber is above its mark. Idempotent."""
        if holder not in self.full:
            self.full.add(holder)
            self._taken[holder] = (self._timers.time(), holder.taken())

    def drain(self, holder: CreditHolder) -> None:
        """Note that a subscriber is below its mark or detached, and resume its publishers. Idempotent."""
        if holder in self.full:
            self.full.discard(holder)
            self._taken.pop(holder, None)
            self.fed.discard(holder)
            for waiter, wait in list(self._waits.items()):
                if holder in wait.holders:
                    self._leave(waiter, wait, holder)

    def forget(self, holder: CreditHolder) -> None:
        """Forget a subscriber that has disconnected."""
        self.drain(holder)
        self._windows.pop(holder, None)

    def note_fed(self, subscribers: Collection[object]) -> None:
        """Note that copies of a run were delivered to these subscribers."""
        found = self.full.intersection(subscribers)
        if found:
            self.fed |= found
        self._fed_of = max(self._fed_of, len(subscribers))

    def note_topic(self, topic: Hashable) -> None:
        """Note that a run of this topic was stored: subscriptions that receive it after the commit count as fed."""
        self.fed |= self.full_on.get(topic, set()) & self.full

    def fill_on(self, topic: Hashable, holder: CreditHolder) -> None:
        """Note that a subscription that receives rows of this topic after the commit is above its mark."""
        self.fill(holder)
        self.full_on.setdefault(topic, set()).add(holder)

    def drain_on(self, topic: Hashable, holder: CreditHolder) -> None:
        self.drain(holder)
        full = self.full_on.get(topic)
        if full is not None:
            full.discard(holder)
            if not full:
                del self.full_on[topic]

    # ---- publishers --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the read of a publisher: forget what other publishers have fed."""
        self.fed.clear()
        self._fed_of = 1

    def settle(self, waiter: Waiter) -> None:
        """End the read of a publisher: make it wait for the full subscribers that it fed."""
        fed, self.fed = self.fed, set()
        count, self._fed_of = self._fed_of, 1
        for holder in fed:
            self.hold(waiter, holder, count)

    def hold(self, waiter: Waiter, holder: CreditHolder, count: int = 1) -> None:
        """Make a publisher wait for a full subscriber, unless that has used up its time and can be detached."""
        if holder not in self.full or (self._is_spent(holder) and self.detach(holder)):
            return
        wait = self._waits.get(waiter)
        if wait is None:
            wait = self._waits[waiter] = _Wait()
            waiter.pause()
        wait.holders.add(holder)
        wait.fed = max(wait.fed, count)
        if self._ticked is None:
            self._schedule()

    def leave(self, waiter: Waiter) -> None:
        """Forget a publisher that has disconnected."""
        if self._waits.pop(waiter, None) is not None:
            waiter.resume()

    def detach(self, holder: CreditHolder) -> bool:
        """Take a subscriber off the live path. Return False if it has no other source."""
        if not holder.detach():
            return False
        self.drain(holder)
        return True

    def _leave(self, waiter: Waiter, wait: _Wait, holder: CreditHolder) -> None:
        wait.holders.discard(holder)
        if not wait.holders and self._waits.pop(waiter, None) is not None:
            waiter.resume()

    # ---- time --------------------------------------------------------------------------------------------------------

    def _is_spent(self, holder: CreditHolder) -> bool:
        window = self._windows.get(holder)
        if window is None:
            return False
        window.forget(self._timers.time())
        return window.total >= self._hold_s

    def _schedule(self) -> None:
        self._ticked = self._timers.time()
        self._timers.call_later(self._hold_s / TICKS, self._tick)

    def _tick(self) -> None:
        """Charge the elapsed time to holding subscribers, and detach those that held too long."""
        now = self._timers.time()
        elapsed = now - (self._ticked or now)
        self._ticked = None
        slow = self._slow(now)
        holding: dict[CreditHolder, None] = {}
        for waiter, wait in self._waits.items():
            few = len(wait.holders) <= max(1, wait.fed // FEW)
            # A connection that waits for itself holds no other back, as long as it drains.
            holding.update((each, None) for each in wait.holders if each in slow or (few and each is not waiter.holder))
        for holder in holding:
            self._window(holder).add(now, elapsed)
            if self._is_spent(holder):
                self.detach(holder)
        self._forget_windows(now)
        if self._waits:
            self._schedule()

    def _slow(self, now: float) -> set[CreditHolder]:
        """Return full subscribers below LEAST_RATE. Measured over several ticks, because bytes leave in bursts."""
        slow = set()
        for holder in self.full:
            since, before = self._taken[holder]
            watched, taken = now - since, holder.taken()
            if taken - before >= LEAST_RATE * max(watched, self._hold_s):
                self._taken[holder] = (now, taken)
            elif watched > self._hold_s / 2:
                slow.add(holder)
        return slow

    def _window(self, holder: CreditHolder) -> Window:
        window = self._windows.get(holder)
        if window is None:
            window = self._windows[holder] = Window(self._window_s)
        return window

    def _forget_windows(self, now: float) -> None:
        """Delete windows without any holding in them: most subscribers never hold."""
        for holder, window in list(self._windows.items()):
            window.forget(now)
            if not window.total and holder not in self.full:
                del self._windows[holder]
