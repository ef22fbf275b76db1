from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import ParquetLake, range_name
from raceway.pipeline.notes import Note
from raceway.pipeline.query import open_tables
from raceway.pipeline.tables import MESSAGES
from raceway.pipeline.verify import TableCheck, verify
from tests.pipeline.rows import bronze, message
from tests.rigs.journal_folder import write_folder
from tests.rigs.journal_rows import rows


@pytest.fixture
def lake(tmp_path: Path) -> ParquetLake:
    """A journal of positions 0 to 99, of which 7 is a control row; the table has 0 to 89 in three parts."""
    stored = rows(0, 100)
    stored[7]["kind"] = "control"
    write_folder(tmp_path / "data", [stored[:50], stored[50:]])
    lake = ParquetLake(None, Folders(tmp_path / "data"))
    for first in (0, 30, 60):
        put(lake, first, [n for n in range(first, first + 30) if n != 7])
    return lake


def put(lake: ParquetLake, first: int, positions: list[int], last: int | None = None) -> None:
    part = range_name(first, positions[-1] if last is None else last)
    file = lake.stage("test") / "rows.parquet"
    pq.write_table(bronze(message(n) for n in positions), file)
    lake.notes.put(MESSAGES, part, Note(rows=len(positions), source="journal", last_us=1))
    lake.append(MESSAGES, part, [file])


def verdict(lake: ParquetLake) -> TableCheck:
    return verify(lake, open_tables(lake))


def test_every_position_once_is_good(lake: ParquetLake) -> None:
    found = verdict(lake)
    assert found.is_good
    assert (found.journal.rows, found.journal.control, found.journal.in_bronze, found.journal.behind) == (89, 1, 89, 10)
    assert [(table.table, table.rows) for table in found.tables][:2] == [
        ("bronze.messages", 89),
        ("bronze.rejected", 0),
    ]


def test_a_missing_position_is_named(lake: ParquetLake) -> None:
    file = lake.files(MESSAGES, range_name(30, 59))[0]
    kept = pq.read_table(file)
    pq.write_table(kept.filter(pa.compute.field("sequence") != 41), file)
    found = verdict(lake)
    assert not found.is_good
    assert (found.journal.missing, found.journal.first_missing) == (1, [41])


def test_a_loss_that_was_accepted_is_explained(lake: ParquetLake) -> None:
    shutil.rmtree(lake.path(MESSAGES) / f"range={range_name(30, 59)}")
    lake.notes.drop(MESSAGES, range_name(30, 59))
    assert not verdict(lake).is_good
    lake.notes.put(MESSAGES, range_name(60, 89), Note(rows=30, source="journal", gaps=[(30, 59)]))
    found = verdict(lake)
    assert found.is_good
    assert found.journal.accepted_loss == 30


def test_a_doubled_position_and_a_control_row_are_named(lake: ParquetLake) -> None:
    put(lake, 5, [7, 8, 9], last=9)
    found = verdict(lake)
    assert (found.journal.doubled, found.journal.first_doubled) == (2, [8, 9])
    assert (found.journal.foreign, found.journal.first_foreign) == (1, [7])
    assert found.tables[0].doubled_keys == 2
    assert not found.is_good


def test_rows_older_than_the_journal_are_only_counted(lake: ParquetLake) -> None:
    min(lake.folders.data.glob("*.blocks")).unlink()
    found = verdict(lake)
    assert found.is_good
    assert (found.journal.compared_from, found.journal.older, found.journal.rows) == (50, 49, 40)
