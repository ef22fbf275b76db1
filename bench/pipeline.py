"""The pipeline beside Spark's own work on the same rows, in one run on one machine.

    python -m bench.pipeline [bronze | import | tables | scale …] [--rows N] [--quick] [--memory 4g]

bronze   journal → bronze.messages, alternating with Spark copying the same rows Parquet → Parquet
import   raw MB frames → bronze.messages, beside a Python UDF and Polars (bench/pipeline_import.py)
tables   journal → all tables, and where the time goes
scale    the same for one, two, five and ten parts of N rows: seconds per million rows must not grow

What to believe is the ratio within one run: absolute times depend on the machine and on who else uses it. The rows are
those of a small shop on MB: publishes, requests and their answers, 200 bytes of payload, ids of 36 characters.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from bench import pipeline_import
from bench.journal import RESULTS, Owner
from bench.machine import describe
from raceway import config
from raceway.journal import open_journal, wall_clock_us
from raceway.model.envelope import MB, PUBLISH, REQUEST, RESPONSE, Batch
from raceway.pipeline import registry
from raceway.pipeline.folders import Folders
from raceway.pipeline.jobs import Job, Order
from raceway.pipeline.lake import ParquetLake
from raceway.pipeline.progress import Progress
from raceway.pipeline.spark import session
from raceway.pipeline.tables import BUCKET_ROWS, MESSAGES, Derived

MILLION = 1_000_000
# Of a batch of the generator: half are publishes, a quarter requests, a quarter their answers.
STEP = 2000
TOPICS = [b"orders.created", b"orders.paid", b"stock.moved", b"parcels.sent", b"baggage.events"]
PAYLOAD = (
    b'{"order":%010d,"customer":"c%06d","items":[{"sku":"A-17","n":2},{"sku":"B-4","n":1}],"total":%7d,"note":"%s"}'
)
# Time that passes from one batch of the generator to the next: a thousand messages a second.
STEP_US = STEP * 1000
WANTED_COPY, WANTED_RATE = 0.5, 250_000


class Clock:
    """Time goes on with the rows, so that tables by minute and hour have their share of work."""

    def __init__(self) -> None:
        self.now_us = wall_clock_us() - 6 * 3600 * MILLION

    def __call__(self) -> int:
        return self.now_us


def fill(folder: Path, rows: int) -> None:
    """A journal of so many rows, with everything the tables are made of."""
    owner, clock = Owner(), Clock()
    journal = open_journal(config.Journal(folder=str(folder), durability="os", seal=False), owner.post, clock)
    for number in range(rows // STEP):
        journal.append(_batch(number, journal.next_sequence))
        journal.flush()
        owner.take_all()
        clock.now_us += STEP_US
    finished: list[None] = []
    journal.flush()
    journal.after_commit(lambda error: finished.append(None))
    owner.wait(lambda: bool(finished))
    journal.close()


def _batch(number: int, first: int) -> Batch:
    half, quarter = STEP // 2, STEP // 4
    base = number * STEP
    ids = [b"%08x-0000-4000-8000-%012x" % (number, n) for n in range(STEP)]
    asked = ids[half : half + quarter]
    return Batch(
        STEP,
        topic=[TOPICS[n % 5] for n in range(half)] + [b"orders.price"] * (2 * quarter),
        kind=[PUBLISH] * half + [REQUEST] * quarter + [RESPONSE] * quarter,
        wire=MB,
        version=b"1.0.0",
        producer=[b"shop-%02d" % (n % 20) for n in range(STEP)],
        message_id=ids[: half + quarter] + asked,
        # Each fourth publish was caused by the one before.
        parent_id=[ids[n - 1] if n % 4 == 3 else None for n in range(half)] + [None] * (2 * quarter),
        correlation_id=[ids[n - n % 4] if n % 4 else None for n in range(half)] + [None] * quarter + asked,
        answers=[None] * (half + quarter) + [first + half + n for n in range(quarter)],
        timeout_ms=[None] * half + [5000] * quarter + [None] * quarter,
        payload=[(PAYLOAD % (base + n, n, n, b"x" * 80))[:200] for n in range(STEP)],
    )


def run(spark: SparkSession, folder: Path, tables: tuple[Derived, ...], batch: int) -> tuple[float, list[Progress]]:
    """Seconds of a whole run, and what it told after each batch."""
    told: list[Progress] = []
    order = Order(config.Pipeline(max_records=batch), once=True, tables=tables)
    shutil.rmtree(folder / "pipeline" / "tables", ignore_errors=True)
    for name in ("notes", "links", "active", "checkpoint"):
        shutil.rmtree(folder / "pipeline" / name, ignore_errors=True)
    began = time.monotonic()
    Job(ParquetLake(spark, Folders(folder)), order, told.append).run()
    return time.monotonic() - began, told


def copy_seconds(spark: SparkSession, folder: Path, target: Path) -> float:
    """Spark copies the same rows with its own reader and its own writer."""
    shutil.rmtree(target, ignore_errors=True)
    began = time.monotonic()
    spark.read.parquet(Folders(folder).table(MESSAGES)).drop("range").write.option("compression", "snappy").parquet(
        str(target)
    )
    return time.monotonic() - began


def measure_bronze(spark: SparkSession, folder: Path, rows: int, rounds: int, batch: int, console: Console) -> None:
    ours, copies = [], []
    for number in range(rounds + 1):
        seconds, _ = run(spark, folder, (), batch)
        copied = copy_seconds(spark, folder, folder / "copy")
        if number:  # the first round warms the JVM up
            ours.append(rows / seconds)
            copies.append(rows / copied)
    table = Table("", "rows/s, median", "from", "to", title=f"{rows:,} rows, {rounds} rounds", title_justify="left")
    for name, rates in (("journal → bronze.messages", ours), ("Spark: Parquet → Parquet", copies)):
        table.add_row(name, f"{statistics.median(rates):,.0f}", f"{min(rates):,.0f}", f"{max(rates):,.0f}")
    console.print(table)
    ratio = statistics.median(mine / copy for mine, copy in zip(ours, copies, strict=True))
    console.print(
        f"ratio {ratio:.2f} (wanted {WANTED_COPY} or more): {'reached' if ratio >= WANTED_COPY else 'MISSED'}"
    )
    if statistics.median(copies) >= 2 * WANTED_RATE:
        reached = statistics.median(ours) >= WANTED_RATE
        console.print(f"{WANTED_RATE:,} rows/s: {'reached' if reached else 'MISSED'}")


def measure_tables(spark: SparkSession, folder: Path, rows: int, batch: int, console: Console) -> float:
    seconds, told = run(spark, folder, registry.DERIVED, batch)
    steps: dict[str, float] = {}
    for progress in told[-1:]:
        steps = dict(progress.last_batch.steps) if progress.last_batch else {}
    table = Table("table", "rows", "s in the last batch", title=f"{rows:,} rows, all tables", title_justify="left")
    for name, found in told[-1].tables.items():
        table.add_row(name, f"{found.rows:,}", f"{steps.get(name, 0.0):.2f}")
    console.print(table)
    console.print(f"{seconds:.1f} s, {seconds / rows * MILLION:.1f} s per million rows, {told[-1].batches} batches")
    return seconds


def measure_scale(spark: SparkSession, rows: int, batch: int, console: Console) -> None:
    table = Table("rows", "s", "s per million rows", title="all tables, growing", title_justify="left")
    each = []
    for factor in (1, 2, 5, 10):
        with journal(rows * factor // 10, console) as folder:
            seconds, _ = run(spark, folder, registry.DERIVED, batch)
        each.append(seconds / (rows * factor / 10) * MILLION)
        table.add_row(f"{rows * factor // 10:,}", f"{seconds:.1f}", f"{each[-1]:.1f}")
    console.print(table)
    console.print(
        f"a row of the longest run costs {each[-1] / each[0]:.2f} × one of the shortest (linear: about 1 or less)"
    )


@contextmanager
def journal(rows: int, console: Console) -> Iterator[Path]:
    RESULTS.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="pipeline-", dir=RESULTS))
    try:
        console.print(f"[dim]filling a journal with {rows:,} rows[/]")
        fill(folder, rows)
        yield folder
    finally:
        shutil.rmtree(folder)


def main(
    what: Annotated[list[str] | None, typer.Argument(help="bronze, import, tables, scale. Default: all.")] = None,
    rows: Annotated[int, typer.Option(help="Rows of the journal.")] = 2 * MILLION,
    rounds: Annotated[int, typer.Option(help="Rounds of bronze.")] = 3,
    batch: Annotated[int, typer.Option(help="Rows of one batch.")] = 4 * BUCKET_ROWS,
    memory: Annotated[str, typer.Option(help="Memory of Spark's driver.")] = "4g",
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of everything, to see that it runs.")] = False,
) -> None:
    """Measure and print; nothing is kept."""
    if quick:
        rows, rounds, batch = 20_000, 1, 10_000
    chosen, console = what or ["bronze", "import", "tables", "scale"], Console()
    with journal(rows, console) as folder:
        for name, value in describe(folder).items():
            console.print(f"[dim]{name}:[/] {value}", highlight=False)
        spark = session(Folders(folder), master="local[*]", memory=memory)
        if "bronze" in chosen:
            measure_bronze(spark, folder, rows, rounds, batch, console)
        if "import" in chosen:
            pipeline_import.measure(spark, folder / "import", rows, rounds, console)
        if "tables" in chosen:
            measure_tables(spark, folder, rows, batch, console)
        if "scale" in chosen:
            measure_scale(spark, rows, batch, console)
        spark.stop()


if __name__ == "__main__":
    typer.run(main)
