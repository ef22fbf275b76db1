"""The caller's end: credit, pressure, and what is told when the connection is lost."""

from __future__ import annotations

from typing import Any

import pytest

from raceway.broker.delivery.live_peer import LivePeer
from raceway.broker.runs import Run
from raceway.errors import BusyError, TooLargeError, UnavailableError, UnsupportedError
from raceway.link import caller as calling
from raceway.link.codec.bodies import LINK_VERSION, WelcomeBody
from raceway.link.codec.frames import FrameType, encode_frame
from raceway.link.codec.parts import encode_body
from raceway.link.peers import COPY_WINDOW
from raceway.model.intents.batches import AskAll, Publish, Taken
from raceway.model.intents.kinds import Done
from raceway.model.intents.peers import (
    Heartbeat,
    ListPeers,
    ListSubscriptions,
    Register,
    Subscribe,
    Unsubscribe,
)
from raceway.model.intents.reading import Follow
from raceway.model.intents.services import AttachService
from tests.rigs.doubles import EPOCH_US, Message, RecordingTransport, batch_of, encode_copies, new_id
from tests.rigs.linked import Linked

UNKNOWN = "whether this was done is not known"


def test_nothing_is_done_without_a_connection() -> None:
    linked = Linked()
    peer = linked.peer()
    told = linked.perform(peer, Heartbeat())
    assert isinstance(told, UnavailableError)
    assert str(told).endswith("nothing was done")
    linked.join()
    assert linked.perform(peer, Heartbeat()) == Done()


def test_a_peer_that_is_not_connected_is_refused() -> None:
    linked = Linked().join()
    peer = linked.peer()
    linked.caller.disconnect(peer)
    assert isinstance(linked.perform(peer, Heartbeat()), UnavailableError)


def test_what_is_not_carried_is_refused() -> None:
    linked = Linked().join()
    peer = linked.peer()
    for intent in (Follow("orders"), AttachService("request", "orders")):
        assert isinstance(linked.perform(peer, intent), UnsupportedError)


def test_what_was_not_answered_is_told_to_be_unknown() -> None:
    linked = Linked().join()
    peer, told = linked.peer(), list[Any]()
    linked.perform(peer, Subscribe("publish", "orders"))
    publish = Publish(batch_of(b"publish", Message(id=new_id())))
    linked.caller.perform(peer, publish, told.append, lambda error: told.append("committed"))
    linked.caller.perform(peer, Heartbeat(), told.append)
    linked.lose()
    assert [str(error).endswith(UNKNOWN) for error in told] == [True, True]
    assert linked.caller.unanswered == 0
    assert linked.ended == 1


def test_a_commit_that_was_not_told_is_unknown() -> None:
    linked = Linked().join()
    peer, told = linked.peer(), list[Any]()
    linked.perform(peer, Subscribe("publish", "orders"))
    held: list[Any] = []
    append = linked.bench.journal.append

    def appended(batch: Any, done: Any, **how: Any) -> int:
        held.append(done)
        return append(batch, None, **how)

    linked.bench.journal.append = appended  # type: ignore[method-assign, assignment]
    publish = Publish(batch_of(b"publish", Message(id=new_id())))
    linked.caller.perform(peer, publish, told.append, lambda error: told.append(str(error)))
    linked.settle()
    assert told == [Taken()]
    linked.lose()
    assert told[1].endswith(UNKNOWN)
    assert len(told) == 2
    # The commit comes after all: nobody is there any more.
    held[0](None)
    linked.settle()


def test_the_commit_of_everything_before_is_told() -> None:
    linked = Linked(linger_ms=1000).join()
    peer, told = linked.peer(), list[Any]()
    linked.caller.perform(peer, Publish(batch_of(b"publish", Message(b"orders"))))
    linked.caller.after_commit(told.append)
    linked.settle()
    linked.loop.advance(2)
    linked.settle()
    assert told == [None]
    assert linked.bench.journal.committed == 0
    linked.bench.journal.fail_next_commit()
    linked.caller.perform(peer, Publish(batch_of(b"publish", Message(b"orders"))))
    linked.caller.after_commit(lambda error: told.append(str(error)))
    linked.settle()
    linked.loop.advance(2)
    linked.settle()
    assert told[1:] == ["no space left"]
    linked.caller.after_commit(lambda error: told.append(str(error).endswith(UNKNOWN)))
    linked.lose()
    linked.caller.after_commit(lambda error: told.append(str(error).endswith("nothing was done")))
    assert told[2:] == [True, True]


