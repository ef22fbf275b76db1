"""A bench for producers, consumers and subscriptions: sinks that write down what they are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from raceway import config
from raceway.errors import RacewayError
from raceway.model.envelope import DANUBE, PUBLISH, Batch, decode_attributes, encode_attributes
from raceway.model.intents.batches import Acknowledge, Publish, Request, Return, Send, Sent, Taken
from raceway.model.intents.subscriptions import Handover, OpenedStream, OpenStream
from raceway.model.subscriptions import ConsumerWanted, ProducerWanted, SubscriptionStatus, SubscriptionType
from tests.rigs.broker import BrokerRig
from tests.rigs.doubles import ExactPeer, Message, RecordingPeer, batch_of

TOPIC, NAME = "orders", "billing"
PLENTY = 1 << 30


class Got(NamedTuple):
    """A message as a consumer gets it."""

    offset: int
    payload: bytes


class RecordingSink:
    """A stream's end that takes what it is given, while it has room. A message costs its payload and `around` it."""

    wire = DANUBE

    def __init__(self, room: int = PLENTY, largest: int = 4_000_000, around: int = 256) -> None:
        self.left = room
        self.largest = largest
        self.around = around
        self.deliveries: list[Handover] = []
        self.ended: list[RacewayError | None] = []

    def room(self) -> int:
        return self.left

    def take(self, delivery: Handover) -> None:
        assert not self.ended, "nothing may come after the end"
        self.deliveries.append(delivery)
        self.left -= sum(len(delivery.batch.item("payload", row)) + self.around for row in delivery.rows)

    def end(self, error: RacewayError | None) -> None:
        self.ended.append(error)

    @property
    def got(self) -> list[Got]:
        return [
            Got(delivery.batch.item("offset", row), delivery.batch.item("payload", row))
            for delivery in self.deliveries
            for row in delivery.rows
        ]

    @property
    def payloads(self) -> list[bytes]:
        return [got.payload for got in self.got]

    @property
    def offsets(self) -> list[int]:
        return [got.offset for got in self.got]

    def columns(self, *names: str) -> list[tuple[Any, ...]]:
        return [
            tuple(delivery.batch.item(name, row) for name in names)
            for delivery in self.deliveries
            for row in delivery.rows
        ]

    def attributes(self, at: int = -1) -> dict[str, str]:
        return decode_attributes(self.columns("attributes")[at][0])

    def forget(self) -> None:
        self.deliveries.clear()


class DanubePeer(ExactPeer):
    wire = DANUBE
    names_schema = True


class Member:
    """A consumer with its stream."""

    def __init__(self, bench: SubscribingBench, consumer_id: int, sink: RecordingSink | None = None) -> None:
        self.id = consumer_id
        self._bench = bench
        self.sink = sink or RecordingSink()
        self.stream = bench.opened(consumer_id)
        self.stream.start(self.sink)

    @property
    def payloads(self) -> list[bytes]:
        self._bench.settle()
        return self.sink.payloads

    @property
    def offsets(self) -> list[int]:
        self._bench.settle()
        return self.sink.offsets

    def leave(self) -> None:
        self.stream.close()
        self._bench.settle()

    def make_room(self, room: int = PLENTY) -> None:
        self.sink.left = room
        self.stream.resume()
        self._bench.settle()


