"""python -m tests.rigs.link_process FOLDER: a broker of a process of its own, over the journal of a folder.

Its door is served on the socket `lane.sock` of the folder. Prints `ready`; ends with SIGTERM, after a commit.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import uvloop

from raceway import config
from raceway.journal import open_journal
from raceway.link.lane import LinkLane
from raceway.link.sockets import listen
from raceway.server.bus import local_bus

SOCKET = "lane.sock"


def start(folder: Path) -> subprocess.Popen[str]:
    """Start the process and wait until it serves."""
    command = [sys.executable, "-m", "tests.rigs.link_process", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


async def serve(folder: Path) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    settings = config.Config(journal=config.JournalSettings(folder=str(folder / "data")))
    journal = open_journal(settings.journal, loop.call_soon_threadsafe)
    bus = local_bus(settings, journal, loop)
    lane = LinkLane(bus.door, 0, {})
    bus.on_pressure(lane.pause)
    server = await listen(lane, folder / SOCKET)
    print("ready", flush=True)
    await stop.wait()
    server.close()
    lane.close()
    journal.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Path(sys.argv[1])))
