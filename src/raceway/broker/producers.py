"""Producers: their permanent ids, and what they send.

A producer is a name on a topic. Its id is derived from both, so the same name gets the same id again. Ids never expire,
because common clients keep sending under the old id after a restart without creating the producer again. Producers do
not deregister, so limits count those that were active recently.
"""

from __future__ import annotations

import msgspec

from raceway.broker.bus import Bus, IntentHandler
from raceway.broker.peers import Peer
from raceway.broker.publishing import Publishing
from raceway.broker.registry.schemas import Schemas
from raceway.broker.runs import Refused, RowSpan
from raceway.broker.steps import Steps
from raceway.broker.topic_records import TopicRecords
from raceway.broker.topics import Topic
from raceway.chance import random_bits
from raceway.errors import (
    ForbiddenError,
    InvalidValueError,
    LimitError,
    RacewayError,
    UnknownProducerError,
    UnknownTopicError,
)
from raceway.journal.contract import OnCommit
from raceway.model.envelope import Batch
from raceway.model.hashing import sender_id
from raceway.model.intents.batches import Send, Sent
from raceway.model.intents.kinds import Done
from raceway.model.intents.producers import CreateProducer, TouchProducer
from raceway.model.subscriptions import ProducerRow, ProducerWanted

PRODUCERS = "producers"
MAX_NAME = 255


class ProducerRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    topic: str
    name: str
    exclusive: bool = False


class RegisteredProducer:
    __slots__ = ("encoded", "exclusive", "heard", "id", "name", "topic")

    def __init__(self, producer_id: int, topic: Topic, name: str, exclusive: bool, heard: float) -> None:
        self.id, self.topic, self.name = producer_id, topic, name
        self.encoded = name.encode()
        self.exclusive = exclusive
        self.heard = heard


