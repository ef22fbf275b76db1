"""Files of the data folder that are missing, empty, zero-filled, damaged or too new: the journal opens and says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raceway.errors import FormatVersionError, LockedError
from raceway.journal.files import Files
from raceway.journal.format import VERSION
from raceway.journal.identity import new_identity, write_identity
from raceway.journal.integrity.checksum import crc
from raceway.journal.write.mark import encode_mark
from tests.rigs.journal import Rig, column, numbered, payloads, topic_payloads
from tests.rigs.journal_faults import FaultyFiles

ROWS = 60


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Three closed segments and an active one, some state, closed properly."""
    made = Rig(tmp_path / "data", FaultyFiles(), segment_bytes=4000, seal=False)
    for number in range(ROWS):
        made.journal.set_state("cursors", f"c{number % 3}", {"topic": "t", "offset": number})
        made.keep("t", b"%d" % number)
    made.close()
    assert len(segments(made)) >= 4
    return made


def segments(rig: Rig) -> list[Path]:
    return sorted(rig.folder.glob("segment-*.blocks"))


def snapshots(rig: Rig) -> list[Path]:
    return sorted(rig.folder.glob("state-*"))


def open_again(rig: Rig) -> Rig:
    return Rig(rig.folder, FaultyFiles(), **rig.settings)


def assert_whole(rig: Rig) -> None:
    assert topic_payloads(rig.journal, "t") == list(numbered(ROWS))
    assert rig.journal.offsets("t") == (0, ROWS)
    assert rig.journal.next_sequence == 2 * ROWS
    assert dict(rig.journal.state.section("cursors")) == {
        f"c{n % 3}": {"topic": "t", "offset": n} for n in range(ROWS - 3, ROWS)
    }
    assert rig.keep("t", b"next") == 2 * ROWS


def test_a_closed_journal_opens_as_it_was(rig: Rig) -> None:
    opened = open_again(rig)
    assert opened.journal.health().damage == ()
    assert_whole(opened)
    opened.close()


def test_two_snapshots_stay(rig: Rig) -> None:
    assert len(snapshots(rig)) == 2


@pytest.mark.parametrize("lost", ["missing", "empty", "zeros", "garbage"])
def test_the_state_is_made_anew_from_the_rows_when_every_snapshot_is_lost(rig: Rig, lost: str) -> None:
    for path in snapshots(rig):
        spoil(path, lost)
    opened = open_again(rig)
    assert_whole(opened)
    assert opened.damage().count("rebuilt") == (0 if lost == "missing" else 2)
    opened.close()


def test_the_older_snapshot_serves_when_the_newer_one_is_damaged(rig: Rig) -> None:
    spoil(snapshots(rig)[-1], "garbage")
    opened = open_again(rig)
    assert_whole(opened)
    assert opened.damage() == ["rebuilt"]
    opened.close()


@pytest.mark.parametrize("lost", ["missing", "empty", "zeros", "garbage"])
def test_every_index_is_made_anew_when_it_is_lost(rig: Rig, lost: str) -> None:
    closed = segments(rig)[:-1]
    for path in rig.folder.glob("*.idx"):
        spoil(path, lost)
    opened = open_again(rig)
    assert_whole(opened)
    assert opened.damage().count("rebuilt") == len(closed)
    opened.crash()
    again = open_again(rig)
    assert payloads(again.journal)
    assert again.damage() == []
    again.close()


@pytest.mark.parametrize("lost", ["missing", "empty", "zeros", "garbage"])
def test_without_the_commit_mark_every_whole_block_counts(rig: Rig, lost: str) -> None:
    spoil(rig.folder / "committed", lost)
    opened = open_again(rig)
    assert_whole(opened)
    assert opened.journal.health().missing_rows == 0
    opened.close()


def test_one_flipped_bit_of_the_commit_mark_is_mended(rig: Rig) -> None:
    whole = encode_mark(2 * ROWS - 1)
    for bit in range(0, 8 * len(whole), 9):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        (rig.folder / "committed").write_bytes(data)
        opened = open_again(rig)
        assert opened.journal.next_sequence == 2 * ROWS
        assert opened.journal.health().missing_rows == 0
        opened.close()


@pytest.mark.parametrize("lost", ["missing", "empty", "zeros", "garbage"])
def test_the_identity_is_found_again_in_segments_and_snapshots(rig: Rig, lost: str) -> None:
    before = json.loads((rig.folder / "identity").read_bytes())
    spoil(rig.folder / "identity", lost)
    opened = open_again(rig)
    assert_whole(opened)
    assert json.loads((rig.folder / "identity").read_bytes()) == before
    assert opened.damage() == ["rebuilt"]
    opened.close()


