"""Terminal output at the end of a demo."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raceway.cli import output
from raceway.cli.trace import maybe_in_files, tree_of
from raceway.demo.tally import ASKING, NOBODY, WIRES, Tally
from raceway.model.text import printable, shortened
from raceway.pipeline.folders import Folders

if TYPE_CHECKING:
    from raceway.demo.report import Report

# Width of a heading and of one cell, so that a table fits a terminal.
WIDTH, CELL = 100, 60
QUESTION = "SELECT root_topic, wires, total_us FROM gold.traces ORDER BY total_us DESC"
UNITS = ("B", "KiB", "MiB")


def print_summary(report: Report, tally: Tally, folder: Path, *, kept: bool) -> None:
    _print_wires(report)
    _print_cells(report)
    _print_questions(report)
    _print_trace(report, folder)
    _print_slowest(report)
    _print_rejected(report, tally)
    _print_tables(report)
    _print_files(report, folder, kept)


def _rule(title: str) -> None:
    """Print a heading with a rule."""
    from rich.rule import Rule
    from rich.text import Text

    screen = output.console()
    screen.print(Rule(Text(title, style="bold cyan"), align="left"), width=min(screen.width, WIDTH))


def _table(rows: Sequence[dict[str, Any]]) -> None:
    """Print rows with the columns of the first one; long texts are truncated."""
    first = rows[0] if rows else {}
    columns = [(">" if isinstance(value, (int, float)) else "<") + name for name, value in first.items()]
    output.print_table("", columns, [[_cell(value) for value in row.values()] for row in rows])


def _cell(value: Any) -> Any:
    return shortened(value, CELL) if isinstance(value, (str, bytes)) else value


# ---- messages -------------------------------------------------------------------------------------------------------


def _print_wires(report: Report) -> None:
    _rule("Messages of each wire, from silver.messages")
    _table([row | {"bytes": _size(row["bytes"])} for row in report.wires])


def _size(count: float) -> str:
    for unit in UNITS[:-1]:
        if count < 1024:
            return f"{count:,.0f} {unit}"
        count /= 1024
    return f"{count:,.1f} {UNITS[-1]}"


def _print_cells(report: Report) -> None:
    _rule("Published on any wire, delivered on every wire: baggage.moved")
    rows = [
        (row["from"], row["published"], *(row["delivered"][wire] for wire in WIRES))
        for row in sorted(report.cells, key=lambda row: WIRES.index(row["from"]))
    ]
    output.print_table("", ["published on", ">messages", *(f">→ {wire}" for wire in WIRES)], rows)


def _print_questions(report: Report) -> None:
    _rule("Asked on any wire, answered by any wire")
    rows = [(asking, *(_answers(report, asking, answering) for answering in (*ASKING, NOBODY))) for asking in ASKING]
    output.print_table("", ["asked on", *(f"by {wire}" for wire in (*ASKING, NOBODY))], rows)


def _answers(report: Report, asking: str, answering: str) -> str:
    """Format a cell such as `120 · 1.4 ms · 23 error`: number of requests, median latency, and other outcomes."""
    found = {
        row["status"]: row for row in report.asked if (row["asking"], row["answering"]) == (asking, answering)
    }  # fmt: skip
    if not found:
        return "–"
    said = []
    if "answered" in found:
        said.append(f"{sum(row['count'] for row in found.values()):,} · {found['answered']['p50_us'] / 1000:.1f} ms")
    said += [f"{row['count']} {status}" for status, row in sorted(found.items()) if status != "answered"]
    return " · ".join(said)


# ---- conversations --------------------------------------------------------------------------------------------------


def _print_trace(report: Report, folder: Path) -> None:
    found = report.trace
    over = f"{found['messages']} messages, {len(found['wires'])} wires, {found['total_us'] / 1000:.1f} ms"
    _rule(f"One check-in, followed by its id: {over}")
    trace = maybe_in_files(folder, found["correlation_id"])
    assert trace is not None  # the table was made from these files
    output.console().print(tree_of(trace))
    path = " → ".join(printable(topic) for topic in found["critical_path"])
    print(f"\nIts critical path: {path}, {found['critical_us'] / 1000:.1f} ms\n")


def _print_slowest(report: Report) -> None:
    _rule("Slowest hops: caller, callee and latency")
    _table(report.slowest)


def _print_rejected(report: Report, tally: Tally) -> None:
    _rule("Refused by the schema of gate.boarding, and kept in bronze.rejected")
    reasons: dict[str, dict[str, int]] = {}
    for row in report.rejected:
        reasons.setdefault(row["reason"], {})[row["wire"]] = row["count"]
    rows = [(reason, sum(wires.values()), ", ".join(sorted(wires))) for reason, wires in sorted(reasons.items())]
    output.print_table("", ["reason", ">messages", "on"], rows)
    _rule("Other errors, with the code of each wire")
    output.print_table(
        "", ["wire", "what", "the client was told"], [(w, what, _cell(told)) for w, what, told in tally.mishaps]
    )


# ---- tables and files -----------------------------------------------------------------------------------------------


def _print_tables(report: Report) -> None:
    for table in report.tables:
        _rule(f"{table.name}: {table.rows:,} rows; {table.title}")
        _table(table.top)


def _print_files(report: Report, folder: Path, kept: bool) -> None:
    places = Folders(folder)
    tables = list(Path(places.tables).glob("*/*/*/*.parquet"))
    journal = [path for path in folder.iterdir() if path.is_file()]
    _rule("Files" if kept else "Files, removed now (--keep keeps them)")
    rows = [
        ("journal", f"{folder}/", f"{len(journal)} files, {_size(sum(path.stat().st_size for path in journal))}"),
        ("tables", f"{places.tables}/", f"{len(tables)} Parquet files, {_size(sum(p.stat().st_size for p in tables))}"),
        ("progress", places.progress, "progress of the pipeline"),
        ("Spark's log", places.log / "spark.log", "log of Spark and its JVM"),
    ]
    output.print_table("", ["", "", ""], rows)
    print(f"All {report.journal_rows:,} messages of the journal are in the tables, each once;", end=" ")
    print("DIFFERENCES, see below" if report.differences else "the clients counted the same.")


def print_next(folder: Path, correlation_id: str, console: str | None) -> None:
    """Print commands to try next on the folder that is kept; `console` is its address while that runs."""
    _rule("What to type next")
    if console is not None:
        print(f"  {console}/   the console: topics, messages, traces, tables; in another terminal:")
    print(f"  raceway trace {correlation_id} --data {folder}")
    print(f"  raceway pipeline query --data {folder} '{QUESTION}'")
    print(f"  raceway rejected list --data {folder}" if console is not None else f"  raceway up --data {folder}")


def print_next_without(seed: int) -> None:
    """Print commands to try next after the folder was removed."""
    _rule("What to type next")
    print(f"  raceway demo --keep --seed {seed}    repeat it, and keep bus, console and data until Ctrl-C")
    print("  raceway up                     a bus of your own with tables and console; then, in another terminal:")
    print("  raceway sub 'baggage.#'        and in a third:")
    print("  raceway pub baggage.moved '{\"bag\": 17}'")
