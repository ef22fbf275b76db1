"""`raceway pipeline run` as a process of its own: started, watched, killed with everything it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

RUN_S = 240


def command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "raceway", "pipeline", *arguments, "--data", str(folder)]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("RACEWAY_")}


def finished(folder: Path, *arguments: str, status: int | None = 0) -> subprocess.CompletedProcess[str]:
    """A command that ran to its end, with this status (None: any)."""
    done = subprocess.run(
        command(folder, *arguments), env=environment(), capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert status is None or done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


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
