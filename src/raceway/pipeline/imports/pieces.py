"""Captures in pieces: cut in the driver, parsed by Spark's workers, each into files of its own.

The driver finds where messages begin and end, and nothing more; a worker reads its piece of the file, parses and
validates it, and writes the rows of both bronze tables as Parquet itself. Spark gets one row about each piece: sending
millions of rows through the JVM would take several times as long. Files of failed attempts are not reported and are
removed with the rest of staging.
"""

from __future__ import annotations

import math
import mmap
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from raceway import config
from raceway.errors import PipelineError
from raceway.pipeline.written import ROW_GROUP_ROWS, open_writer
from raceway.wires import wire_of
from raceway.wires.captures import parsed as parsing
from raceway.wires.captures.capture import Capture
from raceway.wires.captures.columns import BRONZE, ddl, schema_of_tuple
from raceway.wires.captures.form import Form
from raceway.wires.captures.parsed import KEPT_BYTES, Borders, CaptureFault, Origin, Parsed
from raceway.wires.captures.slices import Bytes
from raceway.wires.wire import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
# Between two tasks a core is idle for about as long as it takes to parse a piece, so each task gets several. Two tasks
# per core, at least, so that none waits long for the last one, and little is repeated when a worker is lost.
_TASKS_OF_A_CORE, _PIECES_OF_A_TASK = 2, 8


class Piece(NamedTuple):
    """Bytes `start` to `stop` of a file; `sequence` is the number of the first message there.

    `fault`: no message begins here, and none can be found after it.
    """

    start: int
    stop: int
    sequence: int
    fault: CaptureFault | None = None


class PieceReport(NamedTuple):
    """Report of a worker about a piece; the names of files are empty if there are no rows.

    `related`: rows there may be related to others (see `chains`). `broken`: after it no message can be found.
    """

    piece: int
    messages_file: str
    rejected_file: str
    first_us: int
    last_us: int
    related: bool
    broken: bool


_TOLD = schema_of_tuple(PieceReport)


def form_of(wire: str, settings: config.Config, path: Path) -> Form:
    """Return how this file is read; its first byte may decide."""
    with path.open("rb") as file:
        first = file.read(1)
    form: Form = load(wire_of(wire).capture)(settings, first)
    return form


def cut(path: Path, form: Form) -> list[Piece]:
    """Return the pieces of a file, in order."""
    # An empty file cannot be mapped into memory.
    if not path.stat().st_size:
        return []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return list(_pieces(data, form))


def _pieces(data: mmap.mmap, form: Form) -> Iterator[Piece]:
    """Yield the pieces; one with a fault is the last."""
    at, sequence = 0, 0
    while at < len(data):
        borders = form.split(data, at)
        count, end, fault = len(borders.starts), borders.end, borders.fault
        if count:
            yield Piece(at, end, sequence)
        if fault is not None:
            yield Piece(end, len(data), sequence + count, fault)
            return
        at, sequence = end, sequence + count


