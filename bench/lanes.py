"""What lanes cost: CPU of a bus per acknowledged message, with one lane and with several.

    python -m bench.lanes [--count 60000] [--lanes 1,2,4] [--rounds 2]

Four MB clients publish to forty topics. CPU of all processes of the bus is added up, so the figures also hold where
there are fewer processors than lanes; rates do not.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.table import Table

from raceway import config
from raceway.client import connect
from tests.rigs.ports import free_port_base

CLIENTS, TOPICS, PAYLOAD = 4, 40, bytes(200)
# Messages that a client has in flight.
WINDOW = 500
STOP_S = 60.0


def main(
    count: Annotated[int, typer.Option(help="Messages of 200 bytes in each round.")] = 60_000,
    lanes: Annotated[str, typer.Option(help="Numbers of lanes, separated by commas.")] = "1,2,4",
    rounds: Annotated[int, typer.Option(help="Rounds, each with every number of lanes.")] = 2,
) -> None:
    """Measure the CPU of a bus per message."""
    numbers = [int(number) for number in lanes.split(",")]
    found: dict[int, list[float]] = {number: [] for number in numbers}
    for _ in range(rounds):
        for number in numbers:
            found[number].append(measure(number, count))
    table = Table("lanes", *(f"round {number + 1}" for number in range(rounds)), title="µs of CPU per message")
    for number, costs in found.items():
        table.add_row(str(number), *(f"{cost:.1f}" for cost in costs))
    Console(width=100).print(table)


def measure(lanes: int, count: int) -> float:
    """Return the microseconds of CPU that a bus with so many lanes needs for a message."""
    with tempfile.TemporaryDirectory(prefix="lanes-") as folder:
        port = free_port_base(config.PORTS_IN_A_ROW + lanes)
        command = [sys.executable, "-m", "raceway", "serve", "--data", str(Path(folder) / "data")]
        command += ["--port-base", str(port), "--lanes", str(lanes), "--log-level", "error"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ)) as bus:
            assert bus.stdout is not None
            assert bus.stdout.readline() == b"ready\n"
            parent = psutil.Process(bus.pid)
            processes = [parent, *parent.children(recursive=True)]
            before = used(processes)
            asyncio.run(publish(port, count))
            after = used(processes)
            bus.send_signal(signal.SIGTERM)
            bus.wait(STOP_S)
    return (after - before) / count * 1e6


def used(processes: list[psutil.Process]) -> float:
    """Return the seconds of CPU that these processes have used."""
    return sum(sum(each.cpu_times()[:2]) for each in processes)


async def publish(port: int, count: int) -> None:
    """Publish so many messages, and wait until they are stored."""
    clients: list[Any] = [connect(f"mb://127.0.0.1:{port}") for _ in range(CLIENTS)]
    for client in clients:
        await client.__aenter__()
    await asyncio.gather(*(publish_part(client, count // CLIENTS) for client in clients))
    for client in clients:
        await client.__aexit__(None, None, None)


async def publish_part(client: Any, count: int) -> None:
    for first in range(0, count, WINDOW):
        sending = range(first, min(first + WINDOW, count))
        await asyncio.gather(*(client.publish(f"bench.n{number % TOPICS}", PAYLOAD) for number in sending))


if __name__ == "__main__":
    typer.run(main)
