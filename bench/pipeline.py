"""The pipeline, compared with Spark's own processing of the same rows in one run on one machine.

    python -m bench.pipeline [bronze | import | scale | small | workers | live | hour …] [--rows N] [--millions 2,10]
        [--old 0,0.2,2] [--memory 4g] [--quick]

bronze   journal → bronze.messages, alternating with Spark copying the same rows Parquet → Parquet
import   raw MB frames → bronze.messages, beside a Python UDF and Polars (bench/pipeline_import.py)
scale    journal → all nine tables for two and ten million rows: neither seconds per million nor memory must grow
small    1,000 new rows on top of none, 0.2 and 2 million old ones: CPU seconds and bytes written must not grow
workers  all tables of so many rows on a cluster of two workers, and of one (bench/pipeline_workers.py)
live     `raceway up` at 200 messages a second: seconds until they are in the gold tables (bench/pipeline_live.py)
hour     an hour of one topic, out of a day that came in many batches: files that are opened (bench/pipeline_hour.py)

Compare ratios within one run: absolute times depend on the machine and its load. The rows are those of a small shop on
MB: publishes, requests and their answers, 200 bytes of payload, ids of 36 characters.
"""

from __future__ import annotations

import shlex
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import psutil
import typer
from pyspark.sql import SparkSession
from rich.console import Console

from bench import pipeline_hour, pipeline_import, pipeline_live, pipeline_results, pipeline_workers
from bench.journal import RESULTS, Owner
from bench.machine import describe
from bench.pipeline_live import cpu_seconds
from bench.pipeline_results import BRONZE, COPY, MILLION, Hour, Live, Rates, Results, Run, Small, Workers
from bench.pipeline_stages import REMEMBERED, Watch
from raceway import config
from raceway.journal import open_journal, wall_clock_us
from raceway.model.envelope import MB, PUBLISH, REQUEST, RESPONSE, Batch
from raceway.model.progress import PipelineProgress
from raceway.pipeline import registry
from raceway.pipeline.folders import Folders
from raceway.pipeline.jobs import Job, Order
from raceway.pipeline.lake import Lake
from raceway.pipeline.spark import session
from raceway.pipeline.tables import MESSAGES, Derived

# Rows of a generated batch: half are publishes, a quarter requests, a quarter their answers.
STEP = 1000
TOPICS = [b"orders.created", b"orders.paid", b"stock.moved", b"parcels.sent", b"baggage.events"]
PAYLOAD = (
    b'{"order":1%09d,"customer":"c%06d","items":[{"sku":"A-17","n":2},{"sku":"B-4","n":1}],"total":%7d,"note":"%s"}'
)
# Time between two generated batches: a thousand messages per second.
STEP_US = STEP * 1000
PAYLOAD_BYTES = 200
DAY_US = 24 * 3600 * MILLION
PARTS = ("bronze", "import", "scale", "small", "hour", "workers", "live")
# Rows of a warm-up run of the JVM, which is not counted.
WARMING = 300_000


class Clock:
    """A clock that advances with the rows, so that tables by minute and hour have typical work."""

    def __init__(self, steps: int = 0, step_us: int = STEP_US) -> None:
        self.now_us = wall_clock_us() - 24 * 3600 * MILLION + steps * step_us

    def __call__(self) -> int:
        return self.now_us


def fill(folder: Path, rows: int, steps_before: int = 0, step_us: int = STEP_US) -> None:
    """Write a journal of so many rows that feed every table, or add them to one that has so many steps."""
    owner, clock = Owner(), Clock(steps_before, step_us)
    journal = open_journal(config.JournalSettings(folder=str(folder), durability="os", seal=False), owner.post, clock)
    for number in range(steps_before, steps_before + rows // STEP):
        journal.append(_batch(number, journal.next_sequence))
        journal.flush()
        owner.take_all()
        clock.now_us += step_us
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
        # Every fourth publish has its predecessor as parent.
        parent_id=[ids[n - 1] if n % 4 == 3 else None for n in range(half)] + [None] * (2 * quarter),
        correlation_id=[ids[n - n % 4] if n % 4 else None for n in range(half)] + [None] * quarter + asked,
        answers=[None] * (half + quarter) + [first + half + n for n in range(quarter)],
        timeout_ms=[None] * half + [5000] * quarter + [None] * quarter,
        payload=[(PAYLOAD % (base + n, n, n, b"x" * 80))[:200] for n in range(STEP)],
    )


class Steps:
    """Collects the seconds spent on each table, over all batches."""

    def __init__(self) -> None:
        self._batches: dict[int, dict[str, float]] = {}

    def __call__(self, progress: PipelineProgress) -> None:
        if batch := progress.last_batch:
            self._batches[batch.number] = dict(batch.steps)

    def sums(self) -> dict[str, float]:
        names = dict.fromkeys(name for steps in self._batches.values() for name in steps)
        return {name: sum(steps.get(name, 0.0) for steps in self._batches.values()) for name in names}


