"""Topics that a peer follows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from raceway.broker.door import Door
from raceway.errors import MalformedError, UnknownTopicError
from raceway.model.envelope import Batch
from raceway.model.intents.reading import Follow, LocateTopic, ReadTopic, TopicRead, Unfollow
from tests.rigs.doubles import Bench, Message, RecordingPeer


class FollowingPeer(RecordingPeer):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, int]] = []

    def note_committed(self, topic: str, batch: Batch, rows: Sequence[int]) -> None:
        self.rows += [(topic, batch.item("offset", row)) for row in rows]


def outcome(bench: Bench, peer: RecordingPeer, intent: Any) -> Any:
    found: list[Any] = []
    Door(bench.broker).perform(peer, intent, found.append)
    bench.loop.settle()
    return found[0]


def test_committed_rows_are_passed_on_until_the_peer_stops() -> None:
    bench, peer, sender = Bench(), FollowingPeer(), RecordingPeer()
    bench.publish(sender, Message(b"t"))
    bench.loop.settle()
    assert outcome(bench, peer, Follow("t")) == 1
    bench.publish(sender, Message(b"t"), Message(b"other"), Message(b"t"))
    assert peer.rows == []  # not before the commit
    bench.loop.settle()
    assert peer.rows == [("t", 1), ("t", 2)]
    bench.publish(sender, Message(b"t"))
    Door(bench.broker).perform(peer, Unfollow("t"))
    bench.loop.settle()
    assert peer.rows == [("t", 1), ("t", 2)]  # appended before, committed after
    assert not bench.broker.readers.holds(bench.broker.topics.own("t"))


def test_a_page_says_where_the_next_one_begins() -> None:
    bench, peer = Bench(), RecordingPeer()
    bench.publish(peer, *(Message(b"t", payload=b"%d" % number) for number in range(3)))
    bench.loop.settle()
    page = outcome(bench, peer, ReadTopic("t", "1", 1, 1000))
    assert isinstance(page, TopicRead)
    assert [row["payload"] for row in page.rows] == [b"1"]
    assert (page.begin, page.following, page.end, page.gaps) == ([1], [2], [3], [])


@pytest.mark.parametrize(("intent", "error"), [
    (LocateTopic("t", "first"), UnknownTopicError),
    (LocateTopic("t", "soon", creates=True), MalformedError),
    (ReadTopic("t", "first", 1, 1), UnknownTopicError),
])  # fmt: skip
def test_what_cannot_be_found_is_refused(intent: Any, error: type[Exception]) -> None:
    assert isinstance(outcome(Bench(), RecordingPeer(), intent), error)


def test_a_reader_may_begin_at_a_time() -> None:
    bench, peer = Bench(), RecordingPeer()
    times = []
    for _ in range(3):
        times.append(bench.clock_us())
        bench.publish(peer, Message(b"t"))
        bench.loop.settle()
        bench.loop.advance(1.0)
    for number, time_us in enumerate(times):
        text = datetime.fromtimestamp(time_us / 1e6, UTC).isoformat()
        assert outcome(bench, peer, LocateTopic("t", text)).begin == (number,)
        assert len(outcome(bench, peer, ReadTopic("t", text, 10, 1000)).rows) == 3 - number
    assert outcome(bench, peer, LocateTopic("t", "2999-01-01T00:00:00Z")).begin == (3,)
