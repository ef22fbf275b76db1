"""The end of a turn of the event loop: one write per peer, one commit.

While a turn lasts, whoever has something to say only adds to its own list. Peers that did so, and the journal, are
looked after once, when everything that was ready to be read has been read. A socket write costs more than ten messages,
so this is where most of the speed comes from.

Some work is cheaper done for many at once (`gather`): it waits for the end of the turn too, and comes first there. When
enough of it has come together it need not wait any longer (`advance`), so that others can begin while we go on reading.

A small read on a quiet bus is answered at once instead: waiting for the end of the turn would gather nothing and cost
another round of the loop. The bus counts as quiet if no turn ended within the last moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import structlog

log = structlog.get_logger("raceway.broker")


class Flushable(Protocol):
    def flush(self) -> None: ...


# Reads on a busy bus come closer together than this; two legs of one conversation do not.
QUIET_S = 50e-6


class Turn:
    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self.call_soon = call_soon
        self._owing: list[Flushable] = []
        self._owing_last: list[Flushable] = []
        self._gathering: list[Callable[[], None]] = []
        self._scheduled = self._reading = self._prompt = False
        self._ended = 0.0

    def owe(self, flushable: Flushable, *, last: bool = False) -> None:
        """Flush it at the end of this turn. The caller sees to it that it is named once per turn.

        `last`: after all others. The journal comes last, so that its writer thread does not take the interpreter from
        us before a request has left for its responder.
        """
        (self._owing_last if last else self._owing).append(flushable)
        if not self._scheduled and not self._reading:
            self._schedule()

    def gather(self, work: Callable[[], None]) -> None:
        """Do it at the end of this turn, before what is owed leaves. Named once per turn, as with `owe`."""
        self._gathering.append(work)
        if not self._scheduled and not self._reading:
            self._schedule()

    def begin_read(self, small: bool) -> None:
        """A peer's bytes are about to be taken; `end_read` must follow. A small read on a quiet bus ends the turn."""
        self._reading = True
        self._prompt = small and not self._scheduled and time.monotonic() - self._ended > QUIET_S

    def hasten(self) -> None:
        """What peers are owed leaves before the work goes on that nobody waits for, if the turn ends here or now."""
        if self._prompt:
            owing, self._owing = self._owing, []
            _flush(owing)

    def advance(self) -> None:
        """So much has been gathered that others should begin with it: it is done, and what peers are owed leaves."""
        prompt, self._prompt = self._prompt, True
        self._work()
        self.hasten()
        self._prompt = prompt

    def end_read(self) -> None:
        """The bytes are taken."""
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
        self._reading = self._prompt = True  # what is done now is owed now: no other turn need be scheduled for it
        self._work()
        self._scheduled = self._reading = self._prompt = False
        self._end()

    def _work(self) -> None:
        while self._gathering:
            gathering, self._gathering = self._gathering, []
            for work in gathering:
                try:
                    work()
                except Exception:
                    log.exception("gathered work failed")

    def _end(self) -> None:
        owing, last = self._owing, self._owing_last
        self._owing, self._owing_last = [], []
        _flush(owing)
        _flush(last)
        self._ended = time.monotonic()


def _flush(owing: list[Flushable]) -> None:
    for flushable in owing:
        try:
            flushable.flush()
        except Exception:
            log.exception("a flush failed")
