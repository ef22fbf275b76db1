"""Which trace a row belongs to, whatever the borders of parts. Without Spark: thousands of worlds in a second."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from raceway.pipeline.lake import range_name
from raceway.pipeline.tables import Earlier
from raceway.pipeline.transforms.trace_links import LINKS, LOOKED_AT, beginnings, carry
from tests.pipeline.rows import START_US, Row, answer, bronze, message, request
from tests.pipeline.worlds import worlds

Assigned = dict[int, tuple[str, int]]


def assigned(rows: list[Row], cuts: list[int] = [], merged: int = 0) -> Assigned:  # noqa: B006 - never changed
    """Position to correlation id and first position, computed part by part; the first `merged` parts become one."""
    edges = sorted({0, len(rows), *(cut for cut in cuts if 0 < cut < len(rows))})
    parts = [rows[first:last] for first, last in pairwise(edges)]
    active: pa.Table | None = None
    links = LINKS.empty_table()
    for number, part in enumerate(parts):
        before = bronze(row for each in parts[:number] for row in each).select(LOOKED_AT)
        found = carry(bronze(part).select(LOOKED_AT), active, _earlier(before))
        active, links = found.active, pa.concat_tables([links, found.links])
    names = [range_name(0, 0) if at < merged else range_name(first, first) for at, first in enumerate(edges[:-1])]
    table = bronze(rows)
    parted = [name for name, part in zip(names, parts, strict=True) for _ in part]
    known = links.rename_columns(["source", "partition", "sequence", "linked", "linked_us"])
    joined = table.append_column("part", pa.array(parted)).select([*LOOKED_AT, "part"])
    joined = joined.filter(joined.column("correlation_id").is_valid()).join(known, ["source", "partition", "sequence"])
    found_rows = beginnings(joined).to_pylist()
    return {row["sequence"]: (row["correlation_id"], row["first_sequence"]) for row in found_rows}


def _earlier(rows: pa.Table) -> Earlier:
    return lambda since_us: rows.filter(pc.greater_equal(rows.column("time_us"), since_us))


@given(worlds(), st.lists(st.integers(1, 39), max_size=6), st.integers(0, 5))
def test_borders_and_merging_change_nothing(rows: list[Row], cuts: list[int], merged: int) -> None:
    assert assigned(rows, cuts, merged) == assigned(rows)


def test_a_root_begins_a_trace_and_its_followers_continue_it() -> None:
    rows = [message(0, message_id="A"), message(1, parent_id="a", correlation_id="A"), message(2, message_id="A")]
    assert assigned([*rows, answer(3, 2, correlation_id="A")]) == {0: ("A", 0), 1: ("A", 0), 2: ("A", 2), 3: ("A", 2)}


def test_what_has_no_id_of_its_own_continues_too() -> None:
    rows = [request(0, correlation_id="c"), message(1, message_id=None, correlation_id="c")]
    assert assigned(rows, [1]) == {0: ("c", 0), 1: ("c", 0)}


def test_silence_ends_a_trace_also_across_parts() -> None:
    gap = 600
    rows = [
        message(at, correlation_id="c", time_us=START_US + 1_000_000 * second)
        for at, second in enumerate((0, gap, 2 * gap, 3 * gap + 1))
    ]
    assert assigned(rows, [1, 2, 3]) == {0: ("c", 0), 1: ("c", 0), 2: ("c", 0), 3: ("c", 3)}
