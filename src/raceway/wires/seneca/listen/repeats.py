"""Recent calls by id, so that a repeated call is not executed twice.

A caller whose connection broke may send the same message again. Within the window it gets the result of the first
call, or waits for it. Errors of the bus (no responder, timeout, busy) are not kept: the next attempt may succeed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import msgspec

from raceway.wires.seneca.codec.answer import CallOutcome, Result, Stamp


class Settled(msgspec.Struct, frozen=True, gc=False):
    """Result of a call: its answers, or `accepted` if it was asynchronous. Without `by_services` the only answer is an
    error of the bus."""

    answers: tuple[tuple[CallOutcome, Stamp], ...] = ()
    accepted: bool = False
    by_services: bool = True

    @property
    def size(self) -> int:
        return sum([len(outcome.payload) for outcome, _ in self.answers if isinstance(outcome, Result)])


class WaitingCall(Protocol):
    """A call that waits for its result."""

    key: str

    def tell_again(self, settled: Settled) -> None: ...


class _Entry(msgspec.Struct, gc=False):
    """A call within the window. `first` and `waiting` are cleared with the result, because a call holds its document.
    Not tracked by the garbage collector (`gc=False`): entries are many and part of no reference cycle."""

    first: WaitingCall | None
    begun_ms: float
    settled: Settled | None = None
    waiting: tuple[WaitingCall, ...] = ()


class Repeats:
    """Results of recent calls, bounded by age, count and bytes. `monotonic_ms` is the loop's clock."""

    def __init__(self, window_ms: int, max_ids: int, max_bytes: int, monotonic_ms: Callable[[], float]) -> None:
        self._window_ms, self._max_ids, self._max_bytes = window_ms, max_ids, max_bytes
        self._monotonic_ms = monotonic_ms
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._size = 0
        # No entry expires before this time.
        self._fresh_until = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def is_repeat(self, caller: WaitingCall) -> bool:
        """Return True for a repeat, which is answered here. A first call must reach `settle` or `forget` later."""
        now, entries = self._monotonic_ms(), self._entries
        if now >= self._fresh_until or len(entries) >= self._max_ids or self._size > self._max_bytes:
            self._drop_old(now)
        entry = entries.get(caller.key)
        if entry is None:
            entries[caller.key] = _Entry(caller, now)
            return False
        if entry.settled is None:
            entry.waiting += (caller,)
        else:
            caller.tell_again(entry.settled)
        return True

    def settle(self, caller: WaitingCall, settled: Settled) -> None:
        """Store the result of the first call and answer the repeats that wait for it."""
        entry = self._maybe_own(caller)
        if entry is not None:
            entry.settled, entry.first = settled, None
            self._size += settled.size
            self._tell(entry, settled)

    def forget(self, caller: WaitingCall, settled: Settled) -> None:
        """Answer the repeats that wait, but do not keep the result: the next call with this id is executed."""
        entry = self._maybe_own(caller)
        if entry is not None:
            del self._entries[caller.key]
            self._tell(entry, settled)

    def _maybe_own(self, caller: WaitingCall) -> _Entry | None:
        entry = self._entries.get(caller.key)
        return entry if entry is not None and entry.first is caller else None

    def _tell(self, entry: _Entry, settled: Settled) -> None:
        waiting, entry.waiting = entry.waiting, ()
        for caller in waiting:
            caller.tell_again(settled)

    def _drop_old(self, now: float) -> None:
        """Drop expired entries, and the oldest ones above the limits. Entries are in order of age."""
        entries = self._entries
        while entries:
            key = next(iter(entries))
            entry = entries[key]
            fresh = now - entry.begun_ms < self._window_ms
            if fresh and len(entries) < self._max_ids and self._size <= self._max_bytes:
                self._fresh_until = entry.begun_ms + self._window_ms
                return
            if entry.settled is None and entry.waiting:
                # Callers still wait for it: its window begins again.
                entry.begun_ms = now
                entries.move_to_end(key)
                return
            del entries[key]
            if entry.settled is not None:
                self._size -= entry.settled.size
