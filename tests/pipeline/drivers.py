"""`raceway pipeline …` in processes of its own: started, watched, killed with everything it started.

Each is real: the same command line, a JVM of its own. That JVM is told to start quickly, and Spark not to compile
queries of a few rows; the page of the manual about the pipeline is run with Spark's own settings.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from raceway.pipeline.spark import QUICK_JAVA
from tests.pipeline.quick_spark import quick_java
from tests.rigs.rounds import SOAKING

RUN_S = 900 if SOAKING else 240
# Commands one after the other in one process, which starts a JVM once; a line with this sign ends what each prints.
_END = "\x1e"
_IN_TURN = f"""
import json, sys
from raceway.cli.app import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["raceway", *words]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
    print({_END!r}, flush=True)
"""


def command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "raceway", "pipeline", *arguments, "--data", str(folder)]


def environment() -> dict[str, str]:
    """Ours without settings of a bus. Spark hands the two variables to the JVMs that it starts."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RACEWAY_")}
    return kept | {"SPARK_SUBMIT_OPTS": quick_java(), "SPARK_LAUNCHER_OPTS": QUICK_JAVA}


def finished(folder: Path, *arguments: str, status: int | None = 0) -> subprocess.CompletedProcess[str]:
    """A command that ran to its end, with this status (None: any)."""
    done = subprocess.run(
        command(folder, *arguments), env=environment(), capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert status is None or done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def finished_in_turn(folder: Path, *commands: tuple[str, ...]) -> list[str]:
    """What each of these commands printed; all ran to their end, one after the other in one process."""
    words = json.dumps([["pipeline", *each, "--data", str(folder)] for each in commands])
    done = subprocess.run(
        [sys.executable, "-c", _IN_TURN, words],
        env=environment(), capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.split(f"{_END}\n")[:-1]


@contextmanager
def driver(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A running command in a process group of its own; whatever is left of the group is killed at the end."""
    process = subprocess.Popen(
        command(folder, *arguments), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the driver, its JVM and its Python workers at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(20)
