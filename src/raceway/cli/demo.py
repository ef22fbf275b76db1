"""`raceway demo`: start a bus, play the traffic of an airport over all four wires, compute the tables, and print a
report.

The bus is a child process on free ports and, by default, in a temporary folder. The report is computed from the tables.
It is compared with what the clients counted; the exit status says whether both agree.
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
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

from raceway import config
from raceway.cli import options, output
from raceway.errors import UnavailableError
from raceway.server.child_bus import ChildBus, child_bus

if TYPE_CHECKING:
    from raceway.demo.report import Report
    from raceway.demo.tally import OnProgress, Tally

# Driver memory: more than the demo needs, and available on a machine with 2 GB.
SPARK_MEMORY = "1g"
TITLE_WIDTH = 42
LOOK_S = 0.2


def demo(
    cli: options.Printing,
    data: Annotated[
        Path | None, "--data DIR", "Folder for the data. Default: a temporary one, removed at the end."
    ] = None,
    keep: Annotated[bool, "--keep", "Keep the bus and its console running until Ctrl-C, and keep the folder."] = False,
    seed: Annotated[int, "--seed", "Seed of the random choices: the same seed sends the same messages."] = 1,
    port_base: Annotated[
        int | None, "--port-base N", "First of ten consecutive ports. Default: free ones.", {"min": 1, "max": 65_526}
    ] = None,
) -> None:
    """Play an airport's morning over all four wires, compute tables of it with Spark, and print a report.

    Without Java or the extra `spark` the story is played, too, and the tables are left out. Ends by itself, with status
    0 if the tables, or the journal, agree with what the clients counted.
    """
    from raceway.server.beside import maybe_obstacle

    left_out = maybe_obstacle(config.Config())
    if data is not None and data.is_dir() and any(data.iterdir()):
        output.misuse(f"{data} is not empty: name an empty or new folder")
    _on_end(_leave)
    folder = data or Path(tempfile.mkdtemp(prefix="raceway-demo-"))
    kept = keep or data is not None
    try:
        with child_bus(folder, port_base) as running:
            performance = perform(running, folder, seed, left_out)
            if cli.as_json:
                places = {"data": str(folder) if kept else None, "console": running.urls["console"] if keep else None}
                output.print_json(performance.as_dict() | {"seed": seed, **places})
            else:
                _print(performance, folder, seed, running if keep else None, kept)
            if keep:
                _stay(running)
        if performance.differences:
            output.fail("; ".join(performance.differences))
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)


def _on_end(handler: Callable[[int, object], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


def _leave(number: int, _: object) -> NoReturn:
    """Exit as after Ctrl-C, stopping the child processes."""
    raise SystemExit(128 + number)


class Performance(NamedTuple):
    """Results of the demo: what the clients counted, what the tables contain, and durations. Without tables `left_out`
    is the reason; `differences` are then those of the journal."""

    tally: Tally
    report: Report | None
    seconds: dict[str, float]
    differences: list[str]
    left_out: str | None = None

    def as_dict(self) -> dict[str, Any]:
        import msgspec

        told: dict[str, Any] = {"left_out": self.left_out, "differences": self.differences}
        if self.report is not None:
            told = msgspec.to_builtins(self.report)
        return {"story": self.tally.as_dict(), **told, "seconds": self.seconds}


def perform(running: ChildBus, folder: Path, seed: int, left_out: str | None = None) -> Performance:
    """Play the story, compute the tables unless they are left out, and compare both."""
    from raceway.demo import stored
    from raceway.demo.report import read_report
    from raceway.demo.story import play

    clock, seconds = time.monotonic, {}
    output.note(f"a bus on {', '.join(running.urls.values())}")
    began = clock()
    try:
        tally = run_until_signal(play(running.urls, random.Random(seed), _progress))  # noqa: S311 - a story, no secret
    except TimeoutError as error:
        raise UnavailableError("the story stopped: an expected message did not arrive") from error
    seconds["story"] = clock() - began
    if left_out is not None:
        seconds = {"story": round(seconds["story"], 1), "all": round(clock() - began, 1)}
        return Performance(tally, None, seconds, stored.differences_of(folder, tally), left_out)
    _make_tables(folder)
    seconds["pipeline"] = clock() - began - seconds["story"]
    with _progress("tables compared with journal and clients", 0):
        report = read_report(folder, tally)
    seconds["all"] = clock() - began
    rounded = {name: round(value, 1) for name, value in seconds.items()}
    return Performance(tally, report, rounded, report.differences)


def run_until_signal(story: Coroutine[Any, Any, Tally]) -> Tally:
    """Run the story on an event loop. A signal cancels it, as asyncio does for Ctrl-C: SystemExit raised into whatever
    callback the loop is running would end a task for which its client, when closed, waits forever."""
    received: list[int] = []

    async def cancellable() -> Tally:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def cancel(number: int, _: object) -> None:
            received.append(number)
            loop.call_soon_threadsafe(task.cancel)

        _on_end(cancel)
        return await story

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError:
        _leave(received[0], None)
    finally:
        _on_end(_leave)


@contextmanager
def _progress(title: str, total: int) -> Iterator[OnProgress]:
    """Show a progress bar during the context and a line at its end; 0 steps stand for an unknown number."""
    began = time.monotonic()
    with output.progress(title, total or None) as bar:
        yield lambda count: bar.advance(bar.task_ids[0], count)
    output.note(f"  {title:<{TITLE_WIDTH}} {time.monotonic() - began:5.1f} s")


def _make_tables(folder: Path) -> None:
    """Run `raceway pipeline run --once` with Spark settings that start quickly."""
    from raceway.pipeline import registry
    from raceway.pipeline.failures import stop
    from raceway.pipeline.folders import Folders
    from raceway.pipeline.jobs import Job, Order
    from raceway.pipeline.opening import open_lake

    settings = config.PipelineSettings(memory=SPARK_MEMORY)
    with _progress("Spark starts", 0):
        lake = open_lake(Folders(folder), settings, quick=True)
    try:
        with _progress("the journal becomes tables", len(registry.DERIVED) + 1) as advance:
            Job(lake, Order(settings, once=True), stepped=lambda _: advance(1)).run()
    finally:
        stop(lake.spark)


def _print(performance: Performance, folder: Path, seed: int, staying: ChildBus | None, kept: bool) -> None:
    from raceway.demo import stored
    from raceway.demo import summary as demo_summary

    if performance.report is None:
        stored.print_story(performance.tally, performance.left_out or "")
        if not performance.differences:
            print("The journal has as many publishes as the clients counted.")
        return
    demo_summary.print_summary(performance.report, performance.tally, folder, kept=kept)
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
    """Wait for Ctrl-C or SIGTERM. Replaces the handler of Spark, whose process has ended."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    sys.stdout.flush()  # flushed, so that a reader of a pipe gets it now
    output.note(f"the console is at {running.urls['console']}/ until Ctrl-C")
    while not stop.wait(LOOK_S):
        if not running.is_running():
            raise UnavailableError("the bus has ended")
