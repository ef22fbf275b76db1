"""The console beside thousands of topics and many messages: how long its questions and its pages take.

    python -m bench.console [--topics 2000] [--messages 100000] [--repeats 10]

A person waits for the first content of a page, and for each question behind it. Scripts are in the browser's cache, as
on every visit but the first. Prints only: the figures are of this machine, with a browser on the same cores.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench import machine, options
from tests.rigs.browser import Visitor, running_browser, visiting
from tests.rigs.schema_rest import call
from tests.rigs.server import running_server
from tests.rigs.thousands import QUESTIONS, fill, shown

GOAL_MS = 1000
# Wide enough for the table when the output is a file.
console = Console(width=None if sys.stdout.isatty() else 130)


def main(
    data: options.Data = options.DATA,
    topics: Annotated[int, typer.Option(help="Topics of the bus.")] = 2_000,
    messages: Annotated[int, typer.Option(help="Messages of the bus, a multiple of 10,000.")] = 100_000,
    repeats: options.Repeats = 10,
) -> None:
    """Measure questions and pages of the console beside many topics and messages."""
    data.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="console-", dir=data.resolve()) as folder:
        for name, value in machine.describe(Path(folder)).items():
            console.print(f"[dim]{name}:[/] {value}", highlight=False)
        fill(Path(folder) / "data", topics, messages)
        table = Table(
            "what", "median ms", "slowest ms", f"goal ms: {GOAL_MS}", title=f"{topics:,} topics, {messages:,} messages"
        )
        with running_server(Path(folder) / "data") as server:
            for path in QUESTIONS:
                _add(table, path, _times(partial(call, server, "GET", path), repeats))
            with running_browser() as browser, visiting(browser, server) as visitor:
                visitor.go("api")
                for place, content in shown(topics).items():
                    times = _times(partial(_show, visitor, place, content), repeats)
                    _add(table, f"page {place or 'overview'}", times)
    console.print(table)


def _show(visitor: Visitor, place: str, content: str) -> None:
    visitor.page.goto("about:blank")
    visitor.page.goto(f"{visitor.base}/#/{place}")
    visitor.page.locator(content).first.wait_for()


def _times(work: Callable[[], object], repeats: int) -> list[float]:
    """Milliseconds of each call but the first."""
    found = []
    for _ in range(repeats + 1):
        began = time.monotonic()
        work()
        found.append((time.monotonic() - began) * 1000)
    return found[1:]


def _add(table: Table, what: str, times: list[float]) -> None:
    median = statistics.median(times)
    table.add_row(what, f"{median:,.0f}", f"{max(times):,.0f}", "reached" if median < GOAL_MS else "missed")


if __name__ == "__main__":
    typer.run(main)