def parse_pieces(
    spark: SparkSession, capture: Capture, pieces: list[Piece], settings: config.Config, folder: Path
) -> list[PieceReport]:
    """Parse the pieces in Spark's workers; return their reports in order, up to the first broken one.

    Raises PipelineError if the file was changed meanwhile: it would not be what its SHA-256 says.
    """
    work = partial(_parse_numbered, capture, pieces, settings, folder)
    told = [PieceReport(*row) for row in in_workers(spark, len(pieces), work, _TOLD)]
    facts = capture.file.stat()
    if (facts.st_size, facts.st_mtime_ns // 1000) != (capture.size, capture.time_us):
        raise PipelineError(f"{capture.path} was changed during the import; nothing of it was imported")
    broken = next((row.piece for row in told if row.broken), len(told))
    return told[: broken + 1]


def in_workers(
    spark: SparkSession, count: int, work: Callable[[int], dict[str, Any]], schema: pa.Schema
) -> list[tuple[Any, ...]]:
    """Do `work` for the numbers from 0 on in Spark's workers; return its results, in order."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pylist([work(number)], schema=schema)

    cores = spark.sparkContext.defaultParallelism
    tasks = max(1, min(count, _TASKS_OF_A_CORE * cores), math.ceil(count / _PIECES_OF_A_TASK))
    return sorted(spark.range(0, count, 1, numPartitions=tasks).mapInArrow(run, ddl(schema)).collect())


def _parse_numbered(
    capture: Capture, pieces: list[Piece], settings: config.Config, folder: Path, number: int
) -> dict[str, Any]:
    form = form_of(capture.wire, settings, capture.file)
    return parse_piece(capture, form, number, pieces[number], folder)._asdict()


def parse_piece(capture: Capture, form: Form, number: int, piece: Piece, folder: Path) -> PieceReport:
    """Parse one piece and write its rows to files in this folder."""
    messages, rejected, is_broken = piece_rows(capture, form, piece)
    times = pc.min_max(messages.column("time_us")).as_py() if len(messages) else {"min": 0, "max": 0}
    files = _written(messages, folder), _written(rejected, folder)
    return PieceReport(number, *files, times["min"], times["max"], _are_related(messages), is_broken)


def _are_related(messages: pa.Table) -> bool:
    """Return whether there is an answer, a request with a reply queue, or a message with a parent."""
    names_other = messages.column("parent_id").null_count < len(messages)
    names_queue = messages.column("reply_to").null_count < len(messages)
    return names_other or names_queue or bool(pc.any(pc.equal(messages.column("kind"), "response")).as_py())


def piece_rows(capture: Capture, form: Form, piece: Piece) -> tuple[pa.Table, pa.Table, bool]:
    """Return the rows of both tables, and whether no message can be found after them."""
    origin = Origin(capture.sha256, capture.wire, capture.time_us)
    if piece.fault is not None:
        kept = _read(capture, piece.start, min(piece.stop, piece.start + KEPT_BYTES))
        rest = parsing.rejected_rest(origin, piece.sequence, kept, piece.stop - piece.start, piece.fault)
        return BRONZE.empty_table(), rest, True
    content = _read(capture, piece.start, piece.stop)
    # Borders are found again rather than sent along: so a piece is a few numbers, however many messages it has.
    borders, data = form.split(content, 0), Bytes(content)
    parsed = form.parse(data, borders)
    messages = parsing.message_rows(origin, piece.sequence, parsed, form.timeout_ms)
    rejected = parsing.rejected_rows(origin, piece.sequence, data, borders, parsed.refused)
    if parsed.broken is None:
        return messages, rejected, False
    return messages, _with_rest(capture, piece, borders, parsed, rejected), True


def _with_rest(capture: Capture, piece: Piece, borders: Borders, parsed: Parsed, rejected: pa.Table) -> pa.Table:
    """Replace the last refusal by one for the whole rest of the file."""
    assert parsed.broken is not None
    origin, refused = Origin(capture.sha256, capture.wire, capture.time_us), parsed.refused
    start = piece.start + int(borders.starts[parsed.broken])
    fault = CaptureFault(refused.codes[-1].as_py(), refused.reasons[-1].as_py())
    kept = _read(capture, start, min(capture.size, start + KEPT_BYTES))
    rest = parsing.rejected_rest(origin, piece.sequence + parsed.broken, kept, capture.size - start, fault)
    return pa.concat_tables([rejected[:-1], rest])


def _read(capture: Capture, start: int, stop: int) -> bytes:
    """Return bytes of the capture."""
    with capture.file.open("rb") as file:
        file.seek(start)
        return file.read(stop - start)


def _written(rows: pa.Table, folder: Path) -> str:
    """Write rows to a new file; return its name, empty if there are no rows."""
    if not len(rows):
        return ""
    # A random name: two attempts of the same task must not write to one file.
    path = folder / f"{uuid.uuid4().hex}.parquet"
    with open_writer(path, rows.schema) as writer:
        writer.write_table(rows, ROW_GROUP_ROWS)
    return str(path)
