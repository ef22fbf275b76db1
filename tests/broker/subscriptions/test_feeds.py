"""The end of a topic: what was committed, what was lost, how many of it were requests."""

from __future__ import annotations

from typing import Any

import pytest

from raceway.broker.delivery.recent import RecentRows, RowRange
from raceway.broker.subscriptions.subscription import TopicFeed
from raceway.broker.topics import Topic
from raceway.journal.contract import Journal
from raceway.model.envelope import PUBLISH, REQUEST, Batch


class RecordingSubscription:
    """Writes down what its feed tells it."""

    def __init__(self, is_reading: bool = True) -> None:
        self.is_reading = is_reading
        self.pieces: list[RowRange | None] = []
        self.rewound: list[int] = []

    def grown(self, piece: RowRange | None) -> None:
        self.pieces.append(piece)

    def rewind(self, offset: int) -> None:
        self.rewound.append(offset)


class FeedBench:
    def __init__(self, *subscriptions: RecordingSubscription, end: int = 0) -> None:
        nothing: Any = None
        journal: Journal = nothing
        self.recent = RecentRows(journal, 1 << 20)
        self.counted: list[int] = []
        self.feed = TopicFeed(Topic("t"), end, 0, self.recent, lambda feed: self.counted.append(feed.requests))
        self.feed.subscriptions = dict(enumerate(subscriptions))  # type: ignore[arg-type]


def batch(first: int, *kinds: bytes) -> Batch:
    kind: Any = kinds[0] if len(set(kinds)) == 1 else list(kinds)
    return Batch(len(kinds), kind=kind, offset=range(first, first + len(kinds)), payload=[b"x"] * len(kinds))


def test_only_those_who_read_are_given_rows() -> None:
    reading, absent = RecordingSubscription(), RecordingSubscription(is_reading=False)
    bench = FeedBench(reading, absent)
    bench.feed.committed(batch(0, PUBLISH, PUBLISH), range(2))
    assert [(piece.first, piece.stop) for piece in reading.pieces if piece] == [(0, 2)]
    assert absent.pieces == []
    assert bench.feed.end == 2


def test_where_nobody_reads_nothing_is_kept() -> None:
    bench = FeedBench(RecordingSubscription(is_reading=False))
    bench.feed.committed(batch(0, PUBLISH), range(1))
    assert (bench.feed.end, bench.recent.bytes) == (1, 0)


def test_rows_of_other_topics_are_not_kept() -> None:
    reading = RecordingSubscription()
    bench = FeedBench(reading)
    mixed = Batch(4, kind=PUBLISH, offset=[0, 7, 1, 8], payload=[b"a", b"-", b"b", b"-"])
    bench.feed.committed(mixed, [0, 2])
    (piece,) = reading.pieces
    assert piece is not None
    assert (piece.first, piece.stop, piece.batch.payload) == (0, 2, [b"a", b"b"])


@pytest.mark.parametrize("lost_at", [3, 5])
def test_offsets_that_come_again_rewind_all(lost_at: int) -> None:
    subscription = RecordingSubscription(is_reading=False)
    bench = FeedBench(subscription, end=5)
    bench.feed.withdrawn(batch(lost_at, PUBLISH), 0)
    assert (bench.feed.end, subscription.rewound) == (lost_at, [lost_at])
    bench.feed.committed(batch(lost_at, PUBLISH), range(1))
    assert bench.feed.end == lost_at + 1


def test_a_feed_made_behind_rows_that_were_lost_notices_it() -> None:
    subscription = RecordingSubscription(is_reading=False)
    bench = FeedBench(subscription, end=5)
    bench.feed.committed(batch(2, PUBLISH), range(1))
    assert (bench.feed.end, subscription.rewound) == (3, [2])


def test_requests_are_counted() -> None:
    bench = FeedBench()
    bench.feed.committed(batch(0, REQUEST, REQUEST), range(2))
    bench.feed.committed(batch(2, PUBLISH, PUBLISH), range(2))
    bench.feed.committed(batch(4, PUBLISH, REQUEST), range(2))
    bench.feed.committed(batch(6, PUBLISH, PUBLISH, REQUEST), [0, 1])
    assert (bench.feed.requests, bench.counted) == (3, [2, 3])
