"""Calls of an npm Seneca client to an npm Seneca listener, through the bus and directly.

    python -m bench.seneca [--quick] [--data FOLDER]

One Node process calls, another one serves; both are the same for all runs, which alternate between the two paths as in
`bench.path`. W is Seneca's newer web transport, T its TCP. The bus journals every call and every answer; a relay that
only copied bytes would reach about 0.8 of the direct rate. Compare ratios within one run. "server µs" is the CPU time
of the bus, without that of the listener, or that of the listener if it is called directly.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import psutil
import pytest
import typer

from bench import options, systems
from bench.measures import Measure, Sample
from bench.path import compare, console, is_chosen
from bench.report import Goal
from bench.systems import OURS, Start, System
from tests.rigs.node_peers import Dialect, NodePeers, node_peers
from tests.rigs.seneca_wire import attach

DIRECT = "npm seneca, direct"
DIALECTS: tuple[Dialect, ...] = ("W", "T")
MESSAGE = {"cmd": "sum", "a": 1, "b": 2}
IN_FLIGHT = 50
GOALS: list[Goal] = [
    ("ask1W", "p50_us", DIRECT, 1.7, False),
    ("ask1T", "p50_us", DIRECT, 2.0, False),
    ("ask50W", "rate", DIRECT, 0.6, True),
    ("ask50T", "rate", DIRECT, 0.6, True),
]


class Rig:
    """The two Node processes: a listener for each dialect, and a client for each dialect and path."""

    def __init__(self, callers: NodePeers, hosts: NodePeers) -> None:
        self.callers, self._hosts = callers, hosts
        self._ports: dict[Dialect, int] = {}

    def starts(self) -> dict[str, Start]:
        # The listeners first: the bus attaches to them.
        return {DIRECT: self._start_listeners, OURS: self._start_bus}

    def _start_listeners(self, name: str, folder: Path, port: int) -> System:
        for number, dialect in enumerate(DIALECTS):
            self._ports[dialect] = port + number
            self._hosts.listen(dialect, dialect, port + number, role=f"math{dialect}")
            self.callers.client(f"{name} {dialect}", dialect, port + number)
        return System(name, folder, port, self._hosts.process)

    def _start_bus(self, name: str, folder: Path, _port: int) -> System:
        server = systems.start_raceway(folder)
        attach(server, "role:mathW,cmd:*", f"http://127.0.0.1:{self._ports['W']}/act", "W")
        attach(server, "role:mathT,cmd:*", f"tcp://127.0.0.1:{self._ports['T']}", "T")
        self.callers.client(f"{name} W", "W", server.port("seneca"))
        self.callers.client(f"{name} T", "T", server.port("seneca_tcp"))
        return System(name, folder, server.port("seneca"), server.process)


class Ask:
    """Calls with a bounded number in flight, each timed by its client."""

    def __init__(self, rig: Rig, dialect: Dialect, in_flight: int) -> None:
        self._rig, self._dialect, self._in_flight = rig, dialect, in_flight
        self.key = f"ask{in_flight}{dialect}"
        self.title = f"call → answer in dialect {dialect}, {in_flight} in flight"
        self.first_count = 20 * in_flight + 200

    def suits(self, system: System) -> bool:
        return True

    def run(self, system: System, count: int) -> Sample:
        caller = psutil.Process(self._rig.callers.process.pid)
        before, load_before = system.cpu_s(), _cpu_s(caller)
        message: dict[str, Any] = {**MESSAGE, "role": f"math{self._dialect}"}
        load = self._rig.callers.load(f"{system.name} {self._dialect}", count, self._in_flight, message)
        used, load_used = system.cpu_s() - before, _cpu_s(caller) - load_before
        if load.errors:
            raise OSError(f"{load.errors} of {count} calls failed")
        cuts = statistics.quantiles([took * 1000 for took in load.took], n=100)
        rate = count / load.elapsed * 1000
        return Sample(rate, used / count * 1e6, load_used / count * 1e6, cuts[49], cuts[94], cuts[98])


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def _two_nodes() -> Iterator[Rig]:
    with node_peers() as callers, node_peers() as hosts:
        yield Rig(callers, hosts)


def main(
    data: Annotated[Path, typer.Option(help="Folder on a real disk for the bus's files.")] = Path("data/bench"),
    repeats: Annotated[int, typer.Option(help="Runs of each measure on each path.")] = 7,
    seconds: Annotated[float, typer.Option(help="Approximate duration of one run, in seconds.")] = 2.0,
    quick: Annotated[
        bool, typer.Option(help="Two short runs of each, to check that it works; the figures mean little.")
    ] = False,
    measures: Annotated[str, typer.Option(help="Measures to run: prefixes of their keys, separated by commas.")] = "",
    save: Annotated[bool, typer.Option(help="Save the result under bench/results/.")] = True,
    before: options.Before = None,
) -> None:
    """Compare calls through the bus with direct ones."""
    if quick:
        repeats, seconds, save = 2, 0.3, False
    try:
        with _two_nodes() as rig:
            asks: list[Measure] = [Ask(rig, dialect, n) for dialect in DIALECTS for n in (1, IN_FLIGHT)]
            chosen = [ask for ask in asks if is_chosen(ask.key, measures)]
            compare("seneca", data, rig.starts(), "", chosen, GOALS, repeats, seconds, save, before)
    except pytest.skip.Exception as missing:
        console.print(f"[yellow]Not measured: {missing}[/]")


if __name__ == "__main__":
    typer.run(main)
