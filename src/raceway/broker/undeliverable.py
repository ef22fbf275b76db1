"""What the bus was to bring somewhere and could not: kept under `raceway.undeliverable`, for people and for redrive.

A row repeats the message; its attributes say where it belonged (`topic`), who did not take it (`receiver`) and why
(`reason`). It is a publish of the bus's own, so whoever subscribed to that topic hears of it.
"""

from __future__ import annotations

import contextlib

from raceway.broker.bus import Bus
from raceway.broker.runs import Run, Span
from raceway.broker.tracing import mint_batch
from raceway.errors import UnavailableError
from raceway.model.envelope import PUBLISH, Batch, encode_attributes

UNDELIVERABLE = "raceway.undeliverable"


class Parking:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def park(self, batch: Batch, row: int, receiver: str, reason: str) -> None:
        """Keep one row that `receiver` did not take. A journal that takes nothing takes this neither."""
        bus = self._bus
        bus.meter.counts["bus.undeliverable"] += 1
        topic = bus.topics.own(UNDELIVERABLE)
        ids = mint_batch(1)
        named = batch.item("topic", row) or b""
        facts = {"topic": named.decode("utf-8", "replace"), "receiver": receiver, "reason": reason}
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
            run = Run(Span(topic, topic.encoded, 0, 1), parked, ids)
            for encoder, peers in bus.routing.route(topic).copies:
                data = encoder(run)
                for peer in peers:
                    peer.deliver(run, data)
