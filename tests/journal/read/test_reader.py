"""Reading the files of a journal that another process writes, rolls, seals and trims."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from raceway.errors import JournalError, TrimmedError
from raceway.journal.read.reader import Reader
from raceway.journal.write.mark import encode_mark
from tests.rigs.journal import Rig, column, numbered, trim
from tests.rigs.journal_faults import FaultyFiles

FOLLOW = """
import json, pathlib, sys, time
from raceway.journal.read.reader import Reader
reader, end, deadline = Reader(sys.argv[1]), pathlib.Path(sys.argv[2]), time.monotonic() + 60
print("following", flush=True)
position, offset, wrong, suffixes, wanted = 0, 0, 0, set(), None
while (wanted is None or position < wanted or offset < wanted) and time.monotonic() < deadline:
    wanted = int(end.read_text()) if end.exists() else None
    for batch in reader.read(position, columns=["sequence", "payload"]):
        for sequence, payload in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist()):
            wrong += sequence != position or payload != b"%d" % sequence
            position += 1
    for batch in reader.read_topic("t", offset, columns=["offset"]):
        for found in batch.column(0).to_pylist():
            wrong += found != offset
            offset += 1
    suffixes |= {segment.path.suffix for segment in reader.segments()}
print(json.dumps([position, offset, wrong, sorted(suffixes)]))
"""


def read_sequences(reader: Reader, start: int = 0) -> list[int]:
    return column(reader.read(start, columns=["sequence"]), "sequence")


def test_another_process_follows_while_the_journal_grows_rolls_and_seals(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data", FaultyFiles(), segment_bytes=60_000, seal_keep_s=0, row_group_rows=500)
    rig.keep("t", b"0")
    command = [sys.executable, "-c", FOLLOW, str(rig.folder), str(tmp_path / "end")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "following\n"
        deadline = time.monotonic() + 30
        first = rig.folder / "segment-00000000000000000000.blocks"
        while first.exists() or len(list(rig.folder.glob("*.parquet"))) < 2:
            assert time.monotonic() < deadline, "nothing was sealed"
            rig.keep("t", *numbered(50, rig.journal.next_sequence))
            rig.journal.upkeep()
            time.sleep(0.005)
        wanted = rig.journal.next_sequence
        (tmp_path / "end.new").write_text(str(wanted))
        (tmp_path / "end.new").rename(tmp_path / "end")
        position, offset, wrong, suffixes = json.loads(follower.stdout.read())
    assert (position, offset, wrong, suffixes) == (wanted, wanted, 0, [".blocks", ".parquet"])
    late = Reader(rig.folder)
    assert read_sequences(late) == list(range(wanted))
    late.close()
    rig.close()


def test_a_reader_sees_what_is_committed_and_no_more(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data", FaultyFiles())
    rig.keep("t", b"a", b"b")
    reader = Reader(rig.folder)
    rig.publish("t", b"c")
    assert (reader.committed(), read_sequences(reader)) == (1, [0, 1])
    rig.commit()
    assert (reader.committed(), read_sequences(reader, 1)) == (2, [1, 2])
    assert read_sequences(reader, 3) == []
    reader.close()
    rig.close()


def test_blocks_behind_the_mark_are_not_shown(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data", FaultyFiles())
    for number in range(4):
        rig.keep("t", b"%d" % number)
    (rig.folder / "committed").write_bytes(encode_mark(1))
    reader = Reader(rig.folder)
    assert read_sequences(reader) == [0, 1]
    assert column(reader.read_topic("t", 0), "offset") == [0, 1]
    (rig.folder / "committed").write_bytes(encode_mark(3))
    assert read_sequences(reader) == [0, 1, 2, 3]
    reader.close()
    rig.close()


def test_a_reader_finds_new_segments_by_itself(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data", FaultyFiles(), segment_bytes=500, seal=False)
    rig.keep("t", b"x" * 100)
    reader = Reader(rig.folder)
    for _ in range(20):
        rig.keep("t", b"x" * 100)
        assert len(read_sequences(reader)) == reader.committed() + 1
    assert len(reader.segments()) > 3
    assert reader.damage == []
    reader.close()
    rig.close()


def test_a_reader_behind_retention_gets_the_first_position_left(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data", FaultyFiles(), segment_bytes=500, seal=False)
    for _ in range(20):
        rig.keep("t", b"x" * 100)
    reader = Reader(rig.folder)
    batches = reader.read(0)
    next(batches)
    trim(rig.journal, 12)
    left = rig.journal.first_position()
    assert 0 < left <= 12
    with pytest.raises(TrimmedError) as caught:
        for _ in batches:
            pass
    assert caught.value.first == left
    assert reader.first_position() == left
    with pytest.raises(TrimmedError):
        reader.read(0)
    with pytest.raises(TrimmedError) as caught:
        reader.read_topic("t", 0)
    assert (caught.value.first, caught.value.topic) == (left, "t")
    assert read_sequences(reader, left) == list(range(left, 20))
    reader.close()
    rig.close()


def test_a_folder_without_a_journal_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="not a data folder"):
        Reader(tmp_path / "nowhere")
    with pytest.raises(JournalError, match="no journal"):
        Reader(tmp_path)


def test_without_mark_and_identity_whole_blocks_are_read(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data", FaultyFiles())
    rig.keep("t", *numbered(5))
    rig.crash()
    (rig.folder / "committed").unlink()
    (rig.folder / "identity").unlink()
    reader = Reader(rig.folder)
    assert reader.committed() == 4
    assert read_sequences(reader) == [0, 1, 2, 3, 4]
    reader.close()