class SubscribingBench(BrokerRig):
    """`settings` are of `broker.subscriptions`."""

    def __init__(self, folder: Path | None = None, journal: dict[str, Any] | None = None, **settings: Any) -> None:
        settings = {"first_in_flight": 10_000} | settings  # windows have tests of their own
        super().__init__(folder, journal, linger_ms=0, subscriptions=config.Subscriptions(**settings))
        self._requests = 1
        self.sender = self._connected()

    def _connected(self) -> DanubePeer:
        peer = DanubePeer()
        self.broker.connect(peer)
        return peer

    def _start(self) -> None:
        super()._start()
        self.sender = self._connected()

    # ---- other wires -------------------------------------------------------------------------------------------------

    def publish(self, peer: RecordingPeer, *messages: Message) -> Taken:
        outcome = self.broker.perform(peer, Publish(batch_of(PUBLISH, *messages, wire=peer.wire)))
        assert isinstance(outcome, Taken)
        return outcome

    def request(self, *ids: bytes, topic: str = TOPIC) -> None:
        """Requests of a peer of another wire, answered by nobody; stored all the same."""
        messages = [Message(topic.encode(), id=id) for id in ids]
        self.broker.perform(self.foreign_peer(), Request(batch_of(b"request", *messages)))

    # ---- producing ---------------------------------------------------------------------------------------------------

    def producer(self, topic: str = TOPIC, name: str = "p", reliable: bool = True) -> int:
        found = self.broker.producers.create(ProducerWanted(topic, name, reliable)).id
        self.settle()
        return found

    def batch(
        self,
        producer_id: int,
        *payloads: bytes,
        topic: str = TOPIC,
        key: bytes | None = None,
        attributes: dict[str, str] | None = None,
    ) -> Batch:
        count = len(payloads)
        batch = Batch(count, wire=DANUBE, kind=PUBLISH, topic=topic.encode(), payload=list(payloads))
        batch.producer_id = [producer_id] * count
        self._requests += count
        batch.message_id = [b"%d-%d" % (producer_id, self._requests - count + n) for n in range(1, count + 1)]
        batch.sent_ms = [1] * count
        batch.routing_key = None if key is None else [key] * count
        batch.attributes = None if attributes is None else [encode_attributes(attributes)] * count
        return batch

    def send(self, producer_id: int, *payloads: bytes, done: Any = None, **facts: Any) -> Sent:
        batch = self.batch(producer_id, *payloads, **facts)
        outcome = self.broker.perform(self.sender, Send(batch), done or (lambda error: None))
        assert isinstance(outcome, Sent)
        return outcome

    def sent(self, producer_id: int, *payloads: bytes, **facts: Any) -> Sent:
        """The same, and committed."""
        outcome = self.send(producer_id, *payloads, **facts)
        self.settle()
        return outcome

    # ---- consuming ---------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        kind: SubscriptionType = "exclusive",
        name: str = "c",
        topic: str = TOPIC,
        subscription: str = NAME,
        filters: tuple[str, ...] = (),
    ) -> int:
        found = self.broker.subscriptions.subscribe(ConsumerWanted(topic, name, subscription, kind, filters)).id
        self.settle()
        return found

    def opened(self, consumer_id: int) -> OpenedStream:
        stream: OpenedStream = self.broker.perform(self.sender, OpenStream(consumer_id))
        return stream

    def open(self, consumer_id: int, sink: RecordingSink | None = None) -> Member:
        member = Member(self, consumer_id, sink)
        self.settle()
        return member

    def member(self, kind: SubscriptionType = "exclusive", name: str = "c", **facts: Any) -> Member:
        """A consumer that has just subscribed and opened its stream."""
        sink = facts.pop("sink", None)
        return self.open(self.subscribe(kind, name, **facts), sink)

    def ack(self, *offsets: int, topic: str = TOPIC, subscription: str = NAME, done: Any = None) -> Taken:
        count = len(offsets)
        intent = Acknowledge([topic] * count, [subscription] * count, list(offsets))
        outcome = self.broker.perform(self.sender, intent, done or (lambda error: None))
        assert isinstance(outcome, Taken)
        self.settle()
        return outcome

    def nack(
        self, *offsets: int, delay_ms: int | None = None, reason: str | None = None, topic: str = TOPIC,
        subscription: str = NAME,
    ) -> Taken:  # fmt: skip
        count = len(offsets)
        intent = Return([topic] * count, [subscription] * count, list(offsets), [delay_ms] * count, [reason] * count)
        outcome = self.broker.perform(self.sender, intent, lambda error: None)
        assert isinstance(outcome, Taken)
        self.settle()
        return outcome

    # ---- looking -----------------------------------------------------------------------------------------------------

    def status(self, topic: str = TOPIC, name: str = NAME) -> SubscriptionStatus:
        self.settle()
        return self.broker.subscriptions.find(topic, name).status()

    def kept_cursor(self, topic: str = TOPIC, name: str = NAME) -> int | None:
        self.settle()
        kept = self.journal.state.get("cursors", f"subscription:{topic}:{name}")
        return None if kept is None else kept["offset"]
