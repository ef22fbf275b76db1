"""The simulated disk: what a crash keeps."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.sim.disk import Disk, SimFiles


class Idle:
    """A machine whose operations take no time."""

    is_dead = False

    def pause(self, seconds: float) -> None:
        """Nothing else runs."""

    def is_main(self) -> bool:
        return True


def files_on(folder: Path, seed: int) -> tuple[Disk, SimFiles]:
    disk = Disk(folder / f"disk{seed}", random.Random(seed))
    machine: Any = Idle()
    return disk, SimFiles(disk, machine)


def write(files: SimFiles, path: Path, data: bytes) -> int:
    descriptor = files.open(path, create=True)
    at = 0
    while at < len(data):  # writes may be short
        at += files.write(descriptor, [data[at:]], at)
    return descriptor


def test_what_was_synced_is_kept_and_of_the_rest_anything(tmp_path: Path) -> None:
    left = set()
    for seed in range(60):
        disk, files = files_on(tmp_path, seed)
        descriptor = write(files, disk.folder / "a", b"k" * 700)
        files.sync(descriptor)
        files.sync_folder(disk.folder)
        files.write(descriptor, [b"n" * 1400], 700)
        files.close_all()
        disk.lose_power()
        found = (disk.folder / "a").read_bytes()
        assert found.startswith(b"k" * 700)
        left.add(len(found))
    assert {700, 2100} < left, "nothing, all, and torn parts"


def test_a_short_write_and_what_completes_it_are_kept_or_lost_together(tmp_path: Path) -> None:
    """Within a sector; some of the writes of these disks are short."""
    kept = set()
    for seed in range(600):
        disk, files = files_on(tmp_path, seed)
        descriptor = write(files, disk.folder / "a", b"k" * 16)
        files.sync(descriptor)
        files.sync_folder(disk.folder)
        write(files, disk.folder / "a", b"n" * 16)
        files.close_all()
        disk.lose_power()
        kept.add((disk.folder / "a").read_bytes())
    assert kept == {b"k" * 16, b"n" * 16}


def test_a_name_without_a_sync_of_its_folder_may_be_gone(tmp_path: Path) -> None:
    there = set()
    for seed in range(30):
        disk, files = files_on(tmp_path, seed)
        files.sync(write(files, disk.folder / "a", b"data"))
        files.close_all()
        disk.lose_power()
        there.add((disk.folder / "a").exists())
    assert there == {True, False}


def test_a_killed_process_loses_nothing_that_was_written(tmp_path: Path) -> None:
    disk, files = files_on(tmp_path, 1)
    write(files, disk.folder / "a", b"data")
    files.close_all()
    disk.keep_all()
    disk.lose_power()
    assert (disk.folder / "a").read_bytes() == b"data"
