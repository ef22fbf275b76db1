"""The link with both ends and the real broker: what peers of a caller see is what peers of the door see."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from raceway.broker.peers import Peer
from raceway.errors import (
    ForbiddenError,
    MalformedError,
    NoRouteError,
    RequestTimeoutError,
    UnknownPeerError,
    UnmatchedAnswerError,
)
from raceway.link.codec.bodies import LINK_VERSION, HelloBody, PerformBody
from raceway.link.codec.frames import FrameType, encode_frame
from raceway.link.codec.parts import encode_body
from raceway.model.envelope import Batch
from raceway.model.intents.administration import CreateSubscription
from raceway.model.intents.batches import Acknowledge, AskAll, Asked, Publish, Request, Respond, Taken
from raceway.model.intents.kinds import Done
from raceway.model.intents.peers import (
    Audit,
    DisconnectPeer,
    Heartbeat,
    ListPeers,
    ListSubscriptions,
    Register,
    Subscribe,
    SubscriptionRow,
    Unsubscribe,
)
from raceway.model.intents.reading import ReadTopic
from raceway.model.topics import AUDIT_STREAM
from tests.rigs.doubles import Message, RecordingPeer, RecordingTransport, batch_of, new_id, refusals
from tests.rigs.linked import Linked


@pytest.fixture(params=[65536, 1], ids=["whole", "bytewise"])
def linked(request: pytest.FixtureRequest) -> Linked:
    return Linked(piece=request.param).join()


def test_calls_are_answered(linked: Linked) -> None:
    peer = linked.peer("ann")
    assert linked.perform(peer, Heartbeat()) == Done()
    assert linked.perform(peer, Register("Ann", "sings")) == Done()
    (row,) = linked.perform(peer, ListPeers()).rows
    assert (row.id, row.name, row.description, row.wire) == ("ann", "Ann", "sings", "mb")
    with pytest.raises(UnknownPeerError):
        raise linked.perform(peer, ListSubscriptions("bob"))


def test_publishes_are_stored_and_copied(linked: Linked) -> None:
    sender, reader, local = linked.peer("sender"), linked.peer("reader"), linked.bench.peer("orders")
    assert linked.perform(reader, Subscribe("publish", "orders")) == Done()
    assert linked.publish(sender, Message(payload=b"1"), Message(payload=b"2", id=new_id())) == Taken()
    assert [copy.payload for copy in reader.copies] == [b"1", b"2"]
    assert reader.copies == local.copies
    assert reader.delivered == local.delivered
    stored = linked.bench.rows()
    assert [(row["payload"], row["producer"], row["wire"]) for row in stored] == [
        (b"1", "sender", "mb"), (b"2", "sender", "mb"),
    ]  # fmt: skip


def test_topics_of_one_batch_are_copied_in_order(linked: Linked) -> None:
    sender, reader = linked.peer(), linked.peer()
    linked.perform(reader, Subscribe("publish", "a.#"))
    linked.perform(reader, Subscribe("publish", "b"))
    names = [b"a.x", b"b", b"a.x", b"a.y", b"b"]
    linked.publish(sender, *(Message(name, b"%d" % at) for at, name in enumerate(names)))
    assert [(copy.topic, copy.payload) for copy in reader.copies] == [
        (name, b"%d" % at) for at, name in enumerate(names)
    ]


def test_an_intent_with_a_value_that_it_cannot_have_is_refused_by_itself(linked: Linked) -> None:
    peer = linked.peer()
    told = linked.perform(peer, CreateSubscription("orders", "billing", "Sharing", "first"))  # type: ignore[arg-type]
    assert isinstance(told, MalformedError)
    assert linked.perform(peer, Heartbeat()) == Done()


def test_rows_that_are_refused_are_told(linked: Linked) -> None:
    sender, reader = linked.peer(), linked.peer()
    linked.perform(reader, Subscribe("publish", "orders"))
    told = linked.publish(sender, Message(), Message(b"nobody.reads"), Message(b"system.x"))
    assert [(start, stop) for start, stop, _ in sorted(refusals(told))] == [(1, 2), (2, 3)]
    assert str(next(error for start, _, error in told.refused if start == 1)) == str(NoRouteError("nobody.reads"))


def test_commits_are_told_after_the_outcome(linked: Linked) -> None:
    peer, told = linked.peer(), list[Any]()
    linked.perform(peer, Subscribe("publish", "orders"))
    publish = Publish(batch_of(b"publish", Message(id=new_id())))
    linked.caller.perform(peer, publish, told.append, lambda error: told.append(("committed", error)))
    assert told == []
    assert linked.caller.unanswered > 0
    linked.settle()
    assert told == [Taken(), ("committed", None)]
    assert linked.caller.unanswered == 0


def test_commits_are_told_of_batches_whose_rows_are_all_refused(linked: Linked) -> None:
    """Stored nevertheless, as those without a route, or not: the caller's window is free again."""
    peer, reader = linked.peer(), linked.peer()
    linked.perform(reader, Subscribe("publish", "orders"))
    linked.perform(reader, Subscribe("request", "sum"))
    linked.request(peer, Message(b"sum", id=b"q"))
    answer = Message(payload=b"2", id=reader.requests[0][0].forwarded_id)
    linked.respond(reader, answer)
    for intent in (
        Publish(batch_of(b"publish", Message(b"a..b "), Message(b"system.x"))),
        Publish(batch_of(b"publish", Message(b"nobody.reads"))),
        Request(batch_of(b"request", Message(b"nobody.answers", id=b"r"))),
        Respond(batch_of(b"response", Message(payload=b"2", id=b"unknown"))),
        Respond(batch_of(b"response", answer)),
        Acknowledge(["orders"], ["unknown"], [0]),
    ):
        told: list[Any] = []
        committed: list[Any] = []
        sender = reader if isinstance(intent, Respond) else peer
        linked.caller.perform(sender, intent, told.append, committed.append)
        linked.settle()
        assert len(told) == 1
        assert committed == [None], intent
        assert linked.caller.unanswered == 0


