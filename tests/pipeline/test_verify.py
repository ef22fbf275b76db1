from __future__ import annotations

from pathlib import Path

import pytest

from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import DELETED, LANE, Lake
from raceway.pipeline.query import Tables
from raceway.pipeline.registry import LOSSES
from raceway.pipeline.tables import MESSAGES
from raceway.pipeline.verify import TableCheck, verify
from tests.pipeline.lakes import append
from tests.pipeline.rows import message
from tests.rigs.journal_folder import write_folder
from tests.rigs.journal_rows import rows


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A journal of positions 0 to 99, of which 7 is a control row; the table has 0 to 89 in three batches."""
    stored = rows(0, 100)
    stored[7]["kind"] = "control"
    write_folder(tmp_path / "data", [stored[:50], stored[50:]])
    lake = Lake(None, Folders(tmp_path / "data"))
    for first in (0, 30, 60):
        append(lake, [message(n) for n in range(first, first + 30) if n != 7])
    return lake


def remove_middle(lake: Lake) -> None:
    lake.commit(MESSAGES, (), lake.paths(MESSAGES, sequence=(30, 59)), kind=DELETED)


def verdict(lake: Lake) -> TableCheck:
    return verify(lake, Tables(lake))


def test_every_position_once_is_good(lake: Lake) -> None:
    found = verdict(lake)
    assert found.is_good
    assert (found.journal.rows, found.journal.control, found.journal.in_bronze, found.journal.behind) == (89, 1, 89, 10)
    assert [(table.table, table.rows) for table in found.tables][:2] == [
        ("bronze.messages", 89),
        ("bronze.rejected", 0),
    ]


def test_missing_positions_are_named(lake: Lake) -> None:
    remove_middle(lake)
    append(lake, [message(n) for n in range(30, 60) if n != 41])
    found = verdict(lake)
    assert not found.is_good
    assert (found.journal.missing, found.journal.first_missing) == (1, [41])


def test_a_loss_that_was_accepted_is_explained(lake: Lake) -> None:
    remove_middle(lake)
    assert verdict(lake).journal.missing == 30
    lost = lake.write_few(LOSSES, [{"first": 30, "last": 59, "time_us": 1}])
    lake.commit(LOSSES.name, lost, progress={LANE: 60})
    found = verdict(lake)
    assert found.is_good
    assert found.journal.accepted_loss == 30


def test_a_doubled_position_and_a_control_row_are_named(lake: Lake) -> None:
    append(lake, [message(n) for n in (7, 8, 9)])
    append(lake, [message(89)])
    found = verdict(lake)
    assert (found.journal.doubled, found.journal.first_doubled) == (3, [8, 9, 89])
    assert (found.journal.foreign, found.journal.first_foreign) == (1, [7])
    assert found.tables[0].doubled_keys == 3
    assert not found.is_good


def test_rows_older_than_the_journal_are_only_counted(lake: Lake) -> None:
    min(lake.folders.data.glob("*.blocks")).unlink()
    found = verdict(lake)
    assert found.is_good
    assert (found.journal.compared_from, found.journal.older, found.journal.rows) == (50, 49, 40)
