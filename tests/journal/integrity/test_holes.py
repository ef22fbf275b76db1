"""Which segments are looked into at start, and what is said of positions that are not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raceway.journal.files import Files
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.integrity.holes import report_holes
from raceway.journal.read.reader import Reader
from raceway.journal.write.seal import seal_segment
from tests.rigs.journal import Rig
from tests.rigs.journal_faults import FaultyFiles


class CountingFiles(FaultyFiles):
    """Knows how much was read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        data = super().read(descriptor, size, position)
        self.read_bytes += len(data)
        return data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five segments or more of some twenty rows, the first three of them sealed."""
    rig = Rig(tmp_path / "data", FaultyFiles(), segment_bytes=20_000, seal=False)
    for number in range(100):
        rig.keep("t", b"%d" % number + os.urandom(1000))
    rig.crash()
    for path in sorted(rig.folder.glob("*.blocks"))[:3]:
        seal_segment(rig.folder, path.stem, 8)
        path.unlink()
    assert len(list(rig.folder.glob("*.blocks"))) >= 2
    return rig.folder


def missing(folder: Path) -> list[tuple[int, int]]:
    reader = Reader(folder)
    reader.look_for_holes()
    found = [(d.first, d.last) for d in reader.damage if d.kind in ("missing", "quarantined")]
    reader.close()
    return found


def firsts(folder: Path) -> list[int]:
    return sorted(int(path.stem.split("-")[1]) for path in folder.glob("segment-*") if path.suffix != ".idx")


def files_at(folder: Path, number: int) -> list[Path]:
    begins = sorted(set(firsts(folder)))
    return sorted(folder.glob(f"segment-{begins[number]:020}.*"))


def test_of_a_whole_folder_nothing_is_said_and_little_is_read(folder: Path) -> None:
    reader, files, log = Reader(folder), CountingFiles(), DamageLog()
    report_holes(files, reader.segments(), 0, reader.committed() + 1, log)
    assert log.reports == []
    assert files.read_bytes < sum(path.stat().st_size for path in folder.glob("*.idx")) + 2000
    reader.close()


@pytest.mark.parametrize("number", range(5))
def test_a_segment_without_files_is_named_by_its_positions(folder: Path, number: int) -> None:
    begins = [*sorted(set(firsts(folder))), 100]
    for path in files_at(folder, number):
        path.unlink()
    assert missing(folder) == [(begins[number], begins[number + 1] - 1)]


@pytest.mark.parametrize("number", [1, 3])
def test_a_shortened_segment_is_looked_into(folder: Path, number: int) -> None:
    (rows,) = [path for path in files_at(folder, number) if path.suffix in (".parquet", ".blocks")]
    os.truncate(rows, rows.stat().st_size // 2)
    begins = [*sorted(set(firsts(folder))), 100]
    found = missing(folder)
    assert found
    assert all(begins[number] <= first <= last < begins[number + 1] for first, last in found)


def test_nothing_left_but_the_mark_is_all_missing(folder: Path) -> None:
    for path in folder.glob("segment-*"):
        path.unlink()
    assert missing(folder) == [(0, 99)]
    assert Files().names(folder)
