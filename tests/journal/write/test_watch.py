"""When the writer looks at its files, and what it makes of the space that is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from raceway import config
from raceway.journal.files import Files
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.lock import FolderLock
from raceway.journal.read.catalogue import FolderCatalogue
from raceway.journal.read.index import Index
from raceway.journal.read.segment import BlockSegment
from raceway.journal.write.active import ActiveSegment
from raceway.journal.write.watch import LostFilesError, Watch

MARKER = bytes(8)
MIB = 1024 * 1024


class SizedFiles(Files):
    free, looks = 100 * MIB, 0

    def space(self, folder: Path) -> tuple[int, int]:
        self.looks += 1
        return self.free, 100 * MIB


class Bench:
    def __init__(self, folder: Path, **settings: float) -> None:
        chosen = config.JournalSettings(folder=str(folder), **settings)  # type: ignore[arg-type]
        self.files, self.folder, self.now_s = SizedFiles(), folder, 0.0
        catalogue = FolderCatalogue(folder, DamageLog(), self.files, lambda path, _: BlockSegment(path, MARKER))
        self.active = ActiveSegment(chosen, folder, self.files, MARKER, DamageLog(), catalogue, Index(0))
        self.lock = FolderLock(folder)
        self.watch = Watch(chosen, folder, self.files, self.lock, lambda: self.now_s)

    def close(self) -> None:
        self.active.close()
        self.lock.release()


def test_a_commit_looks_around_once_in_a_while(tmp_path: Path) -> None:
    bench = Bench(tmp_path, watch_s=2.0)
    for now_s in (0.0, 1.0, 1.9, 2.0, 3.0, 4.1):
        bench.now_s = now_s
        bench.watch.check(bench.active, 10)
    assert bench.files.looks == 3
    bench.close()


def test_much_that_is_written_is_a_reason_to_look(tmp_path: Path) -> None:
    bench = Bench(tmp_path, watch_s=3600, reserve_bytes=4 * MIB)
    bench.watch.look(bench.active)
    for _ in range(4):
        bench.watch.check(bench.active, MIB // 2)
    assert bench.files.looks == 3
    bench.close()


def test_every_commit_asks_whether_the_segment_has_a_name(tmp_path: Path) -> None:
    bench = Bench(tmp_path, watch_s=3600)
    bench.watch.look(bench.active)
    (tmp_path / bench.active.name).unlink()
    with pytest.raises(LostFilesError, match=f"{bench.active.name} was removed"):
        bench.watch.check(bench.active, 1)
    bench.close()


def test_without_a_reserve_nothing_is_low(tmp_path: Path) -> None:
    bench = Bench(tmp_path, watch_s=3600, reserve_bytes=0)
    bench.files.free = 0
    bench.watch.look(bench.active)
    bench.watch.check(bench.active, MIB)
    assert (bench.watch.is_low, bench.files.looks) == (False, 1)
    assert "100% full" in (bench.watch.maybe_warning() or "")
    bench.close()
