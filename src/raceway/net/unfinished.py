"""One budget for unfinished input: bytes of incomplete messages on all connections together.

Every wire limits the incomplete messages of one connection. That does not limit the process: there are many
connections, and a peer is not authenticated before its first message is complete. So each connection reports here after
each read how much it buffers. When all together exceed the budget, connections are closed, the largest first.

Memory that is freed in many small pieces stays with the C library, which may reuse it. After a large amount was freed
it is returned to the system, so that an attack leaves no large process behind.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, MutableMapping
from typing import Any, Protocol

import structlog

log = structlog.get_logger("raceway.broker")

# When the budget is exceeded this part of it is freed, so that many small holders are sorted once, not after each read
# of each of them.
HEADROOM = 16
# Freed bytes after which the heap is trimmed, and the delay.
TRIM_BYTES = 8 * 1024 * 1024
TRIM_S = 0.5


class Holder(Protocol):
    """A connection with unfinished input."""

    def give_way(self) -> None:
        """Refuse the unfinished message, with an error of the wire if it has one, and close the connection.

        `InputBudget.release` must have been called when this returns.
        """


class InputBudget:
    """Buffered input of all connections. `call_later` is the loop's; `counts` are the meter's."""

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
        """Set how many bytes a connection buffers. May close connections, this one included."""
        self.total += size - self._held.get(holder, 0)
        if size:
            self._held[holder] = size
        else:
            self._held.pop(holder, None)
        if self.total > self._limit:
            self.relieve(self._limit - self._limit // HEADROOM)

    def release(self, holder: Holder) -> None:
        """Forget a connection that was closed and has freed its input. Idempotent."""
        size = self._held.pop(holder, 0)
        self.total -= size
        self._freed += size
        if self._freed >= TRIM_BYTES and not self._trims:
            self._trims = True
            self._call_later(TRIM_S, self._trim)

    def relieve_half(self) -> None:
        """Close the largest connections until half of the buffered input is freed, after a MemoryError."""
        self.relieve(self.total // 2)

    def relieve(self, most: int) -> None:
        """Close connections, the largest first, until at most `most` bytes are buffered."""
        for holder in sorted(self._held, key=self._held.__getitem__, reverse=True):
            if self.total <= most:
                return
            if holder in self._held:  # closing one may have closed another
                self._end(holder)

    def _end(self, holder: Holder) -> None:
        self._counts["bus.unfinished_closed"] += 1
        try:
            holder.give_way()
        except Exception:
            log.exception("closing a connection over the input budget failed")
        self.release(holder)

    def _trim(self) -> None:
        self._trims, self._freed = False, 0
        give_back_memory()


# Of glibc; other C libraries do not have it.
_malloc_trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)


def give_back_memory() -> None:
    """Return free heap memory to the system, where that is supported."""
    if _malloc_trim is not None:
        _malloc_trim(0)