def test_open_requests_fail_and_are_not_sent_again() -> None:
    linked = Linked().join()
    asker, responder = linked.peer(), linked.peer()
    linked.perform(responder, Subscribe("request", "sum"))
    linked.request(asker, Message(b"sum", id=b"answered"), Message(b"sum", id=b"open"))
    linked.respond(responder, Message(payload=b"2", id=responder.requests[0][0].forwarded_id))
    linked.perform(asker, AskAll(batch_of(b"request", Message(b"sum", id=b"all", version=b"2.0.0")), 3))
    linked.request(asker, Message(b"nobody", id=b"refused"))
    linked.lose()
    failed = [(request.message_id, request.sent, request.version) for request, _ in asker.failures]
    assert failed == [(b"open", b"sum", b"1.0.0"), (b"all", b"sum", b"2.0.0")]
    assert all(str(error).endswith(UNKNOWN) for _, error in asker.failures)
    linked.join()
    assert len(responder.requests) == 3


def test_requests_of_a_peer_that_left_fail_nobody() -> None:
    linked = Linked().join()
    asker, responder = linked.peer(), linked.peer()
    linked.perform(responder, Subscribe("request", "sum"))
    linked.request(asker, Message(b"sum", id=b"q"))
    linked.caller.disconnect(asker)
    linked.settle()
    linked.lose()
    assert asker.failures == []


def test_a_new_connection_takes_up_peers_and_subscriptions() -> None:
    linked = Linked().join()
    sender, reader = linked.peer("sender"), linked.peer("reader")
    linked.perform(reader, Subscribe("all", "orders", 2))
    linked.perform(reader, Subscribe("publish", "bills"))
    linked.perform(reader, Unsubscribe("publish", "bills"))
    linked.perform(sender, Register("Sender", "sends"))
    before = linked.perform(reader, ListSubscriptions())
    linked.lose()
    assert linked.bench.broker.peers == {}
    late = linked.peer("late")
    linked.caller.disconnect(late)
    linked.join()
    assert linked.perform(reader, ListSubscriptions()) == before
    assert [(row.id, row.name) for row in linked.perform(reader, ListPeers()).rows] == [
        ("sender", "Sender"), ("reader", ""),
    ]  # fmt: skip
    assert linked.publish(sender, Message(payload=b"again")) == Taken()
    assert [copy.payload for copy in reader.copies] == [b"again"]
    assert linked.bench.rows()[0]["producer"] == "Sender"


def test_a_connection_that_the_lane_still_holds_is_replaced() -> None:
    linked = Linked().join()
    peer = linked.peer("ann")
    assert linked.ends is not None
    here, there = linked.ends
    # The caller alone notices the loss.
    here.own.connection_lost(None)
    linked.ends = None
    linked.join()
    assert there.aborted
    assert list(linked.bench.broker.peers) == ["ann"]
    assert linked.perform(peer, Heartbeat()) == Done()


def test_a_subscription_that_is_refused_again_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    linked = Linked().join()
    reader = linked.peer()
    linked.perform(reader, Subscribe("publish", "orders"))
    linked.lose()
    monkeypatch.setattr(linked.bench.broker.security, "check", lambda *asked: (_ for _ in ()).throw(BusyError("no")))
    linked.join()
    monkeypatch.undo()
    assert linked.perform(reader, ListSubscriptions()).rows == ()


@pytest.mark.parametrize("welcome", [WelcomeBody(LINK_VERSION, 4, 10), WelcomeBody(99, 3, 10)])
def test_another_lane_or_release_is_not_used(welcome: WelcomeBody) -> None:
    linked = Linked()
    here, transport = linked.caller.connection(), RecordingTransport()
    here.connection_made(transport)
    here.data_received(encode_frame(FrameType.WELCOME, encode_body(welcome)))
    assert transport.aborted
    assert not linked.caller.is_open


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_no_more_than_the_window_is_unanswered() -> None:
    linked = Linked(window=1000).join()
    peer, told = linked.peer(), list[Any]()
    linked.perform(peer, Subscribe("publish", "orders"))
    linked.lane.pause(True)
    publishes = 12
    for _ in range(publishes):
        linked.caller.perform(peer, Publish(batch_of(b"publish", Message(payload=bytes(100)))), told.append)
        linked.settle()
        assert linked.caller.unanswered <= 1000
    busy = [error for error in told if isinstance(error, BusyError)]
    assert 0 < len(busy) == len(told) < publishes
    assert linked.pressed == [True]
    linked.lane.pause(False)
    linked.settle()
    assert len(told) == publishes
    assert linked.pressed == [True, False]
    assert len(linked.bench.rows()) == publishes - len(busy)


