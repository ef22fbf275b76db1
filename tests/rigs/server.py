"""The started server: `python -m raceway serve` as a child process, for tests that look at it from outside.

    with running_server(RACEWAY_LISTEN__MB__HEARTBEAT_MS=200) as server:
        socket.create_connection(("127.0.0.1", server.port("tcp")))

Its settings come from the keywords alone: `RACEWAY_…` variables of the surrounding shell are not passed on. A setting
that is None is left to the server, also where this rig has a value for it.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

from prometheus_client.parser import text_string_to_metric_families

from tests.rigs.delayed_door import IS_DELAYED
from tests.rigs.forked import may_fork, parent_of
from tests.rigs.ports import free_port_base

T = TypeVar("T")
Door = Literal["tcp", "websocket", "danube", "zbus", "seneca", "seneca_tcp", "console", "tls", "wss"]
DOORS: dict[Door, int] = {
    "tcp": 0, "websocket": 1, "danube": 2, "zbus": 3, "seneca": 4, "seneca_tcp": 5, "console": 6, "tls": 8, "wss": 9,
}  # fmt: skip

PROGRAM = "tests.rigs.delayed_door" if IS_DELAYED else "raceway"

# Command lines whose servers can be forked from a process that has imported the bus.
FORKED = ("raceway", "tests.rigs.delayed_door")

# Many times what anything here should take: the machine may be slow, and busy with other tests.
START_S = 60.0
STOP_S = 60.0
ANSWER_S = 60.0


def wait_until(condition: Callable[[], T | None], deadline_s: float = 60.0, what: str = "") -> T:
    """The first true value of `condition`; AssertionError when there is none in time."""
    end = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {deadline_s} s: {what or condition}"
        time.sleep(0.005)
    return value


def has_members(group: int) -> bool:
    """Whether any process of a group is there still."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


class Server:
    """One data folder and port base; the process on them can be stopped, killed and started again."""

    def __init__(
        self, data: Path, outputs: Path, env: Mapping[str, object], module: str = PROGRAM, *, forks: bool = False
    ) -> None:
        self.data, self._module, self._forks = data, module, forks
        self.port_base = free_port_base()
        self.env = env
        # Where the rows of a test begin, on a server that many share: those before are no business of it.
        self.rows_begin = 0
        self._stdout_file, self._stderr_file = outputs / "stdout", outputs / "stderr"
        self._process: subprocess.Popen[bytes] | None = None
        self._was_ended = False

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the server has not been started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def stdout(self) -> str:
        """All of it, over every start."""
        return self._stdout_file.read_text("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """All of it, over every start."""
        return self._stderr_file.read_text("utf-8", "replace")

    def port(self, door: Door) -> int:
        return self.port_base + DOORS[door]

    def rss(self) -> int:
        """Resident bytes of the process."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def peak_rss(self) -> int:
        """The most resident bytes since the start or since `forget_peak`."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) * 1024

    def forget_peak(self) -> None:
        # "5" resets the high-water mark; see proc_pid_clear_refs(5).
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def spawn(self) -> None:
        """Start the process without waiting for it."""
        self._was_ended = False
        env = {name: value for name, value in os.environ.items() if not name.startswith("RACEWAY_")}
        env["RACEWAY_JOURNAL__WARN_USED"] = "1"  # how full the disk of this machine is has nothing to do with a test
        env["RACEWAY_SQL__TIMEOUT_S"] = "100"  # nor has its speed
        env.update({name: str(value) for name, value in self.env.items()})
        for name in (name for name, value in self.env.items() if value is None):
            del env[name]
        arguments = ["serve", "--data", str(self.data), "--port-base", str(self.port_base)]
        # Files, not pipes: nobody has to read while the server writes.
        with self._stdout_file.open("ab") as stdout, self._stderr_file.open("ab") as stderr:
            if self._forks and self._module in FORKED and may_fork(env):
                self._process = parent_of(self._module).start(arguments, env, self._stdout_file, self._stderr_file)
            else:
                command = [sys.executable, "-m", self._module, *arguments]
                self._process = subprocess.Popen(
                    command, stdout=stdout, stderr=stderr, env=env, stdin=subprocess.DEVNULL
                )

    def start(self, deadline_s: float = START_S) -> float:
        """Start and wait for the line `ready`; returns the seconds it took."""
        before = self._stdout_file.stat().st_size if self._stdout_file.exists() else 0
        began = time.monotonic()
        self.spawn()

        def is_ready_or_over() -> bool:
            return b"ready" in self._stdout_file.read_bytes()[before:].splitlines() or not self.is_running()

        try:
            wait_until(is_ready_or_over, deadline_s, "the line `ready`")
        except AssertionError:
            self.kill()
            raise
        assert self.is_running(), f"the server ended with {self.process.returncode} before `ready`:\n{self.stderr}"
        return time.monotonic() - began

    def stop(self, deadline_s: float = STOP_S) -> float:
        """SIGTERM, and the exit status must be 0; returns the seconds it took."""
        began = time.monotonic()
        self._was_ended = True
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running {deadline_s} s after SIGTERM:\n{self.stderr}") from None
        assert status == 0, f"exit status {status} after SIGTERM:\n{self.stderr}"
        return time.monotonic() - began

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        self._was_ended = True
        if self.is_running():
            self.process.kill()
        self.process.wait(STOP_S)

    def assert_not_ended_by_itself(self) -> None:
        ended = self.process.poll()
        assert ended is None or self._was_ended, f"the server ended by itself with {ended}:\n{self.stderr[-5000:]}"

    def restart(self) -> float:
        """Stop if it runs, start again on the same folder and ports; returns the seconds the start took."""
        if self.is_running():
            self.stop()
        return self.start()

    def http(self, path: str, **headers: str) -> tuple[int, str]:
        """Status and body of a GET on the console port."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port('console')}{path}", headers=headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=ANSWER_S) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read().decode()

    def metric(self, name: str, **labels: str) -> float:
        """One figure of `/metrics`: the sum over all samples of that name with those labels."""
        status, text = self.http("/metrics")
        assert status == 200, text
        families = {family.name: family for family in text_string_to_metric_families(text)}
        assert name in families or name.removesuffix("_total") in families, f"{name} is not among the metrics"
        family = families.get(name) or families[name.removesuffix("_total")]
        wanted = [s for s in family.samples if s.name == name and labels.items() <= s.labels.items()]
        return float(sum(sample.value for sample in wanted))


@contextmanager
def running_server(data: Path | None = None, **env: object) -> Iterator[Server]:
    """A server that is ready; killed at the end if the test has not stopped it. Without `data`: a fresh folder."""
    with running(PROGRAM, data, env) as server:
        yield server


@contextmanager
def running(module: str, data: Path | None, env: Mapping[str, object]) -> Iterator[Server]:
    """A server as `running_server` starts it, of another command line: that of this module."""
    with tempfile.TemporaryDirectory(prefix="raceway-test-") as folder:
        server = Server(data or Path(folder) / "data", Path(folder), env, module, forks=True)
        try:
            server.start()
            yield server
            server.assert_not_ended_by_itself()
        finally:
            if server._process is not None:
                server.kill()
