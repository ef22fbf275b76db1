"""Which trace a row belongs to. Without Spark: thousands of worlds in a second."""

from __future__ import annotations

from hypothesis import given

from raceway.pipeline.transforms.beginnings import GAP_US, beginnings
from tests.pipeline.rows import START_US, Row, answer, bronze, message, request
from tests.pipeline.worlds import worlds

DAY_US = 24 * 3600 * 1_000_000
Assigned = dict[int, tuple[str, int]]


def assigned(rows: list[Row], longest_us: int = DAY_US) -> Assigned:
    """Position to correlation id and first position."""
    table = bronze(rows)
    found = beginnings(table.filter(table.column("correlation_id").is_valid()), longest_us).to_pylist()
    return {row["sequence"]: (row["correlation_id"], row["first_sequence"]) for row in found}


def one_by_one(rows: list[Row], longest_us: int) -> Assigned:
    """The same, row after row."""
    last: dict[str, Row] = {}
    first: dict[str, Row] = {}
    found: Assigned = {}
    for row in rows:
        name = row["correlation_id"]
        if name is None:
            continue
        own = row["message_id"] is not None and row["message_id"].lower() == name.lower() and row["kind"] != "response"
        silent = name in last and row["time_us"] - last[name]["time_us"] > GAP_US
        if own or silent or name not in last or row["time_us"] - first[name]["time_us"] > longest_us:
            first[name] = row
        last[name] = row
        found[row["sequence"]] = (name, first[name]["sequence"])
    return found


@given(worlds())
def test_all_at_once_is_the_same_as_one_by_one(rows: list[Row]) -> None:
    for longest_us in (DAY_US, 15 * 60 * 1_000_000, 60 * 1_000_000):
        assert assigned(rows, longest_us) == one_by_one(rows, longest_us)


def test_a_root_begins_a_trace_and_its_followers_continue_it() -> None:
    rows = [message(0, message_id="A"), message(1, parent_id="a", correlation_id="A"), message(2, message_id="A")]
    assert assigned([*rows, answer(3, 2, correlation_id="A")]) == {0: ("A", 0), 1: ("A", 0), 2: ("A", 2), 3: ("A", 2)}


def test_what_has_no_id_of_its_own_continues_too() -> None:
    rows = [request(0, correlation_id="c"), message(1, message_id=None, correlation_id="c")]
    assert assigned(rows) == {0: ("c", 0), 1: ("c", 0)}


def test_silence_ends_a_trace() -> None:
    gap = 600
    rows = [
        message(at, correlation_id="c", time_us=START_US + 1_000_000 * second)
        for at, second in enumerate((0, gap, 2 * gap, 3 * gap + 1))
    ]
    assert assigned(rows) == {0: ("c", 0), 1: ("c", 0), 2: ("c", 0), 3: ("c", 3)}


def test_an_id_that_is_never_silent_begins_anew_when_it_is_too_old() -> None:
    rows = [message(n, message_id=None, correlation_id="c", time_us=START_US + n * 300_000_000) for n in range(14)]
    assert [first for _, first in assigned(rows, 1_200_000_000).values()] == [0] * 5 + [5] * 5 + [10] * 4
