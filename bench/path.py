"""End to end through real sockets on loopback: the cost of a message, compared with well-known servers.

    python -m bench.path [--quick] [--trial SCRIPT] [--data FOLDER] [--only Raceway,NATS]

All servers are started first, each in its own folder, and are idle while another is measured. Every measure runs on
each system in turn, repeatedly and every second time in reverse order, so that changes of the machine's speed affect
all alike; the first, short turn only warms up and determines how many messages fill a run. Server and load share the
cores; nothing is pinned. CPU time per message is printed beside each rate, because it depends less on that sharing.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.console import Console
from rich.progress import Progress

from bench import machine, options, report, systems
from bench.measures import MEASURES, Measure, Sample
from bench.systems import Start, System
from tests.rigs.ports import free_port_base

GOALS: list[report.Goal] = [
    ("deliver", "rate", "Mosquitto QoS 0", 2.0, True),
    ("deliver", "rate", "trial", 0.6, True),
    ("ack8000", "rate", "trial", 0.6, True),
    ("ack8000", "rate", "JetStream file", 1.0, True),
    ("ask1", "p50_us", "uvloop echo", 4.0, False),
]
RESULTS = Path(__file__).parent / "results"
# Share of one core used by other processes above which a warning is printed.
BUSY_PERCENT = 15.0
MAX_COUNT = 1_000_000
# Wide enough for the tables when the output is a file.
console = Console(width=None if sys.stdout.isatty() else 130)


def main(
    data: options.Data = options.DATA,
    trial: Annotated[Path | None, typer.Option(help="Script of a reference server that listens on port 25001.")] = None,
    repeats: options.Repeats = 5,
    seconds: options.Seconds = 0.6,
    quick: options.Quick = False,
    only: options.Only = "",
    measures: options.Measures = "",
    save: options.Save = True,
    before: options.Before = None,
) -> None:
    """Measure the path of a message in Raceway and in the installed peers."""
    if quick:
        repeats, seconds, save = 2, 0.3, False
    chosen = [m for m in MEASURES if is_chosen(m.key, measures)]
    compare("path", data, _starts(trial), only, chosen, GOALS, repeats, seconds, save, before)


def compare(
    name: str,
    data: Path,
    starts: dict[str, Start],
    only: str,
    chosen: list[Measure],
    goals: list[report.Goal],
    repeats: int,
    seconds: float,
    save: bool,
    before: Path | None = None,
    about_load: dict[str, str] | None = None,
) -> None:
    """Run a comparison: start the servers, measure in turns, print, and optionally save under `name`.

    With `before`, Raceway is also started from that source folder. Turns alternate, so the ratio is fair. `about_load`
    has facts to print and save with those of the machine.
    """
    data.mkdir(parents=True, exist_ok=True)
    data = data.resolve()
    facts = machine.describe(data) | systems.versions() | (about_load or {})
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=data))
    with ExitStack() as undo:
        undo.callback(shutil.rmtree, folder)
        running, absent = _start_all(undo, folder, systems.beside(starts, before), only)
        facts["syncing"] = "; ".join(f"{system.name}: {system.syncing}" for system in running if system.syncing)
        runs = Runs(running, chosen, repeats, seconds)
        runs.measure_all()
    facts["busiest moment before a run"] = f"{runs.busiest:.0f} % of one core used by others"
    facts["runs"] = f"{repeats} of about {seconds} s each, alternating; the median and all runs are shown"
    if runs.failed:
        facts["failed"] = "; ".join(runs.failed)
    result = report.Report(name, facts, [(m.key, m.title) for m in chosen], goals, runs.samples, absent)
    result.print(console)
    if runs.busiest > BUSY_PERCENT:
        console.print(f"[yellow]The machine was busy ({runs.busiest:.0f} %): repeat the run when it is idle.[/]")
    if save:
        console.print(f"Saved: {result.save(RESULTS)}")
    if runs.failed:
        raise typer.Exit(1)


def is_chosen(name: str, wanted: str) -> bool:
    return not wanted or any(name.lower().startswith(start.strip().lower()) for start in wanted.split(","))


def _starts(trial: Path | None) -> dict[str, Start]:
    return {
        "Raceway": systems.raceway,
        "trial": systems.trial(trial) if trial else systems.absent,
        "Mosquitto QoS 0": systems.mosquitto,
        "NATS core": systems.nats,
        "JetStream file": systems.jetstream("2m"),
        "JetStream file, synced": systems.jetstream("always"),
        "uvloop echo": systems.echo,
    }


def _start_all(undo: ExitStack, folder: Path, starts: dict[str, Start], only: str) -> tuple[list[System], list[str]]:
    """Start the servers whose names match `only`; return those that run and the names of all others."""
    port = free_port_base()
    running, absent = [], []
    for number, (name, start) in enumerate(starts.items()):
        if not is_chosen(name, only):
            continue
        own = folder / str(number)
        own.mkdir()
        try:
            system = start(name, own, port + number)
        except RuntimeError as error:
            console.print(f"{name} did not start: {error}", style="red", markup=False)
            system = None
        if system is not None:
            undo.callback(system.stop)
            running.append(system)
        else:
            absent.append(name)
    return running, absent


class Runs:
    """All measures on all systems, in turns. `samples` is measure key → system name → runs."""

    def __init__(self, running: list[System], chosen: list[Measure], repeats: int, seconds: float) -> None:
        self._running, self._chosen, self._repeats, self._seconds = running, chosen, repeats, seconds
        self.samples: dict[str, dict[str, list[Sample]]] = {}
        self.busiest = 0.0
        # Measures that a system did not complete, with the reason.
        self.failed: list[str] = []

    def measure_all(self) -> None:
        with Progress(console=console, transient=True) as progress:
            turns = sum(measure.suits(system) for measure in self._chosen for system in self._running)
            task = progress.add_task("", total=turns * (self._repeats + 1))
            for measure in self._chosen:
                self._measure(measure, lambda text: progress.update(task, description=text, advance=1))

    def _measure(self, measure: Measure, show: Callable[[str], object]) -> None:
        """Run one measure: a short turn per system to determine its pace, then the turns that count."""
        able = [system for system in self._running if measure.suits(system)]
        counts: dict[str, int] = {}
        samples = self.samples[measure.key] = {system.name: [] for system in able}
        for turn in range(self._repeats + 1):
            self.busiest = max(self.busiest, _busy_percent()) if turn else self.busiest
            order = able if turn % 2 else able[::-1]
            for system in [each for each in order if each.name in samples]:
                show(f"{measure.title}: {system.name}")
                try:
                    sample = measure.run(system, counts.get(system.name, measure.first_count))
                except OSError as error:  # TimeoutError is one
                    # Its other measures, and those of others, are still worth something.
                    self.failed.append(f"{measure.key}, {system.name}: {error}")
                    console.print(f"{self.failed[-1]}\n{system.log()}", style="red", markup=False)
                    del samples[system.name]
                    continue
                if turn:
                    samples[system.name].append(sample)
                else:
                    counts[system.name] = int(min(MAX_COUNT, max(measure.first_count, sample.rate * self._seconds)))


def _busy_percent(interval_s: float = 0.2) -> float:
    """CPU use of other processes in percent of one core, while the servers are idle."""
    before = os.times()
    share = float(psutil.cpu_percent(interval_s)) * (os.cpu_count() or 1)
    after = os.times()
    own = (after.user + after.system - before.user - before.system) / interval_s * 100
    return max(0.0, share - own)


if __name__ == "__main__":
    typer.run(main)
