"""`raceway journal …`: inspect the files of a journal, whether or not a bus is running.

The journal library is imported by the commands: that takes a third of a second, which `raceway --help` should not.
Topics, ids and payloads are untrusted, and are shown on a terminal: all of them pass through `printable`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from raceway.cli import bus, options, output
from raceway.cli.output import misuse, note, print_json, print_rows, print_table
from raceway.model.text import printable, shortened
from raceway.server.running import maybe_running

if TYPE_CHECKING:
    import pyarrow as pa

    from raceway.journal.integrity.verify import Verdict
    from raceway.journal.query.inspect import Survey
    from raceway.journal.read.reader import Reader

# Default number of rows of a table on the screen; --limit changes it.
TABLE_ROWS = 50
# Lines shown of one payload; --full shows all of it.
PAYLOAD_LINES = 100
HEX_WIDTH = 16

Format = Literal["json", "table", "parquet"]

LOST = 2  # status of `verify` if rows are lost; ExitCode.FAILED if all can be read but something was damaged

journal_app = options.Commands(
    "journal", "Inspect the journal's files: show what they contain, verify them, dump rows."
)


# ---- info -----------------------------------------------------------------------------------------------------------


@journal_app.command()
def info(
    cli: options.OnFolder,
    top: Annotated[int, "--top", "Number of topics to list, those with most rows first.", {"min": 0}] = 20,
) -> None:
    """Show the contents of a data folder: positions, segments, topics, snapshots, and damage that was found."""
    from raceway.journal.query.inspect import survey

    bus.open_journal(cli.folder).close()
    found = survey(cli.folder, top)
    running = maybe_running(cli.folder)
    pid = running.pid if running else None
    if not cli.prints_json(msgspec.to_builtins(found) | {"pid": pid}):
        _print_survey(found, pid)


def _print_survey(found: Survey, pid: int | None) -> None:
    facts = [
        ("folder", found.folder),
        ("bus", f"process {pid} runs on it" if pid else "none runs on it"),
        ("format", str(found.format or "unknown: the file `identity` is missing; the next start creates a new one")),
        ("source", found.source or "unknown"),
        ("positions", f"{found.first_position:,} to {found.committed:,}" if found.committed >= 0 else "none yet"),
        ("rows", f"{found.rows:,}"),
        ("size", output.size(found.bytes)),
        ("topics", f"{found.topic_count:,}"),
    ]
    print_table("", ["", "journal"], facts)
    print_rows("Segments", found.segments, SEGMENT_COLUMNS)
    if found.topics:
        more = f" ({len(found.topics)} of {found.topic_count:,})" if len(found.topics) < found.topic_count else ""
        columns = {"topic": "topic", ">rows": lambda row: row.next - row.first}
        print_rows(f"Topics{more}", found.topics, columns | {">first offset": "first", ">next offset": "next"})
    for snapshot in found.snapshots:
        sections = ", ".join(f"{count:,} {name}" for name, count in snapshot.sections.items())
        text = f"at position {snapshot.sequence:,}: {sections}" if snapshot.sequence >= 0 else "damaged; not needed"
        print(f"state snapshot {snapshot.file}: {printable(text)}")
    _print_damage(found.damage)


def _print_damage(damage: Sequence[Any]) -> None:
    columns = {"what": "kind", "file": "file", "positions": _positions, ">rows": "rows", "reason": "reason"}
    if damage:
        print_rows("Damage", damage, columns)


# ---- verify ---------------------------------------------------------------------------------------------------------


@journal_app.command()
def verify(
    cli: options.OnFolder,
    repair: Annotated[bool, "--repair", "Write repaired bytes back. Only while no bus uses the folder."] = False,
) -> None:
    """Verify every checksum of every file and the position of every row.

    Ends with status 0 if all is well, 1 if damage was found but nothing is lost, 2 if rows are lost. Runs at low
    priority and can run beside a bus.
    """
    from raceway.journal.integrity.verify import folder_size
    from raceway.journal.integrity.verify import verify as verify_folder

    os.nice(19)
    bus.open_journal(cli.folder).close()
    with output.progress("checking", folder_size(cli.folder)) as bar:
        task = bar.task_ids[0]
        verdict = verify_folder(cli.folder, repair=repair, advance=lambda size: bar.advance(task, size))
    facts = {"status": verdict.status, "lost_rows": verdict.lost_rows}
    if not cli.prints_json(msgspec.to_builtins(verdict) | facts):
        _print_verdict(verdict, repair)
    if verdict.status != "good":
        raise typer.Exit(LOST if verdict.status == "lost" else output.ExitCode.FAILED)


def _print_verdict(verdict: Verdict, repair: bool) -> None:
    marks = {"good": "good", "repaired": "mended", "lost": "DAMAGED"}
    columns = {"file": "file", "kind": "kind", ">rows": "rows", ">size": lambda row: output.size(row.bytes)}
    print_rows("Files", verdict.files, columns | {"": lambda row: marks[row.status]})
    _print_damage(verdict.damage)
    for problem in verdict.problems:
        print(f"contradiction: {printable(problem)}")
    for lost in verdict.lost:
        print(f"lost: positions {_positions(lost)}: {printable(lost.reason)}")
    summary = (
        f"{verdict.rows:,} rows in {verdict.topics:,} topics, {output.size(verdict.bytes)}, {verdict.seconds:.1f} s"
    )
    print(f"{summary}: {_judgement(verdict, repair)}")


def _judgement(verdict: Verdict, repair: bool) -> str:
    if verdict.status == "good":
        return "all good"
    if verdict.status == "lost":
        return f"{verdict.lost_rows:,} rows are lost; all others can be read"
    if repair:
        return "nothing is lost; the damage has been repaired"
    return "nothing is lost; stop the bus and run `raceway journal verify --repair` to repair the files"


# ---- dump -----------------------------------------------------------------------------------------------------------


@journal_app.command()
def dump(
    cli: options.OnFolder,
    start: Annotated[
        int | None, "--from", "First position. Default: the oldest one that was not deleted.", {"min": 0}
    ] = None,
    stop: Annotated[int | None, "--to", "First position to leave out. Default: all committed rows.", {"min": 0}] = None,
    topic: Annotated[str | None, "--topic", "Only rows of this topic; + and # are wildcards."] = None,
    limit: Annotated[int | None, "--limit", "Maximum number of rows.", {"min": 1}] = None,
    form: Annotated[Format, "--format", "JSON lines, a table for the screen, or a Parquet file."] = "json",
    target: Annotated[Path | None, "--output, -o FILE", "Write to a new file instead of the screen."] = None,
) -> None:
    """Print rows or write them to a file: all, a range of positions, or those of one topic. Runs at low priority."""
    from raceway.journal.query.inspect import select_rows

    form = "json" if cli.as_json else form
    if form == "parquet" and target is None:
        misuse("--format parquet needs --output FILE")
    if target is not None and target.exists():
        misuse(f"{target} exists already: remove it or choose another name")
    os.nice(19)
    reader = bus.open_journal(cli.folder)
    if form == "table" and limit is None:
        limit = TABLE_ROWS
    first = reader.first_position() if start is None else start
    last = min(reader.committed() + 1, reader.committed() + 1 if stop is None else stop)
    rows = select_rows(reader, first, last, topic, limit)
    if form == "table":
        _print_rows(rows, target, limit or TABLE_ROWS)
    else:
        with output.progress("rows", max(0, last - first)) as bar:
            count = _write_rows(rows, form, target, lambda at: bar.update(bar.task_ids[0], completed=at - first))
        if target is not None:
            note(f"{count:,} rows written to {target}")
    _tell_damage(reader)


def _tell_damage(reader: Reader) -> None:
    for damage in reader.damage:
        rows = f" rows {damage.first} to {damage.last}" if damage.rows and damage.first >= 0 else ""
        note(f"{damage.kind}{rows}: {damage.file}: {damage.reason}")


def _write_rows(
    rows: Iterable[pa.RecordBatch], form: Format, target: Path | None, reached: Callable[[int], None]
) -> int:
    count = 0
    with _parquet(target) if form == "parquet" else _json_lines(target) as write:
        for batch in rows:
            if batch.num_rows:
                write(batch)
                reached(batch.column("sequence")[-1].as_py())
            count += batch.num_rows
    return count


@contextmanager
def _json_lines(target: Path | None) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Yield a function that writes rows as JSON, to a new file or the screen."""
    from raceway.journal.query.inspect import document

    with nullcontext() if target is None else target.open("x", encoding="utf-8") as file:

        def write(batch: pa.RecordBatch) -> None:
            for row in batch.to_pylist():
                if file is None:
                    print_json(document(row))
                else:
                    file.write(json.dumps(document(row), separators=(",", ":")) + "\n")

        yield write


