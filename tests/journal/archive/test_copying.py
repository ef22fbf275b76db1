"""Sealed segments in the archive: copied, proven, and only then removed here; and what happens if it is away."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from raceway.config import Retention
from raceway.errors import ArchiveError, AwayError, ConfigError
from raceway.journal.archive.copying import Archiver
from raceway.journal.archive.lease import RESERVED, maybe_lease
from raceway.journal.archive.store import Store
from raceway.journal.read.reader import Reader
from tests.rigs.archives import Place, archive_all, fill, opened, run_until
from tests.rigs.journal import Rig, column, topic_payloads


def aside(rig: Rig, work: str, *args: object) -> list[bytes]:
    """The payloads of a read in another thread than the owner's."""
    found: list[bytes] = []
    failed: list[Exception] = []

    def read() -> None:
        try:
            found.extend(column(getattr(rig.journal, work)(*args, columns=["payload"]), "payload"))
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return [payload[:4] for payload in found]


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%04d" % number for number in range(first, end)]


def local(rig: Rig) -> list[str]:
    return sorted(path.name for path in rig.folder.glob("segment-*.parquet"))


def test_segments_are_copied_proven_and_leave_and_readers_go_on_in_the_archive(tmp_path: Path, place: Place) -> None:
    rig = opened(tmp_path / "data", place, retention=Retention(max_bytes=1))
    fill(rig, 40)
    run_until(rig, lambda: not local(rig) and rig.journal.health().segments == 1)
    assert len(place.names(".parquet")) >= 2
    assert place.names(".parquet") == [name.replace(".idx", ".parquet") for name in place.names(".idx")]
    assert rig.journal.first_position() == 0
    assert aside(rig, "read", 0) == numbers(0, 40)
    assert aside(rig, "read_topic", "t", 7) == numbers(7, 40)
    assert rig.journal.offsets("t") == (0, 40)  # from the index, which is here
    assert rig.journal.health().damage == ()
    # The loop must not wait for a network: it is told to have the rows brought back.
    with pytest.raises(AwayError) as caught:
        topic_payloads(rig.journal, "t", 3)
    rig.journal.bring_back(caught.value.segment)
    assert [payload[:4] for payload in topic_payloads(rig.journal, "t", 3, max_rows=2)] == numbers(3, 5)
    rig.reopen()
    assert aside(rig, "read", 0) == numbers(0, 40)
    rig.close()
    # So does another process, which knows the folder alone, or the URL alone.
    reader = Reader(tmp_path / "data", place.storage)
    assert [payload[:4] for payload in column(reader.read(0), "payload")] == numbers(0, 40)
    reader.close()


