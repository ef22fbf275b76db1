"""Sealing as the child process does it: what is put in place is proven equal to the blocks, or nothing is."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raceway.errors import JournalError
from raceway.journal.files import Files
from raceway.journal.read.catalogue import segment_path
from raceway.journal.read.reader import Reader
from raceway.journal.read.sealed import SealedSegment
from raceway.journal.read.segment import BlockSegment
from raceway.journal.write import seal
from raceway.journal.write.seal import seal_segment
from raceway.journal.write.staging import remove_unfinished, seal_batches
from tests.rigs.journal_folder import MARKER, encode_block, write_folder
from tests.rigs.journal_rows import TOPICS, Row, any_rows, batch, rows, table

NAME = f"segment-{0:020}"
ROUNDS = int(os.environ.get("RACEWAY_ROUNDS", "6"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "data", [rows(0, 1000), rows(1000, 10)])


def blocks_of(folder: Path) -> BlockSegment:
    return BlockSegment(folder / f"{NAME}.blocks", MARKER)


def sealed_of(folder: Path) -> SealedSegment:
    return SealedSegment(folder / f"{NAME}.parquet")


def test_a_sealed_segment_has_the_rows_of_its_blocks(folder: Path) -> None:
    outcome = seal_segment(folder, NAME, 300)
    assert table(sealed_of(folder).read(0, 1000)).equals(table(blocks_of(folder).read(0, 1000)))
    assert (outcome.rows, outcome.missing, outcome.error) == (1000, (), "")
    assert outcome.size < outcome.source_size


@given(any_rows(), st.integers(1, 40), st.integers(1, 40))
@settings(max_examples=25)
def test_blocks_and_parquet_give_the_same_rows_whatever_they_hold(found: list[Row], per_block: int, group: int) -> None:
    name, following = f"segment-{100:020}", found[-1]["sequence"] + 1
    with tempfile.TemporaryDirectory() as temporary, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Files, "sync", lambda *_: None)
        patch.setattr(Files, "sync_folder", lambda *_: None)
        folder = write_folder(Path(temporary), [found, rows(following, 1)], per_block)
        seal_segment(folder, name, group)
        blocks = BlockSegment(folder / f"{name}.blocks", MARKER)
        sealed = SealedSegment(folder / f"{name}.parquet")
        assert table(sealed.read(0, following)).equals(table(blocks.read(0, following)))
        assert sealed.topics() == blocks.topics()
        for topic in TOPICS:
            for offset in (0, 3):
                assert table(sealed.read_topic(topic, offset)).equals(table(blocks.read_topic(topic, offset)))


def test_rows_quarantined_in_the_blocks_stay_missing_and_are_recorded(folder: Path) -> None:
    path = folder / f"{NAME}.blocks"
    data = bytearray(path.read_bytes())
    size = len(encode_block(rows(0, 50)))
    data[size + 200 : size + 1000] = bytes(800)
    path.write_bytes(data)
    outcome = seal_segment(folder, NAME, 300)
    found = table(sealed_of(folder).read(0, 1000))["sequence"].to_pylist()
    lost = sorted(set(range(1000)) - set(found))
    assert lost
    assert set(lost) <= set(range(50, 100))
    assert {n for first, last in outcome.missing for n in range(first, last + 1)} == set(lost)
    assert {d.kind for d in outcome.damage} >= {"quarantined"} or {d.kind for d in outcome.damage} >= {"missing"}


def test_rows_missing_at_the_end_are_counted_up_to_the_next_segment(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", [rows(0, 100), rows(150, 10)])
    assert seal_segment(folder, NAME, 300).missing == ((100, 149),)
    assert sealed_of(folder).last == 149


def test_the_newest_segment_is_refused(folder: Path) -> None:
    with pytest.raises(JournalError, match="newest one"):
        seal_segment(folder, f"segment-{1000:020}", 300)


def test_an_unknown_segment_is_refused(folder: Path) -> None:
    with pytest.raises(JournalError, match="does not exist"):
        seal_segment(folder, f"segment-{5:020}", 300)


def test_two_processes_do_not_seal_the_same_segment(folder: Path) -> None:
    with (folder / f"{NAME}.blocks").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(JournalError, match="another process"):
            seal_segment(folder, NAME, 300)


def test_a_lost_identity_is_replaced_by_the_marker_of_a_segment(folder: Path) -> None:
    (folder / "identity").unlink()
    assert seal_segment(folder, NAME, 300).rows == 1000


def test_sealing_again_replaces_what_is_there(folder: Path) -> None:
    seal_segment(folder, NAME, 300)
    (folder / f"{NAME}.parquet").write_bytes(b"damaged")
    seal_segment(folder, NAME, 200)
    assert table(sealed_of(folder).read(0, 1000)).num_rows == 1000


# ---- nothing is put in place unless it is right ---------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["payload", "rows", "more rows"])
def test_a_result_that_differs_from_the_blocks_is_not_put_in_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    def wrong(batches: object, *arguments: object, **options: object) -> object:
        changed = rows(0, 1001)
        changed[517]["payload"] = b"something else" if damage == "payload" else changed[517]["payload"]
        found = [batch(changed[: {"payload": 1000, "rows": 999, "more rows": 1001}[damage]])]
        return seal_batches(found, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(seal, "seal_batches", wrong)
    with pytest.raises(JournalError, match=r"differs from its source|number of rows differs"):
        seal_segment(folder, NAME, 300)
    assert not (folder / f"{NAME}.parquet").exists()
    assert remove_unfinished(folder) == []


# ---- the process ----------------------------------------------------------------------------------------------------


def start(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "raceway.journal.write.seal", str(folder), NAME, *options]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_the_child_says_what_it_did_in_one_line(folder: Path) -> None:
    said, _ = start(folder, "--row-group-rows", "400").communicate()
    outcome = json.loads(said)
    assert said.count(b"\n") == 1
    assert (outcome["job"], outcome["name"], outcome["rows"]) == ("seal", NAME, 1000)
    assert outcome["seconds"] >= 0
    assert "error" not in outcome


def test_a_child_that_cannot_do_it_says_why_and_has_status_1(tmp_path: Path) -> None:
    child = start(tmp_path)
    said, _ = child.communicate()
    assert child.returncode == 1
    assert json.loads(said)["error"].endswith("does not exist")


def test_sealing_killed_at_random_moments_and_repeated_loses_nothing(tmp_path: Path) -> None:
    """The moments are spread over the time that an undisturbed run takes after its imports."""
    folder = write_folder(tmp_path / "data", [rows(0, 20_000, payload_bytes=100), rows(20_000, 10)], 1000)
    before = table(blocks_of(folder).read(0, 20_000))
    begin = time.monotonic()
    start(folder).communicate()
    whole = time.monotonic() - begin
    source = random.Random(8)
    for _ in range(ROUNDS):
        for suffix in (".parquet", ".sum", ".idx"):
            (folder / NAME).with_suffix(suffix).unlink(missing_ok=True)
        child = start(folder, "--row-group-rows", "500")
        time.sleep(whole * source.uniform(0.5, 1.1))
        child.send_signal(signal.SIGKILL)
        child.communicate()
        left = {path.name for path in folder.iterdir()}
        if f"{NAME}.parquet" in left:  # then it is whole
            assert table(sealed_of(folder).read(0, 20_000)).equals(before)
        remove_unfinished(folder)
        assert not [path for path in folder.iterdir() if path.is_dir() or path.suffix == ".new"]
        assert table(blocks_of(folder).read(0, 20_000)).equals(before)
    seal_segment(folder, NAME, 500)
    assert table(sealed_of(folder).read(0, 20_000)).equals(before)


# ---- held rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sealed_before", [False, True])
def test_held_rows_are_those_of_the_topics_from_blocks_or_parquet(folder: Path, sealed_before: bool) -> None:
    whole = table(blocks_of(folder).read(0, 1000))
    if sealed_before:
        seal_segment(folder, NAME, 300)
        segment_path(folder, 0).unlink()
    wanted = [TOPICS[1], TOPICS[3]]
    child = start(folder, "--hold")
    said, _ = child.communicate(json.dumps(wanted).encode())
    held = SealedSegment(folder / f"held-{0:020}-{999:020}.parquet")
    found = table(held.read(0, 1000))
    assert json.loads(said)["rows"] == found.num_rows
    assert found.to_pylist() == [row for row in whole.to_pylist() if row["topic"] in wanted]
    assert set(held.topics()) == set(wanted)
    assert table(held.read_topic(TOPICS[1], 100, max_rows=5))["offset"].to_pylist() == [100, 101, 102, 103, 104]
    assert held.damage == []


# ---- blocks that are still there ------------------------------------------------------------------------------------


def test_a_lost_row_group_is_read_from_the_blocks_while_they_are_there(folder: Path) -> None:
    seal_segment(folder, NAME, 100)
    path = folder / f"{NAME}.parquet"
    data = bytearray(path.read_bytes())
    data[8000:12096] = bytes(4096)
    path.write_bytes(data)
    sealed = sealed_of(folder)
    assert table(sealed.read(0, 1000)).equals(table(blocks_of(folder).read(0, 1000)))
    assert {damage.kind for damage in sealed.damage} == {"repaired"}
    assert "from the .blocks file" in sealed.damage[0].reason
    columns = ["payload", "topic"]
    topic = [batch.num_rows for batch in sealed.read_topic(TOPICS[0], 0, columns=columns)]
    assert sum(topic) == sealed.topics()[TOPICS[0]][1]
    segment_path(folder, 0).unlink()
    alone = sealed_of(folder)
    assert table(alone.read(0, 1000)).num_rows < 1000
    assert {damage.kind for damage in alone.damage} == {"quarantined"}


@pytest.mark.parametrize("content", [b"", bytes(5000), b"PAR1"])
def test_readers_fall_back_to_the_blocks_when_nothing_of_the_parquet_file_is_usable(
    folder: Path, content: bytes
) -> None:
    before = table(Reader(folder).read(0))
    seal_segment(folder, NAME, 100)
    (folder / f"{NAME}.parquet").write_bytes(content)
    (folder / f"{NAME}.sum").unlink()
    reader = Reader(folder)
    assert table(reader.read(0)).equals(before)
    assert f"{NAME}.parquet" in {damage.file for damage in reader.damage if damage.kind == "repaired"}
    assert all(damage.kind in ("repaired", "rebuilt") for damage in reader.damage)


def test_the_child_of_a_bus_that_is_gone_ends_quietly(folder: Path) -> None:
    """Nobody reads what it says: it does its work and leaves no traceback."""
    command = [sys.executable, "-m", "raceway.journal.write.seal", str(folder), NAME]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait(30) == 0
    assert sealed_of(folder).is_usable()