@pytest.mark.parametrize("lost", ["missing", "empty", "zeros"])
def test_a_lost_active_segment_costs_its_rows_and_positions_are_not_given_again(rig: Rig, lost: str) -> None:
    active = segments(rig)[-1]
    first = int(active.stem.split("-")[1])
    spoil(active, lost)
    opened = open_again(rig)
    kept = topic_payloads(opened.journal, "t")
    assert kept == list(numbered(len(kept)))
    assert opened.journal.health().missing_rows == 2 * ROWS - first
    assert opened.keep("t", b"next") == 2 * ROWS
    # The snapshot of the clean close knows how far offsets went.
    assert column(opened.journal.read(2 * ROWS), "offset") == [ROWS]
    opened.crash()
    again = open_again(rig)
    assert topic_payloads(again.journal, "t") == [*kept, b"next"]
    again.close()


@pytest.mark.parametrize("lost", ["empty", "zeros", "garbage"])
def test_a_lost_closed_segment_costs_its_rows_only(rig: Rig, lost: str) -> None:
    first, following = (int(path.stem.split("-")[1]) for path in segments(rig)[1:3])
    spoil(segments(rig)[1], lost)
    opened = open_again(rig)
    found = column(opened.journal.read(0), "sequence")
    assert found == [*range(first), *range(following, 2 * ROWS)]
    health = opened.journal.health()
    assert health.missing_rows == following - first
    named = [n for d in health.damage if d.kind == "missing" for n in range(d.first, d.last + 1)]
    assert named == list(range(first, following))
    opened.close()


def test_an_empty_folder_and_leftovers_of_a_crash_are_no_problem(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "state-00000000000000000007.new").write_bytes(b"half")
    (folder / "committed").write_bytes(b"")
    rig = Rig(folder)
    assert rig.keep("t", b"x") == 0
    assert not (folder / "state-00000000000000000007.new").exists()
    rig.close()


def test_files_are_private(rig: Rig) -> None:
    assert rig.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in rig.folder.iterdir()} == {0o600}


# ---- formats --------------------------------------------------------------------------------------------------------


def test_a_block_of_a_newer_format_is_refused_by_name(rig: Rig) -> None:
    active = segments(rig)[-1]
    data = bytearray(active.read_bytes())
    data[8:10] = (VERSION + 7).to_bytes(2, "little")
    data[52:56] = crc(bytes(data[:52])).to_bytes(4, "little")
    active.write_bytes(data)
    active.with_suffix(".idx").unlink()
    with pytest.raises(FormatVersionError) as caught:
        open_again(rig)
    assert (caught.value.file, caught.value.found, caught.value.known) == (active.name, VERSION + 7, VERSION)
    with pytest.raises(FormatVersionError):  # the refusal released the lock
        open_again(rig)


def test_a_folder_of_a_newer_format_is_refused_by_name(rig: Rig) -> None:
    newer = new_identity()
    newer = type(newer)(VERSION + 1, newer.marker, newer.source)
    write_identity(Files(), rig.folder, type(newer)(newer.format, newer.marker, newer.source, newer.sum()))
    with pytest.raises(FormatVersionError) as caught:
        open_again(rig)
    assert (caught.value.file, caught.value.found) == ("identity", VERSION + 1)


# ---- owners and clocks ----------------------------------------------------------------------------------------------


def test_a_second_owner_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    first = Rig(tmp_path / "data")
    with pytest.raises(LockedError) as caught:
        Rig(tmp_path / "data")
    assert str(caught.value.pid) == (tmp_path / "data" / "lock").read_text().strip()
    first.keep("t", b"x")
    first.close()
    Rig(tmp_path / "data").close()


def test_time_does_not_go_back_over_a_restart_or_a_crash(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data")
    rig.clock.now_us += 10**12
    rig.keep("t", b"future")
    for again in (rig.reopen, rig.restart):
        rig.clock.now_us -= 10**11
        again()
        rig.keep("t", b"past")
    times = column(rig.journal.read(0), "time_us")
    assert times == [times[0]] * 3
    rig.close()


def spoil(path: Path, how: str) -> None:
    size = path.stat().st_size
    match how:
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "zeros":
            path.write_bytes(bytes(size))
        case "garbage":
            path.write_bytes(bytes((n * 197 + 13) % 256 for n in range(size)))
