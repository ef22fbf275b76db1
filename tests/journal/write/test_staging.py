"""A sealed segment is put in place whole, or not at all."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from raceway.journal.read.sealed import SealedSegment
from raceway.journal.write.staging import files_of, remove_unfinished, seal_batches
from tests.rigs.journal_faults import FaultyFiles
from tests.rigs.journal_rows import batch, rows, table
from tests.rigs.server import wait_until

NAME = f"segment-{0:020}"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / f"{NAME}.parquet"


def test_what_is_checked_is_what_is_put_in_place(target: Path) -> None:
    seen: list[bytes] = []

    def check(staged: Path) -> None:
        assert not target.exists()
        assert table(SealedSegment(staged).read(0, 100)).num_rows == 100
        seen.extend(path.read_bytes() for path in files_of(staged))

    sink = seal_batches([batch(rows(0, 100))], target, 30, first=0, check=check)
    assert sink.rows == 100
    assert [path.read_bytes() for path in files_of(target)] == seen


def test_a_check_that_fails_leaves_what_was_there_before(target: Path) -> None:
    seal_batches([batch(rows(0, 100))], target, 30, first=0)
    before = [path.read_bytes() for path in files_of(target)]

    def refuse(staged: Path) -> None:
        raise ValueError("not as it should be")

    with pytest.raises(ValueError, match="not as it should be"):
        seal_batches([batch(rows(0, 50))], target, 30, first=0, check=refuse)
    assert [path.read_bytes() for path in files_of(target)] == before
    assert len(list(target.parent.iterdir())) == 3


@pytest.mark.parametrize("room", [0, 100, 5000, 20_000, 30_000])
def test_a_full_disk_leaves_nothing_behind(target: Path, room: int) -> None:
    with pytest.raises(OSError, match=r"[Nn]o space left"):
        seal_batches([batch(rows(0, 1000))], target, 300, first=0, files=FaultyFiles(free=room))
    assert list(target.parent.iterdir()) == []


def test_short_writes_do_not_harm(target: Path) -> None:
    seal_batches([batch(rows(0, 300))], target, 100, first=0, files=FaultyFiles(max_write=7))
    segment = SealedSegment(target)
    assert table(segment.read(0, 300)).num_rows == 300
    assert segment.damage == []


@pytest.mark.parametrize("operation", ["sync", "rename", "sync_folder"])
def test_an_error_of_the_disk_at_any_step_is_raised(target: Path, operation: str) -> None:
    for after in range(3):
        files = FaultyFiles()
        files.fail(operation, errno.EIO, after=after)
        with pytest.raises(OSError, match=r"[Ii]nput/output"):
            seal_batches([batch(rows(0, 100))], target, 30, first=0, files=files)


def test_remove_unfinished_takes_staging_folders_and_orphans_only(tmp_path: Path, target: Path) -> None:
    seal_batches([batch(rows(0, 100))], target, 30, first=0)
    kept = {path.name for path in tmp_path.iterdir()}
    (tmp_path / f"segment-{7:020}.sealing").mkdir()
    (tmp_path / f"segment-{7:020}.sealing" / "x").write_bytes(b"x")
    (tmp_path / f"segment-{7:020}.sum").write_bytes(b"x")
    (tmp_path / f"segment-{7:020}.idx").write_bytes(b"x")
    (tmp_path / "committed.new").write_bytes(b"x")
    assert len(remove_unfinished(tmp_path)) == 4
    assert {path.name for path in tmp_path.iterdir()} == kept
    assert remove_unfinished(tmp_path) == []


CHILD = """
import contextlib, os, sys
while True:
    with contextlib.suppress(OSError):
        os.makedirs(sys.argv[1], exist_ok=True)
        for number in range(100):
            open(f"{sys.argv[1]}/{number}", "w").close()
"""


def test_a_child_that_outlived_its_bus_does_not_keep_the_next_one_from_starting(tmp_path: Path) -> None:
    """It puts files into its staging folder while that is removed."""
    staging = tmp_path / f"{NAME}.sealing"
    with subprocess.Popen([sys.executable, "-c", CHILD, str(staging)]) as child:
        try:
            for _ in range(100):
                wait_until(staging.exists)
                remove_unfinished(tmp_path)
        finally:
            child.kill()
    remove_unfinished(tmp_path)
    assert list(tmp_path.iterdir()) == []
