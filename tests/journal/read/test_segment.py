"""One segment of blocks and its index."""

from __future__ import annotations

from pathlib import Path

import pytest

from raceway.journal.files import Files, FileSource
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.read import segment as segment_module
from raceway.journal.read.index import Index
from raceway.journal.read.segment import BlockSegment, extend_index, first_of, maybe_load_index, resumable_index
from raceway.journal.write.retention import remove_segment
from tests.rigs.journal import column
from tests.rigs.journal_folder import MARKER, write_folder
from tests.rigs.journal_rows import TOPICS, rows

FIRST, COUNT, PER_BLOCK = 70, 200, 7


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = write_folder(tmp_path / "data", [rows(FIRST, COUNT)], PER_BLOCK)
    (found,) = folder.glob("*.blocks")
    return found


def opened(path: Path, may_write: bool = False) -> BlockSegment:
    return BlockSegment(path, MARKER, DamageLog(), may_write=may_write)


def sequences(segment: BlockSegment, start: int, stop: int) -> list[int]:
    return column(segment.read(start, stop, ["sequence"]), "sequence")


def test_a_closed_segment_is_read_through_an_index_made_from_its_heads(path: Path) -> None:
    segment = opened(path)
    assert (segment.first, segment.last, segment.size) == (FIRST, FIRST + COUNT - 1, path.stat().st_size)
    assert sequences(segment, 0, 10**6) == list(range(FIRST, FIRST + COUNT))
    assert sequences(segment, 75, 90) == list(range(75, 90))
    assert [damage.kind for damage in segment.damage] == ["rebuilt"]
    assert not path.with_suffix(".idx").exists()
    expected = rows(FIRST, COUNT)
    assert segment.time_range_us == (expected[PER_BLOCK - 1]["time_us"], expected[-1]["time_us"])
    segment.close()


def test_the_owner_of_the_folder_keeps_the_index_it_made(path: Path) -> None:
    assert opened(path, may_write=True).last == FIRST + COUNT - 1
    again = opened(path)
    assert again.last == FIRST + COUNT - 1
    assert again.damage == []


@pytest.mark.parametrize("beside", [True, False])
def test_the_index_of_a_sealed_file_is_left_alone(path: Path, beside: bool) -> None:
    """Also in the moment when the sealed file's index is in place and its rows are not yet."""
    sealed = Index(FIRST)
    sealed.covered = 12_345
    if beside:
        path.with_suffix(".parquet").write_bytes(b"")
    path.with_suffix(".idx").write_bytes(sealed.encode())
    segment = opened(path, may_write=True)
    assert segment.last == FIRST + COUNT - 1
    assert segment.damage == []
    assert path.with_suffix(".idx").read_bytes() == sealed.encode()


class RemovingFiles(Files):
    """Retention removes the segment at the moment a reader does something with its index."""

    def __init__(self, path: Path, when: str) -> None:
        self._path, self._when = path, when

    def open_to_read(self, path: Path) -> int:
        if self._when == "looked for" and path.suffix == ".idx":
            remove_segment(Files(), self._path)
        return super().open_to_read(path)

    def rename(self, old: Path, new: Path) -> None:
        if self._when == "saved":
            remove_segment(Files(), self._path)
        super().rename(old, new)


@pytest.mark.parametrize("when", ["looked for", "saved"])
def test_a_segment_removed_under_its_reader_is_read_and_leaves_nothing_behind(path: Path, when: str) -> None:
    segment = BlockSegment(path, MARKER, DamageLog(), RemovingFiles(path, when), may_write=True)
    assert segment.last == FIRST + COUNT - 1
    assert not path.exists()
    assert not path.with_suffix(".idx").exists()
    if when == "looked for":
        assert segment.damage == []


def test_an_index_of_another_length_or_segment_is_not_used(path: Path) -> None:
    index = Index(FIRST)
    index.covered = 5
    path.with_suffix(".idx").write_bytes(index.encode())
    assert maybe_load_index(Files(), path) is not None
    assert opened(path).last == FIRST + COUNT - 1
    path.with_suffix(".idx").write_bytes(Index(FIRST + 1).encode())
    assert maybe_load_index(Files(), path) is None


def test_topics_are_read_in_offset_order(path: Path) -> None:
    segment = opened(path)
    expected = rows(FIRST, COUNT)
    for topic in TOPICS:
        offsets = [row["offset"] for row in expected if row["topic"] == topic and row["offset"] is not None]
        assert segment.topics()[topic] == (offsets[0], offsets[-1] + 1) == segment.index.maybe_offsets(topic)
        found = column(segment.read_topic(topic, offsets[3], 10**6, 10**9, ["offset"]), "offset")
        assert found == offsets[3:]
    assert list(segment.read_topic("unknown", 0)) == []


def test_a_growing_index_takes_up_where_it_was_and_stops_at_the_limit(path: Path) -> None:
    index, log = Index(FIRST), DamageLog()
    with FileSource(Files(), path) as source:
        extend_index(index, source, MARKER, path.name, log, FIRST + 2 * PER_BLOCK - 1)
        assert len(index) == 2
        path.with_suffix(".idx").write_bytes(index.encode())
        again = resumable_index(Files(), path, source)
        assert len(again) == 2
        extend_index(again, source, MARKER, path.name, log)
        assert again.last == FIRST + COUNT - 1
    assert log.reports == []


def test_a_saved_index_longer_than_the_file_is_not_taken_up(path: Path) -> None:
    index = Index(FIRST)
    index.covered = path.stat().st_size + 1
    path.with_suffix(".idx").write_bytes(index.encode())
    with FileSource(Files(), path) as source:
        assert resumable_index(Files(), path, source).covered == 0


def test_a_block_whose_head_was_destroyed_since_it_was_indexed_is_missing(path: Path) -> None:
    opened(path, may_write=True).topics()
    data = bytearray(path.read_bytes())
    data[:40] = bytes(40)
    path.write_bytes(data)
    segment = opened(path)
    assert sequences(segment, 0, 10**6) == list(range(FIRST + PER_BLOCK, FIRST + COUNT))
    (damage,) = segment.damage
    assert (damage.kind, damage.first, damage.last) == ("missing", FIRST, FIRST + PER_BLOCK - 1)


def test_few_indexes_stay_in_memory(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", [rows(first, 10) for first in range(0, 80, 10)])
    segments = [opened(path, may_write=True) for path in sorted(folder.glob("*.blocks"))]
    for segment in segments:
        assert segment.last == segment.first + 9
    loaded = [segment for segment in segments if segment._index is not None]
    assert len(loaded) <= segment_module._KEPT_SEGMENTS
    assert sequences(segments[0], 0, 100) == list(range(10))
    for segment in segments:
        segment.close()


def test_the_name_says_where_a_segment_begins() -> None:
    assert first_of(Path("x/segment-00000000000000000123.blocks")) == 123
    assert first_of(Path("held-00000000000000000007-00000000000000000009.parquet")) == 7
