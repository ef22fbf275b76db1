"""The way of the journal into `bronze.messages`: workers write ranges of positions to files, the driver commits them.

The table's own end decides what is new: it is in the commit that brought the last rows, so nothing else has to be
remembered, and a batch that was interrupted is simply taken again.
"""

from __future__ import annotations

import json
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from raceway.errors import JournalError, MissingRowsError, TrimmedError
from raceway.journal.archive.reader import AnyReader, open_reader
from raceway.journal.read.rows import is_deleted
from raceway.pipeline.imports.pieces import in_workers
from raceway.pipeline.lake import LANE, Lake
from raceway.pipeline.progress import now_us
from raceway.pipeline.registry import LOSSES
from raceway.pipeline.scan import MissingRange, PositionSpan, Selection, missing, read_span
from raceway.pipeline.storage import Storage
from raceway.pipeline.tables import MESSAGES
from raceway.pipeline.written import Written, write_rows
from raceway.wires.captures.columns import BRONZE, schema_of_tuple

# Rows per task: fewer do not justify a task, more would make a failed attempt expensive.
LEAST_ROWS, MOST_ROWS = 4_096, 500_000
_ACCEPT_LOSS = "`raceway pipeline run --accept-loss` records the loss and continues after it"


class TakenRange(NamedTuple):
    """Report of a worker about its range: the files it wrote and the positions that are lost, both as JSON."""

    number: int
    files: str
    gaps: str


_TAKEN_RANGE = schema_of_tuple(TakenRange)


def take(lake: Lake, span: PositionSpan, tasks: int, *, accept_loss: bool) -> list[Written]:
    """Add a range of the journal, which begins at the table's end, to `bronze.messages`; return its new files.

    Raises JournalError for positions that are lost, unless that is accepted.
    """
    pieces = span.split(max(tasks, -(-len(span) // MOST_ROWS)), LEAST_ROWS)
    work = partial(_take_numbered, lake.folders.journal, lake.storage, pieces, accept_loss)
    told = [TakenRange(*row) for row in in_workers(lake.spark, len(pieces), work, _TAKEN_RANGE)]
    files = [Written(*each) for row in told for each in json.loads(row.files)]
    lost = [(first, last) for row in told for first, last in json.loads(row.gaps)]
    if lost and (lake.progress(LOSSES.name, LANE) or 0) < span.stop:
        _note_losses(lake, lost, span.stop)
    lake.commit(MESSAGES, files, progress={LANE: span.stop})
    return files


def _note_losses(lake: Lake, lost: list[MissingRange], end: int) -> None:
    """Record lost positions, before the commit that goes on behind them."""
    rows = [{"first": first, "last": last, "time_us": now_us()} for first, last in lost]
    lake.commit(LOSSES.name, lake.write_few(LOSSES, rows), progress={LANE: end})


def _take_numbered(
    journal: str, storage: Storage, pieces: list[PositionSpan], accept_loss: bool, number: int
) -> dict[str, object]:
    gaps: list[MissingRange] = []
    reader = open_reader(journal, storage.settings)
    try:
        files = _take(reader, storage, pieces[number], gaps)
        if gaps and not accept_loss:
            raise _explained(missing(reader, gaps))
    except TrimmedError as error:
        if not accept_loss:
            raise _explained(error) from error
        # Files of the first attempt are in no table.
        span = pieces[number]
        rest = PositionSpan(min(error.first, span.stop), span.stop)
        gaps = [(span.start, rest.start - 1)]
        files = _take(reader, storage, rest, gaps)
    finally:
        reader.close()
    return TakenRange(number, json.dumps(files), json.dumps(gaps))._asdict()


def _take(reader: AnyReader, storage: Storage, span: PositionSpan, gaps: list[MissingRange]) -> list[Written]:
    rows = read_span(reader, span, BRONZE.names, Selection(), gaps) if span else ()
    return list(write_rows(storage, MESSAGES, "time_us", BRONZE, map(_not_deleted, rows)))


def _not_deleted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a batch without those whose content was deleted: they are in no table."""
    deleted = is_deleted(batch.column("error"))
    return batch.filter(pc.invert(deleted)) if pc.any(deleted).as_py() else batch


def _explained(error: TrimmedError | MissingRowsError) -> JournalError:
    return JournalError(f"{error}; {_ACCEPT_LOSS}")
