"""The file layer: completed writes, replaced files, sources that outlive their list."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from raceway.journal.files import Files, FileSource, maybe_read_file, read_all, write_all, write_file
from tests.rigs.journal_faults import FaultyFiles


class ShortReads(Files):
    """The system gives at most three bytes at a time."""

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        return super().read(descriptor, min(size, 3), position)


@pytest.mark.parametrize("most", [1, 2, 3, 5, None])
def test_everything_is_written_however_short_the_writes(tmp_path: Path, most: int | None) -> None:
    files = FaultyFiles(max_write=most)
    descriptor = files.open(tmp_path / "f", create=True)
    write_all(files, descriptor, [b"abc", b"", b"defg", b"h"], 2)
    files.close(descriptor)
    assert (tmp_path / "f").read_bytes() == b"\0\0abcdefgh"


def test_short_reads_are_completed_up_to_the_end(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    files = ShortReads()
    descriptor = files.open_to_read(tmp_path / "f")
    assert read_all(files, descriptor, 8, 1) == b"12345678"
    assert read_all(files, descriptor, 100, 7) == b"789"
    assert read_all(files, descriptor, 5, 20) == b""
    files.close(descriptor)


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_file(Files(), path, b"old and long")
    write_file(Files(), path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("operation", ["open", "write", "sync", "rename"])
def test_a_failed_replacement_leaves_the_old_file_and_nothing_else(tmp_path: Path, operation: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    files = FaultyFiles()
    files.fail(operation, errno.ENOSPC)
    with pytest.raises(OSError, match="space"):
        write_file(files, path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_a_missing_file_is_none(tmp_path: Path) -> None:
    assert maybe_read_file(Files(), tmp_path / "f") is None
    (tmp_path / "f").write_bytes(b"")
    assert maybe_read_file(Files(), tmp_path / "f") == b""


def test_a_source_reads_on_after_its_file_was_removed_and_is_closed_with_its_last_user(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"content")
    source = FileSource(Files(), path)
    path.unlink()
    assert (source.size, source.read(3, 2)) == (7, b"nte")
    descriptor = source._descriptor
    assert descriptor is not None
    del source
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_closed_source_says_so(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    with FileSource(Files(), tmp_path / "f") as source:
        assert source.read(1, 0) == b"x"
    source.close()
    with pytest.raises(ValueError, match="closed"):
        source.read(1, 0)


# ---- the fault layer itself -----------------------------------------------------------------------------------------


def test_planned_faults_come_when_planned(tmp_path: Path) -> None:
    files = FaultyFiles()
    descriptor = files.open(tmp_path / "f", create=True)
    files.fail("sync", errno.EIO, after=1, times=2)
    files.sync(descriptor)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            files.sync(descriptor)
    files.sync(descriptor)
    files.close(descriptor)


def test_a_disk_of_limited_size_fills_and_is_freed(tmp_path: Path) -> None:
    files = FaultyFiles(free=5)
    descriptor = files.open(tmp_path / "f", create=True)
    assert files.write(descriptor, [b"12345678"], 0) == 5
    with pytest.raises(OSError, match="space"):
        files.write(descriptor, [b"678"], 5)
    assert files.write(descriptor, [b"abc"], 0) == 3  # in place
    files.truncate(descriptor, 1)
    assert files.write(descriptor, [b"zz"], 1) == 2
    files.close(descriptor)


def test_after_the_power_is_gone_nothing_changes_any_more(tmp_path: Path) -> None:
    files = FaultyFiles(power=4)
    descriptor = files.open(tmp_path / "f", create=True)
    with pytest.raises(OSError, match="power"):
        write_all(files, descriptor, [b"123", b"456"], 0)
    with pytest.raises(OSError, match="power"):
        files.truncate(descriptor, 0)
    files.close(descriptor)
    assert (tmp_path / "f").read_bytes() == b"1234"
