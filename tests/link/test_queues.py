"""Queues over the link: what consumers are handed, requests through queues, answers, and what a broken link does."""

from __future__ import annotations

from typing import Any

import pytest

from raceway.broker.queues.consumer import Copy
from raceway.errors import ForbiddenError, UnavailableError
from raceway.link.peers import COPY_WINDOW
from raceway.model.envelope import PUBLISH, REQUEST, ZBUS, Batch
from raceway.model.intents.batches import Taken
from raceway.model.intents.kinds import Done
from raceway.model.intents.peers import UnwatchLog, WatchLog
from raceway.model.intents.queues import Arm, CreateQueue, Enqueue, EnqueueRequests, ResumeDeliveries
from tests.rigs.doubles import Message
from tests.rigs.linked import Linked
from tests.rigs.queues import MQ, PUBSUB, TEMP, QueuePeer, name_of


class RoomyPeer(QueuePeer):
    """Has room when the test says so; writes down which topic-less copies it got."""

    room = True

    def has_room(self) -> bool:
        return self.room

    def hand_copy(self, queue: str, ticket: bytes, copy: Copy) -> None:
        super().hand_copy(queue, ticket, copy)
        # Small, whatever was sent.
        self.handed[-1] = (ticket, self.handed[-1][1][:3])


class Desk:
    def __init__(self, piece: int = 65536, mode: int = MQ, **settings: Any) -> None:
        self.linked = Linked(piece=piece, **settings).join()
        self.sender, self.other = self.peer(), self.linked.peer()
        assert self.ask(self.sender, CreateQueue("q", mode)) == Done()

    def peer(self) -> RoomyPeer:
        peer = RoomyPeer(self.linked)
        self.linked.caller.connect(peer)
        self.linked.settle()
        return peer

    def ask(self, peer: QueuePeer, intent: Any) -> Any:
        return self.linked.perform(peer, intent)

    def arm(self, peer: QueuePeer, ticket: bytes = b"t", window: int = 1, *topics: str) -> Any:
        return self.ask(peer, Arm(b"q", ticket, topics, window))

    def publish(self, *payloads: bytes) -> None:
        """Publish from a wire whose messages have no subject but the name of the queue."""
        assert self.linked.publish(self.other, *(Message(b"q", payload) for payload in payloads)) == Taken()
        self.linked.settle()

    def produce(self, *payloads: bytes) -> None:
        batch = Batch(len(payloads), topic=b"q", kind=PUBLISH, wire=ZBUS, payload=list(payloads))
        batch.message_id = [b"m%d" % at for at in range(len(payloads))]
        assert self.ask(self.sender, Enqueue(batch)) == Taken()
        self.linked.settle()

    def request(self, peer: QueuePeer, *ids: bytes) -> None:
        batch = Batch(len(ids), topic=b"q", kind=REQUEST, wire=ZBUS, payload=list(ids), reply_to=b"replies")
        batch.message_id = list(ids)
        assert self.ask(peer, EnqueueRequests(batch)) == Taken()
        self.linked.settle()

    def answer(self, peer: QueuePeer, reply_to: bytes, message_id: bytes, payload: bytes) -> Any:
        batch = Batch(1, topic=reply_to, kind=PUBLISH, wire=ZBUS, payload=[payload], message_id=[message_id])
        return self.ask(peer, Enqueue(batch))


@pytest.mark.parametrize("piece", [65536, 1], ids=["whole", "bytewise"])
def test_rows_are_handed_out_until_the_window_is_used_up(piece: int) -> None:
    desk = Desk(piece)
    consumer = desk.peer()
    assert desk.arm(consumer, b"t1", 3) == Done()
    desk.produce(b"0", b"1")
    desk.produce(b"2", b"3")
    assert consumer.handed == [(b"t1", b"0"), (b"t1", b"1"), (b"t1", b"2")]
    assert consumer.held == [0, 1, 2]
    consumer.take()
    desk.arm(consumer, b"t2")
    assert consumer.handed[-1] == (b"t2", b"3")


