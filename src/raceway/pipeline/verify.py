"""Verification of the tables against the journal.

By position: every row of the journal except control rows is in `bronze.messages` exactly once, and nothing else is.
Rows that retention removed from the journal cannot be compared; they are only checked for duplicates. Then by table:
its key is unique, and it has as many rows as its inputs imply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from raceway.journal.read.reader import Reader
from raceway.pipeline import registry
from raceway.pipeline.delta_lake import DeltaLake
from raceway.pipeline.jobs import lost_rows
from raceway.pipeline.lake import Lake, ParquetLake, key_of, maybe_positions
from raceway.pipeline.query import Tables
from raceway.pipeline.scan import Gap, PositionSpan
from raceway.pipeline.tables import BRONZE_DDL, BRONZE_KEY, MESSAGES, Derived, Inputs
from raceway.wires.captures.columns import BRONZE

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
    """Result for one table; `expected` is None if the number of rows cannot be derived simply."""

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
    reader = Reader(lake.folders.data)
    try:
        journal = compare_positions(lake, reader, advance)
    finally:
        reader.close()
    verdicts = [check_table(lake, tables, name) for name in registry.names()]
    if full:
        for verdict, table in zip(verdicts[len(verdicts) - len(registry.DERIVED) :], registry.DERIVED, strict=True):
            verdict.differing = differing_rows(lake, table)
    return TableCheck(journal=journal, tables=verdicts)


def compare_positions(lake: Lake, reader: Reader, advance: Callable[[int], None]) -> Journaled:
    end, committed = lake.end(), reader.committed()
    found = Journaled(compared_from=reader.first_position(), compared_to=end - 1, behind=max(0, committed + 1 - end))
    found.accepted_loss = lost_rows(lake)
    lost = [gap for part in lake.notes.parts(MESSAGES) for gap in lake.notes.of(MESSAGES, part).gaps]
    parts = lake.parts(MESSAGES)
    found.imported = sum(lake.notes.of(MESSAGES, part).rows for part in parts if not maybe_positions(part))
    first = min((positions[0] for part in parts if (positions := maybe_positions(part))), default=0)
    for start in range(first, end, WINDOW):
        span = PositionSpan(start, min(start + WINDOW, end))
        _compare_window(found, lake, reader, span, lost)
        advance(len(span))
    return found


def _compare_window(found: Journaled, lake: Lake, reader: Reader, span: PositionSpan, lost: Sequence[Gap]) -> None:
    bronze = _bronze_positions(lake, span)
    once, times = np.unique(bronze, return_counts=True)
    _count(found, "doubled", once[times > 1])
    found.older += int(np.sum(once < found.compared_from))
    once = once[once >= found.compared_from]
    expected, control = _journal_positions(reader, PositionSpan(max(span.start, found.compared_from), span.stop))
    found.rows += len(expected)
    found.control += control
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


def _journal_positions(reader: Reader, span: PositionSpan) -> tuple[Positions, int]:
    """Positions of rows other than control rows, and the number of control rows."""
    kept: list[Positions] = [np.empty(0, np.int64)]
    control = 0
    for batch in reader.read(span.start, span.stop, ["sequence", "kind"]) if span else ():
        is_control = pc.fill_null(pc.equal(batch.column("kind"), "control"), False)
        control += pc.sum(is_control).as_py() or 0
        kept.append(batch.filter(pc.invert(is_control)).column("sequence").to_numpy(zero_copy_only=False))
    return np.concatenate(kept), control


def _bronze_positions(lake: Lake, span: PositionSpan) -> Positions:
    found = ((part, maybe_positions(part)) for part in lake.parts(MESSAGES))
    parts = [part for part, at in found if at is not None and at[0] < span.stop and at[1] >= span.start]
    wanted = (pc.field("sequence") >= span.start) & (pc.field("sequence") < span.stop)
    if isinstance(lake, ParquetLake):
        files = [str(file) for part in parts for file in lake.files(MESSAGES, part)]
        stored = ds.dataset(files, schema=pa.schema([BRONZE.field("sequence")]), format="parquet")
    elif isinstance(lake, DeltaLake) and (snapshot := lake.maybe_snapshot(MESSAGES)) is not None:
        stored, wanted = snapshot.dataset(), wanted & pc.field(key_of(MESSAGES)).isin(parts)
    else:
        return np.empty(0, np.int64)
    return np.asarray(stored.to_table(["sequence"], filter=wanted).column("sequence").to_numpy(), np.int64)


def check_table(lake: Lake, tables: Tables, name: str) -> TableVerdict:
    """Count rows, duplicate keys, and the rows that the inputs imply."""
    key = ", ".join(BRONZE_KEY if name in BRONZE_DDL else _derived(name).key)
    rows = tables.number(f"SELECT count(*) FROM {name}")  # noqa: S608 - our own names
    doubled = tables.number(
        f"SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM {name} GROUP BY {key}) AS k WHERE n > 1"  # noqa: S608 - our own names
    )
    verdict = TableVerdict(table=name, rows=rows, doubled_keys=doubled)
    if name in BRONZE_DDL or (expected := _derived(name).expected) is None:
        return verdict
    if is_behind(lake, _derived(name)):
        verdict.explanation = "out of date: run `raceway pipeline run`"
    else:
        verdict.explanation, sql = expected
        verdict.expected = tables.number(f"SELECT {sql}")
    return verdict


def is_behind(lake: Lake, table: Derived) -> bool:
    """Whether a table has unprocessed parts, in its inputs or theirs, as during a run."""
    for name in table.inputs:
        if name not in BRONZE_DDL and is_behind(lake, _derived(name)):
            return True
        if any(table.name not in lake.notes.of(name, part).feeds for part in lake.parts(name)):
            return True
    return False


def _derived(name: str) -> Derived:
    return next(table for table in registry.DERIVED if table.name == name)


def differing_rows(lake: Lake, table: Derived) -> int:
    """Number of rows that only a full recomputation has, and that only the table has."""
    frames = {name: lake.frame(name) for name in table.inputs}
    links = lake.links(table.name) if table.carry is not None else None
    inputs = Inputs(frames, lake.notes.horizons(MESSAGES), links, lake.book.versions)
    names = [field.name for field in lake.spark.createDataFrame([], table.ddl).schema.fields]
    # As JSON: Spark cannot compare maps.
    computed = table.transform(inputs).select(*names).toDF(*names).selectExpr("to_json(struct(*)) AS row")
    stored = lake.frame(table.name).select(*names).selectExpr("to_json(struct(*)) AS row")
    return computed.exceptAll(stored).count() + stored.exceptAll(computed).count()


def journal_total(lake: Lake) -> int:
    """Number of positions that `verify` reads, for the progress bar."""
    found = [positions for part in lake.parts(MESSAGES) if (positions := maybe_positions(part))]
    return max((last + 1 for _, last in found), default=0) - min((first for first, _ in found), default=0)
