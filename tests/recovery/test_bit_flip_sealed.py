"""Sealed segments on a failing disk: one flipped bit loses nothing anywhere, a zeroed page at most its row groups."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from raceway.journal.integrity.checksum import STRIPE
from raceway.journal.read.sealed import SealedSegment
from raceway.journal.write.staging import files_of, seal_batches
from tests.rigs.journal_folder import UNSYNCED
from tests.rigs.journal_rows import TOPICS, batch, rows, table

ROWS, GROUP = 3000, 400
FLIPS = 200 * max(1, int(os.environ.get("RACEWAY_ROUNDS", "1")))
NAME = f"segment-{0:020}.parquet"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 370 KiB in six stripes; eight row groups."""
    path = tmp_path_factory.mktemp("pristine") / NAME
    source = random.Random(4)
    found = [row | {"payload": source.randbytes(100)} for row in rows(0, ROWS)]
    seal_batches([batch(found)], path, GROUP, first=0)
    return path


@pytest.fixture(scope="module")
def everything(pristine: Path) -> pa.Table:
    return table(SealedSegment(pristine).read(0, ROWS))


def places(pristine: Path, count: int) -> Iterator[tuple[str, int, int]]:
    """(suffix, byte, bit): half of them in the rows, the others in the footer and in the side files."""
    source = random.Random(200)
    size = pristine.stat().st_size
    footer = int.from_bytes(pristine.read_bytes()[-8:-4], "little") + 8
    for number in range(count):
        suffix, first, last = (
            (".parquet", 0, size - footer),
            (".parquet", size - footer, size),
            (".parquet", 0, size),
            (".sum", 0, pristine.with_suffix(".sum").stat().st_size),
            (".parquet", 0, size - footer),
            (".idx", 0, pristine.with_suffix(".idx").stat().st_size),
        )[number % 6]
        yield suffix, source.randrange(first, last), source.randrange(8)


def copy(pristine: Path, folder: Path) -> Path:
    for path in files_of(pristine):
        shutil.copy(path, folder / path.name)
    return folder / pristine.name


def test_a_bit_flipped_anywhere_is_repaired_reported_and_loses_nothing(
    pristine: Path, everything: pa.Table, tmp_path: Path
) -> None:
    for suffix, at, bit in places(pristine, FLIPS):
        path = copy(pristine, tmp_path)
        victim = path.with_suffix(suffix)
        data = bytearray(victim.read_bytes())
        data[at] ^= 1 << bit
        victim.write_bytes(data)
        segment = SealedSegment(path, files=UNSYNCED, may_write=True)
        assert table(segment.read(0, ROWS)).equals(everything), (suffix, at, bit)
        assert [(damage.kind, damage.file) for damage in segment.damage] == [("repaired", victim.name)], (suffix, at)
        assert victim.read_bytes() == pristine.with_suffix(suffix).read_bytes(), (suffix, at, bit)


def test_one_bit_in_every_stripe_at_once_loses_nothing(pristine: Path, everything: pa.Table, tmp_path: Path) -> None:
    path = copy(pristine, tmp_path)
    source = random.Random(5)
    for file in files_of(path):
        data = bytearray(file.read_bytes())
        for start in range(0, len(data), STRIPE):
            data[source.randrange(start, min(start + STRIPE, len(data)))] ^= 1 << source.randrange(8)
        file.write_bytes(data)
    segment = SealedSegment(path)
    assert table(segment.read(0, ROWS)).equals(everything)
    assert table(segment.read_topic(TOPICS[0], 100, max_rows=9))["offset"].to_pylist() == list(range(100, 109))
    assert {damage.kind for damage in segment.damage} == {"repaired"}


def test_a_reader_of_another_process_gets_the_rows_and_leaves_the_repair_to_the_owner(
    pristine: Path, everything: pa.Table, tmp_path: Path
) -> None:
    path = copy(pristine, tmp_path)
    data = bytearray(path.read_bytes())
    data[123_456] ^= 1
    path.write_bytes(data)
    assert table(SealedSegment(path).read(0, ROWS)).equals(everything)
    assert path.read_bytes() == data


def test_a_zeroed_page_costs_at_most_the_row_groups_it_lies_in(
    pristine: Path, everything: pa.Table, tmp_path: Path
) -> None:
    size = pristine.stat().st_size
    groups = [_extent(pristine, number) for number in range(pq.read_metadata(pristine).num_row_groups)]
    for at in [0, 4096, *random.Random(6).sample(range(0, size - 4096, 4096), 30)]:
        path = copy(pristine, tmp_path)
        data = bytearray(path.read_bytes())
        data[at : at + 4096] = bytes(4096)
        path.write_bytes(data)
        segment = SealedSegment(path, files=UNSYNCED, may_write=True)
        found = table(segment.read(0, ROWS))
        touched = {number for number, (begin, end) in enumerate(groups) if begin < at + 4096 and end > at}
        lost = [damage for damage in segment.damage if damage.kind == "quarantined"]
        assert {damage.first // GROUP for damage in lost} <= touched, at
        gone = {sequence for damage in lost for sequence in range(damage.first, damage.last + 1)}
        assert set(found["sequence"].to_pylist()) == set(range(ROWS)) - gone, at
        assert found.equals(everything.filter(pc.is_in(everything["sequence"], found["sequence"])).combine_chunks())


def _extent(path: Path, number: int) -> tuple[int, int]:
    """The bytes of a row group, dictionaries included."""
    group = pq.read_metadata(path).row_group(number)
    columns = [group.column(n) for n in range(group.num_columns)]
    begin = min(column.dictionary_page_offset or column.data_page_offset for column in columns)
    return begin, begin + sum(column.total_compressed_size for column in columns)


def test_damage_of_any_kind_and_number_never_gives_a_wrong_row(
    pristine: Path, everything: pa.Table, tmp_path: Path
) -> None:
    """Rows may be missing, the process may not die, and what is read is what was written: also without side files."""
    source = random.Random(7)
    for _ in range(60):
        path = copy(pristine, tmp_path)
        data = bytearray(path.read_bytes())
        for _ in range(source.choice([1, 2, 3])):
            size = source.choice([1, 2, 8, 64, 512, 8192])
            at = source.choice([source.randrange(len(data) - size), len(data) - source.randrange(size, 9000)])
            data[at : at + size] = source.choice([bytes(size), source.randbytes(size)])
        path.write_bytes(data)
        for suffix in (".sum", ".idx"):
            if source.random() < 0.5:
                path.with_suffix(suffix).unlink()
        found = table(SealedSegment(path).read(0, ROWS))
        assert found.equals(everything.filter(pc.is_in(everything["sequence"], found["sequence"])).combine_chunks())
