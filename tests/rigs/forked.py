"""Servers without the price of their imports: a process that has done them forks one for each start.

Importing the bus takes most of the time of a start, and the tests start hundreds. A forked server is a process of its
own with the same `main`, arguments, environment and standard streams; only its interpreter did not start afresh.

python -m tests.rigs.forked MODULE    read orders from standard input, write what became of them to standard output
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import pkgutil
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

# Packages whose modules a server imports, some of them only when it needs them.
OF_SERVERS = ("broker", "config", "errors", "journal", "model", "net", "schema", "server", "telemetry", "web", "wires")
# Parts of these packages that it does not.
NOT_OF_SERVERS = (".capture", ".client", ".commands")
LATER = ("uvicorn.lifespan.off", "uvicorn.lifespan.on", "uvicorn.loops.uvloop", "uvicorn.protocols.http.httptools_impl")
# Variables that only a new interpreter, or the loader of its libraries, reads.
OF_INTERPRETERS = ("PYTHON", "LD_", "MALLOC_", "ARROW_", "GRPC_")

POLL_S = 0.01


class Forked(subprocess.Popen[bytes]):
    """A forked server, which is the child of another process: the part of `Popen` that tests use."""

    def __init__(self, parent: Parent, pid: int) -> None:  # does not start a process
        self._parent, self.pid = parent, pid
        self._status: int | None = None

    def poll(self) -> int | None:
        if self._status is None:
            self._status = self._parent.maybe_status(self.pid)
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(["raceway"], timeout or 0)
            time.sleep(POLL_S)
        return status

    @property
    def returncode(self) -> int | Any:  # type: ignore[override]  # as its base declares it
        return self.poll()

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Parent:
    """The process that forks servers of one command line, for all threads of the tests."""

    def __init__(self, module: str) -> None:
        command = [sys.executable, "-m", __name__, module]
        env = {name: value for name, value in os.environ.items() if not name.startswith("RACEWAY_")}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders, self._told = self._process.stdin, self._process.stdout
        self._statuses: dict[int, int] = {}
        self._rest = b""
        self._lock = threading.Lock()
        atexit.register(self._orders.close)

    def start(self, arguments: list[str], env: Mapping[str, str], stdout: Path, stderr: Path) -> Forked:
        order = {"arguments": arguments, "env": dict(env), "stdout": str(stdout), "stderr": str(stderr)}
        with self._lock:
            self._orders.write(json.dumps(order).encode() + b"\n")
            self._orders.flush()
            while True:
                for told in self._lines(None):
                    if "started" in told:
                        return Forked(self, told["started"])

    def maybe_status(self, pid: int) -> int | None:
        """The exit status of a server that has ended."""
        with self._lock:
            self._lines(0)
            return self._statuses.pop(pid, None)

    def _lines(self, timeout: float | None) -> list[dict[str, int]]:
        if not select.select([self._told], [], [], timeout)[0]:
            return []
        data = os.read(self._told.fileno(), 65536)
        assert data, "the process that forks servers has ended"
        *lines, self._rest = (self._rest + data).split(b"\n")
        found: list[dict[str, int]] = [json.loads(line) for line in lines]
        self._statuses |= {told["ended"]: told["status"] for told in found if "ended" in told}
        return found


_first_use = threading.Lock()


def parent_of(module: str) -> Parent:
    """The process that forks servers of a module, started on first use."""
    with _first_use:
        return _parent_of(module)


_parent_of = cache(Parent)


def may_fork(env: Mapping[str, str]) -> bool:
    """Whether a server with these variables can be forked: none of them is read when an interpreter starts."""
    return hasattr(os, "fork") and all(
        os.environ.get(name) == value for name, value in env.items() if name.startswith(OF_INTERPRETERS)
    )


# ---- the process that forks ------------------------------------------------------------------------------------------


def import_all() -> None:
    """Import what a server imports."""
    import raceway

    for found in pkgutil.walk_packages(raceway.__path__, "raceway."):
        room = found.name.split(".")[1]
        if room in OF_SERVERS and not any(part in found.name for part in NOT_OF_SERVERS):
            importlib.import_module(found.name)
    for name in ("raceway.cli.app", "raceway.cli.serve", *LATER):
        importlib.import_module(name)


def next_order() -> dict[str, Any] | None:
    """Fork for each order. Returns the order in the new process, None in the old one at the end of orders."""
    ended, telling = os.pipe()
    os.set_blocking(telling, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(telling)
    rest = b""
    while True:
        ready = select.select([0, ended], [], [])[0]
        if ended in ready:
            os.read(ended, 4096)
            tell_ended()
        if 0 not in ready:
            continue
        data = os.read(0, 65536)
        if not data:
            return None
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(ended)
                os.close(telling)
                order: dict[str, Any] = json.loads(line)
                return order
            tell(started=pid)


def tell_ended() -> None:
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            tell(ended=found[0], status=os.waitstatus_to_exitcode(found[1]))


def tell(**facts: int) -> None:
    os.write(1, json.dumps(facts).encode() + b"\n")


def become(order: dict[str, Any]) -> None:
    """Take over streams, environment and arguments."""
    for stream, number in ((order["stdout"], 1), (order["stderr"], 2), (os.devnull, 0)):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = os.open(stream, flags, 0o644)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(order["env"])
    sys.argv[1:] = order["arguments"]


if __name__ == "__main__":
    module = sys.argv[1]
    import_all()
    wanted = next_order()
    if wanted is not None:
        become(wanted)
        if module == "tests.rigs.delayed_door":
            from raceway.server import bus
            from tests.rigs.delayed_door import DelayedDoor

            bus.Door = DelayedDoor  # type: ignore[attr-defined]
        from raceway.cli.app import main

        main()
