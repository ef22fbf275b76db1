"""Where rows lie: lookups by sequence and by topic, and the file it is kept in."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raceway.journal.read.index import Index

TOPICS = ("a", "b", "c")


def filled(chunks: list[tuple[int, int, list[tuple[str, int, int]]]], first: int = 100) -> Index:
    index = Index(first)
    for number, (sequence, count, spans) in enumerate(chunks):
        index.add(
            number * 1000, sequence, count, spans, covered=(number + 1) * 1000, time_us=number, control=number % 2 == 1
        )
    return index


@st.composite
def any_chunks(draw: st.DrawFn, most: int = 30) -> list[tuple[int, int, list[tuple[str, int, int]]]]:
    """Chunks with gaps between sequences and offsets, as damage leaves them."""
    sequence, offsets, chunks = 100, dict.fromkeys(TOPICS, 0), []
    for _ in range(draw(st.integers(0, most))):
        sequence += draw(st.sampled_from([0, 0, 0, 3]))
        spans = []
        for topic in draw(st.lists(st.sampled_from(TOPICS), max_size=4)):
            offsets[topic] += draw(st.sampled_from([0, 0, 2]))
            count = draw(st.integers(1, 5))
            spans.append((topic, offsets[topic], count))
            offsets[topic] += count
        count = max(1, sum(count for _, _, count in spans))
        chunks.append((sequence, count, spans))
        sequence += count
    return chunks


def test_an_empty_index_has_no_rows() -> None:
    index = Index(7)
    assert (len(index), index.first, index.last, index.rows) == (0, 7, 6, 0)
    assert (index.chunk_at(0), index.chunk_at(100)) == (0, 0)
    assert list(index.chunks_of("a", 0)) == []
    assert index.topics() == {}


@settings(max_examples=50)
@given(any_chunks())
def test_the_chunk_of_a_sequence_is_the_first_that_ends_behind_it(chunks: Any) -> None:
    index = filled(chunks)
    for sequence in range(95, index.last + 5):
        expected = next((n for n, (first, count, _) in enumerate(chunks) if first + count > sequence), len(chunks))
        assert index.chunk_at(sequence) == expected


@settings(max_examples=50)
@given(any_chunks())
def test_the_chunks_of_a_topic_are_those_with_offsets_at_or_behind(chunks: Any) -> None:
    index = filled(chunks)
    for topic in TOPICS:
        for offset in range(40):
            expected = [
                number
                for number, (_, _, spans) in enumerate(chunks)
                if any(name == topic and first + count > offset for name, first, count in spans)
            ]
            assert list(index.chunks_of(topic, offset)) == expected


def test_a_long_index_is_searched_without_walking_over_it() -> None:
    index = filled([(100 + n, 1, [("rare" if n % 500 == 0 else "often", n // 500 if n % 500 == 0 else n, 1)])
                    for n in range(5000)])  # fmt: skip
    assert list(index.chunks_of("rare", 3)) == [500 * n for n in range(3, 10)]
    assert next(iter(index.chunks_of("often", 4990))) == 4990
    assert next(iter(index.chunks_of("often", 7))) == 7


@settings(max_examples=50)
@given(any_chunks())
def test_an_index_comes_back_from_its_bytes(chunks: Any) -> None:
    index = filled(chunks)
    again = Index.maybe_decode(index.encode())
    assert again is not None
    assert (again.first, again.last, again.covered, again.rows) == (100, index.last, index.covered, index.rows)
    assert (again.first_time_us, again.last_time_us) == (index.first_time_us, index.last_time_us)
    assert (again.topics(), list(again.controls)) == (index.topics(), list(index.controls))
    assert [again.spans(n) for n in range(len(again))] == [list(spans) for _, _, spans in chunks]
    again.add(10**6, index.last + 10, 2, [("new", 0, 2)], covered=10**6 + 5, time_us=99)
    assert again.maybe_offsets("new") == (0, 2)


def test_a_flipped_bit_is_mended_and_anything_worse_is_none() -> None:
    data = filled([(100, 5, [("a", 0, 5)]), (105, 1, [])]).encode()
    for bit in range(0, 8 * len(data), 11):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        again = Index.maybe_decode(bytes(damaged))
        assert again is not None
        assert again.last == 105
    assert Index.maybe_decode(b"") is None
    assert Index.maybe_decode(bytes(len(data))) is None
    assert Index.maybe_decode(data[: len(data) // 2]) is None


def test_topics_say_where_offsets_begin_and_go_on() -> None:
    index = filled([(100, 3, [("a", 5, 2), ("b", 0, 1)]), (103, 2, [("a", 9, 2)])])
    assert index.topics() == {"a": (5, 11), "b": (0, 1)}
    assert index.maybe_offsets("a") == (5, 11)
    assert index.maybe_offsets("z") is None


def test_a_one_row_block_costs_some_forty_bytes() -> None:
    """So that the two hundred thousand blocks of a quiet hour are eight megabytes."""
    blocks = 20_000
    tracemalloc.start()
    index = Index(0)
    for number in range(blocks):
        index.add(number * 400, number, 1, [("t", number, 1)], covered=number * 400 + 400, time_us=number)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 45 * blocks


def test_the_extent_is_read_without_the_rest() -> None:
    index = filled([(100, 3, [("a", 5, 2)]), (103, 2, [("a", 7, 2)])])
    extent = Index.maybe_extent(index.encode())
    assert extent is not None
    assert (extent.first, extent.last, extent.covered, extent.is_whole) == (index.first, 104, index.covered, True)
    assert (extent.begin, extent.position) == (103, index.positions[-1])


def test_the_extent_of_an_index_with_missing_rows_is_not_whole() -> None:
    between = Index.maybe_extent(filled([(100, 3, []), (104, 2, [])]).encode())
    assert between is not None
    assert not between.is_whole
    index = filled([(100, 3, [])])
    index.is_broken = True
    noted = Index.maybe_extent(index.encode())
    assert noted is not None
    assert not noted.is_whole
    again = Index.maybe_decode(index.encode())
    assert again is not None
    assert again.is_broken


@pytest.mark.parametrize("size", [0, 40, 80])
def test_of_too_few_bytes_there_is_no_extent(size: int) -> None:
    assert Index.maybe_extent(filled([(100, 3, [("a", 5, 2)])]).encode()[:size]) is None
