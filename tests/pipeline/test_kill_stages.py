"""The pipeline is killed with SIGKILL between two stages of its work, the same process that a user starts.

Stages are those of a run (files written and not committed, each table committed, progress stored), of merging, of
vacuum and of a deletion. The next command goes on from whatever was left, and is killed in turn. In the end all tables
have the rows of another folder, whose commands were never interrupted. `make soak` takes as many stages of each group
as it is told, `make test-slow` one of each; which ones is told by a printed seed.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from deltalake import DeltaTable

from raceway.pipeline.folders import Folders
from raceway.pipeline.registry import every
from tests.pipeline.drivers import RUN_S, environment, finished_in_turn
from tests.pipeline.java import needs_java
from tests.pipeline.journals import add, converse, journal
from tests.pipeline.quick_spark import QUICKLY
from tests.rigs.rounds import rounds, seeded

MESSAGES, REQUESTS = 300, 20
HOUR_US = 3_600_000_000
RUN = ("run", "--once", "--max-records", "200", *QUICKLY)
COMPACT, VACUUM = ("compact", *QUICKLY), ("vacuum", "--hours", "0")
DELETE = ("delete", "--yes", "--where", "sequence % 7 = 3 AND sequence < 200", *QUICKLY)
COMMIT, WRITE = "raceway.pipeline.lake:Lake.commit", "raceway.pipeline.lake:Lake.write"


class Stage(NamedTuple):
    """Killed before or after so many calls of a function, while a command runs."""

    command: tuple[str, ...]
    function: str
    when: str
    number: int = 1

    def __str__(self) -> str:
        return f"{self.command[0]}: {self.when} {self.function}, {self.number}"


RUNNING = [
    *(Stage(RUN, COMMIT, "before", number) for number in range(1, 13)),
    *(Stage(RUN, COMMIT, "after", number) for number in range(1, 13)),
    Stage(RUN, "raceway.pipeline.lake:Lake._sync", "before"),
    Stage(RUN, "raceway.pipeline.lake:Lake._sync", "before", 4),
    *(Stage(RUN, WRITE, "after", number) for number in (1, 3, 5, 7)),
    *(Stage(RUN, "raceway.pipeline.progress:write", when, 3) for when in ("before", "after")),
]
TIDYING = [
    *(Stage(COMPACT, COMMIT, when, number) for when in ("before", "after") for number in (1, 2)),
    *(Stage(COMPACT, WRITE, "after", number) for number in (1, 2)),
    *(Stage(VACUUM, "raceway.pipeline.snapshot:Snapshot.vacuum", w, n) for w in ("before", "after") for n in (1, 4)),
]
DELETING = [
    Stage(DELETE, "raceway.pipeline.forgetting:begin", "after"),
    *(Stage(DELETE, COMMIT, when, number) for when in ("before", "after") for number in (1, 2, 3, 4)),
    Stage(DELETE, WRITE, "after", 2),
    *(Stage(DELETE, "raceway.pipeline.keeping:vacuum", when) for when in ("before", "after")),
    *(Stage(DELETE, "raceway.pipeline.forgetting:blank_folder", when) for when in ("before", "after")),
    *(Stage(DELETE, "raceway.pipeline.forgetting:_note", when) for when in ("before", "after")),
]
EACH = rounds(1)
_KILLED = """
import importlib, itertools, json, os, signal, sys
words, target, when, number = json.loads(sys.argv[1])
module, _, path = target.partition(":")
*outer, name = path.split(".")
owner = importlib.import_module(module)
for each in outer:
    owner = getattr(owner, each)
real, calls = getattr(owner, name), itertools.count(1)

def die():
    os.killpg(os.getpgrp(), signal.SIGKILL)

def watched(*args, **named):
    is_now = next(calls) == number
    if is_now and when == "before":
        die()
    found = real(*args, **named)
    if is_now:
        die()
    return found

setattr(owner, name, watched)
from raceway.cli.app import main
sys.argv = ["raceway", *words]
main()
"""


def killed(folder: Path, stage: Stage) -> bool:
    """Run a command until it is killed; whether it was: a command may have nothing left to do."""
    words = ["pipeline", *stage.command, "--data", str(folder)]
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, json.dumps([words, *stage[1:]])],
        env=environment(), capture_output=True, text=True, timeout=RUN_S, check=False, start_new_session=True,
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), f"{stage}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.returncode != 0


def contents(folder: Path) -> dict[str, list[str]]:
    """Rows of all tables, as text and in order; not of those that tell when something was done."""
    found = {}
    for name in every():
        where = Folders(folder).table(name)
        if name not in ("state.deletions", "state.losses") and DeltaTable.is_deltatable(where):
            found[name] = sorted(map(repr, DeltaTable(where).to_pyarrow_table().to_pylist()))
    return found


@pytest.mark.timeout(400 + 90 * 3 * EACH)
@needs_java
def test_whatever_stage_it_is_killed_after_the_tables_are_those_of_an_uninterrupted_run(tmp_path: Path) -> None:
    chosen = seeded("pipeline kill by stage")
    groups = [chosen.sample(group, min(EACH, len(group))) for group in (RUNNING, TIDYING, DELETING)]
    kills = []
    with journal(tmp_path / "data", MESSAGES) as rig:
        folder, waiting = rig.folder, converse(rig, REQUESTS)
        for number, stage in enumerate(groups[0], 1):
            kills += [stage] * killed(folder, stage)
            rig.clock.now_us += HOUR_US
            add(rig, MESSAGES, number * MESSAGES)
            waiting = converse(rig, REQUESTS, waiting)
    assert kills == groups[0], "new rows are work for every stage of a run"
    finished_in_turn(folder, RUN)
    kills += [stage for stage in groups[1] if killed(folder, stage)]
    shutil.copytree(folder, tmp_path / "other", ignore=shutil.ignore_patterns("pipeline", "*lock*"))
    deletions = [stage for stage in groups[2] if killed(folder, stage)]
    assert deletions[:1] == groups[2][:1], "the first deletion has all of its work to do"
    rest = (DELETE, RUN, ("verify", "--json"))
    verdict = json.loads(finished_in_turn(folder, *rest)[-1])
    assert verdict["good"], verdict
    finished_in_turn(tmp_path / "other", RUN, *rest)
    found, expected = contents(folder), contents(tmp_path / "other")
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        assert found[name] == rows, name
    print(f"killed {len(kills) + len(deletions)} times: {'; '.join(map(str, [*kills, *deletions]))}")
