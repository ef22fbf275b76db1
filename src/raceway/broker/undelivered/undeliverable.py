"""Undeliverable messages: stored on `raceway.undeliverable`, for operators and for redrive.

A row repeats the message; its attributes are the original topic (`topic`), the destination (`receiver`), the reason
(`reason`), and the message's own attributes as JSON (`attributes`). It is a publish of the bus itself, so subscribers
of that topic receive it.
"""

from __future__ import annotations

import contextlib

from raceway.broker.bus import Bus
from raceway.broker.runs import RowSpan, Run
from raceway.broker.tracing import mint_batch
from raceway.errors import UnavailableError
from raceway.model.envelope import PUBLISH, Batch, encode_attributes

UNDELIVERABLE = "raceway.undeliverable"
# The attribute that contains the attributes of the original message.
OWN_ATTRIBUTES = "attributes"


def kept_attributes(column: bytes | None) -> dict[str, str]:
    """Return the message's own attributes as one attribute."""
    return {} if column is None else {OWN_ATTRIBUTES: column.decode()}


def park(bus: Bus, batch: Batch, row: int, receiver: str, reason: str) -> None:
    """Store one row that `receiver` did not accept. Errors of an unwritable journal are ignored."""
    bus.meter.counts["bus.undeliverable"] += 1
    topic = bus.topics.own(UNDELIVERABLE)
    ids = mint_batch(1)
    named = batch.item("topic", row) or b""
    facts = {"topic": named.decode("utf-8", "replace"), "receiver": receiver, "reason": reason}
    facts |= kept_attributes(batch.item("attributes", row))
    parked = Batch(
        1,
        topic=topic.encoded,
        kind=PUBLISH,
        attributes=[encode_attributes(facts)],
        payload=[batch.item("payload", row)],
        message_id=[batch.item("message_id", row) or ids[0]],
        wire=batch.item("wire", row),
        correlation_id=[batch.item("correlation_id", row)],
        producer=batch.item("producer", row),
        reply_to=batch.item("reply_to", row),
        encoding=batch.item("encoding", row),
    )
    with contextlib.suppress(UnavailableError):
        bus.append(parked, None)
        run = Run(RowSpan(topic, topic.encoded, 0, 1), parked, ids)
        for encoder, peers in bus.routing.route(topic).copies:
            data = encoder(run)
            for peer in peers:
                peer.deliver(run, data)