def test_a_commit_that_fails_is_told(linked: Linked) -> None:
    peer, told = linked.peer(), list[Any]()
    linked.perform(peer, Subscribe("publish", "orders"))
    linked.bench.journal.fail_next_commit()
    linked.caller.perform(peer, Publish(batch_of(b"publish", Message(id=new_id()))), None, told.append)
    linked.settle()
    assert [(type(error).__name__, str(error)) for error in told] == [("DiskFullError", "no space left")]


def test_requests_are_answered_by_another_peer(linked: Linked) -> None:
    asker, responder = linked.peer("asker"), linked.peer("responder")
    linked.perform(responder, Subscribe("request", "sum"))
    assert linked.request(asker, Message(b"sum", b"1+1", b"q1"), Message(b"sum", b"2+2", b"q2")) == Taken()
    (first, one), (second, two) = responder.requests
    assert (one, two) == (b"1+1", b"2+2")
    assert (first.requester_id, first.sid, first.responder_id, first.sent) == ("asker", "asker", "responder", b"sum")
    answers = [Message(payload=b"4", id=second.forwarded_id), Message(payload=b"2", id=first.forwarded_id)]
    assert linked.respond(responder, *answers) == Taken()
    assert [(each.message_id, payload) for each, payload, _ in asker.answers] == [(b"q2", b"4"), (b"q1", b"2")]
    late = linked.respond(responder, answers[0])
    assert [each.error for each in refusals(late)] == [UnmatchedAnswerError]