def test_pressure_ends_with_the_connection() -> None:
    linked = Linked(window=100).join()
    peer = linked.peer()
    linked.caller.perform(peer, Publish(batch_of(b"publish", Message(payload=bytes(100)))))
    assert linked.pressed == [True]
    linked.lose()
    assert linked.pressed == [True, False]


def test_one_intent_may_exceed_the_window_by_itself() -> None:
    linked = Linked(window=100).join()
    peer = linked.peer()
    linked.perform(peer, Subscribe("publish", "orders"))
    assert linked.publish(peer, Message(payload=bytes(500))) == Taken()


def test_an_intent_that_fits_no_frame_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "LANE_LIMIT", calling.OVERHEAD + 200)
    linked = Linked().join()
    assert isinstance(linked.publish(linked.peer(), Message(payload=bytes(300))), TooLargeError)


class SlowPeer(LivePeer):
    """A subscriber that writes down its copies, and has room when the test says so."""

    wire = b"mb"

    def __init__(self) -> None:
        super().__init__("slow", EPOCH_US, encode_copies)
        self.payloads: list[bytes] = []
        self.room = True

    def write_run(self, run: Run, data: bytes) -> None:
        self.payloads += [run.batch.item("payload", row) for row in range(run.span.start, run.span.stop)]

    def write_rows(self, data: bytes) -> None:
        raise AssertionError

    def has_room(self) -> bool:
        return self.room

    def taken(self) -> int:
        return 0

    def overrun(self) -> None:
        raise AssertionError


def test_a_slow_subscriber_gets_its_window_and_later_the_rest_in_order() -> None:
    linked = Linked().join()
    sender, slow, quick = linked.peer(), SlowPeer(), linked.peer()
    linked.caller.connect(slow)
    linked.perform(slow, Subscribe("publish", "orders"))
    linked.perform(quick, Subscribe("publish", "orders"))
    slow.room, size, count = False, 256 * 1024, 64
    payloads = [b"%03d" % at + bytes(size) for at in range(count)]
    for payload in payloads:
        linked.publish(sender, Message(payload=payload))
    linked.loop.advance(1)
    linked.settle()
    assert len(quick.copies) == count
    # Its window and what a turn adds to it: the rest waits on the disk, in no process's memory.
    assert COPY_WINDOW <= sum(map(len, slow.payloads)) <= COPY_WINDOW + 2 * size
    assert linked.bench.counted("bus.detached") == 1
    slow.room = True
    for _ in range(20):
        linked.loop.advance(calling.ROOM_S)
        linked.settle()
    assert slow.payloads == payloads
    assert linked.bench.counted("bus.rejoined") == 1
    linked.publish(sender, Message(payload=b"live"))
    assert slow.payloads[-1] == b"live"


def test_subscribers_of_a_caller_that_does_not_read_read_from_the_journal() -> None:
    linked = Linked().join()
    sender, reader = linked.bench.peer(), linked.peer()
    linked.perform(reader, Subscribe("publish", "orders"))
    assert linked.ends is not None
    here, there = linked.ends
    here.reading = False
    there.own.pause_writing()
    for at in range(50):
        linked.bench.publish(sender, Message(payload=b"%d" % at))
        linked.settle()
    # One turn's copies wait for the caller, not all of them.
    assert len(there.written) < 500
    here.reading = True
    there.own.resume_writing()
    linked.settle()
    assert [copy.payload for copy in reader.copies] == [b"%d" % at for at in range(50)]
    assert linked.bench.counted("bus.rejoined") == 1


def test_a_receiver_that_fails_ends_nothing() -> None:
    linked = Linked().join()
    peer, told = linked.peer(), list[Any]()
    linked.caller.perform(peer, Heartbeat(), lambda outcome: 1 / 0)  # type: ignore[arg-type]
    linked.caller.perform(peer, Heartbeat(), told.append)
    linked.settle()
    assert told == [Done()]
    assert linked.caller.is_open
