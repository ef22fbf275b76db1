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

from bench.report import markdown_table

MILLION = 1_000_000
WANTED_COPY, WANTED_RATE = 0.5, 250_000
WANTED_UDF, WANTED_POLARS = 4.0, 0.4
WANTED_ROWS, WANTED_GIB = 5 * MILLION, 4
# Allowed increase of the time per row from the shortest to the longest run that still counts as linear.
LINEAR = 1.15
WANTED_CPU_S, WANTED_BYTES, WANTED_GROWTH = 8, 20, 1.5
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
    """All tables from one journal. `peak_mib` is the peak memory of the JVM, `steps` the seconds of each table."""

    facts: dict[str, str]
    rows: int
    batch: int
    memory: str
    seconds: float
    peak_mib: float
    steps: dict[str, float]

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
            yield Goal(what, f"≤ {WANTED_GROWTH}", f"{ratio:.2f}", ratio <= WANTED_GROWTH)

    def _goals_of_tables(self) -> Iterator[Goal]:
        fit = [run for run in self.tables if run.rows >= WANTED_ROWS and run.memory == f"{WANTED_GIB}g"]
        if fit:
            found = f"{fit[0].rows:,} in {fit[0].seconds:,.0f} s"
            yield Goal(f"nine tables, driver at {WANTED_GIB} GB", f"{WANTED_ROWS:,} messages", found, True)
        if len(self.tables) > 1:
            first, last = self.tables[0], self.tables[-1]
            ratio = last.each / first.each
            what = f"a row among {last.rows:,} / one among {first.rows:,}, seconds"
            yield Goal(what, f"≤ {LINEAR}", f"{ratio:.2f}", ratio <= LINEAR)

    # ---- shown ------------------------------------------------------------------------------------------------------

    def sections(self) -> Iterator[tuple[str, dict[str, str], list[str], list[list[str]]]]:
        """Title, facts, header and rows of each section."""
        for title, found in (("journal → bronze", self.bronze), ("captured MB frames → bronze", self.imports)):
            if found is not None:
                rows = [_row_of(found, way) for way in found.rates]
                yield f"{title}, {found.rows:,} rows", found.facts, ["", "rows/s, median", "range", "ours / it"], rows
        if self.tables:
            names = list(self.tables[-1].steps)
            header = ["rows", "s", "s per million", "rows of a batch", "driver", "JVM, MiB", *names]
            yield "journal → all nine tables", self.tables[-1].facts, header, [_row_of_run(run) for run in self.tables]
        if self.small:
            header = ["old rows", "batches", "CPU s, median", "bytes written per byte of payload", "s"]
            rows = [
                [f"{each.rows:,}", str(each.batches), f"{each.cpu_s:.1f}", f"{each.written:.1f}", f"{each.seconds:.1f}"]
                for each in self.small
            ]
            yield "batches of 1,000 rows", self.small[-1].facts, header, rows
        goals = [goal.row() for goal in self.goals()]
        yield "goals, as ratios within a run", {}, ["goal", "wanted", "found", ""], goals

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
    return [*facts, f"{run.peak_mib:,.0f}", *(f"{seconds:,.1f}" for seconds in run.steps.values())]
