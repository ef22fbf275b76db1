"""`raceway demo`: a bus of its own, an airport's traffic over all four wires, tables of it, and what they say.

The bus is a child process on free ports and, unless told otherwise, on a temporary folder. What is shown at the end is
asked of the tables, not remembered by the clients; that both say the same is checked, and the status says it.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import typer

from raceway import config
from raceway.cli import options, output
from raceway.cli.child_bus import ChildBus, child_bus
from raceway.errors import UnavailableError

if TYPE_CHECKING:
    from raceway.cli.airport.tally import Advance, Tally
    from raceway.cli.demo_report import Report

# More than the tables of a demo need; a machine with 2 GB has it.
SPARK_MEMORY = "1g"
TITLE_WIDTH = 42
LOOK_S = 0.2


def demo(
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Keep the data here. Default: a temporary folder.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Stay up with the console until Ctrl-C, and keep the folder.")
    ] = False,
    seed: Annotated[int, typer.Option(help="The same seed sends the same messages.")] = 1,
    as_json: options.Json = False,
) -> None:
    """Play an airport's morning over all four wires, make tables of it with Spark, and print what they say.

    Needs Java and the extra `spark`. Ends by itself, with status 0 if what the clients know is what the tables say.
    """
    from raceway.pipeline.spark import check_installed, check_java

    check_installed()
    check_java()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    folder = data or Path(tempfile.mkdtemp(prefix="raceway-demo-"))
    kept = keep or data is not None
    try:
        with child_bus(folder) as running:
            performance = perform(running, folder, seed)
            if as_json:
                places = {"data": str(folder) if kept else None, "console": running.urls["console"] if keep else None}
                output.print_json(performance.as_dict() | {"seed": seed, **places})
            else:
                _print(performance, folder, seed, running if keep else None, kept)
            if keep:
                _stay(running)
        if performance.report.differences:
            output.fail("; ".join(performance.report.differences))
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)


def _leave(number: int, _: object) -> NoReturn:
    """As after Ctrl-C: nothing of us stays behind."""
    raise SystemExit(128 + number)


class Performance(NamedTuple):
    """What the clients know, what the tables say, and how long each part took."""

    tally: Tally
    report: Report
    seconds: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        import msgspec

        told: dict[str, Any] = msgspec.to_builtins(self.report)
        return {"story": self.tally.as_dict(), **told, "seconds": self.seconds}


def perform(running: ChildBus, folder: Path, seed: int) -> Performance:
    """The story, then the tables, then the question whether they agree."""
    from raceway.cli.airport.story import play
    from raceway.cli.demo_report import read_report

    clock, seconds = time.monotonic, {}
    output.note(f"a bus on {', '.join(running.urls.values())}")
    began = clock()
    tally = asyncio.run(play(running.urls, random.Random(seed), _curtain))  # noqa: S311 - a story, no secret
    seconds["story"] = clock() - began
    _make_tables(folder)
    seconds["pipeline"] = clock() - began - seconds["story"]
    with _curtain("tables compared with journal and clients", 1) as advance:
        report = read_report(folder, tally)
        advance(1)
    seconds["all"] = clock() - began
    return Performance(tally, report, {name: round(value, 1) for name, value in seconds.items()})


@contextmanager
def _curtain(title: str, total: int) -> Iterator[Advance]:
    """A bar while it goes on, a line when it is over."""
    began = time.monotonic()
    with output.progress(title, total) as bar:
        yield lambda count: bar.advance(bar.task_ids[0], count)
    output.note(f"  {title:<{TITLE_WIDTH}} {time.monotonic() - began:5.1f} s")


def _make_tables(folder: Path) -> None:
    """`raceway pipeline run --once`, with a Spark that starts quickly and settings of its own."""
    from raceway.pipeline import registry
    from raceway.pipeline.folders import Folders
    from raceway.pipeline.jobs import Job, Order
    from raceway.pipeline.opening import open_lake

    settings = config.Pipeline(memory=SPARK_MEMORY)
    with _curtain("Spark starts", 1) as advance:
        lake = open_lake(Folders(folder), settings, quick=True)
        advance(1)
    try:
        with _curtain("the journal becomes nine tables", len(registry.DERIVED) + 1) as advance:
            Job(lake, Order(settings, once=True), stepped=lambda _: advance(1)).run()
    finally:
        lake.spark.stop()


def _print(performance: Performance, folder: Path, seed: int, staying: ChildBus | None, kept: bool) -> None:
    from raceway.cli import demo_summary

    demo_summary.print_summary(performance.report, performance.tally, folder)
    if kept:
        console = staying.urls["console"] if staying else None
        demo_summary.print_next(folder, performance.report.trace["correlation_id"], console)
    else:
        demo_summary.print_next_without(seed)
    seconds = performance.seconds
    output.note(
        f"{seconds['all']:.0f} s: {seconds['story']:.1f} for the story, {seconds['pipeline']:.1f} for the pipeline"
    )


def _stay(running: ChildBus) -> None:
    """Until Ctrl-C or SIGTERM. Spark leaves a handler behind that asks a Spark which is no more."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    sys.stdout.flush()  # whoever reads a pipe need not wait for the end
    output.note(f"the console is at {running.urls['console']}/ until Ctrl-C")
    while not stop.wait(LOOK_S):
        if not running.is_running():
            raise UnavailableError("the bus has ended")
