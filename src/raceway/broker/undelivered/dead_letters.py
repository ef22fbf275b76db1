"""Dead letters, and notes about undeliverable messages: what the broker itself publishes.

A dead letter is a copy of a message that failed too often, on the topic that its subscription names: a reliable one,
created if needed. A note names a message that was skipped because the wire of its consumer cannot carry it; the message
itself stays in its topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog

from raceway.broker.bus import Bus
from raceway.broker.publishing import Publishing
from raceway.broker.runs import RowSpan, over_partitions
from raceway.broker.topic_records import TopicRecords
from raceway.broker.topics import Topic
from raceway.broker.undelivered.undeliverable import UNDELIVERABLE
from raceway.errors import RacewayError
from raceway.journal.contract import OnCommit
from raceway.model.envelope import OWN_NAME, PUBLISH, Batch, decode_attributes, encode_attributes, encode_json
from raceway.model.hashing import sender_id
from raceway.model.intents.subscriptions import Sink
from raceway.model.topics import namespaced_topic

ORIGINAL_TOPIC = "x-original-topic"
# Attributes of a dead letter besides the message's own: its origin and its failures.
LETTER_ATTRIBUTES = {
    ORIGINAL_TOPIC, "x-original-subscription", "x-original-topic-offset", "x-original-producer-id",
    "x-original-broker-addr", "x-poison-policy", "x-delivery-attempt", "x-failure-reason",
}  # fmt: skip

log = structlog.get_logger("raceway.broker")

# Columns that are not copied: position, time and history of the original.
_NOT_COPIED = ("topic", "offset", "time_us", "forwarded_id", "hops", "answers")


class Letters:
    """Publisher of dead letters and notes. `broker_address` is the address that clients know."""

    def __init__(self, bus: Bus, records: TopicRecords, publishing: Publishing) -> None:
        self._bus, self._records, self._publishing = bus, records, publishing
        self.broker_address = ""

    def dead_letter(
        self,
        topic: Topic,
        subscription: str,
        target: str,
        batch: Batch,
        row: int,
        facts: Mapping[str, str],
        done: OnCommit,
    ) -> None:
        """Copy the message to the topic `target`. `done` is called after the commit, or with the error."""

        def settled(error: RacewayError | None) -> None:
            if error is None:
                self._bus.meter.counts["bus.dead_letters"] += 1
            else:
                facts = {"topic": topic.name, "subscription": subscription, "reason": str(error)}
                log.warning("dead letter not stored", **facts)
            done(error)

        try:
            known = self._bus.topics.maybe_exact(target)
            if known is None:
                self._records.check(target, reliable=True)
                known = self._records.settle(target, reliable=True)
            self._publish(known, self._copy(topic, subscription, batch, row, facts), settled)
        except RacewayError as error:
            settled(error)

    def _copy(self, topic: Topic, subscription: str, batch: Batch, row: int, facts: Mapping[str, str]) -> Batch:
        copy = batch.keep([row])
        for name in _NOT_COPIED:
            setattr(copy, name, None)
        copy.correlation_id = [batch.item("correlation_id", row)] if batch.correlation_id is not None else None
        copy.message_id = [batch.item("message_id", row)]
        producer_id = batch.item("producer_id", row)
        if producer_id is None:
            producer_id = sender_id(topic.encoded, batch.item("producer", row) or b"")
        origin = {
            ORIGINAL_TOPIC: namespaced_topic(topic.name),
            "x-original-subscription": subscription,
            "x-original-topic-offset": str(batch.item("offset", row)),
            "x-original-producer-id": str(producer_id),
            "x-original-broker-addr": self.broker_address,
        }
        attributes = {**decode_attributes(batch.item("attributes", row)), **origin, **facts}
        copy.attributes = [encode_attributes(attributes)]
        return copy

    def note_undeliverable(
        self, topic: Topic, subscription: str, batch: Batch, row: int, size: int, sink: Sink
    ) -> None:
        """Publish a note about a message that is too large for the consumer's wire."""
        self._bus.meter.counts["bus.undeliverable"] += 1
        facts: dict[str, Any] = {
            "topic": topic.name,
            "offset": batch.item("offset", row),
            "subscription": subscription,
            "wire": sink.wire.decode(),
            "reason": "too_large",
            "size": size,
            "limit": sink.largest,
        }
        note = Batch(1, wire=sink.wire, kind=PUBLISH, producer=OWN_NAME, payload=[encode_json(facts)])
        note.attributes = [encode_attributes({name: str(value) for name, value in facts.items()})]
        try:
            self._publish(self._bus.topics.own(UNDELIVERABLE), note, None)
        except RacewayError as error:
            log.warning("note about undeliverable message not stored", reason=str(error), **facts)

    def _publish(self, topic: Topic, batch: Batch, done: OnCommit | None) -> None:
        spans = over_partitions([RowSpan(topic, topic.public.encode(), 0, 1)], batch, batch.item("producer", 0) or b"")
        self._publishing.store_own(batch, spans, done)
