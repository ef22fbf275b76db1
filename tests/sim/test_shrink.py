"""Shrinking, and how steps are written."""

from __future__ import annotations

import pytest

from tests.sim import shrink as shrinking
from tests.sim.history import Outcome, Plan, make_plan


def test_steps_are_written_as_ranges_and_read_again() -> None:
    assert shrinking.spell([1, 2, 3, 7, 9, 10]) == "1-3,7,9-10"
    assert shrinking.parse("1-3,7,9-10") == [1, 2, 3, 7, 9, 10]


def test_what_is_not_needed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(plan: Plan, only: list[int]) -> Outcome:
        return Outcome(plan.seed, "m7 was lost" if {3, 40} <= set(only) else "", (), "")

    monkeypatch.setattr(shrinking, "run_plan", run)
    plan = make_plan(1, 64)
    kept, best = shrinking.shrink(plan, Outcome(1, "m9 was lost", (), ""))
    assert kept == [3, 40]
    assert best.broken == "m7 was lost"
