"""A bus that lost its disk: restored from its archive, all of it or only what it needs, again and again if killed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from raceway.config import Retention
from raceway.errors import ArchiveError, JournalError, LockedError
from raceway.journal.archive.lease import RESERVED, maybe_lease
from raceway.journal.archive.restore import restore
from raceway.journal.lock import FolderLock
from raceway.journal.read.reader import Reader
from tests.journal.archive.test_copying import aside, numbers
from tests.rigs.archives import Place, archive_all, fill, opened, run_until
from tests.rigs.journal import Rig
from tests.rigs.server import wait_until


def lost(folder: Path, place: Place, rows: int = 40) -> int:
    """Fill and archive a journal, then lose its disk; return how many of the rows were archived."""
    rig = opened(folder, place, segment_age_s=1e9)
    rig.journal.set_state("topics", "t", {"made": "by hand"})
    fill(rig, rows)
    archive_all(rig)
    run_until(rig, lambda: max(path.name for path in folder.glob("state-*")) in place.names())
    archived = max(int(path.stem.split("-")[1]) for path in folder.glob("segment-*.blocks"))
    rig.crash()
    shutil.rmtree(folder)
    return archived - 1  # one row is the state's


@pytest.mark.parametrize("lazy", [False, True])
def test_a_lost_disk_comes_back_and_no_offset_is_given_twice(tmp_path: Path, place: Place, lazy: bool) -> None:
    archived = lost(tmp_path / "data", place)
    told: list[int] = []
    found = restore(place.url, tmp_path / "new", place.storage, lazy=lazy, begin=told.append, advance=told.append)
    assert (found.first_position, found.last_position, found.damage) == (0, archived, [])
    assert told[0] == sum(told[1:])
    assert found.fetched == (0 if lazy else found.segments)
    rig = opened(tmp_path / "new", place, retention=Retention(max_bytes=1))
    # Rows that were never archived are lost; nothing that may have been given to them is given again.
    assert rig.journal.next_sequence == found.next_position >= RESERVED
    assert rig.journal.state.get("topics", "t") == {"made": "by hand"}
    assert rig.journal.offsets("t")[0] == 0
    assert rig.journal.offsets("t")[1] >= 40
    assert aside(rig, "read_topic", "t", 0) == numbers(0, archived)
    fill(rig, 30, first=100)
    run_until(rig, lambda: rig.journal.health().segments == 1)  # all of it in the archive again
    assert aside(rig, "read_topic", "t", 0) == numbers(0, archived) + numbers(100, 130)
    assert maybe_lease(place.store).epoch == 2  # type: ignore[union-attr]
    rig.close()
    # And once more: the second loss is survived like the first.
    again = restore(place.url, tmp_path / "third", place.storage, lazy=True)
    assert again.next_position > rig.journal.next_sequence
    with pytest.raises(JournalError, match="is not empty"):
        restore(place.url, tmp_path / "third", place.storage)


def test_a_folder_in_use_or_with_files_is_refused(tmp_path: Path, folder_place: Place) -> None:
    lost(tmp_path / "data", folder_place)
    used = tmp_path / "used"
    used.mkdir()
    with FolderLock(used), pytest.raises(LockedError):
        restore(folder_place.url, used)
    (used / "notes.txt").write_text("mine")
    with pytest.raises(JournalError, match=r"is not empty \(it has notes.txt\)"):
        restore(folder_place.url, used)
    with pytest.raises(JournalError, match="contains no archive"):
        restore(str(tmp_path / "nothing"), tmp_path / "fresh")


def test_the_bus_that_was_replaced_writes_no_more(tmp_path: Path, folder_place: Place) -> None:
    rig = opened(tmp_path / "data", folder_place, retention=Retention(max_bytes=1))
    fill(rig, 20)
    run_until(rig, lambda: rig.journal.health().segments == 1)
    restore(folder_place.url, tmp_path / "new")
    before = folder_place.names()
    fill(rig, 20, first=20)
    run_until(rig, lambda: bool(rig.journal.health().archive.error))  # type: ignore[union-attr]
    assert "another bus was restored from it" in rig.journal.health().archive.error  # type: ignore[union-attr]
    assert folder_place.names() == before
    assert len(list(rig.folder.glob("segment-*.parquet"))) > 0  # nothing leaves this disk
    rig.close()


RESTORE = """
import sys, time
from pathlib import Path
from raceway.journal.archive import restore, ledger
fetch = restore.fetch
def slow(store, name, target):
    print(name, flush=True)
    if name.endswith(".parquet"):
        time.sleep(float(sys.argv[3]))
    return fetch(store, name, target)
