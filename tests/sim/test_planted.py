"""The simulation is not blind: each planted bug, and each fault that was mended, is found within 500 histories."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.sim.history import make_plan, run_plan
from tests.sim.planting import MOST_S, PLANTED, ROOT, STEPS, hunt, switches_of
from tests.sim.switches import read_switches

FAULTS = {"fault-H1", "fault-H2", "fault-H4", "fault-H5", "fault-S1", "fault-M5"}


def test_there_are_twenty_planted_bugs_and_six_faults_taken_out_again() -> None:
    names = {patch.stem for patch in PLANTED}
    assert names >= FAULTS
    assert len(names - FAULTS) >= 20


@pytest.mark.parametrize("patch", PLANTED, ids=lambda patch: patch.stem)
def test_a_planted_bug_still_fits(patch: Path) -> None:
    """Cheap, so that whoever changes what it changes is told at once."""
    check = ["git", "apply", "--check", str(patch)]
    checked = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, f"make it anew: {checked.stderr}"


@pytest.mark.timeout(MOST_S + 60)  # on a busy machine
@pytest.mark.parametrize("patch", PLANTED, ids=lambda patch: patch.stem)
def test_a_planted_bug_is_found(patch: Path, tmp_path: Path) -> None:
    found = hunt(patch, tmp_path)
    assert found.broken, f"not found: {found.output}"
    # That history breaks a promise because of the patch, not by itself.
    clean = run_plan(make_plan(found.seed, STEPS, read_switches(switches_of(patch))))
    assert not clean.broken, f"seed {clean.seed} is broken without the patch, too: {clean.broken}"
