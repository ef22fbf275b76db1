"""A bus of several lanes: this process starts one for each lane, and another when one ends.

It is forked from here, with the settings as they were read at the start. So this process has no Python thread and no
loop of its own; it waits for signals, and for what the lanes tell. (Arrow's allocator has threads, which it stops and
starts itself around a fork.)

    fork ──> lane: ready ──SIGTERM──> drained ── when all are ──> ended
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import structlog

from raceway import config, wires
from raceway.errors import ConfigError, LockedError, UnavailableError
from raceway.journal.lanes import keep_lanes, lane_folder
from raceway.journal.lock import FolderLock
from raceway.net.sockets import bind
from raceway.server.doors import CONSOLE, encrypted_ports, ports
from raceway.server.lane import DRAINED, FAILED, READY, ServedLane, console_port, run_lane
from raceway.server.process import STOP_S, announced, prepare, urls_of

log = structlog.get_logger("raceway")

# A lane that has run for so long was healthy: its next failure is the first.
STEADY_S = 10.0
# Longest pause before a lane is started again.
LONGEST_PAUSE_S = 5.0
# Interval of looks at a data folder whose lanes another process still has.
LOOK_S = 0.05


class LaneProcess:
    """A lane and its process, if it has one. `due`: when it is to be started."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = 0
        self.end: socket.socket | None = None
        self.is_ready = self.is_drained = False
        self.began = self.due = 0.0
        self.pause_s = 0.0
        self.reason = ""
        self._heard = b""

    def hear(self) -> Iterator[bytes]:
        """Yield the lines that the process has told since the last look."""
        assert self.end is not None
        with contextlib.suppress(OSError):
            self._heard += self.end.recv(65536)
        *lines, self._heard = self._heard.split(b"\n")
        yield from lines

    def release(self) -> None:
        """Let a process that has drained end."""
        if self.end is not None:
            self.end.close()
            self.end = None


