"""Beginnings of traces: within the rows of one part, and carried from part to part of bronze.

Everything here is columns in memory: rows are sorted by id and position, and decided all at once. What is carried is
computed without Spark, which would need half a dozen jobs for it and plan longer than they run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raceway.pipeline.tables import Carried, Earlier, position_buckets
from raceway.wires.captures.columns import schema_of

# Longest silence within a trace. Deadlines may be an hour, but real chains take seconds.
GAP_US = 10 * 60 * 1_000_000
LOOKED_AT = ("source", "partition", "sequence", "time_us", "kind", "message_id", "correlation_id")
LINKS = schema_of("source string, partition int, sequence bigint, first_sequence bigint, last_us bigint")
ACTIVE = schema_of("correlation_id string, first_sequence bigint, last_us bigint")
_NONE = -1

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


def carry(rows: pa.Table, active: pa.Table | None, earlier: Earlier | None) -> Carried:
    """Return `links`: where traces began that this part continues; `active`: traces that a later part may continue."""
    known = ACTIVE.empty_table() if active is None else active
    now_us = pc.max(rows.column("time_us")).as_py()
    part = _Part(rows.filter(pc.is_valid(rows.column("correlation_id"))))
    if not part.count:
        return Carried(LINKS.empty_table(), _still(known, now_us), [])
    part.link_active(known)
    if earlier is not None:
        part.link_roots(earlier)
    firsts = first_sequences(part.starts, part.sequence, part.time_us, part.is_root, part.linked, part.linked_us)
    here = part.last_traces(firsts)
    kept = here.filter(pa.array(part.is_followed()))
    others = known.filter(pc.invert(pc.is_in(known.column("correlation_id"), value_set=part.ids)))
    buckets = position_buckets(rows.column("source")[0].as_py(), firsts)
    return Carried(part.links(), _still(pa.concat_tables([kept, others]), now_us), buckets)


def _still(traces: pa.Table, now_us: int | None) -> pa.Table:
    """Return the traces that have not been silent for longer than the gap."""
    if now_us is None:
        return traces
    return traces.filter(pc.greater_equal(traces.column("last_us"), now_us - GAP_US)).combine_chunks()


def is_root(rows: pa.Table) -> Mask:
    """Return a mask of the messages whose own id is the correlation id, and which are no answers."""
    # Ids of MB are UUIDs and equal in either letter case.
    own = pc.equal(pc.utf8_lower(rows.column("message_id")), pc.utf8_lower(rows.column("correlation_id")))
    rooted = pc.and_(pc.fill_null(own, False), pc.not_equal(rows.column("kind"), "response"))
    return np.asarray(rooted.to_numpy(), np.bool_)


def beginnings(rows: pa.Table) -> pa.Table:
    """Return the rows of any parts, sorted, with the position where the trace of each began as `first_sequence`.

    They have the columns `linked` and `linked_us`, mostly NULL. Parts of a source hold ever greater positions, so rows
    of an id come part after part.
    """
    rows = rows.combine_chunks().sort_by([(name, "ascending") for name in ("source", "correlation_id", "sequence")])
    starts = starts_of(rows, ("source", "correlation_id", "part"))
    linked = pc.fill_null(rows.column("linked"), _NONE).to_numpy()[starts]
    linked_us = pc.fill_null(rows.column("linked_us"), 0).to_numpy()[starts]
    sequence, time_us = rows.column("sequence").to_numpy(), rows.column("time_us").to_numpy()
    firsts = first_sequences(starts, sequence, time_us, is_root(rows), linked, linked_us)
    return rows.append_column("first_sequence", pa.array(firsts))


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


def first_sequences(
    starts: Numbers, sequence: Numbers, time_us: Numbers, roots: Mask, linked: Numbers, linked_us: Numbers
) -> Numbers:
    """Return where the trace of each row began. `linked…`: what came before each start, if anything did."""
    if not len(sequence):
        return sequence
    # Time of the row before; that of the first row of each id comes from the link.
    before_us = np.roll(time_us, 1)
    before_us[starts] = linked_us
    begins = roots | (time_us - before_us > GAP_US)
    begins[starts] |= linked == _NONE
    began_at = np.where(begins, sequence, _NONE)
    goes_on = ~begins[starts]
    began_at[starts[goes_on]] = linked[goes_on]
    # Running maximum of the places where a trace begins: each row gets the last one at or before it.
    places = np.where(began_at == _NONE, 0, np.arange(len(sequence)))
    return np.asarray(began_at[np.maximum.accumulate(places)], np.int64)


class _Part:
    """Rows with a correlation id, sorted by it and by position; id number n has the rows from starts[n] on."""

    def __init__(self, rows: pa.Table) -> None:
        self.count = rows.num_rows
        if not self.count:
            return
        encoded = rows.column("correlation_id").combine_chunks().dictionary_encode()
        self.ids: pa.Array = encoded.dictionary
        numbers = encoded.indices.to_numpy()
        order = np.lexsort((rows.column("sequence").to_numpy(), numbers))
        self.rows = rows.take(pa.array(order))
        self.number = numbers[order]
        self.starts = np.flatnonzero(np.diff(self.number, prepend=_NONE))
        self.sequence: Numbers = self.rows.column("sequence").to_numpy()
        self.time_us: Numbers = self.rows.column("time_us").to_numpy()
        self.is_root = is_root(self.rows)
        self.continues: Mask = ~self.is_root[self.starts]
        self.is_active: Mask = np.zeros(len(self.starts), np.bool_)
        self.linked: Numbers = np.full(len(self.starts), _NONE)
        self.linked_us: Numbers = np.zeros(len(self.starts), np.int64)

    def link_active(self, active: pa.Table) -> None:
        """Link the ids that an earlier part carried."""
        at = pc.index_in(self.ids, value_set=active.column("correlation_id").combine_chunks())
        self.is_active = at.is_valid().to_numpy(zero_copy_only=False)
        found = np.flatnonzero(self.is_active & self.continues)
        places = at.take(pa.array(found))
        self.linked[found] = active.column("first_sequence").take(places).to_numpy()
        self.linked_us[found] = active.column("last_us").take(places).to_numpy()

    def link_roots(self, earlier: Earlier) -> None:
        """Link the other ids to their root, if there is one in earlier rows: a root alone is not carried."""
        missing = np.flatnonzero(self.continues & ~self.is_active)
        if not len(missing):
            return
        before = earlier(int(self.time_us[self.starts[missing]].min()) - GAP_US)
        at = pc.index_in(before.column("correlation_id"), value_set=self.ids.take(pa.array(missing)))
        found = before.append_column("at", at).filter(pc.is_valid(at))
        found = found.filter(pa.array(is_root(found)))
        number = missing[found.column("at").to_numpy()]
        # If an id was used again, the newest root counts.
        np.maximum.at(self.linked, number, found.column("sequence").to_numpy())
        np.maximum.at(self.linked_us, number, found.column("time_us").to_numpy())

    def last_traces(self, firsts: Numbers) -> pa.Table:
        """Return, for each id, the trace that its last row belongs to."""
        ends = np.append(self.starts[1:], self.count) - 1
        return pa.table([self.ids, firsts[ends], np.maximum.reduceat(self.time_us, self.starts)], schema=ACTIVE)

    def is_followed(self) -> Mask:
        """Return, for each id, whether it has more than roots of its own. A request counts: its answer will follow."""
        is_request = pc.equal(self.rows.column("kind"), "request").to_numpy()
        return np.asarray(np.logical_or.reduceat(~self.is_root | is_request, self.starts), np.bool_)

    def links(self) -> pa.Table:
        """Return the links of this part, each for the first row of its id."""
        found = np.flatnonzero(self.linked != _NONE)
        first_rows = self.rows.take(pa.array(self.starts[found])).select(["source", "partition", "sequence"])
        columns = [*first_rows.columns, pa.array(self.linked[found]), pa.array(self.linked_us[found])]
        return pa.table(columns, names=LINKS.names).cast(LINKS)
