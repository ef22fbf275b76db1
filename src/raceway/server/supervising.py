"""A supervised child process: its output becomes log records, and it is restarted when it ends.

The child has its own session, so that Ctrl-C in the terminal reaches only the parent, which then stops it in order. Its
standard input is a pipe that the parent holds open and never writes to: if the parent is killed, a `tethered` child
ends, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence

import structlog

log = structlog.get_logger("raceway")

# Longest pause between two starts.
PAUSE_MAX_S = 300.0
# A child that ran this long and ends with another message starts a new series of failures.
STEADY_S = 60.0
# A child that ran this long starts a new series whatever its last message.
HEALTHY_S = 3600.0
# Time between SIGTERM and SIGKILL: enough to abandon a batch and stop Spark.
STOP_S = 40.0
# Time to read the rest of its output after it has ended.
LAST_WORDS_S = 1.0
CHUNK = 65_536


@contextlib.asynccontextmanager
async def supervising(
    command: Sequence[str], name: str, restart_s: float, max_failures: int = 0
) -> AsyncIterator[None]:
    """Run a command during the context, restarting it when it ends. At the end send SIGTERM, later SIGKILL to its
    session.

    After `max_failures` failures in a row it is not restarted; 0: no limit.
    """
    stopping = asyncio.Event()
    task = asyncio.create_task(Child(command, name, restart_s, max_failures, stopping).run())
    try:
        yield
    finally:
        stopping.set()
        await task


class Child:
    """A command and its current process."""

    def __init__(
        self, command: Sequence[str], name: str, restart_s: float, max_failures: int, stopping: asyncio.Event
    ) -> None:
        self._command, self._name, self._restart_s, self._stopping = command, name, restart_s, stopping
        self._max_failures, self._failures = max_failures, 0
        self._said = self._said_before = ""

    async def run(self) -> None:
        """Run and restart the command until stopped or failed too often."""
        pause_s, loop = self._restart_s, asyncio.get_running_loop()
        while not self._stopping.is_set():
            began = loop.time()
            try:
                status = await self._run_once()
            except OSError as error:  # no memory or file descriptors for another process; may be temporary
                status, self._said = None, str(error)
            if self._stopping.is_set():
                return
            ran_s = loop.time() - began
            if ran_s > STEADY_S:
                pause_s = self._restart_s
            if self._failed_too_often(ran_s):
                log.error(
                    f"{self._name} failed too often; not restarted", status=status, said=self._said,
                    failures=self._failures,
                )  # fmt: skip
                return
            log.error(f"{self._name} ended; restarting", status=status, said=self._said, in_s=pause_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _failed_too_often(self, ran_s: float) -> bool:
        """Count a failure. The same last message again counts on, however long the child ran in between."""
        is_new = ran_s > HEALTHY_S or (ran_s > STEADY_S and self._said != self._said_before)
        self._failures = 1 if is_new else self._failures + 1
        self._said_before = self._said
        return 0 < self._max_failures <= self._failures

    async def _run_once(self) -> int | None:
        self._said = ""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=asyncio.subprocess.DEVNULL, stderr=pipe, start_new_session=True
        )
        log.info(f"{self._name} started", pid=process.pid)
        assert process.stderr is not None
        listening = asyncio.create_task(self._listen(process.stderr))
        await self._wait(process)
        # A grandchild may hold the pipe open.
        await asyncio.wait([listening], timeout=LAST_WORDS_S)
        listening.cancel()
        return process.returncode

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        """Wait until the process ends; terminate it when stopping."""
        ending, stopping = asyncio.create_task(process.wait()), asyncio.create_task(self._stopping.wait())
        await asyncio.wait([ending, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ending.done():
            process.terminate()
            await asyncio.wait([ending], timeout=STOP_S)
        if not ending.done():
            log.warning(f"{self._name} did not stop; killed", after_s=STOP_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await ending

    async def _listen(self, stream: asyncio.StreamReader) -> None:
        """Read the output in pieces, not in lines: a line may be of any length."""
        rest = b""
        while piece := await stream.read(CHUNK):
            *lines, rest = (rest + piece).split(b"\n")
            rest = rest[-CHUNK:]
            for line in lines:
                self._hear(line)
        self._hear(rest)

    def _hear(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").strip()
        if text:
            self._said = text
            log.info(f"{self._name} output", said=text)