def test_a_request_to_all_is_answered_by_each(linked: Linked) -> None:
    asker, others = linked.peer(), [linked.peer(), linked.peer()]
    for other in others:
        linked.perform(other, Subscribe("request", "who"))
    asked = linked.perform(asker, AskAll(batch_of(b"request", Message(b"who", id=b"q")), 5))
    assert asked == Asked(2)
    for other in others:
        linked.respond(other, Message(payload=other.id.encode(), id=other.masked))
    assert {payload for _, payload, _ in asker.answers} == {other.id.encode() for other in others}


def test_a_request_without_an_answer_fails_in_time(linked: Linked) -> None:
    asker, responder = linked.peer(), linked.peer("mute")
    linked.perform(responder, Subscribe("request", "sum"))
    linked.request(asker, Message(b"sum", id=b"q", timeout_ms=500))
    linked.loop.advance(1)
    linked.settle()
    ((request, error),) = asker.failures
    assert (request.message_id, request.responder_id) == (b"q", "mute")
    assert isinstance(error, RequestTimeoutError)


def test_subscriptions_end(linked: Linked) -> None:
    sender, reader = linked.peer(), linked.peer()
    linked.perform(reader, Subscribe("all", "orders", 1.5))
    assert linked.perform(reader, ListSubscriptions()).rows == (
        SubscriptionRow("publish", "orders", 1.5), SubscriptionRow("request", "orders", 1.5),
    )  # fmt: skip
    assert linked.perform(reader, Unsubscribe("all", "orders")) == Done()
    assert linked.perform(reader, Unsubscribe("all", "orders")) == Done(False)
    linked.publish(sender, Message())
    assert reader.copies == []


def test_a_peer_that_leaves_is_gone(linked: Linked) -> None:
    reader = linked.peer()
    linked.perform(reader, Subscribe("publish", "orders"))
    linked.caller.disconnect(reader)
    linked.caller.disconnect(reader)
    linked.settle()
    assert linked.bench.broker.peers == {}
    assert not reader.open


def test_steps_that_take_a_while_are_answered(linked: Linked) -> None:
    peer = linked.peer()
    made = linked.perform(peer, CreateSubscription("orders", "billing", "shared", "first", creates_topic=True))
    assert (made.topic, made.changed) == ("orders", True)
    linked.publish(peer, Message(b"plain", b"x"))
    read = linked.perform(peer, ReadTopic("plain", "first", 10, 1000))
    assert [row["payload"] for row in read.rows] == [b"x"]


def test_the_audit_and_the_end_of_a_peer_go_over_the_link(linked: Linked) -> None:
    auditor, other = linked.peer(), linked.peer("other")
    linked.perform(auditor, Subscribe("publish", AUDIT_STREAM))
    linked.perform(other, Audit(b"record"))
    assert auditor.announced == [(AUDIT_STREAM, b"record")]
    ended: list[str] = []
    other.hang_up = ended.append
    assert linked.perform(auditor, DisconnectPeer("other")) == Done()
    assert ended == ["disconnected by an administrator"]


def test_a_principal_is_that_of_each_intent() -> None:
    linked = Linked().join()
    seen: list[Any] = []
    perform = linked.bench.broker.perform

    def performed(peer: Peer, *asked: Any) -> Any:
        seen.append(peer.principal)
        return perform(peer, *asked)

    linked.bench.broker.perform = performed  # type: ignore[method-assign, assignment]
    peer = linked.peer()
    linked.perform(peer, Heartbeat())
    peer.principal = peer.principal._replace(type="user", name="ann")
    linked.perform(peer, Heartbeat())
    assert list(map(str, seen)) == ["anonymous:mb", "user:ann"]


class StrictPeer(RecordingPeer):
    """A peer of a wire with rules of its own."""

    wire: ClassVar[bytes] = b"strict"
    folds_case: ClassVar[bool] = False
    names_schema: ClassVar[bool] = True


