"""A disk that is full: a run says so in a line, and the next one goes on where it was."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.pipeline.drivers import RUN_S, command, environment
from tests.pipeline.java import needs_java
from tests.pipeline.journals import expected_positions, journal
from tests.pipeline.quick_spark import QUICKLY
from tests.rigs.spark_cluster import can_be_apart

# On a disk of its own, which only these processes see.
_ON_SMALL_DISK = """
mount -t tmpfs -o size=4m tmpfs "$0"
{run}; echo "status $?"
mount -o remount,size=400m "$0"
{run}; echo "status $?"
{verify}
"""


@needs_java
@pytest.mark.timeout(400)
@pytest.mark.skipif(not can_be_apart(), reason="this system lets us make no mount namespaces")
def test_a_full_disk_is_said_in_a_line_and_nothing_is_there_twice_once_it_has_room(tmp_path: Path) -> None:
    with journal(tmp_path / "data", 300) as rig:
        for _ in range(30):
            rig.keep("pictures", *(os.urandom(40_000) for _ in range(10)))
        rig.commit()
        pipeline = rig.folder / "pipeline"
        pipeline.mkdir()
        run = shlex.join(command(rig.folder, "run", "--once", "--bronze-only", "--max-records", "200", *QUICKLY))
        script = _ON_SMALL_DISK.format(run=run, verify=shlex.join(command(rig.folder, "verify", "--json")))
        done = subprocess.run(
            ["unshare", "--mount", "--map-root-user", "sh", "-c", script, str(pipeline)],
            env=environment(), capture_output=True, text=True, timeout=RUN_S, check=False,
        )  # fmt: skip
        assert [line for line in done.stdout.splitlines() if line.startswith("status")] == ["status 1", "status 0"]
        (said,) = [line for line in done.stderr.splitlines() if line.startswith("raceway: ")]
        assert "No space left on device" in said
        assert "Traceback" not in done.stderr
        verdict = json.loads(done.stdout.splitlines()[-1])
        assert verdict["good"], verdict
        assert verdict["journal"]["in_bronze"] == len(expected_positions(rig.folder)) == 600