class Lanes:
    """The processes of a bus. `all_ready` is entered when all lanes serve, and left when they are to stop. `forked` is
    called in each of the processes."""

    def __init__(
        self, settings: config.Config, sockets: Path, all_ready: Callable[[], contextlib.AbstractContextManager[None]],
        forked: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._settings, self._sockets, self._all_ready, self._forked = settings, sockets, all_ready, forked
        self._lanes = [LaneProcess(number) for number in range(settings.lanes.count)]
        self._signals = _Signals()
        self._stop_by: float | None = None
        self._ready = contextlib.ExitStack()
        self._is_ready = False
        self._status = 0

    def run(self) -> int:
        """Run until SIGTERM or SIGINT. Return the exit status: 1 if a lane could not stop in order.

        Raises UnavailableError if a lane fails before all have been ready.
        """
        with self._signals:
            try:
                for lane in self._lanes:
                    self._start(lane)
                while self._stop_by is None or any(lane.pid for lane in self._lanes):
                    self._step()
            finally:
                self._ready.close()
                self._kill()
        failed = next((lane for lane in self._lanes if lane.reason), None)
        if failed is not None and not self._is_ready:
            raise UnavailableError(f"lane {failed.number} did not start: {failed.reason}")
        return self._status

    def _step(self) -> None:
        """Wait for the next event, and handle it."""
        ends = {lane.end: lane for lane in self._lanes if lane.end is not None}
        watched: list[Any] = [self._signals, *ends]
        readable, _, _ = select.select(watched, [], [], self._timeout_s())
        for number in self._signals.taken() if self._signals in readable else ():
            self._signalled(number)
        for end, lane in ends.items():
            if end in readable:
                for line in lane.hear():
                    self._told(lane, line)
        for lane in self._lanes:
            self._reap(lane)
            if self._stop_by is None and not lane.pid and lane.due <= time.monotonic():
                self._start(lane)
        self._go_on_stopping()

    def _timeout_s(self) -> float | None:
        waiting = [lane.due for lane in self._lanes if not lane.pid] if self._stop_by is None else [self._stop_by]
        return max(min(waiting) - time.monotonic(), 0.0) if waiting else None

    # ---- processes ---------------------------------------------------------------------------------------------------

    def _start(self, lane: LaneProcess) -> None:
        ours, theirs = socket.socketpair()
        lane.is_ready = lane.is_drained = False
        lane.began, lane.end = time.monotonic(), ours
        lane.pid = os.fork()
        if lane.pid:
            theirs.close()
            return
        status = 1
        try:
            self._signals.leave()
            self._forked()
            for each in self._lanes:
                each.release()
            status = run_lane(ServedLane(lane.number, self._settings, self._sockets), theirs)
        except BaseException:
            log.exception("unexpected end of a lane")
        finally:
            # No clean-up of the parent's: its files and locks are the parent's.
            os._exit(status)

    def _reap(self, lane: LaneProcess) -> None:
        """Note that a process has ended, if it has, and when to start the next."""
        ended, status = os.waitpid(lane.pid, os.WNOHANG) if lane.pid else (0, 0)
        if not ended:
            return
        if lane.end is not None:
            for line in lane.hear():
                self._told(lane, line)
        lane.release()
        lane.pid = 0
        if self._stop_by is not None:
            self._status |= bool(status)
            return
        if not self._is_ready:
            lane.reason = lane.reason or "its process ended"
            self._stop()
            return
        is_steady = time.monotonic() - lane.began > STEADY_S
        lane.pause_s = self._settings.lanes.restart_s if is_steady or not lane.pause_s else lane.pause_s * 2
        lane.pause_s = min(lane.pause_s, LONGEST_PAUSE_S)
        lane.due = time.monotonic() + lane.pause_s
        log.error("lane ended; restarting", lane=lane.number, in_s=lane.pause_s, reason=lane.reason)
        lane.reason = ""

    def _told(self, lane: LaneProcess, line: bytes) -> None:
        if line == READY:
            lane.is_ready = True
            if not self._is_ready and all(each.is_ready for each in self._lanes):
                self._is_ready = True
                self._ready.enter_context(self._all_ready())
        elif line == DRAINED:
            lane.is_drained = True
            if self._stop_by is None:  # somebody has stopped this one alone
                lane.release()
        elif line.startswith(FAILED):
            lane.reason = line.removeprefix(FAILED).decode("utf-8", "replace")

    # ---- stopping ----------------------------------------------------------------------------------------------------

    def _signalled(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stop()
        elif number == signal.SIGHUP:
            self._signal(signal.SIGHUP)

    def _stop(self) -> None:
        """Tell all lanes to stop, once."""
        if self._stop_by is None:
            log.info("all lanes stopping")
            # Twice: a lane drains, and then it waits for the others.
            self._stop_by = time.monotonic() + 2 * (self._settings.broker.drain_s + STOP_S)
            self._signal(signal.SIGTERM)

    def _go_on_stopping(self) -> None:
        """Release the lanes when all have drained; kill those that do not end."""
        if self._stop_by is None:
            return
        if all(lane.is_drained or not lane.pid for lane in self._lanes):
            for lane in self._lanes:
                lane.release()
        if time.monotonic() >= self._stop_by:
            self._kill()

    def _signal(self, number: int) -> None:
        for lane in self._lanes:
            if lane.pid:
                os.kill(lane.pid, number)

    def _kill(self) -> None:
        """Kill the processes that are left."""
        for lane in self._lanes:
            if lane.pid:
                log.error("lane did not stop; killed", lane=lane.number)
                self._status = 1
                os.kill(lane.pid, signal.SIGKILL)
                os.waitpid(lane.pid, 0)
                lane.pid = 0


class _Signals:
    """The signals of this process, as numbers that can be waited for."""

    HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)

    def __enter__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        for end in (self._ours, self._theirs):
            end.setblocking(False)
        self._before = {number: signal.signal(number, lambda *_: None) for number in self.HANDLED}
        self._fd_before = signal.set_wakeup_fd(self._theirs.fileno(), warn_on_full_buffer=False)

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Handle signals as before, also in a forked process, whose signals are its own."""
        signal.set_wakeup_fd(self._fd_before, warn_on_full_buffer=False)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._ours.close()
        self._theirs.close()

    def fileno(self) -> int:
        return self._ours.fileno()

    def taken(self) -> bytes:
        """Return the numbers of signals that have come."""
        try:
            return self._ours.recv(1024)
        except BlockingIOError:
            return b""


def run_lanes(read: config.Settings, welcome: Callable[[dict[str, str]], None] = lambda urls: None) -> int:
    """Run a bus of several lanes in processes of its own until SIGTERM or SIGINT.

    `welcome` is given the URL of each port when all lanes are ready. Raises ConfigError, JournalError, LockedError,
    UnavailableError if it cannot start.
    """
    settings = prepare(read)
    _check(settings)
    chosen = ports(settings.listen, over_lanes=True)
    _check_ports(settings, chosen)
    urls = urls_of(settings.listen, chosen)
    consoles = tuple(
        urls_of(settings.listen, {CONSOLE: console_port(settings.listen, number)})[CONSOLE]
        for number in range(settings.lanes.count)
    )

    @contextlib.contextmanager
    def all_ready() -> Iterator[None]:
        with announced(settings.journal, urls, consoles):
            print("ready", flush=True)
            log.info(
                "all lanes ready",
                lanes=settings.lanes.count,
                **{name.replace("+", "_"): chosen[name] for name in chosen},
            )
            welcome(urls)
            yield

    with contextlib.ExitStack() as stack:
        forked = _nothing
        if settings.journal.durability != "memory":
            folder = Path(settings.journal.folder)
            keep_lanes(folder, settings.lanes.count)
            # Of this process alone: lanes that have lost it lock their own folders.
            forked = stack.enter_context(FolderLock(folder)).release
            _wait_for(folder, settings)
        # Short: the path of a Unix socket has 107 bytes at most.
        sockets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raceway-")))
        for wire in wires.WIRES:
            if not wire.over_lanes:
                log.warning("wire not served", wire=wire.name, reason="a bus of several lanes does not support it")
        return Lanes(settings, sockets, all_ready, forked).run()


def _nothing() -> None:
    """A process without files has no lock to leave."""


def _wait_for(folder: Path, settings: config.Config) -> None:
    """Wait until lanes of an earlier process have ended, which stop by themselves. Raises LockedError."""
    deadline = time.monotonic() + 2 * (settings.broker.drain_s + STOP_S)
    for number in range(settings.lanes.count):
        while True:
            try:
                FolderLock(lane_folder(folder, number)).release()
                break
            except LockedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOOK_S)


def _check(settings: config.Config) -> None:
    """Check that no setting needs a bus of one lane. Raises ConfigError."""
    alone = "does not go with several lanes: set lanes.count to 1"
    if settings.security.enabled:
        raise ConfigError("security.enabled", alone)
    if settings.cluster.url:
        raise ConfigError("cluster.url", alone)
    if settings.journal.archive:
        raise ConfigError("journal.archive", alone)
    values = config.effective(settings, wires.sections())
    for wire in wires.WIRES:
        for key in wire.one_lane:
            if values[key]:
                raise ConfigError(key, alone)


def _check_ports(settings: config.Config, chosen: dict[str, int]) -> None:
    """Check that no other process has the ports, which those of lanes could share with it. Raises ConfigError."""
    listen, encrypted = settings.listen, encrypted_ports()
    hosts = [(listen.host if name in encrypted else config.plain_host(listen), port) for name, port in chosen.items()]
    consoles = [console_port(listen, number) for number in range(settings.lanes.count)]
    if max(consoles) > 65535:
        raise ConfigError(
            "listen.console_port", f"the consoles of {len(consoles)} lanes need ports up to {max(consoles)}"
        )
    taken = {port: name for name, port in chosen.items() if name != CONSOLE}
    for number, port in enumerate(consoles):
        if port in taken:
            raise ConfigError(
                "listen.console_port", f"the console of lane {number} needs port {port}, of {taken[port]}"
            )
    hosts += [(config.plain_host(listen), port) for port in consoles[1:]]
    for host, port in hosts:
        bind(host, port).close()