def test_rows_that_were_not_written_return_to_the_queue() -> None:
    desk = Desk()
    first, second = desk.peer(), desk.peer()
    desk.arm(first, window=-1)
    desk.produce(b"0", b"1", b"2")
    first.take(1)
    desk.linked.caller.disconnect(first)
    desk.arm(second, window=-1)
    assert second.payloads == [b"1", b"2"]


def test_requests_wait_in_a_queue_and_are_answered() -> None:
    desk = Desk()
    asker, responder = desk.peer(), desk.peer()
    desk.request(asker, b"a1", b"a2")
    desk.arm(responder, window=-1)
    assert responder.payloads == [b"a1", b"a2"]
    reply_to, message_id = responder.holding[1][1].request.name  # type: ignore[union-attr, misc]
    assert desk.answer(responder, reply_to, message_id, b"two") == Taken()
    assert [(each.message_id, payload) for each, payload, _ in asker.answers] == [(b"a2", b"two")]
    assert name_of(responder.holding[0][1]) == b"a1"


def test_a_request_of_another_wire_has_the_name_that_answers_must_use() -> None:
    desk = Desk()
    asker, responder = desk.linked.peer("asker"), desk.peer()
    desk.arm(responder)
    desk.linked.request(asker, Message(b"q", b"2+2", b"own"))
    ((_, entry),) = responder.holding
    assert entry.is_masked
    assert name_of(entry) not in (b"own", b"")
    assert entry.request is not None
    assert entry.request.name is not None
    assert entry.request.requester_id == "asker"
    desk.answer(responder, *entry.request.name, b"4")
    assert [(each.message_id, payload) for each, payload, _ in asker.answers] == [(b"own", b"4")]


def test_late_answers_are_fetched_from_the_reply_queue() -> None:
    desk = Desk()
    asker, responder = desk.peer(), desk.peer()
    desk.request(asker, b"a1")
    desk.arm(responder)
    reply_to, message_id = responder.holding[0][1].request.name  # type: ignore[union-attr, misc]
    desk.answer(responder, reply_to, message_id, b"first")
    desk.answer(responder, reply_to, message_id, b"second")
    assert desk.ask(asker, Arm(reply_to, message_id)) == Done()
    assert asker.fetched == [(message_id, b"second")]


def test_each_subscriber_of_a_pubsub_queue_gets_its_topics() -> None:
    desk = Desk(mode=PUBSUB)
    one, two = desk.peer(), desk.peer()
    desk.arm(one, b"t1", -1, "*")
    desk.arm(two, b"t2", 1, "*")
    desk.publish(b"0", b"1")
    assert one.handed == [(b"t1", b"0"), (b"t1", b"1")]
    assert two.handed == [(b"t2", b"0")]
    desk.arm(two, b"t3")
    assert two.handed[1:] == [(b"t3", b"1")]


def test_a_slow_subscriber_of_a_pubsub_queue_is_sent_its_window_and_no_more() -> None:
    desk = Desk(mode=PUBSUB, pubsub_bytes=1 << 20)
    slow = desk.peer()
    desk.arm(slow, b"t", -1, "*")
    slow.room, size, count = False, 256 * 1024, 64
    for at in range(count):
        desk.publish(b"%03d" % at + bytes(size))
    desk.linked.loop.advance(1)
    desk.linked.settle()
    assert COPY_WINDOW <= len(slow.handed) * size <= COPY_WINDOW + 2 * size
    (peer,) = [each for each in desk.linked.bench.broker.peers.values() if each.id == slow.id]
    assert peer.is_behind
    slow.room = True
    for _ in range(40):
        desk.linked.loop.advance(0.02)
        desk.linked.settle()
    assert slow.payloads == [b"%03d" % at for at in range(count)]
    assert not peer.is_behind


def test_a_consumer_with_room_again_asks_for_the_rest() -> None:
    desk = Desk()
    assert desk.ask(desk.peer(), ResumeDeliveries()) == Done()