@contextmanager
def _parquet(target: Path | None) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Yield a function that writes rows to a Parquet file."""
    import pyarrow.parquet as pq

    from raceway.journal.format import SCHEMA

    with pq.ParquetWriter(target, SCHEMA, compression="zstd") as writer:
        yield writer.write_batch


def _print_rows(batches: Iterable[pa.RecordBatch], target: Path | None, limit: int) -> None:
    if target is not None:
        misuse("a table goes to the screen: use --format json or --format parquet with --output")
    rows = [row for batch in batches for row in batch.to_pylist()]
    print_rows("", rows, ROW_COLUMNS)
    if len(rows) == limit:
        note(f"the first {limit} rows; --limit shows more, --from continues after position {rows[-1]['sequence']}")


# ---- read -----------------------------------------------------------------------------------------------------------


@journal_app.command()
def read(
    cli: options.OnFolder,
    position: Annotated[int | None, "Position of the row.", {"min": 0}] = None,
    topic: Annotated[str | None, "--topic", "Topic of the row. Without --offset: its newest row."] = None,
    offset: Annotated[int | None, "--offset", "Offset of the row within --topic.", {"min": 0}] = None,
    full: Annotated[bool, "--full", "Show the whole payload."] = False,
) -> None:
    """Show one row with its payload, by position or by topic and offset."""
    from raceway.journal.query.inspect import document, row_at, row_of_topic

    if (position is None) == (topic is None):
        misuse("name a row: a position, or --topic NAME (and --offset NUMBER)")
    if offset is not None and topic is None:
        misuse("--offset counts within a topic: add --topic NAME")
    reader = bus.open_journal(cli.folder)
    row = row_of_topic(reader, topic, offset) if topic is not None else row_at(reader, position or 0)
    if not cli.prints_json(document(row)):
        _print_row(row, full)


def _print_row(row: dict[str, Any], full: bool) -> None:
    from raceway.journal.query.inspect import document

    shown = document(row)
    payload = row["payload"] or b""
    shown = {name: value for name, value in shown.items() if not name.startswith("payload")}
    shown = {"time" if name == "time_us" else name: value for name, value in shown.items()}
    shown["time"] = _time(row["time_us"])
    cells = [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in shown.items()]
    print_table("", ["field", "value"], cells)
    kind, lines = payload_lines(payload)
    print(f"payload: {len(payload):,} bytes, {kind}")
    for line in lines if full else lines[:PAYLOAD_LINES]:
        print(f"  {line}")
    if len(lines) > PAYLOAD_LINES and not full:
        note(f"{len(lines) - PAYLOAD_LINES:,} more lines; --full shows them")


def payload_lines(payload: bytes) -> tuple[str, list[str]]:
    """Describe a payload: its kind, and lines that are safe on a terminal (indented JSON, text, or a hex dump)."""
    if not payload:
        return "empty", []
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return "binary", _hex_lines(payload)
    try:
        formatted = msgspec.json.format(payload, indent=2).decode()
        return "JSON", [printable(line) for line in formatted.split("\n")]
    except (msgspec.DecodeError, RecursionError):
        return "text", [printable(line) for line in text.split("\n")]


def _hex_lines(payload: bytes) -> list[str]:
    lines = []
    for at in range(0, len(payload), HEX_WIDTH):
        piece = payload[at : at + HEX_WIDTH]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        lines.append(f"{at:08x}  {piece.hex(' '):<{3 * HEX_WIDTH - 1}}  {text}")
    return lines


# ---- shared ---------------------------------------------------------------------------------------------------------


def _positions(found: Any) -> str:
    first, last = found.first, found.last
    if first < 0 or last < first:
        return ""
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def _time(time_us: int) -> str:
    return output.moment(time_us, "milliseconds") or "–"


SEGMENT_COLUMNS = {
    "file": "file",
    "kind": lambda row: row.kind + (", blocks kept" if row.has_blocks else ""),
    ">first": "first",
    ">last": "last",
    ">rows": "rows",
    ">size": lambda row: output.size(row.bytes),
    "oldest row": lambda row: _time(row.oldest_us),
    "newest row": lambda row: _time(row.newest_us),
}
ROW_COLUMNS = {
    ">position": "sequence",
    "topic": "topic",
    ">offset": "offset",
    "time": lambda row: _time(row["time_us"]),
    "wire": "wire",
    "kind": "kind",
    "id": lambda row: shortened(row["message_id"] or "", 36),
    "payload": lambda row: shortened(row["payload"] or b"", 80),
}
