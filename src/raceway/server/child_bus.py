"""A temporary bus: `raceway serve` as a child process on free ports. It ends with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from raceway.errors import UnavailableError
from raceway.model.text import printable
from raceway.server import tethered
from raceway.server.ports import free_port_base
from raceway.server.running import Running, maybe_running

# Starting takes well under a second; a busy machine may need longer.
START_S, STOP_S = 20.0, 20.0


class ChildBus:
    def __init__(self, process: subprocess.Popen[bytes], running: Running) -> None:
        self._process, self.urls = process, running.urls

    def is_running(self) -> bool:
        return self._process.poll() is None


@contextmanager
def child_bus(folder: Path, port_base: int | None = None) -> Iterator[ChildBus]:
    """Run a bus on this folder with default settings during the context, on free ports or from `port_base` on.

    Raises UnavailableError if it fails to start or stop.
    """
    command = tethered.command("serve", "--data", str(folder), "--port-base", str(port_base or free_port_base()))
    command += ["--log-level", "warning"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RACEWAY_")}
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(  # noqa: S603 - our own program
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, env=environment
        )
        try:
            yield ChildBus(child, _wait_until_ready(child, folder, log))
            _stop(child, log)
        finally:
            if child.poll() is None:
                child.kill()
            child.communicate()


def _stop(child: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    child.send_signal(signal.SIGTERM)
    try:
        status = child.wait(STOP_S)
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"the bus did not stop within {STOP_S:.0f} s: {_last_line(log)}") from None
    if status != 0:
        raise UnavailableError(f"the bus ended with status {status}: {_last_line(log)}")


def _wait_until_ready(child: subprocess.Popen[bytes], folder: Path, log: IO[bytes]) -> Running:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        running = maybe_running(folder)
        if running is not None and running.pid == child.pid:
            return running
        if child.poll() is not None:
            raise UnavailableError(f"the bus did not start: {_last_line(log)}")
        time.sleep(0.02)
    raise UnavailableError(f"the bus was not ready within {START_S:.0f} s: {_last_line(log)}")


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().splitlines()
    return printable(lines[-1]) if lines else "no output"
