"""One owner per folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raceway.errors import LockedError
from raceway.journal.lock import FolderLock, is_alive, maybe_began

HOLD = """
import sys, pathlib
from raceway.journal.lock import FolderLock
lock = FolderLock(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_and_told_who_holds_the_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockedError) as caught:
            FolderLock(tmp_path)
        assert (caught.value.pid, caught.value.folder) == (holder.pid, str(tmp_path))
        holder.kill()
        holder.wait()
        FolderLock(tmp_path).release()  # the kernel released it with the process


def test_the_file_names_the_holder_and_a_stale_one_is_harmless(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("99999999 and more\n")
    lock = FolderLock(tmp_path)
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    lock.release()


def test_the_kernel_names_a_holder_that_wrote_no_name(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    (tmp_path / "lock").write_text("")
    with pytest.raises(LockedError, match=f"process {os.getpid()};"):
        FolderLock(tmp_path)
    lock.release()


@pytest.mark.parametrize("replaced", [False, True])
def test_without_the_file_the_folder_is_locked_still(tmp_path: Path, replaced: bool) -> None:
    lock = FolderLock(tmp_path)
    (tmp_path / "lock").unlink()
    if replaced:
        (tmp_path / "lock").write_text("")
    with pytest.raises(LockedError, match=f"process {os.getpid()};"):
        FolderLock(tmp_path)
    lock.release()
    FolderLock(tmp_path).release()


def test_a_lock_knows_when_its_file_or_its_folder_is_another_one(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    lock = FolderLock(folder)
    assert lock.maybe_lost() is None
    (folder / "lock").rename(folder / "aside")
    assert lock.maybe_lost() == "the file lock of the data folder"
    (folder / "lock").touch()
    assert lock.maybe_lost() == "the file lock of the data folder"
    (folder / "aside").rename(folder / "lock")
    assert lock.maybe_lost() is None
    folder.rename(tmp_path / "moved")
    assert lock.maybe_lost() == f"the data folder {folder}"
    folder.mkdir()
    assert lock.maybe_lost() == f"the data folder {folder}"
    lock.release()


def test_a_process_is_known_by_its_start_as_well_as_by_its_id() -> None:
    """Process 1 of this machine is not process 1 of the container that wrote its id down."""
    began = maybe_began(os.getpid())
    assert began is not None
    assert is_alive(os.getpid(), began)
    assert not is_alive(os.getpid(), began + 1)
    assert is_alive(1)
    assert not is_alive(1, began)
    assert maybe_began(0) is None
