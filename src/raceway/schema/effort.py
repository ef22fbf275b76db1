"""Comparing two schemas tries alternatives against alternatives: what was compared before, and when it is enough."""

from __future__ import annotations

# About a tenth of a second.
STEPS = 20_000


class TooIntricateError(Exception):
    """The comparison was given up."""


Pair = tuple[int, int]


class Compared:
    """Pairs of nodes, by their ids, that are being compared, or were, with what was found: a recursive schema comes
    back to them.

    An alternative is compared on trial, with what is good of the pairs `around` it: what is assumed in there must not
    vouch for other alternatives.
    """

    def __init__(self, around: Compared | None = None) -> None:
        self._around = around
        self._found: dict[Pair, list[str]] = {}

    def maybe_known(self, pair: Pair) -> list[str] | None:
        found = self._found.get(pair)
        if found is not None or self._around is None:
            return found
        outside = self._around.maybe_known(pair)
        return None if outside else outside  # what was found wrong may not be so on trial

    def note(self, pair: Pair, reasons: list[str]) -> None:
        self._found[pair] = reasons


class Effort:
    def __init__(self) -> None:
        self._left = STEPS

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooIntricateError
