"""Streams of consumers over the link: credit, ends of every kind, what a broken link does to them."""

from __future__ import annotations

from typing import Any

import pytest

from raceway import config
from raceway.errors import RacewayError, UnavailableError, UnknownConsumerError
from raceway.link.codec.bodies import CloseStreamBody
from raceway.link.codec.frames import FrameType
from raceway.model.intents.batches import Acknowledge, Send
from raceway.model.intents.producers import CreateProducer
from raceway.model.intents.subscriptions import AttachConsumer, OpenedStream, OpenStream
from raceway.model.subscriptions import ConsumerWanted, ProducerWanted
from tests.rigs.linked import Linked
from tests.rigs.subscribing import NAME, TOPIC, DanubePeer, RecordingSink, SubscribingBench


class Desk:
    """A producer and a consumer, both peers of a caller."""

    def __init__(self, reliable: bool = True, piece: int = 65536) -> None:
        self.linked = Linked(piece=piece, subscriptions=config.Subscriptions(first_in_flight=10_000)).join()
        self.peer = DanubePeer("wire")
        self.linked.caller.connect(self.peer)
        self._batches = SubscribingBench()
        self._producer = self.ask(CreateProducer(ProducerWanted(TOPIC, "p", reliable))).id
        self.consumer = self.attach("c")

    def ask(self, intent: Any) -> Any:
        outcome = self.linked.perform(self.peer, intent)
        if isinstance(outcome, RacewayError):
            raise outcome
        return outcome

    def attach(self, name: str) -> int:
        consumer: int = self.ask(AttachConsumer(ConsumerWanted(TOPIC, name, NAME, "shared"))).id
        return consumer

    def open(self, sink: RecordingSink, consumer: int | None = None) -> OpenedStream:
        stream: OpenedStream = self.ask(OpenStream(self.consumer if consumer is None else consumer))
        stream.start(sink)
        self.linked.settle()
        return stream

    def send(self, *payloads: bytes) -> None:
        assert self.ask(Send(self._batches.batch(self._producer, *payloads))).refused == ()
        self.linked.settle()

    def acknowledge(self, *offsets: int) -> None:
        self.ask(Acknowledge([TOPIC] * len(offsets), [NAME] * len(offsets), list(offsets)))

    @property
    def streams(self) -> int:
        """How many streams the broker counts for the peer."""
        (peer,) = self.linked.bench.broker.peers.values()
        return peer.streams


@pytest.mark.parametrize("piece", [65536, 1], ids=["whole", "bytewise"])
def test_messages_arrive_with_all_that_a_wire_needs(piece: int) -> None:
    desk, sink = Desk(piece=piece), RecordingSink()
    stream = desk.open(sink)
    assert not stream.is_live
    desk.send(b"1", b"2")
    assert sink.payloads == [b"1", b"2"]
    assert sink.offsets == [0, 1]
    assert {(each.topic, each.subscription) for each in sink.deliveries} == {(TOPIC, NAME.encode())}
    assert [kind for (kind,) in sink.columns("wire")] == [b"danube", b"danube"]
    assert desk.streams == 1
    stream.close()
    stream.close()
    desk.linked.settle()
    assert desk.streams == 0


def test_a_stream_of_a_live_subscription_says_so() -> None:
    desk, sink = Desk(reliable=False), RecordingSink()
    assert desk.open(sink).is_live
    desk.send(b"1")
    assert sink.payloads == [b"1"]


def test_a_consumer_that_is_not_there_is_refused() -> None:
    with pytest.raises(UnknownConsumerError):
        Desk().ask(OpenStream(7))


def test_a_stream_without_room_gets_the_rest_when_it_has_room() -> None:
    desk, sink = Desk(), RecordingSink(room=0, around=0)
    stream = desk.open(sink)
    payloads = [b"%02d" % at + bytes(1000) for at in range(20)]
    for payload in payloads:
        desk.send(payload)
    assert sink.payloads == []
    for _ in payloads:
        sink.left = 1000
        stream.resume()
        desk.linked.settle()
    assert sink.payloads == payloads


def test_credit_is_given_again_before_it_is_used_up() -> None:
    # The sink has room all the time, so nobody ever calls `resume`.
    desk, sink = Desk(), RecordingSink(room=5000, around=0)
    desk.open(sink)
    for at in range(50):
        sink.left = 5000
        desk.send(b"%02d" % at + bytes(500))
    assert len(sink.payloads) == 50


def test_no_more_is_under_way_than_the_wire_has_room_for() -> None:
    desk, sink = Desk(), RecordingSink(room=10_000, around=0)
    desk.open(sink)
    assert desk.linked.ends is not None
    here, there = desk.linked.ends
    here.reading = False  # the caller does not come to read
    for _ in range(50):
        batch = desk._batches.batch(desk._producer, bytes(1000))
        desk.linked.bench.broker.perform(DanubePeer(), Send(batch))
        desk.linked.loop.settle()
    assert 10_000 <= len(there.written) <= 14_000
    here.reading = True
    sink.left = 1 << 20
    desk.linked.settle()
    assert len(sink.payloads) == 50


def test_streams_wait_while_the_connection_is_full() -> None:
    desk, sink = Desk(), RecordingSink()
    desk.open(sink)
    assert desk.linked.ends is not None
    there = desk.linked.ends[1]
    there.own.pause_writing()
    batch = desk._batches.batch(desk._producer, b"1")
    desk.linked.bench.broker.perform(DanubePeer(), Send(batch))
    desk.linked.settle()
    assert sink.payloads == []
    there.own.resume_writing()
    desk.linked.settle()
    assert sink.payloads == [b"1"]


def test_a_newer_stream_ends_the_older() -> None:
    desk, older, newer = Desk(), RecordingSink(), RecordingSink()
    first = desk.open(older)
    desk.open(newer)
    assert older.ended == [None]
    first.close()
    desk.send(b"1")
    assert (older.payloads, newer.payloads) == ([], [b"1"])
    assert desk.streams == 1


def test_a_peer_that_leaves_has_no_streams() -> None:
    desk, left, other = Desk(), RecordingSink(), RecordingSink()
    stream = desk.open(left)
    desk.send(b"1")
    desk.linked.caller.disconnect(desk.peer)
    # A session may end its streams after it has left.
    stream.resume()
    stream.close()
    desk.peer = DanubePeer("another")
    desk.linked.caller.connect(desk.peer)
    desk.open(other, desk.attach("d"))
    assert (left.payloads, other.payloads) == ([b"1"], [b"1"])
    assert desk.linked.caller.is_open


def test_a_consumer_that_was_lost_is_told_from_one_that_left() -> None:
    for lost in (False, True):
        desk = Desk()
        desk.open(RecordingSink()).close()
        stream = desk.open(RecordingSink())
        desk.send(b"1")
        stream.close(lost=lost)
        desk.linked.settle()
        (subscription,) = desk.linked.bench.broker.subscriptions
        assert bool(subscription.progress().get("failed")) == lost


def test_a_broken_link_ends_streams_and_counts_no_failure() -> None:
    desk, sink, again = Desk(), RecordingSink(), RecordingSink()
    stream = desk.open(sink)
    desk.send(b"1", b"2")
    desk.acknowledge(0)
    desk.linked.lose()
    ((error,),) = [sink.ended]
    assert isinstance(error, UnavailableError)
    stream.close()
    stream.resume()
    desk.linked.join()
    # A client opens its stream again, under the same id.
    desk.open(again)
    assert again.payloads == [b"2"]
    (subscription,) = desk.linked.bench.broker.subscriptions
    assert not subscription.progress().get("failed")


def test_a_stream_that_is_started_too_late_ends_at_once() -> None:
    desk, sink = Desk(), RecordingSink()
    stream: OpenedStream = desk.ask(OpenStream(desk.consumer))
    desk.linked.lose()
    stream.start(sink)
    assert [type(error) for error in sink.ended] == [UnavailableError]


def test_a_caller_that_names_a_stream_that_is_not_open_is_cut() -> None:
    desk = Desk()
    assert desk.linked.ends is not None
    here = desk.linked.ends[0]
    here.own.send(FrameType.CLOSE_STREAM, CloseStreamBody(1, 77, False))
    desk.linked.settle()
    assert desk.linked.ends[1].aborted
