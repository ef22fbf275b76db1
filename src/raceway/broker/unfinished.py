"""One budget for unfinished input: bytes of messages that have begun and not ended, on all connections together.

Every wire bounds what one connection may send before a message is whole. That does not bound the process: connections
are many, and a stranger need not say who it is before its first message is complete. So each connection tells here what
it holds after each read. When all of them together hold too much, those that hold most are ended, the largest first.

Memory that was freed in many small pieces stays with the C library, which may use it again. After a large amount was
freed at once it is handed back to the system, so that an attack is over when it is over.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, MutableMapping
from typing import Any, Protocol

import structlog

log = structlog.get_logger("raceway.broker")

# When the budget is exceeded this part of it is made free, so that a crowd of small holders is sorted once, not for
# each read of each of them.
HEADROOM = 16
# So much freed without having become messages is worth a walk through the heap, a moment after.
TRIM_BYTES = 8 * 1024 * 1024
TRIM_S = 0.5


class Holder(Protocol):
    """A connection with unfinished input."""

    def give_way(self) -> None:
        """Refuse what is unfinished, in the wire's own words where that can be said, and end the connection.

        `InputBudget.release` must have been called when this returns.
        """


class InputBudget:
    """`call_later` is the loop's; `counts` are the meter's."""

    def __init__(
        self, limit: int, call_later: Callable[[float, Callable[[], Any]], Any], counts: MutableMapping[str, int]
    ) -> None:
        self._limit = limit
        self._call_later = call_later
        self._counts = counts
        self._held: dict[Holder, int] = {}
        self.total = 0
        self._freed = 0
        self._trims = False

    def hold(self, holder: Holder, size: int) -> None:
        """The connection holds that many bytes now. May end connections, this one among them."""
        self.total += size - self._held.get(holder, 0)
        if size:
            self._held[holder] = size
        else:
            self._held.pop(holder, None)
        if self.total > self._limit:
            self.relieve(self._limit - self._limit // HEADROOM)

    def release(self, holder: Holder) -> None:
        """The connection has ended, and what it held is gone. May be repeated."""
        size = self._held.pop(holder, 0)
        self.total -= size
        self._freed += size
        if self._freed >= TRIM_BYTES and not self._trims:
            self._trims = True
            self._call_later(TRIM_S, self._trim)

    def relieve_half(self) -> None:
        """Memory has run out: end the largest connections, until half of it is free."""
        self.relieve(self.total // 2)

    def relieve(self, most: int) -> None:
        """End connections, the largest first, until at most so much is held."""
        for holder in sorted(self._held, key=self._held.__getitem__, reverse=True):
            if self.total <= most:
                return
            if holder in self._held:  # ending one may have ended another
                self._end(holder)

    def _end(self, holder: Holder) -> None:
        self._counts["bus.unfinished_closed"] += 1
        try:
            holder.give_way()
        except Exception:
            log.exception("a connection could not be ended")
        self.release(holder)

    def _trim(self) -> None:
        self._trims, self._freed = False, 0
        give_back_memory()


def _maybe_malloc_trim() -> Callable[[int], int] | None:
    """glibc's, where the C library has it: others give memory back by themselves, or not at all."""
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return found


_malloc_trim = _maybe_malloc_trim()


def give_back_memory() -> None:
    """Hand what is free in the heap back to the system."""
    if _malloc_trim is not None:
        _malloc_trim(0)
