"""Publishes: named, admitted, given ids, appended, and copied to every subscriber.

Copies are sent before the commit, because they contain no offset and promise nothing. Queues and subscriptions with
cursors are notified after it (`Readers`).
"""

from __future__ import annotations

from raceway.broker import mixed, runs
from raceway.broker.bus import Bus
from raceway.broker.dedup import Deduplication
from raceway.broker.peers import Peer
from raceway.broker.rates import PublishLimits
from raceway.broker.registry.schemas import SchemaDoor
from raceway.broker.routing import Copies, Route
from raceway.broker.topic_records import TopicRecords
from raceway.broker.topics import Topic
from raceway.broker.tracing import mint_batch
from raceway.errors import NoRouteError, RacewayError
from raceway.journal.contract import OnCommit
from raceway.model.envelope import Batch
from raceway.model.intents.batches import Publish, Taken

NONE_REFUSED = Taken(())


class Publishing:
    def __init__(self, bus: Bus, records: TopicRecords) -> None:
        self._bus = bus
        self._records = records
        self._limits = PublishLimits(records, bus.loop.time)
        self.schema_door = SchemaDoor(bus, self.store)
        self._dedup = Deduplication(bus)

    def publish(self, peer: Peer, intent: Publish, done: OnCommit | None) -> Taken:
        bus, batch = self._bus, intent.batch
        bus.admit("publish", peer, batch)
        if not self._records.is_limited and self._is_published_plainly(peer, intent, done):
            return NONE_REFUSED
        spans, refused = runs.name_rows(batch, bus.topics, peer.folds_case, peer.network)
        spans = runs.over_partitions(spans, batch, peer.producer)
        spans = self.admitted(peer, batch, spans, refused)
        if not intent.whole:
            batch.producer = peer.producer
        elif refused:
            raise refused[0][2]
        for topic, sent, start, stop in spans:
            if not bus.routing.route(topic).copies and not bus.readers.holds(topic):
                refused.append((start, stop, NoRouteError(sent.decode())))
                bus.meter.counts["router.publish.dropped"] += stop - start
        self.store(batch, spans, done, peer.wire)
        bus.count_refused("router.publish.error", refused)
        return Taken(tuple(refused))

    def _is_published_plainly(self, peer: Peer, intent: Publish, done: OnCommit | None) -> bool:
        """Publish a batch to whose rows nothing but routing applies; return False, with nothing done, for others."""
        batch, sent = intent.batch, intent.batch.topic
        producer = batch.producer if intent.whole else peer.producer
        if type(sent) is bytes:
            # Attributes may have an id for deduplication.
            routed = mixed.maybe_route(self._bus, peer, sent) if batch.attributes is None else None
            if routed is None:
                return False
            batch.producer = producer
            self._publish_one_topic(batch, *routed, done)
            return True
        routes = mixed.maybe_routes(self._bus, peer, batch)
        if routes is None:
            return False
        batch.producer = producer
        self._publish_mixed(batch, routes, done)
        return True

    def _publish_one_topic(self, batch: Batch, topic: Topic, route: Route, done: OnCommit | None) -> None:
        bus, copies = self._bus, route.copies
        ids = self._give_ids(batch, bool(copies))
        if bus.readers.holds(topic):
            done = bus.readers.watch_rows(batch, ((topic, range(batch.count)),), done)
        bus.append(batch, done)
        if bus.credits.full:
            self._note_fed(topic, route)
        if copies:
            run = runs.Run(runs.RowSpan(topic, topic.encoded, 0, batch.count), batch, ids)
            bus.meter.counts["bus.delivered"] += _deliver_run(run, copies)

    def _publish_mixed(self, batch: Batch, routes: mixed.RoutesByName, done: OnCommit | None) -> None:
        """Append and deliver a batch of several topics to whose rows nothing but routing applies."""
        bus, rows = self._bus, mixed.rows_by_name(batch, routes)
        ids = self._give_ids(batch, any(route.copies for _, route in routes.values()))
        bus.append(batch, bus.readers.watch_rows(batch, ((routes[name].topic, rows[name]) for name in rows), done))
        if bus.credits.full:
            for topic, route in routes.values():
                self._note_fed(topic, route)
        bus.meter.counts["bus.delivered"] += mixed.deliver(batch, routes, rows, ids)

    def admitted(
        self, peer: Peer, batch: Batch, spans: list[runs.RowSpan], refused: runs.Refused
    ) -> list[runs.RowSpan]:
        """Return the spans without refused rows: forbidden, over a limit, or against their topic's schema."""
        before = len(refused)
        spans = self._bus.security.admit(peer.principal, "Produce", spans, refused)
        if self._records.is_limited:
            self._limits.refuse(batch, spans, refused)
        if len(refused) > before:
            spans = runs.without(spans, {row for start, stop, _ in refused[before:] for row in range(start, stop)})
        return self.schema_door.admit(peer, batch, spans, refused)

    def store(self, batch: Batch, spans: list[runs.RowSpan], done: OnCommit | None, spelling: bytes | None) -> None:
        """Append the rows of these spans and deliver copies. The batch must have its producers.

        `spelling`: the wire whose non-canonical spelling of a name is stored as an attribute.
        """
        spans, done, repeated, fresh = self._dedup.sift(batch, spans, done)
        sent, rows = batch, [row for _, _, start, stop in spans for row in range(start, stop)] if repeated else []
        batch, spans = runs.keep_rows(batch, spans) if spelling is None else runs.keep_named(batch, spans, spelling)
        if not batch.count:
            if repeated:  # repeats are acknowledged after the commit of their first message
                self._bus.append(batch, done)
            return
        try:
            self._append(batch, spans, done)
        except RacewayError:
            self._dedup.forget(fresh)
            raise
        if repeated:
            runs.tell_kept(sent, batch, rows)

    def store_own(self, batch: Batch, spans: list[runs.RowSpan], done: OnCommit | None) -> None:
        """Store messages of the broker itself, without deduplication."""
        batch, spans = runs.keep_rows(batch, spans)
        self._append(batch, spans, done)

    def _append(self, batch: Batch, spans: list[runs.RowSpan], done: OnCommit | None) -> None:
        ids = self._give_ids(batch, self._are_copied(spans))
        self._bus.append(batch, self._bus.readers.watch(batch, spans, done))
        self._deliver(batch, spans, ids)

    def _are_copied(self, spans: list[runs.RowSpan]) -> bool:
        copied = False
        for topic, _, start, stop in spans:
            route = self._bus.routing.route(topic)
            copied = copied or bool(route.copies)
            if route.unspelled:
                self._bus.meter.counts["bus.unspelled"] += route.unspelled * (stop - start)
        return copied

    def _give_ids(self, batch: Batch, copied: bool) -> list[bytes]:
        """Fill in ids and chains. Return the ids under which copies are delivered.

        A publish without an id gets one and is delivered under it. The id of a sender is never passed on: such a
        publish is delivered under a masked id.
        """
        self._bus.chains.unmask_parents(batch)
        minted = mint_batch(batch.count)
        given, roots = batch.message_id, batch.correlation_id
        assert roots is None or type(roots) is list
        if given is None:
            batch.message_id = given = minted  # type: ignore[assignment]  # a column may have gaps, this has none
        else:
            assert type(given) is list
            if not all(given):
                batch.message_id = given = [one or made for one, made in zip(given, minted, strict=True)]
            batch.forwarded_id = minted if copied else None  # type: ignore[assignment]  # the same
        if given is not minted or roots is not None:
            self._bus.chains.remember_batch(minted, given, roots)  # type: ignore[arg-type]  # the same
        return minted

    def _deliver(self, batch: Batch, spans: list[runs.RowSpan], ids: list[bytes]) -> None:
        delivered = 0
        if self._bus.credits.full:  # before the delivery, which may change who is full
            for span in spans:
                self._note_fed(span.topic, self._bus.routing.route(span.topic))
        for span in spans:
            copies = self._bus.routing.route(span.topic).copies
            if copies:
                delivered += _deliver_run(runs.Run(span, batch, ids), copies)
        self._bus.meter.counts["bus.delivered"] += delivered

    def _note_fed(self, topic: Topic, route: Route) -> None:
        """Note which full subscribers of a topic are fed."""
        self._bus.credits.note_topic(topic)
        for _, peers in route.copies:
            self._bus.credits.note_fed(peers)


def _deliver_run(run: runs.Run, copies: Copies) -> int:
    """Deliver a run to its subscribers. Return how many copies that were."""
    delivered = 0
    for encoder, peers in copies:
        data = encoder(run)
        for peer in peers:
            peer.deliver(run, data)
        delivered += (run.span.stop - run.span.start) * len(peers)
    return delivered
