"""Content of rows deleted from an archive, with and without the segment in the folder."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from raceway.config import Retention
from raceway.errors import ArchiveError
from raceway.journal.archive.blanking import blank_archive, check_owner
from raceway.journal.archive.lease import maybe_lease, write_lease
from raceway.journal.archive.reader import ArchiveReader
from raceway.journal.read.reader import Reader
from raceway.journal.write.blanking import blank_folder
from tests.rigs.archives import Place, archive_all, fill, opened, run_until
from tests.rigs.journal import column

GROUP_ROWS = 16


def contents(reader: Reader | ArchiveReader) -> list[bytes]:
    try:
        found = [payload[:4] for payload in column(reader.read(0), "payload")]
        assert [damage for damage in reader.damage if damage.kind != "rebuilt"] == []
    finally:
        reader.close()
    return found


def numbers(end: int, *without: int) -> list[bytes]:
    return [b"" if number in without else b"%04d" % number for number in range(end)]


def test_rows_that_only_the_archive_has_are_blank_there(tmp_path: Path, place: Place) -> None:
    data = tmp_path / "data"
    rig = opened(data, place, retention=Retention(max_bytes=1))
    fill(rig, 40)
    run_until(rig, lambda: not list(data.glob("segment-*.parquet")))
    rig.journal.bring_back(Path(place.names(".parquet")[0]).stem)
    rig.close()
    positions = np.array([1, 30], np.int64)
    blank_folder(data, positions, GROUP_ROWS)
    assert blank_archive(data, place.store, positions, GROUP_ROWS) == 2
    assert list((data / "archive").glob("*.parquet")) == [], "a copy that was brought back has the old rows"
    assert contents(Reader(data, place.storage)) == numbers(40, 1, 30)
    archived = contents(ArchiveReader(place.url, place.storage))
    assert archived == numbers(40, 1, 30)[: len(archived)]
    assert len(archived) > 30
    assert blank_archive(data, place.store, positions, GROUP_ROWS) == 0
    rig.reopen()
    rig.keep("t", b"0040")
    assert rig.journal.health().damage == ()
    rig.close()


def test_a_segment_of_the_folder_takes_the_place_of_its_copy(tmp_path: Path, folder_place: Place) -> None:
    data = tmp_path / "data"
    rig = opened(data, folder_place)
    fill(rig, 40)
    archive_all(rig)
    rig.close()
    positions = np.array([2], np.int64)
    blank_folder(data, positions, GROUP_ROWS)
    assert blank_archive(data, folder_place.store, positions, GROUP_ROWS) == 1
    assert contents(ArchiveReader(folder_place.url))[:4] == numbers(4, 2)
    for path in sorted(data.glob("segment-*.parquet"))[:1]:
        for suffix in (".parquet", ".sum", ".idx"):
            name = path.with_suffix(suffix).name
            assert folder_place.store.maybe_get(name) == (data / name).read_bytes()


def test_a_copy_without_its_checksums_is_completed(tmp_path: Path, folder_place: Place) -> None:
    """As after a kill between the rows and their checksums."""
    data = tmp_path / "data"
    rig = opened(data, folder_place, retention=Retention(max_bytes=1))
    fill(rig, 40)
    run_until(rig, lambda: not list(data.glob("segment-*.parquet")))
    rig.close()
    positions = np.array([1], np.int64)
    blank_archive(data, folder_place.store, positions, GROUP_ROWS)
    name = folder_place.names(".sum")[0]
    kept = folder_place.store.maybe_get(name)
    folder_place.store.remove(name)
    assert contents(Reader(data))[:3] == numbers(3, 1)
    assert blank_archive(data, folder_place.store, positions, GROUP_ROWS) == 0
    assert folder_place.store.maybe_get(name) == kept


def test_an_archive_that_another_bus_took_over_is_not_written_to(tmp_path: Path, folder_place: Place) -> None:
    data = tmp_path / "data"
    rig = opened(data, folder_place)
    fill(rig, 40)
    archive_all(rig)
    rig.close()
    lease = maybe_lease(folder_place.store)
    assert lease is not None
    write_lease(folder_place.store, msgspec.structs.replace(lease, epoch=lease.epoch + 1))
    with pytest.raises(ArchiveError, match="another bus was restored from it"):
        check_owner(data, folder_place.store)
