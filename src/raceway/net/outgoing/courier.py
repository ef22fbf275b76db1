"""Delivery of messages to a receiver that must accept them: in order within each lane, each tried several times.

A message that is not accepted in the end is parked, and the next one follows. While a receiver cannot be reached at
all, an attempt counts for every message that waits in the lane: a backlog is parked together with its first message
instead of waiting for its own retries.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from raceway.model.envelope import Batch
from raceway.net.timers import Clock


class NotTaken(NamedTuple):
    """A failed attempt. `again`: another one may succeed. `reached`: the receiver itself refused."""

    reason: str
    again: bool = True
    reached: bool = True


class Parcel:
    """A row to deliver; `data` is what is sent, if it is not encoded from the row at each attempt."""

    __slots__ = ("batch", "data", "row", "size", "tries")

    def __init__(self, batch: Batch, row: int, data: bytes = b"") -> None:
        if batch.count > 1:  # a waiting row must not keep its whole batch in memory
            batch, row = batch.keep([row]), 0
        self.batch, self.row, self.data = batch, row, data
        self.size = len(batch.item("payload", row))
        self.tries = 0


Tried = Callable[[NotTaken | None], None]


class Courier:
    """Deliver parcels by lane. `hand` makes one attempt and reports the result, never synchronously; `park` takes what
    failed."""

    def __init__(
        self,
        timers: Clock,
        pauses_ms: tuple[int, ...],
        limits: tuple[int, int],
        hand: Callable[[Parcel, Tried], None],
        park: Callable[[Parcel, str], None],
    ) -> None:
        self._timers, self._pauses_ms = timers, pauses_ms
        self._max_messages, self._max_bytes = limits
        self._hand, self._park = hand, park
        self._lanes: dict[str, deque[Parcel]] = {}
        self._size = 0
        self.waiting = 0

    def take(self, lane: str, parcel: Parcel) -> None:
        """Queue a parcel in a lane, or park it if too many wait."""
        # One parcel is always accepted, however large: otherwise it could never be delivered.
        if self.waiting >= self._max_messages or (self.waiting and self._size + parcel.size > self._max_bytes):
            self._park(parcel, "receiver queue full")
            return
        self.waiting += 1
        self._size += parcel.size
        queue = self._lanes.setdefault(lane, deque())
        queue.append(parcel)
        if len(queue) == 1:
            self._try(lane)

    async def drain(self, limit_s: float) -> None:
        """Wait until no parcel is left, at most `limit_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while self.waiting:  # noqa: ASYNC110 - polled at a stop only; not worth an event in every courier
                    await asyncio.sleep(0.01)

    def give_up(self, reason: str) -> None:
        """Park every waiting parcel: the receiver is gone."""
        lanes, self._lanes = self._lanes, {}
        for queue in lanes.values():
            for parcel in queue:
                self._let_go(parcel)
                self._park(parcel, reason)

    def _try(self, lane: str) -> None:
        """Make an attempt with the first parcel of a lane."""
        queue = self._lanes.get(lane)
        if queue:
            self._hand(queue[0], partial(self._tried, lane, queue[0]))

    def _tried(self, lane: str, parcel: Parcel, failure: NotTaken | None) -> None:
        """Handle the result of an attempt."""
        queue = self._lanes.get(lane)
        if not queue or queue[0] is not parcel:  # parked by `give_up` during the attempt
            return
        if failure is None:
            self._let_go(queue.popleft())
        else:
            self._count(queue, failure)
            self._park_tried(queue, failure)
        if not queue:
            del self._lanes[lane]
        elif queue[0].tries:
            # The lane waits with its first parcel: order matters more than speed.
            pause_ms = self._pauses_ms[queue[0].tries - 1]
            self._timers.call_later(pause_ms / 1000, partial(self._try, lane))
        else:
            self._try(lane)

    def _count(self, queue: deque[Parcel], failure: NotTaken) -> None:
        """Count an attempt: for the whole lane if the receiver was not reached."""
        for parcel in queue if not failure.reached else (queue[0],):
            parcel.tries += 1

    def _park_tried(self, queue: deque[Parcel], failure: NotTaken) -> None:
        """Park the first parcel if it may not be tried again, then those after it that were tried as often."""
        while queue and (queue[0].tries > len(self._pauses_ms) or not failure.again):
            parcel = queue.popleft()
            self._let_go(parcel)
            self._park(parcel, failure.reason)
            if not failure.again:
                return

    def _let_go(self, parcel: Parcel) -> None:
        """Release a parcel's share of the limits."""
        self.waiting -= 1
        self._size -= parcel.size
