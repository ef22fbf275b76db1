"""Planted bugs: the product with a patch, in a process of its own that runs histories until one breaks a promise."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PLANTED = sorted((Path(__file__).parent / "planted").glob("*.patch"))
# Histories within which a bug must be found, and their length.
HISTORIES, STEPS = 500, 200
# How long that may take.
MOST_S = 900


class Found(NamedTuple):
    """How a planted bug ended: the seed and the promise that it broke, or empty."""

    seed: int
    broken: str
    output: str


def switches_of(patch: Path) -> str:
    """Return the line of a patch that says which generators find it."""
    return next(line for line in patch.read_text().splitlines() if line.startswith("switches: ")).removeprefix(
        "switches: "
    )


def hunt(patch: Path, folder: Path) -> Found:
    """Run histories with a patch until one is broken."""
    # With what Python has compiled: that takes longer than many histories.
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("static"))
    applied = subprocess.run(["git", "apply", str(patch)], cwd=folder, capture_output=True, text=True, timeout=60)
    assert applied.returncode == 0, f"{patch.name} no longer fits, make it anew: {applied.stderr}"
    command = [sys.executable, "-m", "tests.sim", "--seed", "1", "--histories", str(HISTORIES)]
    command += ["--steps", str(STEPS), "--no-shrink", "--switches", switches_of(patch)]
    env = {**os.environ, "PYTHONPATH": f"{folder / 'src'}{os.pathsep}{ROOT}"}
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=MOST_S, env=env)
    found = re.search(r"^seed (\d+): (.+)$", ran.stdout, re.MULTILINE)
    output = ran.stdout[-2000:] + ran.stderr[-2000:]
    assert ran.returncode == (1 if found else 0), output
    return Found(int(found[1]), found[2], output) if found else Found(0, "", output)