def test_retention_waits_while_the_archive_is_away_and_says_so(tmp_path: Path, folder_place: Place) -> None:
    blocked = Path(folder_place.url)
    blocked.parent.mkdir(exist_ok=True)
    blocked.write_text("a file where the folder should be")
    rig = opened(tmp_path / "data", folder_place, retention=Retention(max_bytes=1))
    fill(rig, 40)
    run_until(rig, lambda: len(local(rig)) >= 2 and bool(rig.journal.health().archive.error))  # type: ignore[union-attr]
    (warning,) = rig.journal.health().warnings
    assert "wait for it, and retention keeps them here (journal.archive)" in warning
    assert str(blocked) in warning
    assert rig.journal.health().status == "ok"
    rig.keep("t", b"0040")  # the bus goes on
    blocked.unlink()
    run_until(rig, lambda: not local(rig))
    assert rig.journal.health().warnings == ()
    assert aside(rig, "read", 0) == numbers(0, 41)
    rig.close()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_segment_that_retention_removes_while_it_is_looked_at_is_no_failure(
    tmp_path: Path, folder_place: Place, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    original = Archiver._copy_segment
    removed: list[str] = []

    def copy(self: Archiver, path: Path, sizes: dict[str, int]) -> None:
        if moment == "after":
            original(self, path, sizes)
        if not removed:
            removed.append(path.name)
            path.unlink()
        if moment == "before":
            original(self, path, sizes)

    monkeypatch.setattr(Archiver, "_copy_segment", copy)
    rig = opened(tmp_path / "data", folder_place)
    fill(rig, 40)
    run_until(rig, lambda: bool(removed) and len(folder_place.names(".parquet")) >= 2)
    assert rig.journal.health().archive.error == ""  # type: ignore[union-attr]
    rig.close()


def test_a_copy_that_reads_back_differently_does_not_count(
    tmp_path: Path, folder_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Store.put
    spoiled: list[str] = []

    def put(self: Store, name: str, content: object) -> None:
        original(self, name, content)  # type: ignore[arg-type]
        if name.endswith(".parquet") and not spoiled:
            spoiled.append(name)
            path = Path(self.url) / name
            path.write_bytes(path.read_bytes()[:-1])

    monkeypatch.setattr(Store, "put", put)
    rig = opened(tmp_path / "data", folder_place, retention=Retention(max_bytes=1), archive_retry_s=0.5)
    fill(rig, 20)
    run_until(rig, lambda: bool(rig.journal.health().archive.error))  # type: ignore[union-attr]
    assert local(rig)
    assert f"{spoiled[0]} reads back differently" in rig.journal.health().archive.error  # type: ignore[union-attr]
    run_until(rig, lambda: not local(rig))
    assert aside(rig, "read", 0) == numbers(0, 20)
    rig.close()


def test_what_a_killed_bus_had_half_copied_is_copied_again(tmp_path: Path, place: Place) -> None:
    rig = opened(tmp_path / "data", place)
    fill(rig, 30)
    closed = archive_all(rig)
    rig.crash()
    # As if it had been killed before the copy of the last segment was proven, and in the middle of the one before it.
    last, before = sorted((tmp_path / "data" / "archive").glob("*.idx"), reverse=True)[:2]
    last.unlink()
    before.unlink()
    place.store.remove(last.with_suffix(".parquet").name)
    place.spoil(before.with_suffix(".parquet").name, lambda content: content.__delitem__(slice(100, None)))
    rig.journal = rig._open()
    archive_all(rig)
    assert len(place.names(".parquet")) == closed
    for name in place.names(".parquet"):
        assert place.store.maybe_get(name) == (tmp_path / "data" / name).read_bytes()
    rig.close()


def test_rows_that_leave_are_read_where_they_went_also_when_cursors_need_them(
    tmp_path: Path, folder_place: Place
) -> None:
    rig = opened(tmp_path / "data", folder_place, retention=Retention(max_bytes=1, max_pinned=1, hold_s={"t": 1e9}))
    rig.journal.set_state("cursors", "slow", {"topic": "t", "offset": 2})
    fill(rig, 40)
    run_until(rig, lambda: rig.journal.health().segments == 1)
    assert rig.journal.state.get("cursors", "slow") == {"topic": "t", "offset": 2}
    assert rig.journal.health().moved_cursors == 0
    assert list(rig.folder.glob("held-*")) == []
    rig.close()


def test_positions_are_reserved_before_they_are_given_out(tmp_path: Path, folder_place: Place) -> None:
    rig = opened(tmp_path / "data", folder_place)
    fill(rig, 20)
    archive_all(rig)
    lease = maybe_lease(folder_place.store)
    assert lease is not None
    assert lease.epoch == 1
    assert 0 <= lease.reserved - RESERVED <= 20
    assert lease.covers(lease.reserved - RESERVED // 2 - 1)
    assert not lease.covers(lease.reserved - RESERVED // 2)
    # More than half of it used: the next round reserves again, also if no segment waits.
    used = lease.reserved - RESERVED // 3
    archiver = rig.local._archiver
    assert archiver is not None
    archiver._committed = lambda: used
    run_until(rig, lambda: maybe_lease(folder_place.store).reserved == used + 1 + RESERVED)  # type: ignore[union-attr]
    rig.close()


def test_an_archive_of_another_journal_is_refused_and_left_alone(tmp_path: Path, folder_place: Place) -> None:
    first = opened(tmp_path / "first", folder_place)
    fill(first, 20)
    archive_all(first)
    first.close()
    before = {name: folder_place.store.maybe_get(name) for name in folder_place.names()}
    second = opened(tmp_path / "second", folder_place, retention=Retention(max_bytes=1))
    fill(second, 20)
    run_until(second, lambda: bool(second.journal.health().archive.error))  # type: ignore[union-attr]
    assert "belongs to another journal" in second.journal.health().archive.error  # type: ignore[union-attr]
    assert {name: folder_place.store.maybe_get(name) for name in folder_place.names()} == before
    assert second.journal.health().segments > 1
    second.close()


def test_another_place_is_refused_while_rows_are_in_the_first(tmp_path: Path, folder_place: Place) -> None:
    rig = opened(tmp_path / "data", folder_place)
    fill(rig, 20)
    archive_all(rig)
    rig.close()
    with pytest.raises(ConfigError, match="this journal is archived in"):
        opened(tmp_path / "data", Place(str(tmp_path / "elsewhere")))
    shutil.copytree(folder_place.url, tmp_path / "elsewhere")
    (tmp_path / "data" / "archive" / "location").unlink()
    moved = opened(tmp_path / "data", Place(str(tmp_path / "elsewhere")))
    archive_all(moved)
    moved.close()


def test_rows_cannot_be_read_while_the_archive_is_away_and_come_back_with_it(
    tmp_path: Path, folder_place: Place
) -> None:
    rig = opened(tmp_path / "data", folder_place, retention=Retention(max_bytes=1))
    fill(rig, 40)
    run_until(rig, lambda: not local(rig) and rig.journal.health().segments == 1)
    archive = Path(folder_place.url)
    archive.rename(archive.with_name("away"))
    with pytest.raises(ArchiveError, match="missing there"):
        aside(rig, "read", 0)
    with pytest.raises(ArchiveError):
        aside(rig, "read_topic", "t", 0)
    assert rig.journal.health().damage == ()  # not taken for a loss
    archive.with_name("away").rename(archive)
    assert aside(rig, "read", 0) == numbers(0, 40)
    rig.close()


def test_a_damaged_object_is_repaired_while_reading_or_its_rows_are_reported(
    tmp_path: Path, folder_place: Place
) -> None:
    rig = opened(tmp_path / "data", folder_place, retention=Retention(max_bytes=1))
    fill(rig, 40)
    run_until(rig, lambda: not local(rig) and rig.journal.health().segments == 1)
    rig.close()
    names = folder_place.names(".parquet")

    def flip(content: bytearray) -> None:
        content[len(content) // 3] ^= 4

    def blot(content: bytearray) -> None:
        content[4:40] = bytes(36)

    folder_place.spoil(names[0], flip)
    folder_place.spoil(names[1], blot)
    reader = Reader(tmp_path / "data")
    found = column(reader.read(0, None, ["sequence"]), "sequence")
    first, last = (int(name.split(".")[0].split("-")[1]) for name in names[1:3])
    assert found == [number for number in range(40) if not first <= number < last]
    assert [damage.kind for damage in reader.damage] == ["repaired", "quarantined"]
    reader.close()


def test_copies_that_were_brought_back_are_bounded(tmp_path: Path, folder_place: Place) -> None:
    rig = opened(tmp_path / "data", folder_place, retention=Retention(max_bytes=1), archive_cache_bytes=1)
    fill(rig, 40)
    run_until(rig, lambda: not local(rig) and rig.journal.health().segments == 1)
    for name in folder_place.names(".parquet"):
        rig.journal.bring_back(Path(name).stem)
    kept = list((rig.folder / "archive").glob("*.parquet"))
    assert [path.name for path in kept] == folder_place.names(".parquet")[-1:]
    rig.close()
