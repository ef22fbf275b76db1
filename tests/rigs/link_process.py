"""python -m tests.rigs.link_process FOLDER LANE: a broker of a process of its own, over the journal of a lane.

Journal and socket are in the folder, under the number of the lane. Prints `ready`; ends with SIGTERM, after a commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvloop

from raceway import config
from raceway.journal import open_journal
from raceway.journal.arrow import leave_pandas_out
from raceway.link.lane import LinkLane
from raceway.link.sockets import listen
from raceway.server.bus import local_bus

DEADLINE_S = 60.0


def socket_of(folder: Path, number: int) -> Path:
    """The socket of a lane."""
    return folder / f"{number}.sock"


def journal_of(folder: Path, number: int) -> Path:
    """The folder of a lane's journal."""
    return folder / f"data{number}"


@contextlib.contextmanager
def lane(folder: Path, number: int = 0) -> Iterator[subprocess.Popen[str]]:
    """The process, when it serves; it is killed at the end."""
    command = [sys.executable, "-m", "tests.rigs.link_process", str(folder), str(number)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


async def until(holds: Callable[[], Any]) -> None:
    """Wait for what another process brings about."""
    async with asyncio.timeout(DEADLINE_S):
        while not holds():  # noqa: ASYNC110 - there is no event of it here
            await asyncio.sleep(0.005)


async def serve(folder: Path, number: int) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    settings = config.Config(journal=config.JournalSettings(folder=str(journal_of(folder, number))))
    journal = open_journal(settings.journal, loop.call_soon_threadsafe)
    bus = local_bus(settings, journal, loop)
    served = LinkLane(bus.door, number, {})
    bus.on_pressure(served.pause)
    server = await listen(served, socket_of(folder, number))
    print("ready", flush=True)
    await stop.wait()
    server.close()
    served.close()
    journal.close()


if __name__ == "__main__":
    leave_pandas_out()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
