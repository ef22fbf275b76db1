"""Step budget and memory of schema comparisons, which try alternatives against alternatives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

# Comparisons of node pairs: about a tenth of a second of work.
STEPS = 20_000


class TooIntricateError(Exception):
    """The step budget is exceeded."""


class Effort:
    """A step budget."""

    def __init__(self) -> None:
        self._left = STEPS

    def spend(self) -> None:
        """Count a step. Raises TooIntricateError."""
        self._left -= 1
        if self._left < 0:
            raise TooIntricateError


class Comparison(ABC):
    """A comparison of two schemas node by node, each pair once; a pair under comparison is assumed compatible, since a
    recursive schema meets it again.

    An alternative is compared on trial, by a comparison that sees only compatible results of the one `around` it:
    assumptions made during a trial must not count for other alternatives.
    """

    def __init__(self, effort: Effort, around: Comparison | None = None) -> None:
        self._effort, self._around = effort, around
        self._found: dict[tuple[int, int], list[str]] = {}

    def compare(self, reader: Any, writer: Any, path: str) -> list[str]:
        """List why the reader's node cannot read the writer's, which may be known already."""
        self._effort.spend()
        pair = (id(reader), id(writer))
        found = self.maybe_known(pair)
        if found is None:
            self._found[pair] = []
            found = self._found[pair] = self._compare(reader, writer, path)
        return found

    def maybe_known(self, pair: tuple[int, int]) -> list[str] | None:
        """Return the known result of a pair of nodes, given by their ids."""
        found = self._found.get(pair)
        if found is not None or self._around is None:
            return found
        outside = self._around.maybe_known(pair)
        return None if outside else outside  # incompatible outside may be compatible under the trial's assumptions

    @abstractmethod
    def _compare(self, reader: Any, writer: Any, path: str) -> list[str]:
        """Compare two nodes that were not compared before."""
