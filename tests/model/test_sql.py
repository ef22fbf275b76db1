from __future__ import annotations

import datetime
from typing import Any

import pytest

from raceway.model.sql import CELL, shown_cell


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (None, None), (True, True), (7, 7), (1.5, 1.5), (float("nan"), "nan"), ("x" * 999, "x" * CELL), (b"ok", "ok"),
        (datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), "2026-01-02T00:00:00+00:00"),
        ([("a", "b")], "[('a', 'b')]"),
    ],
)  # fmt: skip
def test_cells_are_values_of_json(cell: Any, shown: Any) -> None:
    assert shown_cell(cell) == shown
