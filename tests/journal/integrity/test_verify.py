"""Verification: all is well, mended, or lost with positions; and what `repair` leaves behind is well."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from raceway.config import JournalSettings
from raceway.errors import FormatVersionError, JournalError, LockedError
from raceway.journal import open_journal
from raceway.journal.files import Files
from raceway.journal.identity import NAME as IDENTITY
from raceway.journal.identity import Identity, write_identity
from raceway.journal.integrity import verify as verification
from raceway.journal.integrity.verify import Verdict, folder_size, verify
from raceway.journal.lock import FolderLock
from raceway.journal.read.catalogue import segment_path
from raceway.journal.state import State
from raceway.journal.write.active import SNAPSHOT
from raceway.journal.write.seal import hold_rows, seal_segment
from raceway.model.envelope import Batch
from tests.rigs.journal_folder import write_folder
from tests.rigs.journal_rows import TOPICS, Row, rows

SEALED, CLOSED, ACTIVE = 0, 500, 800
SNAPSHOT_FILE = f"{SNAPSHOT}{799:020}"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sealed segment, a closed one, the active one, a held file and a snapshot: all good."""
    folder = write_folder(tmp_path_factory.mktemp("pristine") / "data", [rows(0, 500), rows(500, 300), rows(800, 100)])
    seal_segment(folder, name(SEALED), 100)
    hold_rows(folder, name(SEALED), [TOPICS[0]], 100)
    segment_path(folder, SEALED).unlink()
    state = State()
    state.put("cursors", "a", {"topic": TOPICS[0], "offset": 3})
    (folder / SNAPSHOT_FILE).write_bytes(state.encode_snapshot(799, "source"))
    verify(folder, repair=True)  # saves the index of the closed segment
    assert verify(folder).status == "good"
    return folder


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "data"))


def name(first: int) -> str:
    return f"segment-{first:020}"


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 8
    path.write_bytes(data)


def zero(path: Path, at: int, size: int) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + size] = bytes(size)
    path.write_bytes(data)


def damaged_files(verdict: Verdict) -> set[str]:
    return {damage.file for damage in verdict.damage}


def test_a_good_folder_is_told_with_all_its_rows_and_files(folder: Path) -> None:
    verdict = verify(folder)
    assert (verdict.rows, verdict.topics, verdict.first_position, verdict.committed) == (900, 4, 0, 899)
    assert not verdict.damage
    assert not verdict.lost
    assert not verdict.problems
    assert {(checked.kind, checked.status) for checked in verdict.files} == {
        (kind, "good") for kind in ("identity", "commit mark", "snapshot", "parquet", "held", "blocks")
    }


def test_progress_reaches_the_size_that_was_announced(folder: Path) -> None:
    done: list[int] = []
    verify(folder, advance=done.append)
    assert sum(done) == folder_size(folder)


@pytest.mark.parametrize(
    ("file", "at"),
    [
        (f"{name(SEALED)}.parquet", 9000),
        (f"{name(SEALED)}.parquet", -3),
        (f"{name(SEALED)}.sum", 100),
        (f"{name(SEALED)}.idx", 30),
        (f"{name(CLOSED)}.blocks", 20),
        (f"{name(CLOSED)}.blocks", 100),
        (f"{name(CLOSED)}.blocks", 12_000),
        (f"{name(ACTIVE)}.blocks", 2000),
        (f"held-{0:020}-{499:020}.parquet", 2000),
        (SNAPSHOT_FILE, 20),
    ],
)
def test_a_flipped_bit_is_found_everywhere_loses_nothing_and_can_be_put_right(folder: Path, file: str, at: int) -> None:
    whole = (folder / file).read_bytes()
    flip(folder / file, at)
    looked = verify(folder)
    assert (looked.status, damaged_files(looked)) == ("repaired", {file})
    assert (folder / file).read_bytes() != whole
    assert verify(folder, repair=True).status == "repaired"
    assert (folder / file).read_bytes() == whole
    assert verify(folder).status == "good"