class Producers:
    def __init__(self, bus: Bus, records: TopicRecords, schemas: Schemas, publishing: Publishing) -> None:
        self._bus, self._records, self._schemas, self._publishing = bus, records, schemas, publishing
        self._by_id: dict[int, RegisteredProducer] = {}
        self._by_topic: dict[Topic, dict[str, RegisteredProducer]] = {}
        self._exclusive: set[Topic] = set()  # topics that ever had an exclusive producer
        for producer_id, value in bus.journal.state.section(PRODUCERS).items():
            record = msgspec.convert(value, ProducerRecord)
            self._add(
                RegisteredProducer(int(producer_id), bus.topics.own(record.topic), record.name, record.exclusive, 0.0)
            )

    def calls(self) -> dict[type, IntentHandler]:
        return {
            CreateProducer: self._create,
            TouchProducer: lambda peer, call: Done(self.hear(call.producer_id)),
        }

    def _create(self, peer: Peer, call: CreateProducer) -> Steps[ProducerRow]:
        row = yield from self._bus.change(lambda: self.create(call.wanted, peer.network), renews=True)
        assert isinstance(row, ProducerRow)
        peer.note_alias(call.wanted.name)
        return row

    def create(self, wanted: ProducerWanted, maker: str = "") -> ProducerRow:
        """Return the producer of this name, created if it is new, with its topic. Creates nothing if a check fails.

        `maker` is the network of the client. Raises UnknownTopicError without `auto_create`, DrainingError,
        InvalidValueError, LimitError, ForbiddenError, SchemaReferenceError, UnavailableError, errors of names.
        """
        self._bus.check_open()
        found = self._records.check(wanted.topic, wanted.reliable)
        if found is None and not self._bus.settings.subscriptions.auto_create:
            raise UnknownTopicError(wanted.topic)
        self._check(found, wanted)
        if wanted.subject is not None:
            self._schemas.check_reference(found, wanted.subject, version=wanted.version, min_version=wanted.min_version)
        if found is None or wanted.name not in self._by_topic.get(found, {}):
            self._bus.journal.check_writable()  # on a full disk the state would wait for space
        topic = self._records.settle(wanted.topic, wanted.reliable, maker=maker)
        if wanted.subject is not None:
            self._schemas.bind(topic, wanted.subject)
        known = self._by_topic.get(topic, {}).get(wanted.name)
        now = self._bus.loop.time()
        if known is None or known.exclusive != wanted.exclusive:
            producer_id = self._free_id(topic, wanted.name) if known is None else known.id
            record = ProducerRecord(topic.name, wanted.name, wanted.exclusive)
            self._bus.set_state(PRODUCERS, str(producer_id), msgspec.to_builtins(record))
            known = RegisteredProducer(producer_id, topic, wanted.name, wanted.exclusive, now)
            self._add(known)
        known.heard = now
        return ProducerRow(known.id, known.name)

    def _check(self, topic: Topic | None, wanted: ProducerWanted) -> None:
        """Check that the producer may be created; `topic` is None if it does not exist yet.

        Raises InvalidValueError, LimitError, ForbiddenError.
        """
        if not 0 < len(wanted.name) <= MAX_NAME:
            raise InvalidValueError("producer_name", f"must have 1 to {MAX_NAME} characters")
        if topic is None:
            return
        limit = self._records.policies(topic).max_producers_per_topic
        if not limit and not wanted.exclusive and topic not in self._exclusive:
            return  # a topic may have thousands of producers
        since, known = (
            self._bus.loop.time() - self._bus.settings.subscriptions.producer_idle_s,
            self._by_topic.get(topic, {}),
        )
        others = [each for each in known.values() if each.heard > since and each.name != wanted.name]
        if limit and len(others) >= limit:
            raise LimitError(f"producers of {topic.name!r}", limit)
        alone = next((each for each in others if each.exclusive or wanted.exclusive), None)
        if alone is not None:
            raise ForbiddenError(f"producer {wanted.name!r}", f"join {alone.name!r}: one of them is exclusive")

    def hear(self, producer_id: int) -> bool:
        """Reset the idle timer of a producer. Return False if it does not exist."""
        producer = self._by_id.get(producer_id)
        if producer is not None:
            producer.heard = self._bus.loop.time()
        return producer is not None

    def remove_topic(self, topic: Topic) -> None:
        self._exclusive.discard(topic)
        for producer in self._by_topic.pop(topic, {}).values():
            del self._by_id[producer.id]
            self._bus.set_state(PRODUCERS, str(producer.id), None)

    def __len__(self) -> int:
        return len(self._by_id)

    def _free_id(self, topic: Topic, name: str) -> int:
        """Return the id derived from topic and name, or a random one on collision."""
        found = sender_id(topic.encoded, name.encode())
        while found in self._by_id or not found:
            found = random_bits(63)
        return found

    def _add(self, producer: RegisteredProducer) -> None:
        self._by_id[producer.id] = producer
        if producer.exclusive:
            self._exclusive.add(producer.topic)
        self._by_topic.setdefault(producer.topic, {})[producer.name] = producer

    # ---- sending -----------------------------------------------------------------------------------------------------

    def send(self, peer: Peer, intent: Send, done: OnCommit | None) -> Sent:
        """Store messages of registered producers, each on its own topic."""
        batch = intent.batch
        self._bus.admit("publish", peer, batch)
        spans, refused = self._named(batch)
        spans = self._publishing.admitted(peer, batch, spans, refused)
        early = tuple((span.start, span.stop) for span in spans if self._records.reliable(span.topic) is False)
        self._publishing.store(batch, spans, done, None)
        return Sent(tuple(refused), early)

    def _named(self, batch: Batch) -> tuple[list[RowSpan], Refused]:
        """Return the topics of the rows as spans, and set the column of producer names."""
        if type(batch.producer_id) is int and type(batch.topic) is bytes:  # one producer: almost every batch
            only = self._judged(batch.producer_id, batch.topic)
            if isinstance(only, RacewayError):
                return [], [(0, batch.count, only)]
            batch.producer = only.encoded
            return [RowSpan(only.topic, only.topic.public.encode(), 0, batch.count)], []
        spans: list[RowSpan] = []
        refused: Refused = []
        names: list[bytes | None] = []
        last: tuple[int, bytes] | None = None
        producer: RegisteredProducer | RacewayError | None = None
        for row in range(batch.count):
            key = (batch.item("producer_id", row), batch.item("topic", row))
            if key != last:
                producer, last = self._judged(*key), key
            if isinstance(producer, RegisteredProducer):
                names.append(producer.encoded)
                if spans and spans[-1].topic is producer.topic and spans[-1].stop == row:
                    spans[-1] = spans[-1]._replace(stop=row + 1)
                else:
                    spans.append(RowSpan(producer.topic, producer.topic.public.encode(), row, row + 1))
            else:
                assert producer is not None
                names.append(None)
                refused.append((row, row + 1, producer))
        batch.producer = names
        return spans, refused

    def _judged(self, producer_id: int, topic: bytes) -> RegisteredProducer | RacewayError:
        producer = self._by_id.get(producer_id)
        if producer is None:
            return UnknownProducerError(str(producer_id))
        if producer.topic.encoded != topic:
            return ForbiddenError(f"producer {producer.name!r}", f"send to {topic.decode('utf-8', 'replace')!r}")
        producer.heard = self._bus.loop.time()
        return producer
