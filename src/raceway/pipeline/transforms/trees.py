"""Conversion of the rows of traces to trees, all at once: columns throughout, no loop over rows or traces.

Requests and publishes are nodes, joined to their cause: the last message before them in the trace whose id they name as
their parent. An answer ends its request, or is a node if that is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raceway.pipeline.transforms.beginnings import Mask, Numbers, starts_of
from raceway.pipeline.transforms.forest import NONE, Forest
from raceway.wires.captures.columns import schema_of

# Limit of nodes stored per tree; `messages` counts them all.
MAX_NODES = 1000
# Errors that the bus records for answers that came too late.
TOO_LATE = ("late", "duplicate")

_NODE = (
    "sequence:bigint,parent:bigint,depth:int,kind:string,topic:string,wire:string,producer:string,answerer:string,"
    "start_us:bigint,end_us:bigint,error:string"
)
DDL = f"""
    source string, correlation_id string, first_sequence bigint, last_sequence bigint, start_us bigint, end_us bigint,
    messages bigint, requests bigint, errors bigint, depth int, wires array<string>, crossings int, root_topic string,
    root_wire string, critical_us bigint, critical_path array<string>, tree array<struct<{_NODE}>>"""
SCHEMA = schema_of(DDL)
NODE = SCHEMA.field("tree").type.value_type
_TRACE = ("source", "correlation_id", "first_sequence")


def trees_of(rows: pa.Table) -> pa.Table:
    """Return one row of SCHEMA for each trace. `rows` are all rows of those traces, sorted by trace and position."""
    if not rows.num_rows:
        return SCHEMA.empty_table()
    return pa.table(_Traces(rows).columns(), schema=SCHEMA)


class _Traces:
    """Rows, nodes and traces, each numbered from 0; `…_rows` are numbers of rows."""

    def __init__(self, rows: pa.Table) -> None:
        self._columns = {name: rows.column(name).combine_chunks() for name in rows.column_names}
        self.starts = starts_of(rows, _TRACE)
        self.lengths = np.diff(np.append(self.starts, rows.num_rows))
        self.traces: Numbers = np.repeat(np.arange(len(self.starts)), self.lengths)
        self.time_us = self._numbers("time_us")
        self.is_response = self._is("kind", "response")
        self.asked_rows = self._asked_rows()
        self.node_rows = np.flatnonzero(self.asked_rows == NONE)
        self.answer_rows = np.flatnonzero(self.asked_rows != NONE)
        self.forest = Forest(self._causes(), self.traces[self.node_rows])

    def _numbers(self, name: str) -> Numbers:
        """Return a column of numbers without NULL."""
        return np.asarray(self._columns[name].to_numpy(), np.int64)

    def _is(self, name: str, *values: str) -> Mask:
        """Return a mask of the rows that have one of these values."""
        found = pc.is_in(self._columns[name], value_set=pa.array(values))
        return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)

    def _of(self, name: str, rows: Numbers) -> pa.Array:
        """Return the values of these rows; NULL for NONE."""
        return self._columns[name].take(pa.array(rows, mask=rows == NONE))

    # ---- what belongs together --------------------------------------------------------------------------------------

    def _asked_rows(self) -> Numbers:
        """Return, for each answer, the row that it answers, if that is an earlier node of its trace."""
        sequence, answers = self._numbers("sequence"), self._columns["answers"]
        asked = np.full(len(sequence), NONE)
        rows = np.flatnonzero(self.is_response & answers.is_valid().to_numpy(zero_copy_only=False))
        known = np.unique(sequence)
        wanted = answers.take(pa.array(rows)).to_numpy()
        # Trace and position combined in one number: one sorted search finds a position within its own trace.
        keys = self.traces * len(known) + np.searchsorted(known, sequence)
        places = np.searchsorted(known, wanted).clip(max=len(known) - 1)
        found = np.searchsorted(keys, self.traces[rows] * len(known) + places).clip(max=len(keys) - 1)
        is_there = (sequence[found] == wanted) & (self.traces[found] == self.traces[rows]) & (found < rows)
        asked[rows[is_there]] = found[is_there]
        for row in np.flatnonzero((asked != NONE) & self.is_response[asked]):  # an answer to an answer: very rare
            if asked[asked[row]] != NONE:
                asked[row] = NONE
        return asked

    def _causes(self) -> Numbers:
        """Return the node that caused each node."""
        count = len(self.node_rows)
        causes = np.full(count, NONE)
        own, named = (pc.utf8_lower(self._of(name, self.node_rows)) for name in ("message_id", "parent_id"))
        followers = np.flatnonzero(_is_text(named))
        if not len(followers):
            return causes
        candidates = np.flatnonzero(_is_text(own) & ~self.is_response[self.node_rows])
        ids = pa.concat_arrays([own.take(pa.array(candidates)), named.take(pa.array(followers))]).dictionary_encode()
        nodes = np.concatenate([candidates, followers])
        keys = self.traces[self.node_rows[nodes]] * len(ids.dictionary) + ids.indices.to_numpy()
        # Equal numbers for equal trace and id, then the node's own number: the last one before it is its neighbour.
        places = np.unique(keys, return_inverse=True)[1] * count + nodes
        there = np.sort(places[: len(candidates)])
        wanted = places[len(candidates) :]
        before = there[np.searchsorted(there, wanted) - 1] if len(there) else np.full(len(wanted), NONE)
        is_there = (before // count == wanted // count) & (before < wanted)
        causes[followers[is_there]] = before[is_there] % count
        return causes

    @cached_property
    def _end_rows(self) -> Numbers:
        """Answer that ends each node: the first in time, otherwise the first late one."""
        nodes = np.searchsorted(self.node_rows, self.asked_rows[self.answer_rows])
        order = np.lexsort((self._is("error", *TOO_LATE)[self.answer_rows], nodes))
        ended, firsts = np.unique(nodes[order], return_index=True)
        found = np.full(len(self.node_rows), NONE)
        found[ended] = self.answer_rows[order[firsts]]
        return found

    # ---- columns ----------------------------------------------------------------------------------------------------

    def columns(self) -> dict[str, Any]:
        """Return the columns of SCHEMA."""
        firsts, lasts = self.starts, self.starts + self.lengths - 1
        # A node without an answer ends with its own row.
        self._last_rows = np.where(self._end_rows == NONE, self.node_rows, self._end_rows)
        last_us = self.forest.greatest_below(self.time_us[self._last_rows])
        path_lengths, path = self.forest.paths(last_us)
        heads = path[np.cumsum(path_lengths) - path_lengths]
        return {
            **{name: self._of(name, firsts) for name in _TRACE},
            "last_sequence": self._of("sequence", lasts),
            "start_us": self.time_us[firsts],
            "end_us": np.maximum.reduceat(self.time_us, firsts),
            "messages": self.lengths,
            "requests": np.add.reduceat(self._is("kind", "request").astype(np.int64), firsts),
            "errors": np.add.reduceat(self._columns["error"].is_valid().cast(pa.int64()).to_numpy(), firsts),
            "depth": np.maximum.reduceat(self.forest.depths, self.forest.first_nodes).astype(np.int32),
            "wires": self._wires(),
            "crossings": self._crossings(),
            "root_topic": self._of("topic", firsts),
            "root_wire": self._of("wire", firsts),
            "critical_us": last_us[heads] - self.time_us[self.node_rows[heads]],
            "critical_path": _lists(path_lengths, self._of("topic", self.node_rows[path])),
            "tree": self._trees(),
        }

    def _wires(self) -> pa.Array:
        """Return the wires of each trace, each once, sorted by name."""
        names = self._columns["wire"].unique().sort()
        codes = pc.index_in(self._columns["wire"], value_set=names).to_numpy()
        pairs = np.unique(self.traces * len(names) + codes)
        return _lists(np.bincount(pairs // len(names)), names.take(pa.array(pairs % len(names))))

    def _crossings(self) -> Numbers:
        """Return the steps from one wire to another: from cause to effect, and from a request to its answer."""
        followers = np.flatnonzero(self.forest.parents != NONE)
        causes = self.node_rows[self.forest.parents[followers]]
        before = np.concatenate([causes, self.asked_rows[self.answer_rows]])
        after = np.concatenate([self.node_rows[followers], self.answer_rows])
        wires = self._columns["wire"].dictionary_encode().indices.to_numpy()
        crossing = after[wires[before] != wires[after]]
        return np.bincount(self.traces[crossing], minlength=len(self.starts)).astype(np.int32)

    def _trees(self) -> pa.Array:
        """Return the nodes of each tree in walking order, at most MAX_NODES."""
        sizes = np.bincount(self.forest.trees)
        order = self.forest.walk()
        place = np.arange(len(order)) - np.repeat(self.forest.first_nodes, sizes)
        nodes = order[place < MAX_NODES]
        return _lists(np.minimum(sizes, MAX_NODES), self._records(nodes))

    def _records(self, nodes: Numbers) -> pa.Array:
        """Return nodes as structs of NODE."""
        rows, parents, ends = self.node_rows[nodes], self.forest.parents[nodes], self._last_rows[nodes]
        parent_rows = np.where(parents == NONE, NONE, self.node_rows[parents])
        columns = {
            "sequence": self._of("sequence", rows),
            "parent": self._of("sequence", parent_rows),
            "depth": pa.array(self.forest.depths[nodes].astype(np.int32)),
            **{name: self._of(name, rows) for name in ("kind", "topic", "wire", "producer")},
            "answerer": self._of("producer", self._end_rows[nodes]),
            "start_us": pa.array(self.time_us[rows]),
            "end_us": pa.array(self.time_us[ends]),
            "error": self._of("error", ends),
        }
        return pa.StructArray.from_arrays([columns[field.name] for field in NODE], fields=list(NODE))


def _is_text(values: pa.Array) -> Mask:
    """Return a mask of the values that are neither NULL nor empty."""
    return np.asarray(pc.fill_null(pc.not_equal(values, ""), False).to_numpy(zero_copy_only=False), np.bool_)


def _lists(lengths: Numbers | Sequence[int], values: pa.Array) -> pa.Array:
    """Return lists of these lengths over consecutive values."""
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)
