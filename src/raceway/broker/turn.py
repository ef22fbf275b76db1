"""The end of a turn of the event loop: one write per peer, one commit.

While a turn lasts, whoever has something to say only adds to its own list. Peers that did so, and the journal, are
looked after once, when everything that was ready to be read has been read. A socket write costs more than ten messages,
so this is where most of the speed comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Flushable(Protocol):
    def flush(self) -> None: ...


class Turn:
    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self.call_soon = call_soon
        self._owing: list[Flushable] = []
        self._owing_last: list[Flushable] = []
        self._scheduled = False

    def owe(self, flushable: Flushable, *, last: bool = False) -> None:
        """Flush it at the end of this turn. The caller sees to it that it is named once per turn.

        `last`: after all others. The journal comes last, so that its writer thread does not take the interpreter from
        us before a request has left for its responder.
        """
        (self._owing_last if last else self._owing).append(flushable)
        if not self._scheduled:
            self._scheduled = True
            self.call_soon(self._end)

    def _end(self) -> None:
        self._scheduled = False
        owing, self._owing, self._owing_last = [*self._owing, *self._owing_last], [], []
        for flushable in owing:
            flushable.flush()
