"""Rows of traces to trees. One pass in Python over traces of several messages; those of one are columns throughout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raceway.pipeline.transforms.trace_links import starts_of

# Nodes of a tree that are kept; `messages` counts them all.
MAX_NODES = 1000
# What the bus writes down of answers that nobody waits for any more.
TOO_LATE = ("late", "duplicate")

NODE = pa.struct(
    [
        ("sequence", pa.int64()),
        ("parent", pa.int64()),
        ("depth", pa.int32()),
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("wire", pa.string()),
        ("producer", pa.string()),
        ("answerer", pa.string()),
        ("start_us", pa.int64()),
        ("end_us", pa.int64()),
        ("error", pa.string()),
    ]
)
SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("correlation_id", pa.string()),
        ("first_sequence", pa.int64()),
        ("last_sequence", pa.int64()),
        ("start_us", pa.int64()),
        ("end_us", pa.int64()),
        ("messages", pa.int64()),
        ("requests", pa.int64()),
        ("errors", pa.int64()),
        ("depth", pa.int32()),
        ("wires", pa.list_(pa.string())),
        ("crossings", pa.int32()),
        ("root_topic", pa.string()),
        ("root_wire", pa.string()),
        ("critical_us", pa.int64()),
        ("critical_path", pa.list_(pa.string())),
        ("tree", pa.list_(NODE)),
    ]
)
_TRACE = ("source", "correlation_id", "first_sequence")
_AT_ONCE = 10_000


class Row(NamedTuple):
    sequence: int
    time_us: int
    wire: str
    kind: str
    topic: str
    producer: str | None
    message_id: str | None
    parent_id: str | None
    answers: int | None
    error: str | None


class Node:
    """A publish or a request, and what followed from it. Its end is that of its answer, else its own beginning."""

    __slots__ = ("answer", "children", "depth", "end_us", "error", "last_us", "parent", "row", "wires")

    def __init__(self, row: Row) -> None:
        self.row = row
        self.parent: Node | None = None
        self.children: list[Node] = []
        self.depth = 1
        self.end_us = self.last_us = row.time_us
        self.answer: Row | None = None
        self.error: str | None = row.error
        self.wires = [row.wire]


def trees_of(rows: pa.Table) -> pa.Table:
    """One row of SCHEMA for each trace in these rows, which are all rows of those traces, sorted by it and position."""
    starts = starts_of(rows, _TRACE)
    lengths = np.diff(np.append(starts, rows.num_rows))
    single = rows.take(pa.array(starts[lengths == 1]))
    several = list(_several(rows, starts[lengths > 1], lengths[lengths > 1]))
    return pa.concat_tables([_single_traces(single), pa.Table.from_pylist(several, schema=SCHEMA)])


def _single_traces(rows: pa.Table) -> pa.Table:
    """Traces of one message each, without a loop."""
    count = rows.num_rows
    time, error = rows.column("time_us").combine_chunks(), rows.column("error").combine_chunks()
    one, zero = pa.array(np.ones(count, np.int64)), pa.array(np.zeros(count, np.int64))
    at = pa.array(np.arange(count + 1, dtype=np.int32))
    wire, topic = rows.column("wire").combine_chunks(), rows.column("topic").combine_chunks()
    no_text = pa.nulls(count, pa.string())
    node = pa.StructArray.from_arrays(
        [
            rows.column("sequence").combine_chunks(), pa.nulls(count, pa.int64()), one.cast(pa.int32()),
            rows.column("kind").combine_chunks(), topic, wire, rows.column("producer").combine_chunks(), no_text,
            time, time, error,
        ],
        fields=list(NODE),
    )  # fmt: skip
    columns = {
        "source": rows.column("source"),
        "correlation_id": rows.column("correlation_id"),
        "first_sequence": rows.column("first_sequence"),
        "last_sequence": rows.column("sequence"),
        "start_us": time,
        "end_us": time,
        "messages": one,
        "requests": pc.equal(rows.column("kind"), "request").cast(pa.int64()),
        "errors": pc.is_valid(error).cast(pa.int64()),
        "depth": one.cast(pa.int32()),
        "wires": pa.ListArray.from_arrays(at, wire),
        "crossings": zero.cast(pa.int32()),
        "root_topic": topic,
        "root_wire": wire,
        "critical_us": zero,
        "critical_path": pa.ListArray.from_arrays(at, topic),
        "tree": pa.ListArray.from_arrays(at, node),
    }
    return pa.table(columns).cast(SCHEMA)


def _several(rows: pa.Table, starts: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> Iterator[dict[str, Any]]:
    """A slice of an Arrow column costs more than a row of a list: columns become lists once, for a run of traces."""
    for at in range(0, len(starts), _AT_ONCE):
        chosen_starts, chosen_lengths = starts[at : at + _AT_ONCE], lengths[at : at + _AT_ONCE]
        first, end = int(chosen_starts[0]), int(chosen_starts[-1] + chosen_lengths[-1])
        part = rows.slice(first, end - first)
        names = zip(
            *(part.column(name).take(pa.array(chosen_starts - first)).to_pylist() for name in _TRACE), strict=True
        )
        made = list(map(Row._make, zip(*(part.column(name).to_pylist() for name in Row._fields), strict=True)))
        for trace, start, length in zip(names, (chosen_starts - first).tolist(), chosen_lengths.tolist(), strict=True):
            yield dict(zip(_TRACE, trace, strict=True)) | _describe(made[start : start + length])


def _describe(rows: list[Row]) -> dict[str, Any]:
    nodes = _nodes(rows)
    roots = [node for node in nodes if node.parent is None]
    order = [node for root in roots for node in _preorder(root)]
    for node in reversed(order):
        node.last_us = max([node.end_us, *(child.last_us for child in node.children)])
    first = roots[0]
    path = _critical_path(max(roots, key=lambda root: root.last_us))
    return {
        "last_sequence": rows[-1].sequence,
        "start_us": rows[0].time_us,
        "end_us": max(row.time_us for row in rows),
        "messages": len(rows),
        "requests": sum(row.kind == "request" for row in rows),
        "errors": sum(row.error is not None for row in rows),
        "depth": max(node.depth for node in order),
        "wires": sorted({row.wire for row in rows}),
        "crossings": sum(_crossings(node) for node in order),
        "root_topic": first.row.topic,
        "root_wire": first.row.wire,
        "critical_us": path[0].last_us - path[0].row.time_us,
        "critical_path": [node.row.topic for node in path],
        "tree": [_record(node) for node in order[:MAX_NODES]],
    }


def _nodes(rows: list[Row]) -> list[Node]:
    """Requests and publishes joined to what caused them; an answer ends its request, or stands alone without one."""
    by_position: dict[int, Node] = {}
    by_id: dict[str, Node] = {}
    nodes: list[Node] = []
    for row in rows:
        asked = by_position.get(row.answers) if row.kind == "response" and row.answers is not None else None
        if asked is not None:
            _end(asked, row)
            continue
        node = Node(row)
        cause = by_id.get(row.parent_id.lower()) if row.parent_id else None
        if cause is not None:
            node.parent, node.depth = cause, cause.depth + 1
            cause.children.append(node)
        nodes.append(node)
        by_position[row.sequence] = node
        if row.message_id and row.kind != "response":
            by_id[row.message_id.lower()] = node
    return nodes


def _end(asked: Node, answer: Row) -> None:
    """The first answer in time ends it; a late one only if there is no other."""
    if asked.answer is None or (asked.error in TOO_LATE and answer.error not in TOO_LATE):
        asked.answer, asked.error, asked.end_us = answer, answer.error, answer.time_us
    asked.wires.append(answer.wire)


def _preorder(root: Node) -> Iterator[Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))


def _critical_path(node: Node) -> list[Node]:
    """From the root to whatever ended last: what one would have to make faster."""
    path = [node]
    while node.children:
        node = max(node.children, key=lambda child: child.last_us)
        path.append(node)
    return path


def _crossings(node: Node) -> int:
    """Steps from one wire to another: from cause to effect, and from a request to its answer."""
    caused = node.parent is not None and node.parent.row.wire != node.row.wire
    return caused + sum(wire != node.row.wire for wire in node.wires[1:])


def _record(node: Node) -> dict[str, Any]:
    row = node.row
    return {
        "sequence": row.sequence,
        "parent": None if node.parent is None else node.parent.row.sequence,
        "depth": node.depth,
        "kind": row.kind,
        "topic": row.topic,
        "wire": row.wire,
        "producer": row.producer,
        "answerer": None if node.answer is None else node.answer.producer,
        "start_us": row.time_us,
        "end_us": node.end_us,
        "error": node.error,
    }
