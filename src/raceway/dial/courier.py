"""Brings messages to a receiver that must take them: one after another in each lane, each tried several times.

What is not taken in the end is parked, and the next one's turn comes. While a receiver cannot be reached at all, an
attempt counts for everything that waits in the lane: a backlog is parked with its first message, not seconds later for
each.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from raceway.model.envelope import Batch


class NotTaken(NamedTuple):
    """Why an attempt failed. `again`: another one may succeed. `reached`: the receiver itself refused."""

    reason: str
    again: bool = True
    reached: bool = True


class Parcel:
    """One row on its way; `data` is what is sent, if it is not made of the row each time."""

    __slots__ = ("batch", "data", "row", "size", "tries")

    def __init__(self, batch: Batch, row: int, data: bytes = b"") -> None:
        if batch.count > 1:  # what waits must not keep a whole batch
            batch, row = batch.keep([row]), 0
        self.batch, self.row, self.data = batch, row, data
        self.size = len(batch.item("payload", row))
        self.tries = 0


Tried = Callable[[NotTaken | None], None]


class Timers(Protocol):
    def call_later(self, delay: float, callback: Callable[[], object]) -> object: ...


class Courier:
    """`hand` makes one attempt and tells how it went, never at once; `park` gets what was not taken."""

    def __init__(
        self,
        timers: Timers,
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
        if self.waiting >= self._max_messages or (self.waiting and self._size + parcel.size > self._max_bytes):
            self._park(parcel, "too many messages wait for it")
            return
        self.waiting += 1
        self._size += parcel.size
        queue = self._lanes.setdefault(lane, deque())
        queue.append(parcel)
        if len(queue) == 1:
            self._try(lane)

    async def drain(self, limit_s: float) -> None:
        """Until nothing waits any more, but not for ever."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while self.waiting:  # noqa: ASYNC110 - a stop is no reason to keep an event for every courier
                    await asyncio.sleep(0.01)

    def give_up(self, reason: str) -> None:
        """The receiver is no more: everything that waits is parked."""
        lanes, self._lanes = self._lanes, {}
        for queue in lanes.values():
            for parcel in queue:
                self._let_go(parcel)
                self._park(parcel, reason)

    def _try(self, lane: str) -> None:
        queue = self._lanes.get(lane)
        if queue:
            self._hand(queue[0], partial(self._tried, lane, queue[0]))

    def _tried(self, lane: str, parcel: Parcel, failure: NotTaken | None) -> None:
        queue = self._lanes.get(lane)
        if not queue or queue[0] is not parcel:  # given up meanwhile
            return
        if failure is None:
            self._let_go(queue.popleft())
        else:
            self._count(queue, failure)
            self._park_tried(queue, failure)
        if not queue:
            del self._lanes[lane]
        elif queue[0].tries:
            pause_ms = self._pauses_ms[queue[0].tries - 1]
            self._timers.call_later(pause_ms / 1000, partial(self._try, lane))
        else:
            self._try(lane)

    def _count(self, queue: deque[Parcel], failure: NotTaken) -> None:
        for parcel in queue if not failure.reached else (queue[0],):
            parcel.tries += 1

    def _park_tried(self, queue: deque[Parcel], failure: NotTaken) -> None:
        """The first, if it may not be tried again; then those behind it that were tried as often."""
        while queue and (queue[0].tries > len(self._pauses_ms) or not failure.again):
            parcel = queue.popleft()
            self._let_go(parcel)
            self._park(parcel, failure.reason)
            if not failure.again:
                return

    def _let_go(self, parcel: Parcel) -> None:
        self.waiting -= 1
        self._size -= parcel.size
