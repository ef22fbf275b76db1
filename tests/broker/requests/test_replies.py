"""Answers by (reply queue, id): who waits for them, and where they stay when nobody does."""

from __future__ import annotations

import pytest

from raceway.broker.peers import Pending
from raceway.broker.requests.replies import KEPT_ANSWERS, KEPT_BOXES, KEPT_BYTES, KEPT_ENDED, Box, Replies, RowAnswer
from raceway.broker.topics import Topic
from raceway.model.envelope import Batch
from tests.rigs.doubles import Bench, ExactPeer, new_id
from tests.rigs.queues import QueueBench, QueuePeer

TOPIC = Topic("q")


@pytest.fixture
def replies() -> Replies:
    return Replies()


def request(message_id: bytes = b"r") -> Pending:
    peer = ExactPeer()
    return Pending(peer, peer, TOPIC, b"q", None, message_id, new_id(), message_id, 0)


def answer(message_id: bytes, payload: bytes = b"") -> RowAnswer:
    return RowAnswer(message_id, Batch(1, message_id=[message_id], payload=[payload]))


def fetched(box: Box, message_id: bytes) -> bytes | None:
    found = box.maybe_take(message_id)
    if found is None:
        return None
    payload: bytes = found.batch.item("payload", 0)
    return payload


# ---- open requests ---------------------------------------------------------------------------------------------------


def test_a_request_is_found_by_both_names_and_once(replies: Replies) -> None:
    asked = request()
    replies.expect(b"box", b"r", asked)
    assert replies.maybe_take(b"box", b"R") is None
    assert replies.maybe_take(b"Box", b"r") is None
    assert replies.maybe_take(b"box", b"r") is asked
    assert replies.maybe_take(b"box", b"r") is None
    assert len(replies) == 0


def test_equal_names_are_answered_in_the_order_in_which_they_were_handed_out(replies: Replies) -> None:
    first, second, third = (request() for _ in range(3))
    for each in (first, second, third):
        replies.expect(b"box", b"r", each)
    replies.forget(second)
    assert [replies.maybe_take(b"box", b"r") for _ in range(3)] == [first, third, None]


def test_a_request_that_is_handed_out_again_is_answered_once(replies: Replies) -> None:
    """Its first consumer broke off, another one got it."""
    asked, other = request(), request()
    replies.expect(b"box", b"r", asked)
    replies.expect(b"box", b"r", other)
    replies.expect(b"box", b"r", asked)
    assert len(replies) == 2
    assert [replies.maybe_take(b"box", b"r") for _ in range(3)] == [other, asked, None]


def test_requests_that_are_over_are_known_by_name_for_a_while(replies: Replies) -> None:
    answered, failed, late, open_one = (request() for _ in range(4))
    replies.expect(b"box", b"answered", answered)
    replies.maybe_take(b"box", b"answered")
    replies.expect(b"box", b"failed", failed)
    replies.forget(failed)
    late.open = False  # its deadline passed while it waited in the queue
    replies.expect(b"box", b"late", late)
    replies.expect(b"box", b"open", open_one)
    names = [b"answered", b"failed", b"late", b"open", b"unheard of"]
    assert [replies.maybe_ended(b"box", name) for name in names] == [answered, failed, late, None, None]
    assert [replies.maybe_take(b"box", name) for name in names[:3]] == [None, None, None]
    assert len(replies) == 1


def test_only_so_many_ended_requests_are_known(replies: Replies) -> None:
    for number in range(KEPT_ENDED + 10):
        asked = request()
        replies.expect(b"box", b"%d" % number, asked)
        replies.forget(asked)
    known = [number for number in range(KEPT_ENDED + 10) if replies.maybe_ended(b"box", b"%d" % number)]
    assert known == list(range(10, KEPT_ENDED + 10))
    assert len(replies) == 0


def test_to_forget_what_was_never_handed_out_does_nothing(replies: Replies) -> None:
    replies.forget(request())
    assert len(replies) == 0


# ---- boxes -----------------------------------------------------------------------------------------------------------


def test_a_box_belongs_to_whoever_named_it_first_and_goes_with_it(replies: Replies) -> None:
    owner, other = ExactPeer(), ExactPeer()
    box = replies.open_box(b"box", owner)
    assert replies.open_box(b"box", other) is box
    assert box.owner is owner
    replies.open_box(b"second", owner)
    replies.close_boxes(other)
    assert replies.maybe_box(b"box") is box
    replies.close_boxes(owner)
    assert (replies.maybe_box(b"box"), replies.maybe_box(b"second")) == (None, None)
    assert replies.open_box(b"box", other).owner is other
    replies.close_boxes(owner)
    assert replies.maybe_box(b"box") is not None


def test_a_connection_has_a_bounded_number_of_boxes(replies: Replies) -> None:
    owner, other = ExactPeer(), ExactPeer()
    replies.open_box(b"of another", other)
    for number in range(KEPT_BOXES + 3):
        replies.open_box(b"%d" % number, owner)
    assert [number for number in range(KEPT_BOXES + 3) if replies.maybe_box(b"%d" % number) is None] == [0, 1, 2]
    assert replies.maybe_box(b"of another") is not None
    replies.close_boxes(owner)
    assert not any(replies.maybe_box(b"%d" % number) for number in range(KEPT_BOXES + 3))


def test_an_answer_is_fetched_by_its_id_once() -> None:
    box = Box(ExactPeer())
    box.put(answer(b"a", b"1"))
    box.put(answer(b"b", b"2"))
    box.put(answer(b"a", b"3"))
    assert [fetched(box, name) for name in (b"b", b"b", b"a", b"a", b"c")] == [b"2", None, b"3", None, None]


def test_a_box_keeps_a_bounded_number_of_answers() -> None:
    box = Box(ExactPeer())
    for number in range(KEPT_ANSWERS + 5):
        box.put(answer(b"%d" % number))
    assert [number for number in range(KEPT_ANSWERS + 5) if fetched(box, b"%d" % number) is None] == [0, 1, 2, 3, 4]


def test_a_box_keeps_bounded_bytes_but_one_answer_of_any_size() -> None:
    box, third = Box(ExactPeer()), bytes(KEPT_BYTES // 3)
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
    box = Box(peer)
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
    box = Box(peer)
    for number in range(KEPT_ANSWERS + 1):
        box.arm(b"%d" % number, peer)
    box.put(answer(b"0", b"kept"))
    box.put(answer(b"1", b"handed over"))
    assert peer.fetched == [(b"1", b"handed over")]
    assert fetched(box, b"0") == b"kept"
