"""Which rows of a damaged block are given out: none that has a byte in a bad stripe, all others."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from raceway.journal.format import PLAIN, Meta
from raceway.journal.integrity.checksum import STRIPE
from raceway.journal.integrity.salvage import good_ranges
from raceway.journal.write.columns import Layout, lay_out

ROWS = 9000


def make_layout() -> Layout:
    """Columns of every form, each over several stripes: sizes are random, some rows are null."""
    chance = random.Random(4)
    ids = [None if chance.random() < 0.1 else b"%036d" % n for n in range(ROWS)]
    numbers = [None if n % 5 == 0 else n for n in range(ROWS)]
    payloads = [bytes(chance.randrange(60)) for _ in range(ROWS)]
    return lay_out([{"message_id": ids, "timeout_ms": numbers, "answers": numbers, "payload": payloads}], [ROWS])


LAYOUT = make_layout()
BODY = LAYOUT.body()
META = Meta(LAYOUT.columns, LAYOUT.constants, [], b"", 0)
STRIPES = -(-len(BODY) // STRIPE)


def row_bytes(name: str, row: int) -> list[tuple[int, int]]:
    """Where the bytes of one row of a column lie, by the plainest reckoning."""
    column = next(column for column in META.columns if column.name == name)
    validity, numbers, *data = column.parts
    found = [(validity[0] + row // 8, 1)] if validity[1] else []
    if not data:
        return [*found, (numbers[0] + 8 * row, 8)]
    low, high = (int.from_bytes(BODY[numbers[0] + 4 * n : numbers[0] + 4 * n + 4], "little") for n in (row, row + 1))
    return [*found, (numbers[0] + 4 * row, 8), (data[0][0] + low, high - low)]


def is_good(name: str, row: int, bad: set[int]) -> bool:
    return all(
        not size or bad.isdisjoint(range(position // STRIPE, (position + size - 1) // STRIPE + 1))
        for position, size in row_bytes(name, row)
    )


@given(st.sets(st.integers(0, STRIPES - 1), min_size=1, max_size=3), st.sampled_from(["all", "payload", "timeout_ms"]))
def test_rows_without_a_byte_in_a_bad_stripe_are_good_and_no_others(bad: set[int], which: str) -> None:
    names = [column.name for column in META.columns] if which == "all" else [which]
    found = {row for run in good_ranges(META, ROWS, BODY, bad, names) for row in run}
    for row in [*range(0, ROWS, 37), 0, ROWS - 1]:
        assert (row in found) == all(is_good(name, row, bad) for name in names), row


def test_all_rows_are_good_when_no_stripe_is_bad() -> None:
    assert good_ranges(META, ROWS, BODY, set(), ["payload"]) == [range(ROWS)]


def test_runs_with_a_bad_byte_spoil_every_row() -> None:
    layout = lay_out([{"topic": b"a", "payload": [b"x"] * 10}, {"topic": b"b", "payload": [b"y"] * 10}], [10, 10])
    meta = Meta(layout.columns, layout.constants, [], b"", 0)
    assert {column.encoding for column in meta.columns if column.name == "topic"} != {PLAIN}
    assert good_ranges(meta, 20, layout.body(), {0}, ["topic"]) == []


def test_a_body_that_ends_early_has_no_good_rows_behind_its_end() -> None:
    cut = BODY[: 2 * STRIPE]
    bad = set(range(2, STRIPES))
    assert good_ranges(META, ROWS, cut, bad, ["message_id", "payload"]) == []
