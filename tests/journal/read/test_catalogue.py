"""Many segments as one row of positions, and one topic across them."""

from __future__ import annotations

from pathlib import Path

import pytest

from raceway.errors import TrimmedError
from raceway.journal.files import Files
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.read.catalogue import FolderCatalogue, segment_path
from raceway.journal.read.segment import BlockSegment
from raceway.journal.write.retention import held_path
from raceway.journal.write.seal import hold_rows, seal_segment
from tests.rigs.journal import column
from tests.rigs.journal_folder import MARKER, write_folder
from tests.rigs.journal_rows import TOPICS, Row, rows

SEGMENTS, PER_SEGMENT = 7, 140
END = SEGMENTS * PER_SEGMENT


class Opened:
    """A folder of blocks and its catalogue."""

    def __init__(self, folder: Path, per_topic: dict[int, tuple[str, ...]] | None = None) -> None:
        self.folder = folder
        self.log = DamageLog()
        parts = [rows(first, PER_SEGMENT) for first in range(0, END, PER_SEGMENT)]
        for number, names in (per_topic or {}).items():
            parts[number] = [row | {"offset": None} if row["topic"] not in names else row for row in parts[number]]
        self.rows: list[Row] = [row for part in parts for row in part]
        write_folder(folder, parts)
        self.catalogue = FolderCatalogue(folder, self.log, Files(), self._open_blocks, may_write=True)
        self.catalogue.refresh()

    def _open_blocks(self, path: Path, _newest: bool) -> BlockSegment:
        return BlockSegment(path, MARKER, self.log, may_write=True)

    def sequences(self, start: int = 0, stop: int = END) -> list[int]:
        return column(self.catalogue.read(start, stop, ["sequence"]), "sequence")

    def offsets(self, topic: str, offset: int, most: int = 10**6) -> list[int]:
        return column(self.catalogue.read_topic(topic, offset, most, 10**9, ["offset"]), "offset")

    def expected(self, topic: str, offset: int) -> list[int]:
        found = (row["offset"] for row in self.rows if row["topic"] == topic and row["offset"] is not None)
        return [number for number in found if number >= offset]

    def seal(self, number: int) -> None:
        """Turn a segment into Parquet and take its blocks away."""
        path = segment_path(self.folder, number * PER_SEGMENT)
        seal_segment(self.folder, path.stem, 50)
        path.unlink()


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    return Opened(tmp_path / "data")


def test_positions_are_read_across_segments(opened: Opened) -> None:
    assert opened.sequences() == list(range(END))
    assert opened.sequences(PER_SEGMENT - 1, PER_SEGMENT + 1) == [PER_SEGMENT - 1, PER_SEGMENT]
    assert opened.sequences(END - 3, END) == [END - 3, END - 2, END - 1]
    assert opened.catalogue.listing.begin == 0


def test_offsets_are_found_in_any_segment(opened: Opened) -> None:
    for topic in TOPICS:
        for offset in (0, 1, 29, 30, 31, 95, 160, 205, 500):
            assert opened.offsets(topic, offset) == opened.expected(topic, offset)
    assert opened.offsets("unknown", 0) == []


def test_a_limit_ends_a_read_without_skipping_rows(opened: Opened) -> None:
    everything = opened.expected(TOPICS[0], 0)
    found: list[int] = []
    while part := opened.offsets(TOPICS[0], len(found), most=13):
        assert len(part) <= 13
        found += part
    assert found == everything


def test_segments_without_a_topic_are_stepped_over(tmp_path: Path) -> None:
    rare = TOPICS[2]
    others = tuple(topic for topic in TOPICS if topic != rare)
    opened = Opened(tmp_path / "data", {0: others, 2: others, 3: others, 6: others})
    for offset in range(0, 220, 9):
        assert opened.offsets(rare, offset) == opened.expected(rare, offset)
    first = opened.expected(rare, 0)[0]
    assert opened.catalogue.maybe_first_offset(rare) == first > 0
    assert opened.catalogue.maybe_first_offset("unknown") is None