def test_a_consumer_without_permission_is_dismissed() -> None:
    desk = Desk()
    consumer = desk.peer()
    desk.arm(consumer, b"t", 2)
    (linked,) = [each for each in desk.linked.bench.broker.peers.values() if each.id == consumer.id]
    queues = desk.linked.bench.broker.queues
    queues._dismiss(linked, queues.ordinary("q"), ForbiddenError("user:ann", "Consume"))  # type: ignore[arg-type]
    desk.linked.settle()
    assert consumer.dismissed == [("q", b"t")]
    desk.linked.lose()
    desk.linked.join()
    desk.produce(b"0")
    assert consumer.handed == []


# ---- a broken link ---------------------------------------------------------------------------------------------------


def test_consumers_go_on_to_wait_when_the_link_is_back() -> None:
    desk = Desk()
    greedy, modest, done = desk.peer(), desk.peer(), desk.peer()
    desk.arm(done, b"d", 1)
    desk.produce(b"0")
    done.take()
    desk.arm(greedy, b"g", 2)
    desk.arm(modest, b"m", 1)
    desk.produce(b"1")
    assert greedy.payloads == [b"1"]
    desk.linked.lose()
    greedy.holding.clear()
    desk.linked.join()
    desk.produce(b"2", b"3")
    # What was out comes again, and counts: one of two was handed out before.
    assert greedy.handed == [(b"g", b"1"), (b"g", b"1")]
    assert modest.handed == [(b"m", b"2")]
    assert done.payloads == [b"0"]


def test_subscribers_keep_their_topics_when_the_link_is_back() -> None:
    desk = Desk(mode=PUBSUB)
    subscriber = desk.peer()
    desk.arm(subscriber, b"t1", 1, "*")
    desk.publish(b"0")
    desk.linked.lose()
    desk.linked.join()
    desk.publish(b"1")
    desk.arm(subscriber, b"t2", 1)
    assert subscriber.handed == [(b"t1", b"0"), (b"t2", b"1")]


def test_a_peer_whose_queue_is_gone_is_hung_up() -> None:
    desk = Desk()
    maker, consumer = desk.peer(), desk.peer()
    reasons: list[str] = []
    maker.hang_up = lambda reason: reasons.append(f"maker: {reason}")
    consumer.hang_up = lambda reason: reasons.append(f"consumer: {reason}")
    assert desk.ask(maker, CreateQueue("passing", MQ | TEMP)) == Done()
    assert desk.ask(consumer, Arm(b"passing", b"t")) == Done()
    desk.linked.lose()
    assert reasons == ["maker: its temporary queues were lost with lane 3"]
    desk.linked.join()
    assert reasons[1].startswith("consumer: queue 'passing' cannot be consumed any more: ")


def test_open_requests_in_queues_fail_with_the_link() -> None:
    desk = Desk()
    asker = desk.peer()
    desk.request(asker, b"a1")
    desk.linked.lose()
    ((request, error),) = asker.failures
    assert (request.message_id, type(error)) == (b"a1", UnavailableError)


def test_records_of_the_log_come_also_after_the_link_was_lost() -> None:
    linked = Linked().join()
    watcher, other = linked.peer(), linked.peer()
    logs = linked.bench.broker.logs
    assert linked.perform(watcher, WatchLog(("info",), "x")) == Done()
    logs.emit("info", "x1", peer="p")
    logs.emit("warn", "x2")
    linked.settle()
    linked.lose()
    linked.join()
    logs.emit("info", "x3")
    linked.settle()
    assert [(level, message, extra) for level, message, _, extra in watcher.records] == [
        ("info", "x1", {"peer": "p"}), ("info", "x3", {}),
    ]  # fmt: skip
    assert other.records == []
    linked.perform(watcher, UnwatchLog())
    logs.emit("info", "x4")
    linked.settle()
    assert len(watcher.records) == 2