@pytest.mark.parametrize("file", [f"{name(SEALED)}.sum", f"{name(SEALED)}.idx", f"{name(CLOSED)}.idx"])
def test_a_missing_side_file_is_made_again_by_repair(folder: Path, file: str) -> None:
    (folder / file).unlink()
    assert (verify(folder).status, verify(folder, repair=True).status) == ("repaired", "repaired")
    assert verify(folder).status == "good"


@pytest.mark.parametrize("file", [IDENTITY, "committed", SNAPSHOT_FILE])
def test_small_files_that_the_next_start_makes_anew_lose_nothing(folder: Path, file: str) -> None:
    (folder / file).write_bytes(b"nonsense")
    verdict = verify(folder)
    assert (verdict.status, damaged_files(verdict)) == ("repaired", {file})
    assert verdict.rows == 900


def test_a_lost_row_group_is_named_by_its_positions(folder: Path) -> None:
    zero(folder / f"{name(SEALED)}.parquet", 8192, 4096)
    verdict = verify(folder, repair=True)
    assert verdict.status == "lost"
    assert verdict.lost_rows in (100, 200, 300)  # row groups are smaller than the page here
    assert verdict.rows == 900 - verdict.lost_rows
    assert "damaged beyond repair" in verdict.lost[0].reason
    assert verdict.problems == []  # missing offsets are explained by the missing rows


def test_a_lost_block_is_named_by_its_positions(folder: Path) -> None:
    zero(segment_path(folder, CLOSED), 300, 6000)
    verdict = verify(folder)
    assert [(lost.first, lost.last) for lost in verdict.lost] == [(500, 549)]
    assert verdict.rows == 850


def test_a_missing_segment_is_a_loss_of_all_its_rows(folder: Path) -> None:
    segment_path(folder, CLOSED).unlink()
    verdict = verify(folder)
    assert [(lost.first, lost.last) for lost in verdict.lost] == [(500, 799)]


def test_what_retention_removed_is_not_missed(folder: Path) -> None:
    for suffix in (".parquet", ".sum", ".idx"):
        (folder / f"{name(SEALED)}{suffix}").unlink()
    verdict = verify(folder)
    assert (verdict.status, verdict.first_position, verdict.rows) == ("good", 500, 400)