def test_files_that_were_sealed_since_the_folder_was_listed_are_found_again(opened: Opened) -> None:
    batches = opened.catalogue.read(0, END, ["sequence"])
    begun = column([next(batches)], "sequence")
    for number in (0, 1, 3):
        opened.seal(number)
    assert begun + column(batches, "sequence") == list(range(END))
    opened.seal(2)
    for offset in (0, 50, 150):
        assert opened.offsets(TOPICS[1], offset) == opened.expected(TOPICS[1], offset)
    kinds = {segment.path.suffix for segment in opened.catalogue.listing.segments}
    assert kinds == {".blocks", ".parquet"}
    assert opened.log.totals["missing"] == 0


def test_sealed_files_win_over_blocks_that_are_still_there(opened: Opened) -> None:
    seal_segment(opened.folder, segment_path(opened.folder, 0).stem, 50)
    opened.catalogue.refresh()
    assert opened.catalogue.listing.segments[0].path.suffix == ".parquet"
    assert opened.sequences() == list(range(END))


def test_what_retention_removed_is_named_with_what_is_left(opened: Opened) -> None:
    for number in range(2):
        segment_path(opened.folder, number * PER_SEGMENT).unlink()
    opened.catalogue.refresh()
    left = 2 * PER_SEGMENT
    with pytest.raises(TrimmedError) as caught:
        opened.catalogue.read(left - 1, END, None)
    assert (caught.value.wanted, caught.value.first) == (left - 1, left)
    assert opened.sequences(left) == list(range(left, END))
    first = next(row["offset"] for row in opened.rows[left:] if row["topic"] == TOPICS[0] and row["offset"] is not None)
    with pytest.raises(TrimmedError) as caught:
        opened.catalogue.read_topic(TOPICS[0], first - 1, 10, 10**6, None)
    assert (caught.value.first, caught.value.topic) == (first, TOPICS[0])
    assert opened.offsets(TOPICS[0], first) == opened.expected(TOPICS[0], first)


def test_held_rows_are_read_by_topic_and_not_by_position(opened: Opened) -> None:
    for number in range(2):
        path = segment_path(opened.folder, number * PER_SEGMENT)
        hold_rows(opened.folder, path.stem, [TOPICS[0]], 50)
        assert held_path(opened.folder, number * PER_SEGMENT, (number + 1) * PER_SEGMENT - 1).exists()
    opened.catalogue.refresh()
    assert opened.offsets(TOPICS[0], 0) == opened.expected(TOPICS[0], 0)  # both files hold them: given once
    for number in range(2):
        segment_path(opened.folder, number * PER_SEGMENT).unlink()
    opened.catalogue.refresh()
    assert opened.offsets(TOPICS[0], 0) == opened.expected(TOPICS[0], 0)
    assert opened.offsets(TOPICS[0], 47) == opened.expected(TOPICS[0], 47)
    with pytest.raises(TrimmedError):
        opened.catalogue.read_topic(TOPICS[1], 0, 10, 10**6, None)
    assert opened.catalogue.listing.begin == 2 * PER_SEGMENT


def test_positions_between_two_segments_that_neither_has_are_reported(opened: Opened) -> None:
    segment_path(opened.folder, 2 * PER_SEGMENT).unlink()
    opened.catalogue.refresh()
    assert opened.sequences() == [n for n in range(END) if n // PER_SEGMENT != 2]
    (damage,) = [found for found in opened.log.reports if found.kind == "missing"]
    assert (damage.first, damage.last, damage.rows) == (2 * PER_SEGMENT, 3 * PER_SEGMENT - 1, PER_SEGMENT)


def test_the_size_is_that_of_all_files(opened: Opened) -> None:
    assert opened.catalogue.size == sum(path.stat().st_size for path in opened.folder.glob("*.blocks"))