restore.fetch = slow
restore.restore(sys.argv[1], Path(sys.argv[2]))
"""


def test_killed_in_the_middle_it_goes_on_and_no_bus_starts_before_it_is_done(
    tmp_path: Path, folder_place: Place
) -> None:
    archived = lost(tmp_path / "data", folder_place)
    target = tmp_path / "new"
    child = subprocess.Popen(
        [sys.executable, "-c", RESTORE, folder_place.url, str(target), "0.5"], stdout=subprocess.PIPE
    )
    try:
        wait_until(lambda: list(target.glob("segment-*.parquet")), 20.0, "a segment was restored")
    finally:
        child.kill()
        child.communicate()
    kept = {path.name: path.stat().st_mtime_ns for path in target.glob("segment-*.parquet")}
    with pytest.raises(JournalError, match="is not restored completely"):
        Rig(target)
    other = Place(str(tmp_path / "other"))
    lost(tmp_path / "others-data", other)
    with pytest.raises(JournalError, match="is being restored from"):
        restore(other.url, target)
    found = restore(folder_place.url, target)
    assert found.fetched == found.segments - len(kept)
    assert {name: (target / name).stat().st_mtime_ns for name in kept} == kept
    rig = opened(target, folder_place)
    assert aside(rig, "read_topic", "t", 0) == numbers(0, archived)
    rig.close()


def test_damage_of_the_archive_is_repaired_or_told(tmp_path: Path, folder_place: Place) -> None:
    archived = lost(tmp_path / "data", folder_place)
    names = folder_place.names(".parquet")
    folder_place.spoil(names[0], lambda content: content.__setitem__(99, content[99] ^ 1))
    folder_place.spoil(names[1], lambda content: content.__setitem__(slice(4, 40), bytes(36)))
    folder_place.store.remove(names[2].replace(".parquet", ".idx"))
    newest = max(name for name in folder_place.names() if name.startswith("state-"))
    folder_place.spoil(newest, lambda content: content.__setitem__(slice(0, 30), bytes(30)))
    found = restore(folder_place.url, tmp_path / "new")
    assert {damage.kind for damage in found.damage} == {"repaired", "quarantined", "rebuilt"}
    rig = opened(tmp_path / "new", folder_place)
    gone = range(*(int(name.split(".")[0].split("-")[1]) for name in names[1:3]))
    assert aside(rig, "read_topic", "t", 0) == [text for text in numbers(0, archived) if int(text) + 1 not in gone]
    assert rig.journal.next_sequence >= RESERVED
    rig.close()


def test_without_a_lease_nobody_knows_which_positions_are_free(tmp_path: Path, folder_place: Place) -> None:
    lost(tmp_path / "data", folder_place)
    folder_place.store.remove("lease")
    with pytest.raises(ArchiveError, match="no object `lease`"):
        restore(folder_place.url, tmp_path / "new")


def test_positions_above_the_reservation_can_be_named(tmp_path: Path, folder_place: Place) -> None:
    lost(tmp_path / "data", folder_place)
    found = restore(folder_place.url, tmp_path / "new", above=3 * RESERVED)
    assert found.next_position == 3 * RESERVED + 1
    reader = Reader(tmp_path / "new")
    assert reader.committed() == 3 * RESERVED
    reader.close()
