from __future__ import annotations

from pathlib import Path

import pytest

from raceway.errors import JournalError
from raceway.journal.identity import NAME as IDENTITY
from raceway.journal.lanes import NAME, check_undivided, keep_lanes, lane_folder, maybe_lanes
from raceway.journal.read.reader import Reader


def test_a_folder_keeps_its_number_of_lanes(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    assert maybe_lanes(folder) is None
    keep_lanes(folder, 4)
    keep_lanes(folder, 4)
    assert maybe_lanes(folder) == 4
    assert all(lane_folder(folder, number).is_dir() for number in range(4))
    with pytest.raises(JournalError, match=r"has 4 lanes, not 3.*--lanes 4"):
        keep_lanes(folder, 3)


def test_without_the_file_the_folders_count(tmp_path: Path) -> None:
    keep_lanes(tmp_path, 3)
    (tmp_path / NAME).unlink()
    assert maybe_lanes(tmp_path) == 3
    with pytest.raises(JournalError, match="has 3 lanes"):
        check_undivided(tmp_path)
    keep_lanes(tmp_path, 3)
    assert (tmp_path / NAME).exists()


def test_a_damaged_file_is_named_with_what_it_should_hold(tmp_path: Path) -> None:
    keep_lanes(tmp_path, 2)
    (tmp_path / NAME).write_bytes(b"{")
    with pytest.raises(JournalError, match=r"is damaged.*there are 2"):
        keep_lanes(tmp_path, 2)


@pytest.mark.parametrize("name", [IDENTITY, "segment-00000000000000000000.blocks"])
def test_a_journal_of_one_lane_is_not_divided(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert maybe_lanes(tmp_path) is None
    with pytest.raises(JournalError, match="holds a journal of one lane"):
        keep_lanes(tmp_path, 2)


def test_a_reader_of_the_whole_folder_is_told_to_name_a_lane(tmp_path: Path) -> None:
    check_undivided(tmp_path)
    keep_lanes(tmp_path, 2)
    with pytest.raises(JournalError, match=r"has 2 lanes .*--lanes 2.*each with a journal.*lane-0"):
        Reader(tmp_path)
