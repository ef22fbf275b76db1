"""Verdicts on many messages: which have broken a rule, which rule first, and the sentence about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raceway.wires.captures.parsed import Refusals

if TYPE_CHECKING:
    from raceway.wires.captures.slices import Mask, Places


class Verdicts:
    """Results of rules that are applied one after the other, each to all messages. `open`: mask of those that broke
    none."""

    def __init__(self, count: int, code: str) -> None:
        self.open = np.ones(count, np.bool_)
        self._code = code
        self._refused: list[tuple[Places, pa.Array, pa.Array]] = []  # rows, codes, reasons

    def refuse(self, mask: Mask, reason: str, code: str | None = None) -> None:
        """Refuse the messages of the mask that are still open, with one reason."""
        self.refuse_each(mask, lambda rows: pa.repeat(pa.scalar(reason), len(rows)), code)

    def refuse_each(self, mask: Mask, reasons: Callable[[Places], pa.Array], code: str | None = None) -> None:
        """Refuse the messages of the mask that are still open, with a reason for each."""
        rows = np.flatnonzero(mask & self.open)
        if len(rows):
            self.refuse_rows(rows, pa.repeat(pa.scalar(code or self._code), len(rows)), reasons(rows))

    def refuse_rows(self, rows: Places, codes: pa.Array, reasons: pa.Array) -> None:
        """Refuse these messages, which must be open."""
        self._refused.append((rows, codes, reasons))
        self.open[rows] = False

    def refusals(self, topics: Callable[[Places], pa.Array]) -> Refusals:
        """Return the refusals in order; `topics` returns the topics of refused messages, NULL where there is none."""
        if not self._refused:
            none = pa.array([], pa.string())
            return Refusals(np.empty(0, np.int64), none, none, none)
        rows, codes, reasons = zip(*self._refused, strict=True)
        joined = np.concatenate(rows)
        order = np.argsort(joined)
        by_row = pa.array(order)
        return Refusals(
            joined[order],
            pa.concat_arrays(codes).take(by_row),
            pa.concat_arrays(reasons).take(by_row),
            topics(joined[order]),
        )


def where(mask: Mask, values: pa.Array) -> pa.Array:
    """Return the values where the mask is true, NULL elsewhere."""
    return values if mask.all() else pc.if_else(pa.array(mask), values, pa.scalar(None, values.type))


def spread(values: pa.Array, rows: Places, count: int) -> pa.Array:
    """Return an array of `count` rows with the values at these rows; NULL in the others."""
    index = np.zeros(count, np.int64)
    index[rows] = np.arange(len(rows))
    absent = np.ones(count, np.bool_)
    absent[rows] = False
    return values.take(pa.array(index, mask=absent))
