"""The root of the error tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeVar

V = TypeVar("V")


class RacewayError(Exception):
    """The base class of all errors that Raceway raises on purpose.

    `code` is stable and names the error on wires and in the journal. `retriable`: the same call may succeed later
    without any change.
    """

    code: ClassVar[str] = "internal"
    retriable: ClassVar[bool] = False

    @classmethod
    def maybe_entry(cls, table: Mapping[str, V]) -> V | None:
        """Return the entry for `code` in a table of a wire, otherwise that for the nearest base class, if any."""
        codes = (getattr(kind, "code", "") for kind in cls.__mro__)
        return next((table[code] for code in codes if code in table), None)
