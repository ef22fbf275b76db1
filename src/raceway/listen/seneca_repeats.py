"""Calls of the last moments by their id, so that a repeat is not asked again.

A caller whose connection broke may send the same message once more. Within the window it gets what the first one got;
while that is still being worked on, it waits for it. Results that no service gave (nobody there, too late, too busy)
are not kept: the next attempt may fare better.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import msgspec

from raceway.codec.seneca import Outcome, Result, Stamp


class Settled(msgspec.Struct, frozen=True, gc=False):
    """What became of a call: its answers, or `accepted` if it was one that wants none. Without `by_services` the one
    answer is the bus's own: nobody could be asked, or nobody answered."""

    answers: tuple[tuple[Outcome, Stamp], ...] = ()
    accepted: bool = False
    by_services: bool = True

    @property
    def size(self) -> int:
        return sum([len(outcome.payload) for outcome, _ in self.answers if isinstance(outcome, Result)])


class Caller(Protocol):
    """A call that waits to be told."""

    key: str

    def tell_again(self, settled: Settled) -> None: ...


class _Entry(msgspec.Struct, gc=False):
    """`first` and those who wait are let go with the result: an entry stays long, and a call holds its document. There
    are many entries, so the garbage collector is not to look at them; no ring of references goes through one."""

    first: Caller | None
    begun_ms: float
    settled: Settled | None = None
    waiting: tuple[Caller, ...] = ()


class Repeats:
    """`monotonic_ms` comes from the loop."""

    def __init__(self, window_ms: int, max_ids: int, max_bytes: int, monotonic_ms: Callable[[], float]) -> None:
        self._window_ms, self._max_ids, self._max_bytes = window_ms, max_ids, max_bytes
        self._monotonic_ms = monotonic_ms
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._size = 0
        # So long no entry is too old.
        self._fresh_until = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def is_repeat(self, caller: Caller) -> bool:
        """If so it has been told, or will be. If not it is the first, and must come to `settle` or `forget`."""
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

    def settle(self, caller: Caller, settled: Settled) -> None:
        """The first call has its result: so have those that wait for it."""
        entry = self._maybe_own(caller)
        if entry is not None:
            entry.settled, entry.first = settled, None
            self._size += settled.size
            self._tell(entry, settled)

    def forget(self, caller: Caller, settled: Settled) -> None:
        """The same, but the next one of this id is asked anew."""
        entry = self._maybe_own(caller)
        if entry is not None:
            del self._entries[caller.key]
            self._tell(entry, settled)

    def _maybe_own(self, caller: Caller) -> _Entry | None:
        entry = self._entries.get(caller.key)
        return entry if entry is not None and entry.first is caller else None

    def _tell(self, entry: _Entry, settled: Settled) -> None:
        waiting, entry.waiting = entry.waiting, ()
        for caller in waiting:
            caller.tell_again(settled)

    def _drop_old(self, now: float) -> None:
        """Entries lie in order of age."""
        entries = self._entries
        while entries:
            key = next(iter(entries))
            entry = entries[key]
            fresh = now - entry.begun_ms < self._window_ms
            if fresh and len(entries) < self._max_ids and self._size <= self._max_bytes:
                self._fresh_until = entry.begun_ms + self._window_ms
                return
            if entry.settled is None and entry.waiting:
                self._reopen(key, entry, now)
                return
            del entries[key]
            if entry.settled is not None:
                self._size -= entry.settled.size

    def _reopen(self, key: str, entry: _Entry, now: float) -> None:
        """Somebody still waits: it counts as new."""
        entry.begun_ms = now
        self._entries.move_to_end(key)
