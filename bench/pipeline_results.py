"""Results of the pipeline benchmarks: stored in one file between runs, printed and rendered as one page.

A run replaces only the measures that it made, because they have different needs: ratios need an idle machine for
minutes, ten million rows take longer.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.pipeline_calculated import CORES_OF_A_NODE, NODES, ROWS, Measured, lines
from bench.report import markdown_table

MILLION = 1_000_000
WANTED_COPY, WANTED_RATE = 1.5, 250_000
WANTED_UDF, WANTED_POLARS = 4.0, 0.4
WANTED_ROWS, WANTED_GIB = 5 * MILLION, 4
# Allowed increase of the time per row from the shortest to the longest run that still counts as linear.
LINEAR = 1.15
WANTED_CPU_S, WANTED_BYTES, WANTED_GROWTH = 8, 20, 1.5
# Growth of peak memory from the shortest to the longest run, time and task time of two workers relative to one.
FLAT, TWO_WORKERS, TASKS_OF_TWO = 1.2, 0.75, 1.2
WANTED_P95_S, WANTED_BUSY, WANTED_IDLE = 8.0, 0.4, 0.05
WANTED_FILES = 1.5
# Names of methods; Raceway comes first in each measure.
BRONZE, COPY = "journal → bronze.messages", "Spark: Parquet → Parquet"
IMPORT, POLARS = "raceway pipeline import", "Polars, one process"
UDF, UDF_OF_CUT = "Python UDF, row by row", "Python UDF, frames cut beforehand"


class Rates(msgspec.Struct):
    """Alternating rounds of several methods: name to rows per second of each round."""

    facts: dict[str, str]
    rows: int
    rates: dict[str, list[float]]

    def median(self, way: str) -> float:
        return statistics.median(self.rates[way])

    def ratio(self, way: str, other: str) -> float:
        """Ratios per round: a slow machine affects both methods."""
        return statistics.median(a / b for a, b in zip(self.rates[way], self.rates[other], strict=True))


class Run(msgspec.Struct):
    """All tables from one journal. `steps` are the seconds of each table.

    `peak_mib` is the peak memory of the JVM, `driver_mib` that of the driver in Python; `least_tasks` are the tasks of
    the stage that had fewest, among those that took long, `task_s` the time of all tasks, `stored` bytes of the tables.
    """

    facts: dict[str, str]
    rows: int
    batch: int
    memory: str
    seconds: float
    peak_mib: float
    steps: dict[str, float]
    driver_mib: float = 0.0
    least_tasks: int = 0
    cores: int = 0
    task_s: float = 0.0
    stored: int = 0

    @property
    def each(self) -> float:
        return self.seconds / self.rows * MILLION


class Small(msgspec.Struct):
    """Batches of 1,000 rows on top of `rows`: CPU seconds of one, median, and bytes written per byte of payload."""

    facts: dict[str, str]
    rows: int
    batches: int
    cpu_s: float
    written: float
    seconds: float


class Workers(msgspec.Struct):
    """Seconds of a run on one worker and on two, and of their tasks."""

    facts: dict[str, str]
    rows: int
    one_s: float
    one_task_s: float
    two_s: float
    two_task_s: float


class Live(msgspec.Struct):
    """Seconds from publish to gold on top of `rows`, and parts of a core used under traffic and without."""

    facts: dict[str, str]
    rows: int
    p50_s: float
    p95_s: float
    busy: float
    idle: float


class Hour(msgspec.Struct):
    """Files opened for an hour of a topic, and those that hold it, over all hours and topics of a day."""

    facts: dict[str, str]
    rows: int
    opened: int
    held: int


class Goal(msgspec.Struct):
    what: str
    wanted: str
    found: str
    is_reached: bool

    def row(self) -> list[str]:
        return [self.what, self.wanted, self.found, "reached" if self.is_reached else "missed"]


class Results(msgspec.Struct):
    bronze: Rates | None = None
    imports: Rates | None = None
    tables: list[Run] = []
    small: list[Small] = []
    workers: Workers | None = None
    live: list[Live] = []
    hour: Hour | None = None

    def add(self, run: Run) -> None:
        """Add a run, replacing an earlier one with the same number of rows."""
        others = [each for each in self.tables if each.rows != run.rows]
        self.tables = sorted([*others, run], key=lambda each: each.rows)

    def goals(self) -> Iterator[Goal]:
        if self.bronze is not None:
            ratio, rate, copy = self.bronze.ratio(BRONZE, COPY), self.bronze.median(BRONZE), self.bronze.median(COPY)
            yield Goal(f"{BRONZE} / {COPY}", f"≥ {WANTED_COPY}", f"{ratio:.2f}", ratio >= WANTED_COPY)
            if copy >= 2 * WANTED_RATE:
                yield Goal(f"{BRONZE}, rows/s", f"≥ {WANTED_RATE:,}", f"{rate:,.0f}", rate >= WANTED_RATE)
        if self.imports is not None:
            for peer, wanted in ((UDF, WANTED_UDF), (UDF_OF_CUT, WANTED_UDF), (POLARS, WANTED_POLARS)):
                ratio = self.imports.ratio(IMPORT, peer)
                yield Goal(f"{IMPORT} / {peer}", f"≥ {wanted}", f"{ratio:.2f}", ratio >= wanted)
        yield from self._goals_of_tables()
        for found in self.small:
            what = f"1,000 new rows on {found.rows:,}"
            yield Goal(f"{what}, CPU s", f"≤ {WANTED_CPU_S}", f"{found.cpu_s:.1f}", found.cpu_s <= WANTED_CPU_S)
            yield Goal(
                f"{what}, bytes written per byte",
                f"≤ {WANTED_BYTES}",
                f"{found.written:.1f}",
                found.written <= WANTED_BYTES,
            )
        if len(self.small) > 1:
            ratio = self.small[-1].cpu_s / self.small[0].cpu_s
            what = f"CPU of a batch on {self.small[-1].rows:,} / on {self.small[0].rows:,} rows"
            yield _at_most(what, WANTED_GROWTH, ratio)
        yield from self._goals_at_work()

    def _goals_at_work(self) -> Iterator[Goal]:
        if self.workers is not None:
            found = self.workers
            yield _at_most("two workers / one, seconds", TWO_WORKERS, found.two_s / found.one_s)
            yield _at_most("two workers / one, task time", TASKS_OF_TWO, found.two_task_s / found.one_task_s)
        for live in self.live:
            what = f"200 messages a second on {live.rows:,}"
            yield _at_most(f"{what}: seconds until in gold, p95", WANTED_P95_S, live.p95_s)
            yield _at_most(f"{what}: cores", WANTED_BUSY, live.busy)
            yield _at_most(f"idle on {live.rows:,}: cores", WANTED_IDLE, live.idle)
        if self.hour is not None:
            yield _at_most(
                "an hour of a topic: files opened / holding it", WANTED_FILES, self.hour.opened / self.hour.held
            )

    def _goals_of_tables(self) -> Iterator[Goal]:
        fit = [run for run in self.tables if run.rows >= WANTED_ROWS and run.memory == f"{WANTED_GIB}g"]
        if fit:
            found = f"{fit[0].rows:,} in {fit[0].seconds:,.0f} s"
            yield Goal(f"nine tables, driver at {WANTED_GIB} GB", f"{WANTED_ROWS:,} messages", found, True)
        if len(self.tables) > 1:
            first, last = self.tables[0], self.tables[-1]
            ratio = last.each / first.each
            what = f"a row among {last.rows:,} / one among {first.rows:,}, seconds"
            yield _at_most(what, LINEAR, ratio)
            yield _at_most("peak memory of the JVM, longest / shortest run", FLAT, last.peak_mib / first.peak_mib)
            if first.driver_mib:
                yield _at_most("that of the driver in Python", FLAT, last.driver_mib / first.driver_mib)
        for run in self.tables:
            if run.cores:
                what = f"tasks of the smallest long stage, {run.rows:,} rows"
                yield Goal(what, f"≥ {run.cores}", str(run.least_tasks), run.least_tasks >= run.cores)

    # ---- shown ------------------------------------------------------------------------------------------------------

    def sections(self) -> Iterator[tuple[str, dict[str, str], list[str], list[list[str]]]]:
        """Title, facts, header and rows of each section."""
        for title, found in (("journal → bronze", self.bronze), ("captured MB frames → bronze", self.imports)):
            if found is not None:
                rows = [_row_of(found, way) for way in found.rates]
                yield f"{title}, {found.rows:,} rows", found.facts, ["", "rows/s, median", "range", "ours / it"], rows
        if self.tables:
            names = list(self.tables[-1].steps)
            header = ["rows", "s", "s per million", "rows of a batch", "driver", "JVM, MiB", "Python, MiB", *names]
            yield "journal → all nine tables", self.tables[-1].facts, header, [_row_of_run(run) for run in self.tables]
        if self.small:
            header = ["old rows", "batches", "CPU s, median", "bytes written per byte of payload", "s"]
            rows = [
                [f"{each.rows:,}", str(each.batches), f"{each.cpu_s:.1f}", f"{each.written:.1f}", f"{each.seconds:.1f}"]
                for each in self.small
            ]
            yield "batches of 1,000 rows", self.small[-1].facts, header, rows
        if self.tables and (last := self.tables[-1]).task_s:
            batches = -(-last.rows // last.batch)
            run = Measured(last.rows, last.seconds, last.task_s, last.cores, batches, last.stored)
            title = f"{ROWS:,} rows on {NODES} nodes of {CORES_OF_A_NODE} cores, calculated from {last.rows:,}"
            yield title, {}, ["", ""], lines(run)
        yield from self._sections_at_work()
        goals = [goal.row() for goal in self.goals()]
        yield "goals, as ratios within a run", {}, ["goal", "wanted", "found", ""], goals

    def _sections_at_work(self) -> Iterator[tuple[str, dict[str, str], list[str], list[list[str]]]]:
        if (found := self.workers) is not None:
            rows = [
                ["1", f"{found.one_s:.1f}", f"{found.one_task_s:.1f}"],
                ["2", f"{found.two_s:.1f}", f"{found.two_task_s:.1f}"],
            ]
            yield f"a cluster, {found.rows:,} rows → all tables", found.facts, ["workers", "s", "task time, s"], rows
        if self.live:
            header = ["old rows", "in gold after s, median", "p95", "cores", "cores when idle"]
            rows = [
                [f"{live.rows:,}", *(f"{value:.2f}" for value in (live.p50_s, live.p95_s, live.busy, live.idle))]
                for live in self.live
            ]
            yield "`raceway up` at 200 messages a second", self.live[-1].facts, header, rows
        if (hour := self.hour) is not None:
            rows = [[f"{hour.rows:,}", str(hour.opened), str(hour.held)]]
            yield "hours of one topic, of a day", hour.facts, ["rows", "files opened", "files that hold them"], rows

    def print(self, console: Console) -> None:
        for title, facts, header, rows in self.sections():
            for name, value in facts.items():
                console.print(f"[dim]{name}:[/] {value}", highlight=False)
            table = Table(*header, title=title, title_justify="left")
            for row in rows:
                table.add_row(*row)
            console.print(table)

    def save(self, folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        _file(folder).write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
        lines = ["# The pipeline, measured", "", "Made by `python -m bench.pipeline`; each part says when and how."]
        for title, facts, header, rows in self.sections():
            lines += ["", f"## {title[0].upper()}{title[1:]}", ""]
            lines += [*(f"- {name}: {value}" for name, value in facts.items()), *([""] if facts else [])]
            lines += markdown_table(header, rows)
        page = folder / "pipeline.md"
        page.write_text("\n".join(lines) + "\n")
        return page


def _at_most(what: str, wanted: float, found: float) -> Goal:
    return Goal(what, f"≤ {wanted}", f"{found:.2f}", found <= wanted)


def known(folder: Path) -> Results:
    """Stored results of earlier runs."""
    file = _file(folder)
    return msgspec.json.decode(file.read_bytes(), type=Results) if file.exists() else Results()


def _file(folder: Path) -> Path:
    return folder / "pipeline.json"


def _row_of(found: Rates, way: str) -> list[str]:
    ours, rates = next(iter(found.rates)), found.rates[way]
    ratio = "" if way == ours else f"{found.ratio(ours, way):.2f}"
    return [way, f"{found.median(way):,.0f}", f"{min(rates):,.0f} – {max(rates):,.0f}", ratio]


def _row_of_run(run: Run) -> list[str]:
    facts = [f"{run.rows:,}", f"{run.seconds:,.1f}", f"{run.each:.1f}", f"{run.batch:,}", run.memory]
    return [
        *facts,
        f"{run.peak_mib:,.0f}",
        f"{run.driver_mib:,.0f}",
        *(f"{seconds:,.1f}" for seconds in run.steps.values()),
    ]
