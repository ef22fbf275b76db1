"""The messages in flight to one consumer: its line, in order of delivery.

Most consumers work through their line one message after the other, so a message far down the line waits in the
client's buffer without being worked on. Hence these rules:

    clock     The ack timeout of a message restarts with each acknowledgement of one that was delivered before it: the
              consumer has made progress. A message that was passed over is not extended.
    window    The number of messages in flight adapts to acknowledgements. It starts small; a message acknowledged
              within a quarter of the timeout adds one, one that took more than half of it removes one, and one that was
              not acknowledged in time halves it. A window requested by the client or set by an administrator is fixed.
    growth    A consumer may collect many messages before it acknowledges any. If its window is full and it acknowledges
              none for a part of the timeout, the window doubles, unless its last two acknowledgements were so far apart
              that it is known to be slow.
"""

from __future__ import annotations

from bisect import bisect
from collections import deque

from raceway.broker.subscriptions.consumers import Consumer

# States of a message.
READY, OUT, WAITING, COPYING, POISON = "ready", "out", "waiting", "copying", "poison"
# Parts of the timeout: an acknowledgement within the first lets the window grow, one after the second lets it shrink.
QUICK, SLOW = 1 / 4, 1 / 2
# A full window without an acknowledgement for this part of the timeout doubles: three times before the timeout, so that
# a consumer that collects 80 messages gets them in time. One with half of it between acknowledgements is slow.
PATIENCE = 1 / 6
# Acknowledgements that are remembered before they are thinned out.
FEW = 16


class Held:
    """A message that was taken in and is not done. `since_ms`: delivered at, or waiting until. `place` is its
    number in the line."""

    __slots__ = ("consumer", "deliveries", "expiries", "key", "offset", "place", "reason", "since_ms", "state")

    def __init__(self, offset: int) -> None:
        self.offset, self.key = offset, b""
        self.state = READY
        self.consumer: Consumer | None = None
        self.deliveries = self.expiries = self.place = 0
        self.since_ms = 0.0
        self.reason = ""


class InFlight:
    __slots__ = ("_acknowledged", "_fixed", "_gap_ms", "_last_ms", "_moved_ms", "_number", "_out", "window")

    def __init__(self, first: int, fixed: int | None) -> None:
        self.set_window(first, fixed)
        self._out: dict[int, Held] = {}
        self._number = 0
        # Time of the last delivery or acknowledgement; time of the last acknowledgement, and the gap before it.
        self._moved_ms = self._gap_ms = 0.0
        self._last_ms: float | None = None
        # (place, time) of acknowledgements, both ascending. For a message, the last one with a lower place counts.
        self._acknowledged: deque[tuple[int, float]] = deque()

    def __len__(self) -> int:
        return len(self._out)

    @property
    def is_full(self) -> bool:
        return len(self._out) >= self.window

    def maybe_head(self) -> Held | None:
        """Return the message that the consumer is working on, if any."""
        return next(iter(self._out.values()), None)

    def set_window(self, first: int, fixed: int | None) -> None:
        self.window, self._fixed = (first, False) if fixed is None else (fixed, True)

    def hand_out(self, held: Held, now_ms: float) -> None:
        self._number += 1
        held.place, held.since_ms = self._number, now_ms
        self._out[held.offset] = held
        self._moved_ms = now_ms

    def grows_at_ms(self, timeout_ms: float, most: int) -> float:
        """Return when the window grows if nothing is acknowledged; infinity if it does not."""
        patience_ms = timeout_ms * PATIENCE
        is_slow = self._gap_ms >= patience_ms / 2
        if self._fixed or is_slow or not self.is_full or self.window >= most:
            return float("inf")
        return self._moved_ms + patience_ms

    def grow(self, now_ms: float, most: int) -> None:
        self.window, self._moved_ms = min(2 * self.window, most), now_ms

    def take_back(self, held: Held) -> None:
        """Remove a message from the line without a conclusion about the consumer's speed."""
        if self._out.get(held.offset) is held:
            del self._out[held.offset]

    def acknowledge(self, held: Held, now_ms: float, timeout_ms: float, most: int) -> None:
        """Remove an acknowledged message and adapt the window, which never exceeds `most`."""
        if self._out.get(held.offset) is not held:
            return
        waited_ms, busy = now_ms - held.since_ms, 2 * len(self._out) >= self.window
        del self._out[held.offset]
        self._gap_ms = now_ms - (held.since_ms if self._last_ms is None else self._last_ms)
        self._last_ms = self._moved_ms = now_ms
        self._note(held.place, now_ms)
        if self._fixed:
            return
        if waited_ms > timeout_ms * SLOW:
            self.window = max(self.window - 1, 1)
        elif waited_ms <= timeout_ms * QUICK and busy and self.window < most:
            self.window += 1

    def expire(self, held: Held) -> None:
        """Remove a message that was not acknowledged in time, and halve the window."""
        self.take_back(held)
        if not self._fixed:
            self.window = max(self.window // 2, 1)

    def clock_ms(self, held: Held) -> float:
        """Return when the ack timeout of this message started."""
        for place, at_ms in reversed(self._acknowledged):
            if place < held.place:
                return max(at_ms, held.since_ms)
        return held.since_ms

    def _note(self, place: int, now_ms: float) -> None:
        acknowledged = self._acknowledged
        while acknowledged and acknowledged[-1][0] > place:
            acknowledged.pop()
        acknowledged.append((place, now_ms))
        head = self.maybe_head()
        first = head.place if head is not None else place + 1
        while len(acknowledged) > 1 and acknowledged[1][0] < first:
            acknowledged.popleft()
        if len(acknowledged) > 2 * len(self._out) + FEW:
            self._thin_out()

    def _thin_out(self) -> None:
        """Keep only the last acknowledgement between two messages in flight."""
        places, kept = [held.place for held in self._out.values()], deque[tuple[int, float]]()
        for place, at_ms in self._acknowledged:
            if kept and bisect(places, kept[-1][0]) == bisect(places, place):
                kept.pop()
            kept.append((place, at_ms))
        self._acknowledged = kept
