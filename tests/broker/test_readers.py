from __future__ import annotations

from collections.abc import Sequence

import pytest

from raceway.broker.readers import Readers
from raceway.broker.runs import RowSpan
from raceway.broker.topics import TopicTable
from raceway.errors import DiskFullError, RacewayError
from raceway.model.envelope import Batch


class RecordingReader:
    """Writes down the rows it is told of."""

    def __init__(self) -> None:
        self.rows: list[Sequence[int]] = []
        self.lost: list[int] = []

    def committed(self, batch: Batch, rows: Sequence[int]) -> None:
        self.rows.append(rows)

    def withdrawn(self, batch: Batch, row: int) -> None:
        self.lost.append(row)


TOPICS = TopicTable(("a", "b", "c"), 10)
A, B, C = TOPICS
BATCH = Batch(3, topic=[b"a", b"b", b"a"], payload=[b"", b"", b""])
SPANS = [RowSpan(A, b"a", 0, 1), RowSpan(B, b"b", 1, 2), RowSpan(A, b"a", 2, 3)]


@pytest.fixture
def readers() -> Readers:
    return Readers()


def fail_if_told(error: RacewayError | None) -> None:
    raise AssertionError


def test_nothing_is_watched_where_nobody_reads(readers: Readers) -> None:
    """A bus without queues and subscriptions must not pay for them."""
    assert readers.watch(BATCH, SPANS, fail_if_told) is fail_if_told
    readers.add(C, RecordingReader())
    assert readers.watch(BATCH, SPANS, fail_if_told) is fail_if_told
    assert readers.watch(BATCH, SPANS, None) is None
    readers.add(B, RecordingReader())
    assert readers.watch(BATCH, SPANS, fail_if_told) is not fail_if_told


def test_each_reader_is_told_of_the_rows_of_its_topic(readers: Readers) -> None:
    first, second, other = RecordingReader(), RecordingReader(), RecordingReader()
    readers.add(A, first)
    readers.add(A, second)
    readers.add(B, other)
    told: list[RacewayError | None] = []
    committed = readers.watch(BATCH, SPANS, told.append)
    assert committed is not None
    committed(None)
    assert [list(rows) for rows in first.rows] == [list(rows) for rows in second.rows] == [[0, 2]]
    assert [list(rows) for rows in other.rows] == [[1]]
    assert told == [None]


def test_rows_that_could_not_be_stored_are_withdrawn(readers: Readers) -> None:
    reader = RecordingReader()
    readers.add(A, reader)
    committed = readers.watch(BATCH, SPANS, None)
    assert committed is not None
    committed(DiskFullError("no space"))
    assert (reader.rows, reader.lost) == ([], [0])


def test_a_reader_that_comes_before_the_commit_starts_behind_it(readers: Readers) -> None:
    early, late = RecordingReader(), RecordingReader()
    readers.add(A, early)
    committed = readers.watch(BATCH, SPANS, None)
    readers.add(A, late)
    assert committed is not None
    committed(None)
    assert (len(early.rows), len(late.rows)) == (1, 0)


def test_a_topic_is_held_until_its_last_reader_goes(readers: Readers) -> None:
    first, second = RecordingReader(), RecordingReader()
    readers.add(A, first)
    readers.add(A, second)
    readers.remove(A, first)
    assert readers.holds(A)
    readers.remove(A, second)
    assert not readers.holds(A)
