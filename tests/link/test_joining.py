"""Outcomes of parts: the refused rows of each are those of the whole batch."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from raceway.errors import NoRouteError, UnavailableError
from raceway.link.joining import first_error, taken
from raceway.model.intents.batches import Taken

# Of each row: its part, and whether it is refused.
ROWS = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=30)


@given(ROWS, st.sets(st.integers(0, 3)))
def test_each_row_is_refused_by_its_part(rows: list[tuple[int, bool]], away: set[int]) -> None:
    outcomes: list[tuple[Any, Any]] = []
    for part in {part for part, _ in rows}:
        of_it = [row for row, (owner, _) in enumerate(rows) if owner == part]
        refused = tuple(
            (at, at + 1, NoRouteError(f"row {row}")) for at, row in enumerate(of_it) if rows[row][1]
        )  # numbered as the part numbers its rows
        outcomes.append((of_it, UnavailableError(f"part {part}") if part in away else Taken(refused[::-1])))
    told = [(row, str(error)) for start, stop, error in taken(outcomes).refused for row in range(start, stop)]
    assert told == [
        (row, str(UnavailableError(f"part {part}") if part in away else NoRouteError(f"row {row}")))
        for row, (part, is_refused) in enumerate(rows)
        if is_refused or part in away
    ]


def test_rows_that_follow_each_other_are_refused_together() -> None:
    error = NoRouteError("orders")
    told = taken([([0, 1, 4, 5, 9], Taken(((0, 4, error),))), ([2, 3, 6, 7, 8], Taken())])
    assert told.refused == ((0, 2, error), (4, 6, error))


def test_the_first_failure_is_that_of_all() -> None:
    error = UnavailableError("full")
    assert first_error([(None, None), (None, None)]) is None
    assert first_error([(None, None), (None, error), (None, UnavailableError("later"))]) is error
