"""Publishes: named, given ids, appended, and copied to every subscriber.

Copies leave before the commit, because they show no offset and promise nothing.
"""

from __future__ import annotations

from raceway.broker.bus import Bus
from raceway.broker.peers import Peer
from raceway.broker.queue_table import QueueTable
from raceway.broker.runs import Run, Span, keep_named, name_rows
from raceway.broker.tracing import mint_batch
from raceway.errors import NoRouteError
from raceway.journal.contract import Done
from raceway.model.envelope import Batch
from raceway.model.intents import Publish, Taken


class Publishing:
    def __init__(self, bus: Bus, queues: QueueTable) -> None:
        self._bus = bus
        self._queues = queues

    def publish(self, peer: Peer, intent: Publish, done: Done | None) -> Taken:
        bus, batch = self._bus, intent.batch
        bus.admit("publish", peer, batch)
        spans, refused = name_rows(batch, bus.topics, peer.folds_case)
        copied = False
        for topic, sent, start, stop in spans:
            route = bus.routing.route(topic)
            copied = copied or bool(route.copies)
            if route.unspelled:
                bus.meter.counts["bus.unspelled"] += route.unspelled * (stop - start)
            if not route.copies and not self._queues.holds(topic):
                refused.append((start, stop, NoRouteError(sent.decode())))
                bus.meter.counts["router.publish.dropped"] += stop - start
        batch, spans = keep_named(batch, spans, peer.wire)
        if batch.count:
            ids = self._give_ids(peer, batch, copied)
            bus.append(batch, self._queues.watch(batch, spans, done))
            self._deliver(batch, spans, ids)
        return Taken(tuple(refused))

    def _give_ids(self, peer: Peer, batch: Batch, copied: bool) -> list[bytes]:
        """Fill in what only the broker knows; the ids under which copies are delivered.

        A publish that came without an id gets one, and is delivered under that very id. The id of a sender is never
        passed on: such a publish is delivered under a masked one.
        """
        batch.producer = peer.producer
        self._bus.chains.unmask_parents(batch)
        minted = mint_batch(batch.count)
        given, roots = batch.message_id, batch.correlation_id
        assert roots is None or type(roots) is list
        if given is None:
            batch.message_id = given = minted  # type: ignore[assignment]
        else:
            assert type(given) is list
            if not all(given):
                batch.message_id = given = [one or made for one, made in zip(given, minted, strict=True)]
            batch.forwarded_id = minted if copied else None  # type: ignore[assignment]
        if given is not minted or roots is not None:
            self._bus.chains.remember_batch(minted, given, roots)  # type: ignore[arg-type]
        return minted

    def _deliver(self, batch: Batch, spans: list[Span], ids: list[bytes]) -> None:
        delivered = 0
        for span in spans:
            copies = self._bus.routing.route(span.topic).copies
            if copies:
                run = Run(span, batch, ids)
                for encoder, peers in copies:
                    data = encoder(run)
                    for peer in peers:
                        peer.deliver(run, data)
                    delivered += (span.stop - span.start) * len(peers)
        self._bus.meter.counts["bus.delivered"] += delivered
