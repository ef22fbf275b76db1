from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raceway.journal.files import write_file
from raceway.pipeline import compaction
from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import Lake, ParquetLake, range_name
from raceway.pipeline.notes import Note
from raceway.pipeline.tables import MESSAGES
from tests.pipeline.lakes import append
from tests.pipeline.rows import message


def small_parts(lake: Lake, parts: int = 6) -> Lake:
    """Parts of ten rows."""
    for number in range(parts):
        append(lake, [message(n) for n in range(10 * number, 10 * number + 10)])
    return lake


@pytest.fixture
def files(tmp_path: Path) -> ParquetLake:
    lake = ParquetLake(None, Folders(tmp_path / "data"))
    small_parts(lake)
    return lake


def positions(lake: ParquetLake) -> list[int]:
    found = [file for part in lake.parts(MESSAGES) for file in lake.files(MESSAGES, part)]
    return [n for file in found for n in pq.read_table(file, columns=["sequence"]).column(0).to_pylist()]


def test_neighbours_are_merged_until_a_part_is_full(files: ParquetLake) -> None:
    done = compaction.compact(files, full_rows=30)
    assert done[0] == (MESSAGES, 6, 2, 60)
    assert files.parts(MESSAGES) == [range_name(0, 29), range_name(30, 59)]
    assert positions(files) == list(range(60))
    assert files.end() == 60
    assert files.notes.parts(MESSAGES) == files.parts(MESSAGES)
    assert compaction.compact(files, full_rows=30)[0] == (MESSAGES, 2, 2, 0), "nothing is left to do"


def test_captures_and_full_parts_stay_as_they_are(files: ParquetLake) -> None:
    capture = "import-" + "ab" * 32
    shutil.copytree(files.path(MESSAGES) / f"range={range_name(0, 9)}", files.path(MESSAGES) / f"range={capture}")
    append(files, [message(n) for n in range(60, 160)])
    compaction.compact(files, full_rows=100)
    assert files.parts(MESSAGES) == [range_name(0, 59), range_name(60, 159), capture]


def test_only_parts_that_the_same_tables_have_seen_are_merged(files: ParquetLake) -> None:
    for part in files.notes.parts(MESSAGES)[:3]:
        note = files.notes.of(MESSAGES, part)
        files.notes.put(MESSAGES, part, msgspec.structs.replace(note, feeds={"silver.hops": [part[-2:]]}))
    compaction.compact(files)
    assert files.parts(MESSAGES) == [range_name(0, 29), range_name(30, 59)]
    assert files.notes.of(MESSAGES, range_name(0, 29)).feeds == {"silver.hops": ["09", "19", "29"]}
    assert files.notes.of(MESSAGES, range_name(30, 59)).feeds == {}


def test_what_parts_handed_on_stays_with_their_rows(files: ParquetLake) -> None:
    folder = files.folders.links / "gold.chains"
    folder.mkdir(parents=True)
    for part in files.parts(MESSAGES):
        pq.write_table(pa.table({"first": [int(part[:20])], "part": [part]}), folder / f"{part}.parquet")
    compaction.compact(files)
    assert [path.stem for path in folder.iterdir()] == files.parts(MESSAGES)
    joined = pq.read_table(folder / f"{range_name(0, 59)}.parquet")
    assert joined.column("first").to_pylist() == [0, 10, 20, 30, 40, 50]
    assert joined.column("part").unique().to_pylist() == [range_name(0, 59)]


class KilledError(Exception):
    """The process ends here."""


@pytest.mark.parametrize("survived", range(12))
def test_a_crash_at_any_step_is_finished_at_the_next_start(
    files: ParquetLake, monkeypatch: pytest.MonkeyPatch, survived: int
) -> None:
    """Renames, writes of notes and removals of notes are counted; the process dies at each of them in turn."""
    left = survived

    def counted(call: Callable[..., object]) -> Callable[..., object]:
        def step(*args: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise KilledError
            return call(*args, **options)

        return step

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", counted(os.rename))
        patched.setattr(type(files.notes), "put", counted(type(files.notes).put))
        patched.setattr(type(files.notes), "drop", counted(type(files.notes).drop))
        patched.setattr("raceway.pipeline.compaction.write_file", counted(write_file))
        with pytest.raises(KilledError):
            compaction.compact(files)
    again = ParquetLake(None, files.folders)
    compaction.finish(again)
    again.sweep()
    assert positions(again) == list(range(60))
    assert not (files.folders.root / "compacting").exists()
    assert set(again.notes.parts(MESSAGES)) == set(again.parts(MESSAGES))
    assert sum(again.notes.of(MESSAGES, part).rows for part in again.parts(MESSAGES)) == 60
    compaction.compact(again)
    assert again.parts(MESSAGES) == [range_name(0, 59)]


def test_gaps_and_times_are_joined(any_lake: Lake) -> None:
    small_parts(any_lake, 2)
    for number, part in enumerate(any_lake.parts(MESSAGES)):
        any_lake.notes.put(MESSAGES, part, Note(rows=10, source="journal", last_us=number, gaps=[(number, number)]))
    compaction.compact(any_lake)
    assert any_lake.parts(MESSAGES) == [range_name(0, 19)]
    joined = any_lake.notes.of(MESSAGES, range_name(0, 19))
    assert joined == Note(rows=20, source="journal", last_us=1, gaps=[(0, 0), (1, 1)])
    assert sorted(row.sequence for row in any_lake.frame(MESSAGES).collect()) == list(range(20))
