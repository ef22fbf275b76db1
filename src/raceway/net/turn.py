"""A turn of the event loop: one socket write per peer and one commit at its end.

During a turn, output is only appended to lists. Peers with output, and the journal, are flushed once, when everything
that was ready to be read has been read. A socket write costs more than ten messages, so most of the speed comes from
here.

Some work is cheaper in batches (`gather`): it runs at the end of the turn too, before the flush. When a batch is large
enough it can run earlier (`advance`), so that other processes can start on it while reading continues.

A small read on an idle bus is flushed immediately instead: waiting for the end of the turn would batch nothing and cost
another iteration of the loop. The bus counts as idle if no turn has ended within the last `QUIET_S`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import structlog

log = structlog.get_logger("raceway.broker")


class Flushable(Protocol):
    """A peer or journal with pending output."""

    def flush(self) -> None: ...


# On a busy bus reads are closer together than this; request and answer of one conversation are not.
QUIET_S = 50e-6


class Turn:
    """The current turn. `call_soon` is the loop's. The bus is idle if the last turn ended `quiet_s` seconds ago."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], quiet_s: float = QUIET_S) -> None:
        self.call_soon, self.quiet_s = call_soon, quiet_s
        self._owing: list[Flushable] = []
        self._owing_last: list[Flushable] = []
        self._gathering: list[Callable[[], None]] = []
        # Scheduled: the end of the turn is a callback of the loop. Reading: between `begin_read` and `end_read`.
        # Prompt: the turn ends with this read, so output can be flushed now.
        self._scheduled = self._reading = self._prompt = False
        self._ended = 0.0

    def owe(self, flushable: Flushable, *, last: bool = False) -> None:
        """Flush this object at the end of the turn. The caller must call this once per turn only.

        `last`: after all others. The journal is flushed last, so that its writer thread does not take the GIL before
        requests have been sent to their responders.
        """
        (self._owing_last if last else self._owing).append(flushable)
        # During a read `end_read` decides how the turn ends.
        if not self._scheduled and not self._reading:
            self._schedule()

    def gather(self, work: Callable[[], None]) -> None:
        """Run this work at the end of the turn, before the flush. Call once per turn only, as with `owe`."""
        self._gathering.append(work)
        if not self._scheduled and not self._reading:
            self._schedule()

    def begin_read(self, small: bool) -> None:
        """Start to handle a socket read; `end_read` must follow. After a small read on an idle bus the turn ends."""
        self._reading = True
        # A large read is part of a stream: more follows, and batching pays.
        self._prompt = small and not self._scheduled and time.monotonic() - self._ended > self.quiet_s

    def hasten(self) -> None:
        """Flush pending peer output now, before work that no peer waits for. A no-op unless the turn is prompt."""
        if self._prompt:
            owing, self._owing = self._owing, []
            _flush(owing)

    def advance(self) -> None:
        """Run the gathered work and flush peer output before the end of the turn."""
        # Prompt for the duration of the call: output of the work is flushed by `hasten`.
        prompt, self._prompt = self._prompt, True
        self._work()
        self.hasten()
        self._prompt = prompt

    def end_read(self) -> None:
        """End the handling of a socket read: end the turn if it is prompt, otherwise schedule its end."""
        if self._prompt:
            self._work()
        self._reading = False
        prompt, self._prompt = self._prompt, False
        if self._scheduled or not (self._owing or self._owing_last or self._gathering):
            return
        if prompt:
            self._end()
        else:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self.call_soon(self._end_scheduled)

    def _end_scheduled(self) -> None:
        self._reading = self._prompt = True  # output of the work belongs to this turn
        self._work()
        self._scheduled = self._reading = self._prompt = False
        self._end()

    def _work(self) -> None:
        # Work may gather more work.
        while self._gathering:
            gathering, self._gathering = self._gathering, []
            for work in gathering:
                try:
                    work()
                except Exception:
                    log.exception("gathered work of a turn failed")

    def _end(self) -> None:
        owing, last = self._owing, self._owing_last
        # Replaced first: a flush may owe again, which belongs to the next turn.
        self._owing, self._owing_last = [], []
        _flush(owing)
        _flush(last)
        self._ended = time.monotonic()


def _flush(owing: list[Flushable]) -> None:
    for flushable in owing:
        try:
            flushable.flush()
        except Exception:
            log.exception("flush at end of turn failed")
