"""What a caller knows of a peer: what it tells a new connection."""

from __future__ import annotations

import pytest

from raceway.link.known import KnownPeer, asking_of, entry_of
from raceway.model.envelope import Batch
from raceway.model.intents.batches import Asked, Publish, Request, Taken
from raceway.model.intents.kinds import Done
from raceway.model.intents.peers import Register, Subscribe, Unsubscribe, UnwatchLog, WatchLog
from raceway.model.intents.queues import Arm, CreateQueue, EnqueueRequests
from tests.rigs.doubles import ExactPeer, Message, batch_of


@pytest.fixture
def known() -> KnownPeer:
    return KnownPeer(ExactPeer("ann"), 3)


def arm(known: KnownPeer, call: Arm, *, refused: bool = False) -> None:
    known.note_sent(call)
    known.note_armed(call, refused=refused)


def test_facts_of_a_peer_are_those_of_its_last_calls(known: KnownPeer) -> None:
    known.note_done(Register("Ann", "sings"), Done())
    known.note_done(Subscribe("all", "a", 2), Done())
    known.note_done(Unsubscribe("publish", "a"), Done())
    known.note_done(WatchLog(("info",)), Done())
    body = known.body()
    assert (body.peer, body.id, body.name, body.producer) == (3, "ann", "Ann", b"Ann")
    assert body.subscriptions == [("request", "a", 2)]
    assert body.watched == WatchLog(("info",))
    known.note_done(UnwatchLog(), Done())
    assert known.body().watched is None


def test_a_subscription_ends_in_whatever_case_it_is_named(known: KnownPeer) -> None:
    known.note_done(Subscribe("publish", "Orders.A"), Done())
    known.note_done(Unsubscribe("publish", "orders.a"), Done())
    assert known.body().subscriptions == []


def test_what_a_consumer_still_waits_for_is_kept(known: KnownPeer) -> None:
    arm(known, Arm(b"q", b"1", window=3))
    arm(known, Arm(b"r", b"2", window=-1))
    known.note_delivered("q", 2)
    known.note_delivered("r", 2)
    assert known.body().armed == [Arm(b"q", b"1", window=1), Arm(b"r", b"2", window=-1)]
    known.note_delivered("q", 2)
    known.note_dismissed("r")
    assert known.body().armed == [Arm(b"q", b"1", window=0)]


def test_topics_of_a_queue_grow(known: KnownPeer) -> None:
    arm(known, Arm(b"q", b"1", ("a", "b")))
    arm(known, Arm(b"q", b"2", ("b", "c")))
    assert known.body().armed == [Arm(b"q", b"2", ("a", "b", "c"))]


def test_a_call_that_is_refused_changes_nothing(known: KnownPeer) -> None:
    arm(known, Arm(b"q", b"1"), refused=True)
    assert known.body().armed == []
    arm(known, Arm(b"q", b"2", ("a",)))
    arm(known, Arm(b"q", b"3", ("b",)), refused=True)
    assert known.body().armed == [Arm(b"q", b"2", ("a",))]


def test_calls_that_overlap_are_told_apart(known: KnownPeer) -> None:
    first, second = Arm(b"q", b"1"), Arm(b"q", b"2")
    known.note_sent(first)
    known.note_sent(second)
    known.note_armed(first, refused=True)
    known.note_armed(second, refused=False)
    assert known.body().armed == [second]


def test_answers_that_wait_in_a_reply_queue_end_with_the_link(known: KnownPeer) -> None:
    known.note_sent(EnqueueRequests(Batch(1, message_id=[b"m"], reply_to=b"mine", payload=[b""])))
    arm(known, Arm(b"mine", b"m"))
    assert known.body().armed == []


def test_temporary_queues_are_noted(known: KnownPeer) -> None:
    known.note_done(CreateQueue("q", 1), Done())
    assert not known.has_temporary
    known.note_done(CreateQueue("q", 1 | 4), Done())
    assert known.has_temporary


def test_each_open_request_is_given_up_as_often_as_it_has_answers_to_come(known: KnownPeer) -> None:
    batch = batch_of(b"request", *(Message(id=b"%d" % at) for at in range(4)))
    known.note_asked(asking_of(Request(batch)), Taken(((1, 2, ValueError()),)))  # type: ignore[arg-type]
    known.note_asked(asking_of(Request(batch_of(b"request", Message(id=b"all")))), Asked(3))
    known.note_answered(b"0")
    known.note_answered(b"all")
    assert [request.message_id for request in known.given_up()] == [b"2", b"3", b"all", b"all"]
    assert list(known.given_up()) == []
    assert asking_of(Publish(batch)) == []


def test_an_entry_has_the_size_of_its_row() -> None:
    batch = Batch(2, payload=[b"123", b""], attributes=[None, b"12"])
    assert [entry_of(batch, row, 5, None).size for row in (0, 1)] == [3, 2]
