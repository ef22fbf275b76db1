"""Verification of the tables against the journal.

By position: every row of the journal except control rows and deleted ones is in `bronze.messages` exactly once, and
nothing else is. Rows that retention removed from the journal cannot be compared; they are only checked for duplicates.
Then by table: its key is unique, and it has as many rows as the journal implies (see `recounting`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow.compute as pc
from pyspark.sql import functions as F

from raceway.journal.archive.reader import AnyReader
from raceway.journal.read.rows import is_deleted
from raceway.pipeline.keeping import RETAINED, losses, lost_rows
from raceway.pipeline.lake import Lake
from raceway.pipeline.query import Tables
from raceway.pipeline.recounting import Recount
from raceway.pipeline.refreshing import is_behind
from raceway.pipeline.scan import MissingRange, PositionSpan
from raceway.pipeline.tables import MESSAGES, REJECTED_MESSAGES, Derived, Inputs
from raceway.wires.captures.columns import JOURNAL, columns_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Positions = NDArray[np.int64]

# Positions compared at a time: 8 MB from each side.
WINDOW = 1_000_000
# Examples kept of each kind of difference; all are counted.
SHOWN = 20


class Journaled(msgspec.Struct, kw_only=True):
    """Comparison of the journal with `bronze.messages`. Positions below `compared_from` are gone from the journal."""

    compared_from: int = 0
    compared_to: int = -1
    rows: int = 0
    control: int = 0
    deleted: int = 0
    in_bronze: int = 0
    older: int = 0
    imported: int = 0
    missing: int = 0
    foreign: int = 0
    doubled: int = 0
    accepted_loss: int = 0
    behind: int = 0
    first_missing: list[int] = []
    first_foreign: list[int] = []
    first_doubled: list[int] = []


class TableVerdict(msgspec.Struct, kw_only=True):
    """Result for one table; `expected` is None if the number of rows was not compared, and `explanation` says why."""

    table: str
    rows: int
    doubled_keys: int = 0
    expected: int | None = None
    explanation: str = ""
    differing: int | None = None

    @property
    def is_good(self) -> bool:
        return not self.doubled_keys and self.expected in (None, self.rows) and not self.differing


class TableCheck(msgspec.Struct, kw_only=True):
    journal: Journaled
    tables: list[TableVerdict]

    @property
    def is_good(self) -> bool:
        found = self.journal
        return not (found.missing or found.foreign or found.doubled) and all(table.is_good for table in self.tables)


def verify(
    lake: Lake, tables: Tables, *, full: bool = False, advance: Callable[[int], None] = lambda _: None
) -> TableCheck:
    """Verify everything; `full` also recomputes every table from all of bronze and compares row by row.

    Reads a stable part of the journal: rows that a running pipeline has not processed yet are only counted.
    """
    reader = lake.open_journal()
    try:
        journal = compare_positions(lake, reader, advance)
    finally:
        reader.close()
    with Recount(lake, lake.folders.root / "recount", losses(lake)) as recount:
        verdicts = [check_table(lake, tables, name, recount) for name in lake.names()]
    for verdict in verdicts if full else ():
        table = lake.table(verdict.table)
        # Refused messages of captures are computed from nothing that is in the tables.
        if isinstance(table, Derived) and table.name != REJECTED_MESSAGES:
            verdict.differing = differing_rows(lake, table)
    return TableCheck(journal=journal, tables=verdicts)


def compare_positions(lake: Lake, reader: AnyReader, advance: Callable[[int], None]) -> Journaled:
    end, committed = lake.end(), reader.committed()
    found = Journaled(compared_from=reader.first_position(), compared_to=end - 1, behind=max(0, committed + 1 - end))
    found.accepted_loss = lost_rows(lake)
    lost = losses(lake)
    files = lake.files(MESSAGES).to_pylist()
    found.imported = sum(file["num_records"] for file in files if file["min.source"] != JOURNAL)
    for start in range(_first_position(lake), end, WINDOW):
        span = PositionSpan(start, min(start + WINDOW, end))
        _compare_window(found, lake, reader, span, lost)
        advance(len(span))
    return found


def _first_position(lake: Lake) -> int:
    """The least position of the journal in the tables."""
    files = lake.files(MESSAGES).to_pylist()
    return min((file["min.sequence"] for file in files if file["min.source"] == JOURNAL), default=0)


def _compare_window(
    found: Journaled, lake: Lake, reader: AnyReader, span: PositionSpan, lost: Sequence[MissingRange]
) -> None:
    bronze = _bronze_positions(lake, span)
    once, times = np.unique(bronze, return_counts=True)
    _count(found, "doubled", once[times > 1])
    found.older += int(np.sum(once < found.compared_from))
    once = once[once >= found.compared_from]
    compared = PositionSpan(max(span.start, found.compared_from), span.stop)
    expected, control, deleted = _journal_positions(reader, compared)
    found.rows += len(expected)
    found.control += control
    found.deleted += deleted
    found.in_bronze += len(once)
    missing = np.setdiff1d(expected, once, assume_unique=True)
    for low, high in lost:
        missing = missing[(missing < low) | (missing > high)]
    _count(found, "missing", missing)
    _count(found, "foreign", np.setdiff1d(once, expected, assume_unique=True))


def _count(found: Journaled, kind: str, positions: Positions) -> None:
    setattr(found, kind, getattr(found, kind) + len(positions))
    shown: list[int] = getattr(found, f"first_{kind}")
    setattr(found, f"first_{kind}", [*shown, *(int(p) for p in positions[: SHOWN - len(shown)])])


def _journal_positions(reader: AnyReader, span: PositionSpan) -> tuple[Positions, int, int]:
    """Positions of rows that belong into the tables, and the numbers of control rows and of deleted ones."""
    kept: list[Positions] = [np.empty(0, np.int64)]
    control = 0
    deleted = 0
    for batch in reader.read(span.start, span.stop, ["sequence", "kind", "error"]) if span else ():
        is_control = pc.fill_null(pc.equal(batch.column("kind"), "control"), False)
        is_blank = is_deleted(batch.column("error"))
        control += pc.sum(is_control).as_py() or 0
        deleted += pc.sum(is_blank).as_py() or 0
        wanted = batch.filter(pc.invert(pc.or_(is_control, is_blank)))
        kept.append(wanted.column("sequence").to_numpy(zero_copy_only=False))
    return np.concatenate(kept), control, deleted


def _bronze_positions(lake: Lake, span: PositionSpan) -> Positions:
    snapshot = lake.maybe_snapshot(MESSAGES)
    if snapshot is None:
        return np.empty(0, np.int64)
    wanted = (pc.field("sequence") >= span.start) & (pc.field("sequence") < span.stop) & (pc.field("source") == JOURNAL)
    found = snapshot.dataset().to_table(["sequence"], filter=wanted)
    return np.asarray(found.column("sequence").to_numpy(), np.int64)


def check_table(lake: Lake, tables: Tables, name: str, recount: Recount | None = None) -> TableVerdict:
    """Count rows and duplicate keys, and compare with the number of rows that the journal implies."""
    table = lake.table(name)
    rows = tables.number(f"SELECT count(*) FROM {name}")  # noqa: S608 - our own names
    doubled = tables.number(
        f"SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM {name} GROUP BY {', '.join(table.key)}) AS k "  # noqa: S608 - our own names
        "WHERE n > 1"
    )
    verdict = TableVerdict(table=name, rows=rows, doubled_keys=doubled)
    inputs = table.inputs if isinstance(table, Derived) else ()
    if isinstance(table, Derived) and is_behind(lake, table):
        verdict.explanation = "out of date: run `raceway pipeline run`"
    elif any(lake.progress(each, RETAINED) for each in (MESSAGES, name, *inputs)):
        verdict.explanation = "not compared: rows of old days were removed"
    elif recount is not None and (expected := recount.maybe_expected(table)) is not None:
        verdict.expected, verdict.explanation = expected
    return verdict


def differing_rows(lake: Lake, table: Derived) -> int:
    """Number of rows that only a full recomputation has, and that only the table has."""
    frames = {name: lake.frame(name) for name in table.inputs}
    inputs = Inputs(frames, lake.horizons(), lake.book.versions, lake.limits)
    names = [name for name, _ in columns_of(table.ddl)]
    # As JSON: Spark cannot compare maps. Both sides are read once: a row that both have counts nothing.
    computed = table.transform(inputs).select(*names).selectExpr("to_json(struct(*)) AS row", "1 AS side")
    stored = lake.frame(table.name).select(*names).selectExpr("to_json(struct(*)) AS row", "-1 AS side")
    sums = computed.unionAll(stored).groupBy("row").agg(F.abs(F.sum("side")).alias("differing"))
    found = sums.agg(F.sum("differing")).first()
    return int(found[0] or 0) if found else 0


def journal_total(lake: Lake) -> int:
    """Number of positions that `verify` reads, for the progress bar."""
    return max(0, lake.end() - _first_position(lake))