def test_rules_of_a_wire_hold_at_the_lane() -> None:
    linked = Linked(spells={"strict": lambda name: name != "orders"}).join()
    strict, other = StrictPeer("strict"), linked.peer()
    linked.caller.connect(strict)
    linked.perform(strict, Subscribe("publish", "#"))
    linked.perform(other, Subscribe("publish", "#"))
    linked.publish(other, Message(b"orders"), Message(b"bills"))
    assert [copy.topic for copy in strict.copies] == [b"bills"]
    assert [copy.topic for copy in other.copies] == [b"orders", b"bills"]
    (found,) = [peer for peer in linked.bench.broker.peers.values() if peer.id == "strict"]
    rules = ("wire", "folds_case", "names_schema", "by_content", "keeps_refused", "waits_in_queues")
    assert [getattr(found, rule) for rule in rules] == [getattr(strict, rule) for rule in rules]


def test_an_intent_that_fails_by_a_fault_is_answered() -> None:
    linked = Linked().join()
    broken = Exception("broken")

    def fails(peer: Peer, intent: Any, done: Any = None, committed: Any = None) -> None:
        done(broken if isinstance(intent, Heartbeat) else object())

    linked.lane.door.perform = fails  # type: ignore[method-assign]
    peer = linked.peer()
    assert str(linked.perform(peer, Heartbeat())) == "internal error"
    assert "cannot be sent" in str(linked.perform(peer, ListPeers()))


@pytest.mark.parametrize(
    "sent",
    [
        encode_frame(FrameType.PERFORM, encode_body(PerformBody(1, 1, ("a", "b"), "Heartbeat", False, b"\x80"))),
        encode_frame(FrameType.OUTCOME, b"\x93\x01\xc0\xc4\x00"),
        encode_frame(FrameType.LEAVE, b"\xff"),
        b"\xff" * 5,
    ],
    ids=["unknown peer", "wrong end", "no body", "no frame"],
)
def test_a_caller_that_breaks_the_rules_is_cut(sent: bytes) -> None:
    linked = Linked()
    there = linked.lane.connection()
    transport = RecordingTransport()
    there.connection_made(transport)
    there.data_received(encode_frame(FrameType.HELLO, encode_body(HelloBody(LINK_VERSION, b"x"))) + sent)
    assert transport.aborted
    assert linked.lane.callers == []


def test_a_caller_must_greet_first_and_in_this_version() -> None:
    linked = Linked()
    there, transport = linked.lane.connection(), RecordingTransport()
    there.connection_made(transport)
    there.data_received(encode_frame(FrameType.LEAVE, b"\x91\x01"))
    assert transport.aborted
    there, transport = linked.lane.connection(), RecordingTransport()
    there.connection_made(transport)
    there.data_received(encode_frame(FrameType.HELLO, encode_body(HelloBody(99, b"x"))))
    assert transport.closed
    assert transport.written, "the caller is told the version of the lane"


def test_a_lane_that_is_behind_reads_nothing() -> None:
    linked = Linked().join()
    peer, told = linked.peer(), list[Any]()
    linked.lane.pause(True)
    linked.caller.perform(peer, Heartbeat(), told.append)
    linked.settle()
    assert told == []
    linked.lane.pause(False)
    linked.settle()
    assert told == [Done()]


def test_a_stopping_lane_answers_first() -> None:
    linked = Linked().join()
    peer = linked.peer()
    assert linked.perform(peer, Heartbeat()) == Done()
    linked.lane.close()
    assert linked.ends is not None
    assert linked.ends[1].closed
    assert linked.bench.broker.peers == {}


def test_refusals_of_security_are_told() -> None:
    error = ForbiddenError("user:ann", "publish")
    linked = Linked().join()

    def fails(*asked: Any) -> None:
        raise error

    linked.bench.broker.perform = fails  # type: ignore[method-assign, assignment]
    found = linked.perform(linked.peer(), Publish(Batch(1, topic=b"a", payload=[b"x"])))
    assert (type(found), str(found)) == (ForbiddenError, str(error))
