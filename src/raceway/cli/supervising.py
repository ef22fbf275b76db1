"""A child process that is kept running: what it says becomes log records, and when it ends it is started again.

The child is in a session of its own, so that Ctrl-C in the terminal reaches only us and we end it in order. Its
standard input is a pipe that we hold open and never write to: should we be killed, a `tethered` child goes too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence

import structlog

log = structlog.get_logger("raceway")

# The longest pause between two starts.
PAUSE_MAX_S = 300.0
# Whoever ran for so long was well: the next failure is a new one.
STEADY_S = 60.0
# Whoever ran for so long was well whatever it said at the end.
HEALTHY_S = 3600.0
# For a batch to be left and Spark to be stopped.
STOP_S = 40.0
# Of what the child says at the end, to be read after it.
LAST_WORDS_S = 1.0
CHUNK = 65_536


@contextlib.asynccontextmanager
async def supervising(
    command: Sequence[str], name: str, restart_s: float, max_failures: int = 0
) -> AsyncIterator[None]:
    """Keep the command running meanwhile. At the end SIGTERM, and after a while SIGKILL to it and all it started.

    After so many failures in a row it is left alone; 0: never.
    """
    stopping = asyncio.Event()
    task = asyncio.create_task(Child(command, name, restart_s, max_failures, stopping).run())
    try:
        yield
    finally:
        stopping.set()
        await task


class Child:
    def __init__(
        self, command: Sequence[str], name: str, restart_s: float, max_failures: int, stopping: asyncio.Event
    ) -> None:
        self._command, self._name, self._restart_s, self._stopping = command, name, restart_s, stopping
        self._max_failures, self._failures = max_failures, 0
        self._said = self._said_before = ""

    async def run(self) -> None:
        """Until it is told to stop, or the child has failed too often."""
        pause_s, loop = self._restart_s, asyncio.get_running_loop()
        while not self._stopping.is_set():
            began = loop.time()
            try:
                status = await self._run_once()
            except OSError as error:  # no memory or no files left for another process, perhaps for a moment only
                status, self._said = None, str(error)
            if self._stopping.is_set():
                return
            ran_s = loop.time() - began
            if ran_s > STEADY_S:
                pause_s = self._restart_s
            if self._failed_too_often(ran_s):
                log.error(
                    f"{self._name} failed too often and is not started again", status=status, said=self._said,
                    failures=self._failures,
                )  # fmt: skip
                return
            log.error(f"{self._name} ended and will be started again", status=status, said=self._said, in_s=pause_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _failed_too_often(self, ran_s: float) -> bool:
        """One that ends again and again with the same words does not get past something, however long it tries."""
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
        log.info(f"{self._name} was started", pid=process.pid)
        assert process.stderr is not None
        listening = asyncio.create_task(self._listen(process.stderr))
        await self._wait(process)
        # Something it started may hold the pipe open for ever.
        await asyncio.wait([listening], timeout=LAST_WORDS_S)
        listening.cancel()
        return process.returncode

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        """Until it ends: by itself, or because it is told to."""
        ending, stopping = asyncio.create_task(process.wait()), asyncio.create_task(self._stopping.wait())
        await asyncio.wait([ending, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ending.done():
            process.terminate()
            await asyncio.wait([ending], timeout=STOP_S)
        if not ending.done():
            log.warning(f"{self._name} did not stop and was killed", after_s=STOP_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await ending

    async def _listen(self, stream: asyncio.StreamReader) -> None:
        """In pieces, not in lines: a line may be of any length."""
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
            log.info(self._name, said=text)
