"""Where answers stay when nobody waits for them."""

from __future__ import annotations

import pytest

from raceway.broker.queues.consumer import RowAnswer
from raceway.broker.requests.reply_queues import (
    KEPT_ANSWERS,
    KEPT_BYTES,
    KEPT_GRANTS,
    KEPT_QUEUES,
    ReplyQueue,
    ReplyQueues,
)
from raceway.model.envelope import Batch
from tests.rigs.doubles import Bench, ExactPeer
from tests.rigs.queues import QueueBench, QueuePeer


@pytest.fixture
def replies() -> ReplyQueues:
    return ReplyQueues()


def answer(message_id: bytes, payload: bytes = b"") -> RowAnswer:
    return RowAnswer(message_id, Batch(1, message_id=[message_id], payload=[payload]))


def fetched(box: ReplyQueue, message_id: bytes) -> bytes | None:
    found = box.maybe_take(message_id)
    if found is None:
        return None
    payload: bytes = found.batch.item("payload", 0)
    return payload


def test_a_box_belongs_to_whoever_named_it_first_and_goes_with_it(replies: ReplyQueues) -> None:
    owner, other = ExactPeer(), ExactPeer()
    box = replies.open(b"box", owner)
    assert replies.open(b"box", other) is box
    assert box.owner is owner
    replies.open(b"second", owner)
    replies.leave(other)
    assert replies.maybe_get(b"box") is box
    replies.leave(owner)
    assert (replies.maybe_get(b"box"), replies.maybe_get(b"second")) == (None, None)
    assert replies.open(b"box", other).owner is other
    replies.leave(owner)
    assert replies.maybe_get(b"box") is not None


def test_a_connection_has_a_bounded_number_of_boxes(replies: ReplyQueues) -> None:
    owner, other = ExactPeer(), ExactPeer()
    replies.open(b"of another", other)
    for number in range(KEPT_QUEUES + 3):
        replies.open(b"%d" % number, owner)
    assert [number for number in range(KEPT_QUEUES + 3) if replies.maybe_get(b"%d" % number) is None] == [0, 1, 2]
    assert replies.maybe_get(b"of another") is not None
    replies.leave(owner)
    assert not any(replies.maybe_get(b"%d" % number) for number in range(KEPT_QUEUES + 3))


def test_an_answer_is_fetched_by_its_id_once() -> None:
    box = ReplyQueue(ExactPeer())
    box.put(answer(b"a", b"1"))
    box.put(answer(b"b", b"2"))
    box.put(answer(b"a", b"3"))
    assert [fetched(box, name) for name in (b"b", b"b", b"a", b"a", b"c")] == [b"2", None, b"3", None, None]


def test_a_box_keeps_a_bounded_number_of_answers() -> None:
    box = ReplyQueue(ExactPeer())
    for number in range(KEPT_ANSWERS + 5):
        box.put(answer(b"%d" % number))
    assert [number for number in range(KEPT_ANSWERS + 5) if fetched(box, b"%d" % number) is None] == [0, 1, 2, 3, 4]


def test_a_box_keeps_bounded_bytes_but_one_answer_of_any_size() -> None:
    box, third = ReplyQueue(ExactPeer()), bytes(KEPT_BYTES // 3)
    for number in range(6):
        box.put(answer(b"%d" % number, third))
    assert [number for number in range(6) if fetched(box, b"%d" % number) is not None] == [3, 4, 5]
    box.put(answer(b"small"))
    box.put(answer(b"huge", bytes(2 * KEPT_BYTES)))
    assert fetched(box, b"small") is None
    assert fetched(box, b"huge") is not None
    box.put(answer(b"next", third))
    assert fetched(box, b"next") == third, "what was fetched counts no more"


def test_who_waits_at_a_box_gets_the_answer_when_it_comes() -> None:
    bench = QueueBench()
    peer = bench.peer()
    box = ReplyQueue(peer)
    box.arm(b"a", peer)
    box.put(answer(b"b", b"other"))
    assert peer.fetched == []
    box.put(answer(b"a", b"1"))
    box.put(answer(b"a", b"2"))
    assert peer.fetched == [(b"a", b"1")]
    box.arm(b"a", peer)
    assert peer.fetched == [(b"a", b"1"), (b"a", b"2")], "one that came before"


def test_those_who_wait_at_a_box_are_bounded() -> None:
    peer = QueuePeer(Bench().broker)
    box = ReplyQueue(peer)
    for number in range(KEPT_ANSWERS + 1):
        box.arm(b"%d" % number, peer)
    box.put(answer(b"0", b"kept"))
    box.put(answer(b"1", b"handed over"))
    assert peer.fetched == [(b"1", b"handed over")]
    assert fetched(box, b"0") == b"kept"


def test_a_peer_may_answer_to_the_reply_queues_it_was_given_last() -> None:
    queues, peer, other = ReplyQueues(), ExactPeer(), ExactPeer()
    for number in range(KEPT_GRANTS):
        queues.grant(peer, b"%d" % number)
    queues.grant(peer, b"0")
    queues.grant(peer, b"one more")
    assert [queues.is_granted(peer, name) for name in (b"0", b"1", b"2", b"one more")] == [True, False, True, True]
    assert not queues.is_granted(other, b"0")
    queues.leave(peer)
    assert not queues.is_granted(peer, b"0")
