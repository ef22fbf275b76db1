"""Where traces begin: rows are sorted by id and position, and decided all at once, as columns in memory.

A message that *is* the root begins a trace, and so does one after a long silence of its id. A trace that has reached
the longest age is continued by a new one, so that an id that is never silent does not make all its history be read with
each batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Longest silence within a trace. Deadlines may be an hour, but real chains take seconds.
GAP_US = 10 * 60 * 1_000_000

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


def is_root(rows: pa.Table) -> Mask:
    """Return a mask of the messages whose own id is the correlation id, and which are no answers."""
    # Ids of MB are UUIDs and equal in either letter case.
    own = pc.equal(pc.utf8_lower(rows.column("message_id")), pc.utf8_lower(rows.column("correlation_id")))
    rooted = pc.and_(pc.fill_null(own, False), pc.not_equal(rows.column("kind"), "response"))
    return np.asarray(rooted.to_numpy(), np.bool_)


def beginnings(rows: pa.Table, longest_us: int) -> pa.Table:
    """Return rows, sorted, with the position where the trace of each began as `first_sequence`.

    They begin with the first row of a trace, whichever that is, or with one that begins a trace.
    """
    rows = rows.combine_chunks().sort_by([(name, "ascending") for name in ("source", "correlation_id", "sequence")])
    starts = starts_of(rows, ("source", "correlation_id"))
    sequence, time_us = rows.column("sequence").to_numpy(), rows.column("time_us").to_numpy()
    firsts = sequence[_first_rows(starts, time_us, is_root(rows), longest_us)]
    return rows.append_column("first_sequence", pa.array(firsts, pa.int64()))


def starts_of(rows: pa.Table, names: Sequence[str]) -> Numbers:
    """Return where one of these columns changes. They are never NULL."""
    if not rows.num_rows:
        return np.empty(0, np.int64)
    changes = np.zeros(rows.num_rows, np.bool_)
    changes[0] = True
    for name in names:
        column = rows.column(name).combine_chunks()
        changes[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False).astype(np.bool_)
    return np.flatnonzero(changes)


def _first_rows(starts: Numbers, time_us: Numbers, roots: Mask, longest_us: int) -> Numbers:
    """Return the row in which the trace of each row began. An id begins at each of `starts`."""
    begins = roots | (np.diff(time_us, prepend=0) > GAP_US)
    begins[starts] = True
    places = np.arange(len(time_us))
    while True:
        # Running maximum of the places where a trace begins: each row gets the last one at or before it.
        firsts = np.maximum.accumulate(np.where(begins, places, 0))
        too_old = np.flatnonzero(time_us - time_us[firsts] > longest_us)
        if not len(too_old):
            return np.asarray(firsts, np.int64)
        # The first row of each trace that is too old for it begins the next one, whose age is looked at in turn.
        begins[too_old[np.unique(firsts[too_old], return_index=True)[1]]] = True
