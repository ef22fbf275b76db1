from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.errors import MissingRowsError, TrimmedError
from raceway.journal.read.catalogue import segment_path
from raceway.journal.read.reader import Reader
from raceway.pipeline.scan import MissingRange, PositionSpan, Selection, first_at, gathered, read_span, within_bytes
from raceway.wires.captures.columns import BRONZE
from tests.rigs.journal_folder import write_folder
from tests.rigs.journal_rows import rows

ALL = Selection()


def positions(
    reader: Reader, span: PositionSpan, selection: Selection = ALL, gaps: list[MissingRange] | None = None
) -> list[int]:
    batches = read_span(reader, span, ["sequence"], selection, gaps)
    return [position for batch in batches for position in batch.column("sequence").to_pylist()]


@given(st.integers(0, 10**12), st.integers(0, 10**7), st.integers(1, 64), st.integers(1, 10_000))
def test_the_pieces_of_a_span_are_the_span(start: int, size: int, parts: int, least: int) -> None:
    pieces = PositionSpan(start, start + size).split(parts, least)
    assert len(pieces) <= parts
    assert sum(map(len, pieces)) == size
    if pieces:
        assert pieces[0].start == start
        assert pieces[-1].stop == start + size
        assert all(one.stop == other.start for one, other in pairwise(pieces))
        assert len(pieces) == 1 or min(map(len, pieces)) >= least
        assert max(map(len, pieces)) - min(map(len, pieces)) <= 1


@given(st.lists(st.integers(0, 30), max_size=20), st.integers(1, 50), st.integers(1, 400))
def test_gathered_batches_hold_the_same_rows_and_are_never_empty(sizes: list[int], rows: int, size: int) -> None:
    count = iter(range(10_000))
    batches = [pa.record_batch([pa.array([next(count) for _ in range(n)], pa.int64())], ["n"]) for n in sizes]
    found = list(gathered(iter(batches), rows, size))
    assert [n for batch in found for n in batch.column(0).to_pylist()] == list(range(sum(sizes)))
    assert all(batch.num_rows for batch in found)
    assert all(batch.num_rows >= rows or batch.nbytes >= size for batch in found[:-1])


@given(cuts=st.lists(st.integers(20, 200), max_size=8))
def test_a_read_cut_anywhere_gives_every_row_once(cuts: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "cut"
    if not folder.exists():
        write_folder(folder, [rows(20, 130), rows(150, 50)])
    reader = Reader(folder)
    edges = pairwise(sorted({20, 200, *cuts}))
    assert [p for low, high in edges for p in positions(reader, PositionSpan(low, high))] == list(range(20, 200))


def test_rows_have_the_columns_of_bronze(tmp_path: Path) -> None:
    reader = Reader(write_folder(tmp_path / "data", [rows(0, 30)]))
    (batch,) = read_span(reader, PositionSpan(0, 30), BRONZE.names, ALL)
    assert batch.schema == BRONZE
    batch.validate(full=True)
    assert batch.column("source").unique().to_pylist() == ["journal"]
    assert batch.column("time").cast(pa.int64()).equals(batch.column("time_us"))
    assert batch.column("attributes").null_count == batch.column("hops").null_count == 0
    (chosen,) = read_span(reader, PositionSpan(3, 5), ["time", "topic"], ALL)
    assert chosen.schema.names == ["time", "topic"]


def test_only_wanted_rows_come(tmp_path: Path) -> None:
    stored = rows(0, 28)
    stored[5]["kind"], stored[6]["wire"] = "control", "zbus"
    reader = Reader(write_folder(tmp_path / "data", [stored]))
    everything = PositionSpan(0, 28)
    assert 5 not in positions(reader, everything)
    assert 5 in positions(reader, everything, Selection(with_control=True))
    assert positions(reader, everything, Selection().narrowed("wire", ["zbus", "seneca"])) == [6]
    orders = positions(reader, everything, Selection(topics=("orders.+",)))
    assert orders == [n for n in range(28) if stored[n]["topic"].startswith("orders.") and n != 5]
    assert positions(reader, everything, Selection(topics=("orders.#", "Größe")).narrowed("topic", ["Größe", "x"])) == [
        n for n in range(28) if stored[n]["topic"] == "Größe" and n != 5
    ]
    assert positions(reader, everything, ALL.narrowed("topic", ["a"]).narrowed("topic", ["b"])) == []
    begin = stored[10]["time_us"]
    assert positions(reader, everything, ALL.since(begin).since(0).until(begin + 20).until(begin + 90)) == [10, 11, 12]


def test_positions_that_do_not_come_are_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", [rows(0, 50), rows(50, 50), rows(100, 50)])
    segment_path(folder, 50).unlink()
    with pytest.raises(MissingRowsError, match="positions 50 to 99 are missing") as failure:
        positions(Reader(folder), PositionSpan(20, 150))
    assert (failure.value.first, failure.value.last, failure.value.rows) == (50, 99, 50)
    gaps: list[MissingRange] = []
    assert positions(Reader(folder), PositionSpan(20, 150), gaps=gaps) == [*range(20, 50), *range(100, 150)]
    assert gaps == [(50, 99)]


def test_a_damaged_block_is_a_gap_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", [rows(0, 150)], rows_per_block=50)
    path = segment_path(folder, 0)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 200] = bytes(200)
    path.write_bytes(content)
    gaps: list[MissingRange] = []
    kept = positions(Reader(folder), PositionSpan(0, 150), gaps=gaps)
    lost = [p for first, last in gaps for p in range(first, last + 1)]
    assert lost
    assert sorted(kept + lost) == list(range(150))
    with pytest.raises(MissingRowsError):
        positions(Reader(folder), PositionSpan(0, 150))


def test_what_retention_removed_is_an_error_and_not_an_empty_read(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", [rows(0, 50), rows(50, 50)])
    segment_path(folder, 0).unlink()
    with pytest.raises(TrimmedError, match="position 10 was removed by retention; the first one left is 50"):
        positions(Reader(folder), PositionSpan(10, 100))


def test_a_moment_leads_to_the_first_position_not_before_it(tmp_path: Path) -> None:
    stored = [rows(0, 50), rows(50, 50), rows(100, 50)]
    reader = Reader(write_folder(tmp_path / "data", stored))
    flat = [row for segment in stored for row in segment]
    for position in (0, 1, 49, 50, 99, 100, 149):
        assert first_at(reader, flat[position]["time_us"]) == position
        assert first_at(reader, flat[position]["time_us"] - 9) == position
    assert first_at(reader, flat[-1]["time_us"] + 1) == 150
    assert first_at(reader, 0) == 0


def test_bytes_end_a_span_near_the_limit(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", [rows(0, 1000), rows(1000, 1000)])
    reader = Reader(folder)
    each = sum(path.stat().st_size for path in folder.glob("*.blocks")) / 2000
    assert within_bytes(reader, PositionSpan(0, 2000), int(each * 500)) == pytest.approx(500, abs=50)
    assert within_bytes(reader, PositionSpan(300, 2000), int(each * 1500)) == pytest.approx(1800, abs=50)
    assert within_bytes(reader, PositionSpan(0, 2000), 1) == 1
    assert within_bytes(reader, PositionSpan(0, 2000), 10**9) == 2000
