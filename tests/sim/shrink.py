"""Shrinking: the same finding with as few steps as can be found in bounded time."""

from __future__ import annotations

from collections.abc import Sequence

from tests.sim.history import Outcome, Plan, run_plan

# Runs that shrinking may take.
MOST_RUNS = 120


def shrink(plan: Plan, found: Outcome, most_runs: int = MOST_RUNS) -> tuple[list[int], Outcome]:
    """Return the numbers of steps that still break the same promise, and how it looks with them.

    Leaves out halves, then quarters and so on (delta debugging): a history that still breaks is the next to try.
    """
    kept, best, runs = [step.number for step in plan.steps], found, 0
    pieces = 2
    while len(kept) > 1 and runs < most_runs:
        size = max(1, len(kept) // pieces)
        for begin in range(0, len(kept), size):
            fewer = kept[:begin] + kept[begin + size :]
            runs += 1
            outcome = run_plan(plan, fewer)
            if _kind(outcome.broken) == _kind(found.broken):
                kept, best = fewer, outcome
                pieces = max(2, pieces - 1)
                break
            if runs >= most_runs:
                break
        else:
            if size == 1:
                break
            pieces *= 2
    return kept, best


def _kind(broken: str) -> str:
    """The promise that was broken, whichever message broke it."""
    return "".join("#" if char.isdigit() else char for char in broken.split(":")[0])[:24]


def spell(numbers: Sequence[int]) -> str:
    """Write numbers as ranges: 1-3,7."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def parse(text: str) -> list[int]:
    """Read what `spell` wrote."""
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers
