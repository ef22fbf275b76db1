"""Start of the bus: import, time to `ready`, idle memory, and the memory of a reader with a large backlog.

python -m bench.start [--data FOLDER] [--gigabytes 2]
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.console import Console
from rich.progress import Progress, track
from rich.table import Table

from bench import machine
from raceway import config
from raceway.journal import open_journal
from raceway.model.envelope import Batch
from tests.rigs.server import Server

RESULTS = Path(__file__).parent / "results"
REPEATS = 5
ROWS, PAYLOAD_BYTES = 10_000, 1000
TOPICS = 200_000
# Wide enough for the table when the output is a file.
console = Console(width=None if sys.stdout.isatty() else 130)

# Runs in a new process, because the peak of a process never decreases. (Not `ru_maxrss`, which is inherited.)
READER = """
import re, sys, time
from pathlib import Path
from raceway.journal.read.reader import Reader

def peak():
    return int(re.search("VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

folder, way = Path(sys.argv[1]), sys.argv[2]
reader = Reader(folder)
reader.committed()
before = peak()
began, rows, offset = time.monotonic(), 0, 0
if way == "position":
    for batch in reader.read(0):
        rows += batch.num_rows
else:
    while True:
        got = sum(batch.num_rows for batch in reader.read_topic("bench.topic1", offset))
        if not got:
            break
        rows, offset = rows + got, offset + got
print(rows, time.monotonic() - began, peak() - before, before)
"""


def main(
    data: Annotated[Path, typer.Option(help="Folder on a real disk.")] = Path("data/bench"),
    gigabytes: Annotated[float, typer.Option(help="Backlog of the reader, in GB.")] = 2.0,
    save: Annotated[bool, typer.Option(help="Save the result under bench/results/.")] = True,
) -> None:
    """Measure start, idle memory, and a reader with a large backlog."""
    data.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="start-", dir=data.resolve()))
    facts = machine.describe(folder)
    try:
        rows = [*_imports(), *_starts(folder / "empty", "an empty folder")]
        _fill(folder / "full", int(gigabytes * 2**30))
        rows += _readers(folder / "full", f"{gigabytes:g} GiB of blocks")
        rows += _starts(folder / "full", f"{gigabytes:g} GiB of rows")
        _seal(folder / "full")
        rows += _readers(folder / "full", f"{gigabytes:g} GiB, sealed but the last segment")
        _fill_topics(folder / "topics")
        rows += _starts(folder / "topics", f"{TOPICS:,} topics", goal="< 5 s")
    finally:
        shutil.rmtree(folder)
    table = Table("what", "measured", "goal")
    for row in rows:
        table.add_row(*row)
    for name, value in facts.items():
        console.print(f"[dim]{name}:[/] {value}", highlight=False)
    console.print(table)
    if save:
        _save(facts, rows)


def _imports() -> list[tuple[str, str, str]]:
    def seconds(code: str) -> float:
        return _median(lambda: _timed(lambda: subprocess.run([sys.executable, "-c", code], check=True)))

    bare = seconds("pass")
    heavy = "import sys, raceway, raceway.cli.app; assert not {'pyspark', 'pandas', 'py4j'} & sys.modules.keys()"
    return [
        ("import raceway", f"{(seconds('import raceway') - bare) * 1000:.0f} ms", ""),
        ("import the command line, without Spark", f"{(seconds(heavy) - bare) * 1000:.0f} ms", "no Spark"),
    ]


def _starts(folder: Path, what: str, goal: str = "< 1 s") -> list[tuple[str, str, str]]:
    """Starts after a clean stop and after a kill, and idle memory, on one folder."""
    folder.mkdir(exist_ok=True)
    server = Server(folder, folder.parent, {})
    clean, killed, memory = [], [], []
    for _ in range(REPEATS):
        clean.append(server.start(60))
        memory.append(psutil.Process(server.pid).memory_info().rss)
        server.kill()
        killed.append(server.start(60))
        server.stop()
    return [
        (f"start to ready on {what}", _spread(clean), goal),
        (f"start to ready after kill -9 on {what}", _spread(killed), max(goal, "< 2 s")),
        (f"resident memory, idle, on {what}", f"{statistics.median(memory) / 2**20:.0f} MiB", "< 160 MB"),
    ]


def _fill(folder: Path, size: int) -> None:
    """Append rows of four topics until `size` bytes of payload are stored."""
    due: list[Callable[[], None]] = []
    journal = open_journal(
        config.JournalSettings(folder=str(folder), durability="os", seal=False), post=due.append, clock=_clock_us
    )
    payloads = [os.urandom(PAYLOAD_BYTES) for _ in range(ROWS)]
    topics: list[bytes | None] = [b"bench.topic%d" % (n % 4) for n in range(ROWS)]
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("filling the journal", total=size)
        for _ in range(size // (ROWS * PAYLOAD_BYTES)):
            batch = Batch(ROWS, kind=b"publish", wire=b"mb", topic=list(topics), payload=list(payloads))
            journal.append(batch)
            _commit(journal.flush, lambda: journal.committed == journal.next_sequence - 1, due)
            progress.advance(task, ROWS * PAYLOAD_BYTES)
    journal.close()


def _fill_topics(folder: Path) -> None:
    """Append one row to each of many topics."""
    due: list[Callable[[], None]] = []
    journal = open_journal(
        config.JournalSettings(folder=str(folder), durability="os", seal=False), post=due.append, clock=_clock_us
    )
    for start in track(range(0, TOPICS, ROWS), "making topics", console=console, transient=True):
        names: list[bytes | None] = [b"plant.sensor%d" % number for number in range(start, start + ROWS)]
        journal.append(Batch(ROWS, kind=b"publish", wire=b"mb", topic=names, payload=[b"x"] * ROWS))
        _commit(journal.flush, lambda: journal.committed == journal.next_sequence - 1, due)
    journal.close()


def _seal(folder: Path) -> None:
    """Convert all segments except the active one to Parquet and remove their blocks, as the bus does."""
    for blocks in track(sorted(folder.glob("*.blocks"))[:-1], "sealing", console=console, transient=True):
        command = [sys.executable, "-m", "raceway.journal.write.seal", str(folder), blocks.stem]
        subprocess.run(command, check=True, capture_output=True)
        blocks.unlink()


def _commit(flush: Callable[[], None], is_committed: Callable[[], bool], due: list[Callable[[], None]]) -> None:
    """Act as the owner thread: submit the block and run the writer's callbacks until it is stored."""
    while not is_committed():
        flush()
        while due:
            due.pop(0)()
        time.sleep(0.0005)


def _readers(folder: Path, form: str) -> list[tuple[str, str, str]]:
    found = []
    for way in ("position", "topic"):
        output = subprocess.run(
            [sys.executable, "-c", READER, str(folder), way], capture_output=True, text=True, check=True
        ).stdout
        rows, seconds, growth, base = map(float, output.split())
        figures = f"+{growth / 2**20:.0f} MiB over {base / 2**20:.0f}; {rows / seconds:,.0f} rows/s"
        found.append((f"reader from the first row by {way}: {form}", figures, "< 64 MB"))
    return found


def _clock_us() -> int:
    return time.time_ns() // 1000


def _timed(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def _median(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(REPEATS))


def _spread(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} s ({min(seconds):.2f} – {max(seconds):.2f})"


def _save(facts: dict[str, str], rows: list[tuple[str, str, str]]) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "start.json").write_text(json.dumps({"facts": facts, "rows": rows}, indent=1, ensure_ascii=False) + "\n")
    lines = ["# Start and memory, measured", "", "Made by `python -m bench.start`.", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", "| what | measured | goal |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    page = RESULTS / "start.md"
    page.write_text("\n".join(lines) + "\n")
    console.print(f"Saved: {page}")


if __name__ == "__main__":
    typer.run(main)
