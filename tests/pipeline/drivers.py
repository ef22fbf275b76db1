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
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from raceway.pipeline.spark import QUICK_JAVA
from tests.pipeline.quick_spark import quick_java
from tests.rigs.rounds import SOAKING

RUN_S = 900 if SOAKING else 240
# A line with this sign and the status ends what a command prints.
_END = "\x1e"
_ONE_BY_ONE = f"""
import json, sys
from raceway.cli.app import main
for line in sys.stdin:
    sys.argv, status = ["raceway", *json.loads(line)], 0
    try:
        main()
    except SystemExit as end:
        status = end.code or 0
    sys.stderr.flush()
    print(f"{_END}{{status}}", flush=True)
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


class Commands:
    """Commands one after the other in one process, which loads Python's modules and starts a JVM once."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile("a+", encoding="utf-8")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-c", _ONE_BY_ONE],
            env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> Commands:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process, self._errors:
            kill(self._process)

    def finished(self, folder: Path, *arguments: str, status: int | None = 0) -> subprocess.CompletedProcess[str]:
        """A command that ran to its end, with this status (None: any)."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = ["pipeline", *arguments, "--data", str(folder)]
        before = self._errors.seek(0, os.SEEK_END)
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        lines = _until(self._process.stdout, _END)
        self._errors.seek(before)
        errors = self._errors.read()
        assert lines, f"{words} ended the process:\n{errors}"
        *told, end = lines
        done = subprocess.CompletedProcess(words, int(end.removeprefix(_END)), "".join(told), errors)
        assert status is None or done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{errors}"
        return done

    def in_turn(self, folder: Path, *commands: tuple[str, ...]) -> list[str]:
        """What each of these commands printed; all ran to their end."""
        return [self.finished(folder, *each).stdout for each in commands]


def _until(lines: Iterable[str], sign: str) -> list[str]:
    """Lines up to one that begins with a sign, and that one; nothing if there is none."""
    found = []
    for line in lines:
        found.append(line)
        if line.startswith(sign):
            return found
    return []


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


def kill(process: subprocess.Popen[Any]) -> None:
    """SIGKILL to the driver, its JVM and its Python workers at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(20)