def test_damage_of_blocks_that_are_sealed_already_loses_nothing(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", [rows(0, 500), rows(500, 100)])
    seal_segment(folder, name(0), 100)
    assert verify(folder).status == "good"
    zero(segment_path(folder, 0), 300, 6000)
    verdict = verify(folder)
    assert (verdict.status, verdict.rows) == ("repaired", 600)
    assert next(checked for checked in verdict.files if checked.file == f"{name(0)}.blocks").status == "lost"


def test_a_row_group_lost_while_its_blocks_are_there_loses_nothing(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", [rows(0, 500), rows(500, 100)])
    seal_segment(folder, name(0), 100)
    zero(folder / f"{name(0)}.parquet", 8192, 4096)
    verdict = verify(folder)
    assert (verdict.status, verdict.rows) == ("repaired", 600)


# ---- contradictions between rows ------------------------------------------------------------------------------------


def verdict_of(tmp_path: Path, found: list[Row]) -> Verdict:
    return verify(write_folder(tmp_path / "data", [found]))


def test_an_offset_that_was_never_stored_is_a_contradiction(tmp_path: Path) -> None:
    found = rows(0, 100)
    for row in found[50:]:
        if row["topic"] == TOPICS[2] and row["offset"] is not None:
            row["offset"] += 1
    verdict = verdict_of(tmp_path, found)
    assert verdict.status == "lost"
    assert ", expected " in verdict.problems[0]


def test_an_offset_that_was_given_twice_is_a_contradiction(tmp_path: Path) -> None:
    found = rows(0, 100)
    found[95] |= {"topic": TOPICS[0], "offset": 0}
    assert "repeats offset 0 of topic 'orders.created'" in verdict_of(tmp_path, found).problems[0]


def test_a_time_that_goes_back_is_a_contradiction(tmp_path: Path) -> None:
    found = rows(0, 100)
    found[60]["time_us"] -= 15
    assert "whose time_us decreases" in verdict_of(tmp_path, found).problems[0]


def test_a_topic_that_does_not_begin_at_offset_0_is_a_contradiction(tmp_path: Path) -> None:
    found = [row | {"offset": row["offset"] and row["offset"] + 7} for row in rows(0, 10, topics=("a",))][1:]
    for sequence, row in enumerate(found):
        row["sequence"] = sequence
    assert "expected 0" in verdict_of(tmp_path, found).problems[0]


def test_blocks_of_one_row_are_verified_as_quickly_as_others(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", [rows(0, 1000), rows(1000, 1)], rows_per_block=1)
    verdict = verify(folder, repair=True)
    assert (verdict.rows, verdict.problems, verdict.lost) == (1001, [], [])
    assert verdict.seconds < 20  # far less; one look at the offsets per block would be most of it


# ---- beside a bus ---------------------------------------------------------------------------------------------------


def test_repair_is_refused_while_somebody_holds_the_folder(folder: Path) -> None:
    lock = FolderLock(folder)
    try:
        assert verify(folder).status == "good"
        with pytest.raises(LockedError, match="in use by process"):
            verify(folder, repair=True)
    finally:
        lock.release()


def test_a_journal_that_is_being_written_is_good_up_to_its_mark(tmp_path: Path) -> None:
    settings = JournalSettings(folder=str(tmp_path / "data"), durability="os")
    calls: list[object] = []
    journal = open_journal(settings, calls.append)
    try:
        for _ in range(3):
            journal.append(Batch(2, topic=b"a", kind=b"publish", wire=b"mb", payload=[b"1", b""]))
            journal.set_state("cursors", "c", {"topic": "a", "offset": 1})
            journal.flush()
        verdict = verify(tmp_path / "data")
        assert verdict.status == "good"
        assert verdict.rows == verdict.committed + 1
    finally:
        journal.close()
    verdict = verify(tmp_path / "data", repair=True)
    assert (verdict.status, verdict.rows) == ("good", verdict.committed + 1)
    assert verdict.rows >= 7


@pytest.mark.parametrize("sealed_meanwhile", [True, False])
def test_segments_that_a_bus_seals_or_removes_meanwhile_are_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sealed_meanwhile: bool
) -> None:
    folder = write_folder(tmp_path / "data", [rows(0, 500), rows(500, 300), rows(800, 100)])

    class Verification(verification._Verification):
        """The bus is at work between the listing and the first look at a segment."""

        def _check_small_files(self) -> None:
            super()._check_small_files()
            self._reader.read(0, 0)
            if sealed_meanwhile:
                seal_segment(folder, name(0), 100)
            remove = [".blocks", ".idx"] if not sealed_meanwhile else [".blocks"]
            for suffix in remove:
                (folder / f"{name(0)}{suffix}").unlink(missing_ok=True)

    monkeypatch.setattr(verification, "_Verification", Verification)
    verdict = verify(folder)
    assert verdict.lost == []
    assert verdict.problems == []
    assert verdict.rows == (900 if sealed_meanwhile else 400)


def test_no_journal_is_an_error_and_no_lock_is_left(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="no journal"):
        verify(tmp_path, repair=True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_a_later_release_is_refused_by_name(folder: Path) -> None:
    later = Identity(9, "00" * 8, "x")
    write_identity(Files(), folder, msgspec.structs.replace(later, crc=later.sum()))
    with pytest.raises(FormatVersionError, match="identity has journal format 9"):
        verify(folder)
