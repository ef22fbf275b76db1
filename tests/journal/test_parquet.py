"""Row groups, the index of what they hold, and footers."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raceway.errors import JournalError
from raceway.journal.format import SCHEMA
from raceway.journal.parquet import (
    ParquetSink,
    is_plausible,
    missing_of,
    parse_footer,
    row_groups,
    sequence_range,
    spans_of,
)
from tests.rigs.journal_rows import Row, any_rows, batch, batches, rows, table


def footer_of(data: bytes) -> bytes:
    return data[-int.from_bytes(data[-8:-4], "little") - 8 :]


def written(groups: list[pa.RecordBatch], first: int, last: int | None = None, sparse: bool = False) -> bytes:
    class Kept(io.BytesIO):
        """Arrow closes what it writes to; the bytes are still wanted."""

        def close(self) -> None:
            pass

    file = Kept()
    with ParquetSink(file, first, sparse=sparse) as sink:  # type: ignore[arg-type]
        for group in groups:
            sink.write(pa.Table.from_batches([group]))
        sink.finish(last)
    return file.getvalue()


# ---- cutting --------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(1, 60), st.sampled_from([1, 5000, 20_000, 10**9]))
@settings(max_examples=30)
def test_row_groups_keep_the_rows_and_both_bounds(sizes: list[int], most: int, size: int) -> None:
    first, given_batches = 0, []
    for count in sizes:
        given_batches.append(batch(rows(first, count, payload_bytes=100)))
        first += count
    groups = list(row_groups(given_batches, most, size))
    assert [s for group in groups for s in group["sequence"].to_pylist()] == list(range(first))
    for group in groups:
        assert 0 < group.num_rows <= most
        assert group.nbytes <= size or group.num_rows == 1


def test_small_rows_fill_row_groups_to_the_last_row() -> None:
    groups = row_groups(batches(0, 1000, per_batch=70), 300)
    assert [group.num_rows for group in groups] == [300, 300, 300, 100]


def test_large_rows_fill_row_groups_about_to_their_size() -> None:
    groups = list(row_groups(batches(0, 400, per_batch=400, payload_bytes=10_000), 16_384, 1_000_000))
    assert 4 <= len(groups) <= 6


def test_a_row_larger_than_the_bound_is_alone() -> None:
    found = rows(0, 5)
    found[2]["payload"] = bytes(100_000)
    groups = [group["sequence"].to_pylist() for group in row_groups([batch(found)], 100, 10_000)]
    assert [2] in groups
    assert [sequence for group in groups for sequence in group] == [0, 1, 2, 3, 4]


# ---- index ----------------------------------------------------------------------------------------------------------


@given(any_rows())
def test_spans_are_the_runs_of_consecutive_offsets(found: list[Row]) -> None:
    del found[3:5]  # makes a gap if those had offsets
    spans = spans_of(table([batch(found)]))
    expected = {(row["topic"], row["offset"]) for row in found if row["offset"] is not None}
    assert {(topic, first + n) for topic, first, count in spans for n in range(count)} == expected
    ends = {(topic, first + count) for topic, first, count in spans}
    assert not ends & {(topic, first) for topic, first, _ in spans}  # runs are as long as they can be


def test_rows_without_offset_have_no_span() -> None:
    assert spans_of(table([batch([row | {"offset": None} for row in rows(0, 10)])])) == []


def test_the_index_describes_each_row_group() -> None:
    file = io.BytesIO()
    with ParquetSink(file, 100) as sink:  # type: ignore[arg-type]
        sink.write(table([batch(rows(100, 50))]))
        sink.write(table([batch(rows(150, 20))]))
        sink.finish()
    index = sink.index
    assert [(index.first_of(n), index.last_of(n), index.positions[n]) for n in range(2)] == [
        (100, 149, 0),
        (150, 169, 1),
    ]
    assert (index.first_time_us, index.last_time_us) == (rows(100, 1)[0]["time_us"], rows(169, 1)[0]["time_us"])
    assert sink.rows == 70


# ---- what is missing ------------------------------------------------------------------------------------------------


def test_gaps_before_between_inside_and_behind_row_groups_are_recorded() -> None:
    first = [row for row in rows(105, 20) if row["sequence"] not in (110, 111, 115)]
    data = written([batch(first), batch(rows(130, 5))], first=100, last=140)
    assert missing_of(parse_footer(footer_of(data))) == [(100, 104), (110, 111), (115, 115), (125, 129), (135, 140)]


def test_a_sparse_file_misses_nothing() -> None:
    data = written([batch(rows(105, 20)), batch(rows(130, 5))], first=100, last=140, sparse=True)
    assert missing_of(parse_footer(footer_of(data))) == []


# ---- footers --------------------------------------------------------------------------------------------------------


def test_a_footer_tells_the_positions_of_its_row_groups() -> None:
    metadata = parse_footer(footer_of(written([batch(rows(5, 20)), batch(rows(30, 5))], first=5)))
    assert [sequence_range(metadata, number) for number in range(2)] == [(5, 24), (30, 34)]
    assert is_plausible(metadata)


@pytest.mark.parametrize("footer", [b"", b"PAR1", b"\0\0\0\0PAR1", b"nonsense\x08\0\0\0PAR1"])
def test_a_footer_that_says_nothing_is_an_error(footer: bytes) -> None:
    with pytest.raises(JournalError, match="footer cannot be read"):
        parse_footer(footer)


def test_a_footer_of_another_schema_is_not_plausible(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"sequence": [1, 2]}), path)
    assert not is_plausible(pq.read_metadata(path))


def test_a_footer_whose_row_groups_go_back_is_not_plausible() -> None:
    assert not is_plausible(parse_footer(footer_of(written([batch(rows(30, 5)), batch(rows(5, 5))], 0, sparse=True))))


def test_a_sink_that_is_left_early_lets_go_of_its_file(tmp_path: Path) -> None:
    def leave_early() -> None:
        with (tmp_path / "x").open("wb") as file, ParquetSink(file, 0) as sink:  # type: ignore[arg-type]
            sink.write(table([batch(rows(0, 5))]))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        leave_early()
    assert SCHEMA.equals(pq.read_schema(tmp_path / "x"))  # whole, but nobody will call it a segment
