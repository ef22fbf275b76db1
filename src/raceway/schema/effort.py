"""Step budget and memory of schema comparisons, which try alternatives against alternatives."""

from __future__ import annotations

# Comparisons of node pairs: about a tenth of a second of work.
STEPS = 20_000


class TooIntricateError(Exception):
    """The step budget is exceeded."""


Pair = tuple[int, int]


class Compared:
    """Results by pair of node ids; a pair under comparison is assumed compatible, since a recursive schema meets it
    again.

    An alternative is compared on trial, seeing only compatible results of the pairs `around` it: assumptions made
    during a trial must not count for other alternatives.
    """

    def __init__(self, around: Compared | None = None) -> None:
        self._around = around
        self._found: dict[Pair, list[str]] = {}

    def maybe_known(self, pair: Pair) -> list[str] | None:
        """Return the known result of a pair."""
        found = self._found.get(pair)
        if found is not None or self._around is None:
            return found
        outside = self._around.maybe_known(pair)
        return None if outside else outside  # incompatible outside may be compatible under the trial's assumptions

    def note(self, pair: Pair, reasons: list[str]) -> None:
        """Store the result of a pair."""
        self._found[pair] = reasons


class Effort:
    """A step budget."""

    def __init__(self) -> None:
        self._left = STEPS

    def spend(self) -> None:
        """Count a step. Raises TooIntricateError."""
        self._left -= 1
        if self._left < 0:
            raise TooIntricateError