def run(spark: SparkSession, folder: Path, tables: tuple[Derived, ...], batch: int) -> tuple[float, dict[str, float]]:
    """Seconds of a whole run on empty tables, and those of each table."""
    steps = Steps()
    order = Order(config.PipelineSettings(max_records=batch), once=True, tables=tables)
    shutil.rmtree(folder / "pipeline" / "tables", ignore_errors=True)
    began = time.monotonic()
    Job(Lake(spark, Folders(folder)), order, steps).run()
    return time.monotonic() - began, steps.sums()


def copy_seconds(spark: SparkSession, folder: Path, target: Path) -> float:
    """Seconds for Spark to copy the same rows with its own reader and writer."""
    shutil.rmtree(target, ignore_errors=True)
    began = time.monotonic()
    spark.read.parquet(Folders(folder).table(MESSAGES)).drop("day").write.option("compression", "snappy").parquet(
        str(target)
    )
    return time.monotonic() - began


def measure_bronze(spark: SparkSession, folder: Path, rows: int, rounds: int, batch: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {BRONZE: [], COPY: []}
    for number in range(rounds + 1):
        seconds = {BRONZE: run(spark, folder, (), batch)[0], COPY: copy_seconds(spark, folder, folder / "copy")}
        if number:  # the first round warms the JVM up
            for way, each in seconds.items():
                found[way].append(rows / each)
    return found


def measure_tables(spark: SparkSession, folder: Path, rows: int, batch: int, memory: str) -> Run:
    facts = facts_of(folder)
    watch = Watch(spark)
    seconds, steps = run(spark, folder, registry.DERIVED, batch)
    cores = spark.sparkContext.defaultParallelism
    return Run(
        facts, rows, batch, memory, seconds, jvm_peak_mib(), steps,
        own_peak_mib(), watch.least_tasks(), cores, watch.task_s(), _stored_bytes(folder),
    )  # fmt: skip


def measure_scale(spark: SparkSession, sizes: list[int], batch: int, memory: str, console: Console) -> Iterator[Run]:
    with journal(min(WARMING, *sizes), console) as folder:
        run(spark, folder, registry.DERIVED, batch)
    for rows in sizes:
        with journal(rows, console) as folder:
            forget_peaks()
            found = measure_tables(spark, folder, rows, batch, memory)
        console.print(f"{rows:,} rows: {found.seconds:.1f} s, {found.each:.1f} s per million")
        yield found


def measure_small(spark: SparkSession, sizes: list[int], batches: int, console: Console) -> Iterator[Small]:
    """Batches of STEP rows on top of so many, one after the other on tables that stay open."""
    for rows in sizes:
        with journal(rows, console) as folder:
            lake = Lake(spark, Folders(folder))
            order = Order(config.PipelineSettings(), once=True)
            if rows:
                Job(lake, order).run()
            cpu, began, before = list[float](), time.monotonic(), _stored_bytes(folder)
            for number in range(batches):
                fill(folder, STEP, rows // STEP + number)
                used = cpu_seconds()
                Job(lake, order).run()
                cpu.append(cpu_seconds() - used)
            written = (_stored_bytes(folder) - before) / (batches * STEP * PAYLOAD_BYTES)
            seconds = (time.monotonic() - began) / batches
            found = Small(facts_of(folder), rows, batches, statistics.median(cpu[batches // 2 :]), written, seconds)
        console.print(f"on {rows:,} rows: {found.cpu_s:.1f} CPU s, {found.written:.1f} bytes per new byte")
        yield found


def measure_workers(rows: int, batch: int, memory: str, console: Console) -> Workers:
    with journal(rows, console) as folder:
        facts, found = facts_of(folder), {}
        for workers in (1, 2):
            found[workers] = pipeline_workers.measure(folder, workers, batch, memory)
            console.print(f"{workers} workers: {found[workers][0]:.1f} s, tasks {found[workers][1]:.1f} s")
    return Workers(facts, rows, *found[1], *found[2])


def measure_live(sizes: list[int], seconds: int, memory: str, console: Console) -> Iterator[Live]:
    """A session of our own computes the tables of old rows; the traffic is handled by `raceway up` alone."""
    for rows in sizes:
        with journal(max(rows, STEP), console) as folder:
            spark = session(Folders(folder), master="local[*]", memory=memory)
            Job(Lake(spark, Folders(folder)), Order(config.PipelineSettings(), once=True)).run()
            spark.stop()
            found = pipeline_live.measure(folder, seconds)
            live = Live(facts_of(folder), rows, found.p50, found.p95, found.busy, found.idle)
        console.print(f"on {rows:,} rows: visible after {live.p95_s:.1f} s (p95), {live.busy:.2f} of a core")
        yield live


def measure_hour(spark: SparkSession, rows: int, console: Console) -> Hour:
    """A day in batches of a quarter of an hour."""
    with journal(STEP, console) as folder:
        fill(folder, rows - STEP, 1, DAY_US // (rows // STEP))
        order = Order(config.PipelineSettings(max_records=rows // 96), once=True, tables=registry.DERIVED, ahead_rows=0)
        Job(Lake(spark, Folders(folder)), order).run()
        return Hour(facts_of(folder), rows, *pipeline_hour.measure(folder, [topic.decode() for topic in TOPICS]))


def _stored_bytes(folder: Path) -> int:
    """Bytes of all files of the tables, also of those that no version has any more."""
    return sum(path.stat().st_size for path in (folder / "pipeline" / "tables").rglob("*") if path.is_file())


def jvm_peak_mib() -> float:
    """Peak memory of the JVM of this process."""
    return max(peak_mib(child) for child in psutil.Process().children(recursive=True) if child.name() == "java")


def own_peak_mib() -> float:
    """Peak memory of this process, which is Spark's driver in Python."""
    return peak_mib(psutil.Process())


def peak_mib(process: psutil.Process) -> float:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def forget_peaks() -> None:
    """Let peaks of memory begin anew, from what is in use now."""
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.Error, OSError):
            Path(f"/proc/{process.pid}/clear_refs").write_text("5")


def facts_of(folder: Path) -> dict[str, str]:
    command = shlex.join(["python", "-m", "bench.pipeline", *sys.argv[1:]])
    return {"command": f"`{command}`"} | {name: str(value) for name, value in describe(folder).items()}


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
    what: Annotated[list[str] | None, typer.Argument(help=f"{', '.join(PARTS)}. Default: all.")] = None,
    rows: Annotated[int, typer.Option(help="Rows of bronze, workers and hour, frames of import.")] = 2 * MILLION,
    rounds: Annotated[int, typer.Option(help="Rounds of bronze and import.")] = 3,
    millions: Annotated[
        str, typer.Option(help="Sizes of the runs of scale in million rows, separated by commas.")
    ] = "2,10",
    old: Annotated[
        str, typer.Option(help="Old rows of the runs of small and live in million rows, separated by commas.")
    ] = "0,0.2,2",
    batches: Annotated[int, typer.Option(help="Batches of small.")] = 50,
    seconds: Annotated[int, typer.Option(help="Seconds of traffic of live.")] = 120,
    batch: Annotated[int, typer.Option(help="Rows of one batch.")] = config.PipelineSettings().max_records,
    memory: Annotated[str, typer.Option(help="Memory of Spark's driver.")] = "4g",
    quick: Annotated[bool, typer.Option("--quick", help="A hundredth of the rows, to check that it works.")] = False,
    save: Annotated[bool, typer.Option(help="Save the result under bench/results/.")] = True,
) -> None:
    """Measure, print together with stored results of earlier runs, and save."""
    sizes = [int(float(each) * MILLION) for each in millions.split(",")]
    if quick:
        rows, sizes, rounds, batch, save = 20_000, [10_000, 20_000], 1, 10_000, False
        batches, old, seconds = 2, "0,0.01", 10
    chosen, console = what or list(PARTS), Console(width=150)
    before = [int(float(each) * MILLION) for each in old.split(",")]
    results = pipeline_results.known(RESULTS) if save else Results()
    with journal(rows if "bronze" in chosen else STEP, console) as folder:
        spark = session(Folders(folder), master="local[*]", memory=memory, extra=REMEMBERED)
        if "bronze" in chosen:
            results.bronze = Rates(facts_of(folder), rows, measure_bronze(spark, folder, rows, rounds, batch))
        if "import" in chosen:
            rates = pipeline_import.measure(spark, folder / "import", rows, rounds)
            results.imports = Rates(facts_of(folder), rows, rates)
        if "scale" in chosen:
            for found in measure_scale(spark, sizes, batch, memory, console):
                results.add(found)
                if save:  # saved after each part: runs are long
                    results.save(RESULTS)
        if "small" in chosen:
            results.small = list(measure_small(spark, before, batches, console))
        if "hour" in chosen:
            results.hour = measure_hour(spark, rows, console)
        spark.stop()
    # These have sessions of their own.
    if "workers" in chosen:
        results.workers = measure_workers(rows, batch, memory, console)
    if "live" in chosen:
        results.live = list(measure_live(before, seconds, memory, console))
    results.print(console)
    if save:
        console.print(f"Saved: {results.save(RESULTS).name}")


if __name__ == "__main__":
    typer.run(main)
