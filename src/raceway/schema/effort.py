"""Comparing two schemas tries alternatives against alternatives; this says when it has been enough."""

from __future__ import annotations

# About a tenth of a second.
STEPS = 20_000


class TooIntricateError(Exception):
    """The comparison was given up."""


class Effort:
    def __init__(self) -> None:
        self._left = STEPS

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooIntricateError
