"""Trees of many traces at once are what one gets by following each trace message by message."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given

from raceway.pipeline.tables import Limits
from raceway.pipeline.transforms.beginnings import beginnings
from raceway.pipeline.transforms.trees import TOO_LATE, trees_of
from tests.pipeline.rows import Row, answer, bronze, message, request
from tests.pipeline.worlds import worlds

_LOOKED_AT = (
    "source", "partition", "sequence", "time_us", "kind", "message_id", "correlation_id", "wire", "topic", "producer",
    "parent_id", "answers", "error",
)  # fmt: skip


def traced(rows: list[Row]) -> pa.Table:
    """Rows as the transform has them: sorted, and each knows where its trace began."""
    table = bronze(rows).select(_LOOKED_AT)
    table = table.filter(table.column("correlation_id").is_valid())
    return beginnings(table, Limits().trace_us)


@dataclass
class Node:
    row: Row
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    answers: list[Row] = field(default_factory=list)

    @property
    def answer(self) -> Row | None:
        return min(self.answers, key=lambda row: row["error"] in TOO_LATE, default=None)

    @property
    def ended(self) -> Row:
        return self.answer or self.row

    @property
    def last_us(self) -> int:
        return max([int(self.ended["time_us"]), *(child.last_us for child in self.children)])

    @property
    def depth(self) -> int:
        return 1 if self.parent is None else self.parent.depth + 1

    def walk(self) -> list[Node]:
        return [self, *(node for child in self.children for node in child.walk())]

    def path(self) -> list[Node]:
        return [self, *(max(self.children, key=lambda child: child.last_us).path() if self.children else [])]

    def crossings(self) -> int:
        others = [row["wire"] for row in self.answers] + ([self.parent.row["wire"]] if self.parent else [])
        return sum(wire != self.row["wire"] for wire in others)


def followed(rows: list[Row]) -> list[Node]:
    nodes: list[Node] = []
    for row in rows:
        asked = [node for node in nodes if row["kind"] == "response" and node.row["sequence"] == row["answers"]]
        if asked:
            asked[0].answers.append(row)
            continue
        parent = (row["parent_id"] or "").lower()
        named = [
            node
            for node in nodes
            if parent and node.row["kind"] != "response" and (node.row["message_id"] or "").lower() == parent
        ]
        nodes.append(Node(row, named[-1] if named else None))
        if named:
            named[-1].children.append(nodes[-1])
    return [node for node in nodes if node.parent is None]


def described(rows: list[Row]) -> Row:
    roots = followed(rows)
    order = [node for root in roots for node in root.walk()]
    path = max(roots, key=lambda root: root.last_us).path()
    return {
        **{name: rows[0][name] for name in ("source", "correlation_id", "first_sequence")},
        "last_sequence": rows[-1]["sequence"],
        "start_us": rows[0]["time_us"],
        "end_us": max(row["time_us"] for row in rows),
        "messages": len(rows),
        "requests": sum(row["kind"] == "request" for row in rows),
        "errors": sum(row["error"] is not None for row in rows),
        "depth": max(node.depth for node in order),
        "wires": sorted({row["wire"] for row in rows}),
        "crossings": sum(node.crossings() for node in order),
        "root_topic": roots[0].row["topic"],
        "root_wire": roots[0].row["wire"],
        "critical_us": path[0].last_us - path[0].row["time_us"],
        "critical_path": [node.row["topic"] for node in path],
        "tree": [_record(node) for node in order],
    }


def _record(node: Node) -> dict[str, Any]:
    names = ("sequence", "kind", "topic", "wire", "producer")
    return {name: node.row[name] for name in names} | {
        "parent": node.parent.row["sequence"] if node.parent else None,
        "depth": node.depth,
        "answerer": node.answer["producer"] if node.answer else None,
        "start_us": node.row["time_us"],
        "end_us": node.ended["time_us"],
        "error": node.ended["error"],
    }


def one_by_one(rows: pa.Table) -> list[Row]:
    traces = groupby(rows.to_pylist(), key=lambda row: (row["source"], row["correlation_id"], row["first_sequence"]))
    return [described(list(trace)) for _, trace in traces]


@given(worlds(most=60))
def test_all_at_once_is_one_by_one(rows: list[Row]) -> None:
    assert trees_of(traced(rows)).to_pylist() == one_by_one(traced(rows))


def test_an_answer_to_an_answer_stands_alone_unless_that_does() -> None:
    asked = [request(0, correlation_id="c"), answer(1, 0, correlation_id="c"), answer(2, 1, correlation_id="c")]
    rows = [*asked, answer(3, 2, correlation_id="c"), answer(4, 3, correlation_id="c")]
    (trace,) = trees_of(traced(rows)).to_pylist()
    assert [trace] == one_by_one(traced(rows))
    assert [node["sequence"] for node in trace["tree"]] == [0, 2, 4]


def test_a_long_chain_has_its_depth_and_a_part_of_its_tree() -> None:
    rows = [message(0), *(message(n, parent_id=f"M{n - 1}", correlation_id="m0") for n in range(1, 50))]
    with patch("raceway.pipeline.transforms.trees.MAX_NODES", 20):
        (trace,) = trees_of(traced(rows)).to_pylist()
    assert (trace["depth"], len(trace["critical_path"]), trace["messages"]) == (50, 50, 50)
    assert [node["depth"] for node in trace["tree"]] == list(range(1, 21))


def test_no_rows_are_no_traces() -> None:
    assert trees_of(traced([message(0, message_id=None)])).num_rows == 0
