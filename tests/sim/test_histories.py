"""The whole bus in simulation: random histories are clean, found ones stay mended, and each can be told again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rigs.rounds import rounds
from tests.sim.history import make_plan, run_plan
from tests.sim.planting import ROOT
from tests.sim.switches import read_switches

CORPUS = [
    line.split(" ", 2) for line in (Path(__file__).parent / "corpus.txt").read_text().splitlines() if line[:1] != "#"
]
# A hundred histories, in pieces that several cores can take.
PIECES, EACH, STEPS = 4, rounds(25), 60


@pytest.mark.parametrize("piece", range(PIECES))
def test_histories_are_clean(piece: int) -> None:
    for seed in range(piece * EACH, (piece + 1) * EACH):
        outcome = run_plan(make_plan(seed, STEPS))
        assert not outcome.broken, "\n".join([f"seed {seed}, {STEPS} steps:", *outcome.lines])


@pytest.mark.parametrize("piece", range(8))
def test_a_thousand_histories_are_clean(piece: int) -> None:
    for seed in range(100_000 + piece * 125, 100_000 + (piece + 1) * 125):
        outcome = run_plan(make_plan(seed, STEPS))
        assert not outcome.broken, "\n".join([f"seed {seed}, {STEPS} steps:", *outcome.lines])


@pytest.mark.parametrize("found", CORPUS, ids=lambda found: f"seed {found[0]}")
def test_what_was_found_stays_mended(found: list[str]) -> None:
    seed, steps, switches = int(found[0]), int(found[1]), found[2] if len(found) > 2 else ""
    outcome = run_plan(make_plan(seed, steps, read_switches(switches)))
    assert not outcome.broken, "\n".join(outcome.lines)


def test_a_seed_is_one_history_byte_for_byte_whatever_the_hash_seed() -> None:
    # Together all wires, troubles of the disk, and several starts; here behind other histories, there in a new process.
    for seed, hash_seed in (("77", "1"), ("12", "2")):
        here = run_plan(make_plan(int(seed), 150))
        command = [sys.executable, "-m", "tests.sim", "--seed", seed, "--steps", "150", "--lines"]
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        told = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=True).stdout
        assert told.splitlines() == [*here.lines, f"digest {here.digest}"]


def test_what_is_switched_off_does_not_happen() -> None:
    plan = make_plan(
        1, 400, read_switches("weights=none weights.stop=2 splitting=0 short_writes=0 latency_s=0.001 rules=")
    )
    assert {step.kind for step in plan.steps} == {"act", "stop"}
    assert (plan.splitting, plan.short_writes, plan.latency_s, plan.rules) == (0.0, 0.0, 0.001, ())


def test_another_seed_is_another_history() -> None:
    assert run_plan(make_plan(1, 30)).digest != run_plan(make_plan(2, 30)).digest
