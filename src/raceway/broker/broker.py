"""The one door: every intent of every peer on every wire comes through `Broker.perform`.

A batch of messages is named (topics found or made), given ids, appended to the journal, and only then handed on:
copies, requests and answers may leave before the commit, because they show no offset and promise nothing. Whoever
waits for the promise gives `done`, which runs after the commit.

Nothing here waits, locks, or creates a task. The work per message is in lists and dictionaries; sockets are written and
the journal is flushed once at the end of the turn.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from raceway import config
from raceway.broker.correlation import Correlation
from raceway.broker.logs import LogWatch
from raceway.broker.metrics import Meter
from raceway.broker.peers import Peer, PeerTable, Pending
from raceway.broker.routing import Routing, patterns
from raceway.broker.runs import Run, spans
from raceway.broker.topics import Topic, TopicTable
from raceway.broker.tracing import Chains, answer_hop, mint_batch, random_id
from raceway.broker.turn import Turn
from raceway.errors import (
    DrainingError,
    NoRouteError,
    RacewayError,
    RequestTimeoutError,
    UnavailableError,
    UnmatchedAnswerError,
)
from raceway.journal.contract import Done as CommitDone
from raceway.journal.contract import Journal
from raceway.model.envelope import RESPONSE, Batch, encode_attributes
from raceway.model.intents import (
    Done,
    Heartbeat,
    Intent,
    ListPeers,
    ListSubscriptions,
    ListTopics,
    Metrics,
    Outcome,
    Patterns,
    Peers,
    Publish,
    ReadMetrics,
    Register,
    Request,
    Respond,
    Subscribe,
    SubscriptionRow,
    Subscriptions,
    Taken,
    Unsubscribe,
    UnwatchLog,
    WatchLog,
)

AUDIT = "system.message"
LOG = "system.log"
Refused = list[tuple[int, int, RacewayError]]


class Clock(Protocol):
    """What the broker needs of an event loop."""

    def time(self) -> float: ...
    def call_soon(self, callback: Callable[[], Any]) -> Any: ...
    def call_later(self, delay: float, callback: Callable[[], Any]) -> Any: ...


class Broker:
    def __init__(self, settings: config.Broker, journal: Journal, loop: Clock, clock_us: Callable[[], int]) -> None:
        self.settings = settings
        self.journal = journal
        self.clock_us = clock_us
        self.turn = Turn(loop.call_soon)
        self.topics = TopicTable(journal.topics(), settings.max_topics)
        self.routing = Routing()
        self.peers = PeerTable()
        self.chains = Chains()
        self.meter = Meter()
        self.logs = LogWatch(clock_us)
        self.correlation = Correlation(
            settings.max_outstanding, self._fail, lambda: loop.time() * 1000, loop.call_later
        )
        self.draining = False
        # Does anybody read the audit stream? Sessions ask before they describe what they send and receive.
        self.audited = False
        self._journal_owed = False
        self._doors: dict[type, Callable[[Peer, Any, CommitDone | None], Outcome]] = {
            Publish: self._publish,
            Request: self._request,
            Respond: self._respond,
            Heartbeat: self._heartbeat,
            Register: self._register,
            Subscribe: self._subscribe,
            Unsubscribe: self._unsubscribe,
            WatchLog: self._watch_log,
            UnwatchLog: self._unwatch_log,
            ListPeers: self._list_peers,
            ListSubscriptions: self._list_subscriptions,
            ListTopics: self._list_topics,
            ReadMetrics: self._read_metrics,
        }

    # ---- the door ----------------------------------------------------------------------------------------------------

    def perform(self, peer: Peer, intent: Intent, done: CommitDone | None = None) -> Outcome:
        """Do what the peer asks. `done` is for batches: it runs when their rows are committed, or could not be.

        Raises a RacewayError when nothing of the intent was done.
        """
        return self._doors[type(intent)](peer, intent, done)

    def connect(self, peer: Peer) -> None:
        self.peers.add(peer)
        self.meter.counts["connection.connected"] += 1
        self.meter.counts["registry.registration"] += 1

    def disconnect(self, peer: Peer) -> None:
        """Requests it was to answer stay open until their deadline; answers to its own are dropped. May be repeated."""
        peer.open = False
        if not self.peers.remove(peer):
            return
        self.routing.remove(peer)
        self.logs.unwatch(peer)
        self.audited = bool(self.routing.subscribers(AUDIT))
        self.meter.counts["connection.disconnected"] += 1
        self.meter.counts["registry.unregistration"] += 1

    def audit(self, payload: bytes) -> None:
        """One record of the audit stream to everybody who reads it."""
        for peer in self.routing.subscribers(AUDIT):
            peer.announce(AUDIT, payload)

    def tick(self) -> None:
        """Once a second."""
        self.meter.tick()
        for peer in self.peers:
            peer.error_rate, peer.errors = peer.errors, 0

    def count_error(self, peer: Peer, code: str) -> None:
        """A message of this peer was answered with an error."""
        peer.errors += 1
        self.meter.counts["router.message.error"] += 1
        self.meter.counts[f"bus.error.{code}"] += 1

    def _refuse_while_draining(self) -> None:
        """Answers are still taken: they are what a drain waits for."""
        if self.draining:
            raise DrainingError("The bus is stopping")

    # ---- publish -----------------------------------------------------------------------------------------------------

    def _publish(self, peer: Peer, intent: Publish, done: CommitDone | None) -> Taken:
        self._refuse_while_draining()
        self._count("publish", peer, intent.batch)
        named, refused = self._name(peer, intent.batch)
        for topic, sent, start, stop in named:
            if not self.routing.route(topic).copies:
                refused.append((start, stop, NoRouteError(sent.decode())))
                self.meter.counts["router.publish.dropped"] += stop - start
        batch, named = self._keep_named(intent.batch, named)
        if batch.count:
            sender_ids = batch.message_id
            ids = self._give_ids(peer, batch, named)
            self._append(batch, done)
            self._deliver(batch, named, ids, sender_ids if type(sender_ids) is list else None)
        return Taken(tuple(refused))

    def _name(self, peer: Peer, batch: Batch) -> tuple[list[tuple[Topic, bytes, int, int]], Refused]:
        """(topic, name as sent, start, stop) of each stretch of rows, and the rows whose topic cannot be."""
        named: list[tuple[Topic, bytes, int, int]] = []
        refused: Refused = []
        for sent, start, stop in spans(batch.topic, batch.count):
            try:
                named.append((self.topics.spelled(sent, peer.folds_case), sent, start, stop))
            except RacewayError as error:
                refused.append((start, stop, error))
        return named, refused

    def _keep_named(
        self, batch: Batch, named: list[tuple[Topic, bytes, int, int]]
    ) -> tuple[Batch, list[tuple[Topic, bytes, int, int]]]:
        """The batch under canonical names, without the rows that have none."""
        rows = [row for _, _, start, stop in named for row in range(start, stop)] if len(named) != 1 else None
        if rows is not None and len(rows) < batch.count:
            batch = batch.keep(rows)
            moved, at = [], 0
            for topic, sent, start, stop in named:
                moved.append((topic, sent, at, at + stop - start))
                at += stop - start
            named = moved
        if len(named) == 1:
            batch.topic = named[0][0].encoded
        else:
            batch.topic = [topic.encoded for topic, _, start, stop in named for _ in range(start, stop)]
        return batch, named

    def _give_ids(self, peer: Peer, batch: Batch, named: list[tuple[Topic, bytes, int, int]]) -> list[bytes]:
        """Fill in what only the broker knows of publishes; the ids under which copies are delivered."""
        batch.producer = peer.producer
        self._keep_spelling(peer, batch, named)
        self._unmask_parents(batch)
        minted = mint_batch(batch.count)
        given = batch.message_id
        if given is None:
            batch.message_id = minted  # type: ignore[assignment]
        else:
            assert type(given) is list
            if not all(given):
                batch.message_id = given = [one or made for one, made in zip(given, minted, strict=True)]
            batch.forwarded_id = minted  # type: ignore[assignment]
            roots = batch.correlation_id
            self.chains.remember_batch(minted, given, roots if type(roots) is list else None)
        return minted

    def _keep_spelling(self, peer: Peer, batch: Batch, named: list[tuple[Topic, bytes, int, int]]) -> None:
        """A spelling that the canonical name loses is kept as an attribute, for the way back to the same wire."""
        if all(sent == topic.encoded for topic, sent, _, _ in named):
            return
        key = f"{peer.wire.decode()}.topic"
        batch.attributes = [
            None if sent == topic.encoded else encode_attributes({key: sent.decode()})
            for topic, sent, start, stop in named
            for _ in range(start, stop)
        ]

    def _unmask_parents(self, batch: Batch) -> None:
        if batch.parent_id is None:
            return
        assert type(batch.parent_id) is list
        pairs = [(None, None) if parent is None else self.chains.unmask(parent) for parent in batch.parent_id]
        batch.parent_id = [parent for parent, _ in pairs]
        batch.correlation_id = [root for _, root in pairs]

    def _deliver(
        self,
        batch: Batch,
        named: list[tuple[Topic, bytes, int, int]],
        ids: list[bytes],
        sender_ids: list[bytes | None] | None,
    ) -> None:
        for topic, sent, start, stop in named:
            copies = self.routing.route(topic).copies
            if copies:
                run = Run(topic, sent, batch, start, stop, ids, sender_ids)
                for encoder, peers in copies:
                    data = encoder(run)
                    for peer in peers:
                        peer.deliver(run, data)
                    self.meter.counts["bus.delivered"] += (stop - start) * len(peers)

    # ---- request and answer ------------------------------------------------------------------------------------------

    def _request(self, peer: Peer, intent: Request, done: CommitDone | None) -> Taken:
        self._refuse_while_draining()
        self._count("request", peer, intent.batch)
        named, refused = self._name(peer, intent.batch)
        for topic, sent, start, stop in named:
            if not self.routing.route(topic).responders:
                refused.append((start, stop, NoRouteError(sent.decode())))
                self.meter.counts["router.request.error"] += stop - start
        batch, named = self._keep_named(intent.batch, named)
        if batch.count:
            batch.producer = peer.producer
            self._keep_spelling(peer, batch, named)
            self._unmask_parents(batch)
            chosen = self._choose(named)
            batch.forwarded_id = [None if responder is None else random_id() for responder in chosen]
            first = self._append(batch, done)
            self._hand_over(peer, batch, named, chosen, first)
        return Taken(tuple(refused))

    def _choose(self, named: list[tuple[Topic, bytes, int, int]]) -> list[Peer | None]:
        """For each row one of the responders of the highest priority, at random; None where there is nobody."""
        chosen: list[Peer | None] = []
        for topic, _, start, stop in named:
            responders = self.routing.route(topic).responders
            if len(responders) > 1:
                chosen += random.choices(responders, k=stop - start)  # noqa: S311 - a choice, not a secret
            else:
                chosen += [responders[0] if responders else None] * (stop - start)
        return chosen

    def _hand_over(
        self,
        peer: Peer,
        batch: Batch,
        named: list[tuple[Topic, bytes, int, int]],
        chosen: list[Peer | None],
        first: int,
    ) -> None:
        time_us = batch.item("time_us", 0)
        for topic, sent, start, stop in named:
            for row in range(start, stop):
                responder = chosen[row]
                if responder is None:
                    continue
                message_id, masked_id = batch.item("message_id", row), batch.item("forwarded_id", row)
                root = batch.item("correlation_id", row) or message_id
                request = Pending(
                    peer, responder, topic, sent, batch.item("version", row), message_id, masked_id, root, first + row,
                    time_us,
                )  # fmt: skip
                self.chains.remember(masked_id, message_id, root)
                responder.forward(request, batch.item("payload", row))
                request.handed_us = self.clock_us()
                timeout_ms = batch.item("timeout_ms", row)
                self.correlation.add(request, self.settings.request_timeout_ms if timeout_ms is None else timeout_ms)

    def _respond(self, peer: Peer, intent: Respond, done: CommitDone | None) -> Taken:
        batch = intent.batch
        self._count("response", peer, batch)
        refused: Refused = []
        rows: list[tuple[int, Pending, bytes | None]] = []
        answered: list[tuple[Pending, bytes, bytes | None]] = []
        for row in range(batch.count):
            request, error = self._match(peer, batch, row)
            if request is not None:
                rows.append((row, request, error))
                if error is None:
                    failure = batch.item("error", row)
                    answered.append((request, batch.item("payload", row), failure))
                    self.meter.counts["router.response.error"] += failure is not None
            if request is None or error is not None:
                message_id = batch.item("message_id", row)
                refused.append((row, row + 1, UnmatchedAnswerError(message_id and message_id.decode())))
                self.meter.counts[f"bus.answer.{(error or b'unknown').decode()}"] += 1
        if rows:
            self._store_answers(peer, batch, rows, answered, done)
        for request, payload, failure in answered:
            if request.requester.open:
                request.requester.answer(request, payload, failure)
        return Taken(tuple(refused))

    def _match(self, peer: Peer, batch: Batch, row: int) -> tuple[Pending | None, bytes | None]:
        """The request an answer is for, by its id, else by its parent; and `late` or `duplicate` if it was closed."""
        names = [name for name in (batch.item("message_id", row), batch.item("parent_id", row)) if name is not None]
        for name in names:
            if (request := self.correlation.take(peer, name)) is not None:
                return request, None
        for name in names:
            if (finished := self.correlation.finished(peer, name)) is not None:
                return finished
        return None, None

    def _store_answers(
        self,
        peer: Peer,
        batch: Batch,
        rows: list[tuple[int, Pending, bytes | None]],
        answered: list[tuple[Pending, bytes, bytes | None]],
        done: CommitDone | None,
    ) -> None:
        """Answers lie under their request's topic and repeat its id. If they cannot be stored the requester is told."""
        now = self.clock_us()
        requests = [request for _, request, _ in rows]
        stored = Batch(
            len(rows),
            wire=peer.wire,
            kind=RESPONSE,
            producer=peer.producer,
            topic=[request.topic.encoded for request in requests],
            version=[batch.item("version", row) for row, _, _ in rows],
            message_id=[request.message_id for request in requests],
            parent_id=[request.message_id for request in requests],
            correlation_id=[request.correlation_id for request in requests],
            answers=[request.sequence for request in requests],
            hops=[
                answer_hop(r.requester.id, peer.id, r.message_id, (r.accepted_us, r.handed_us, now)) for r in requests
            ],
            error=[verdict or batch.item("error", row) for row, _, verdict in rows],
            payload=[batch.item("payload", row) for row, _, _ in rows],
        )
        try:
            self._append(stored, done)
        except UnavailableError as error:
            for request, _, _ in answered:
                self._fail(request, error)
            raise

    def _fail(self, request: Pending, error: RacewayError) -> None:
        """A request ends without an answer: its deadline, eviction, or a journal that takes nothing."""
        if isinstance(error, RequestTimeoutError):
            self.meter.counts["router.request.timeout"] += 1
        else:
            self.meter.counts["router.request.dropped"] += 1
        if request.requester.open:
            request.requester.fail(request, error)

    # ---- the journal -------------------------------------------------------------------------------------------------

    def _append(self, batch: Batch, done: CommitDone | None) -> int:
        first = self.journal.append(batch, done)
        if not self._journal_owed:
            self._journal_owed = True
            self.turn.owe(self)
        return first

    def flush(self) -> None:
        """The end of a turn in which rows were appended."""
        self._journal_owed = False
        self.journal.flush()

    def _count(self, kind: str, peer: Peer, batch: Batch) -> None:
        counts, count = self.meter.counts, batch.count
        counts[f"router.{kind}"] += count
        counts["router.message"] += count
        self.meter.messages[peer.wire.decode(), kind] += count
        assert type(batch.payload) is list
        sizes = list(map(len, batch.payload))  # type: ignore[arg-type]
        counts["bus.bytes"] += sum(sizes)
        self.meter.largest = max(self.meter.largest, max(sizes))

    # ---- calls -------------------------------------------------------------------------------------------------------

    def _heartbeat(self, peer: Peer, intent: Heartbeat, done: CommitDone | None) -> Done:
        return Done()

    def _register(self, peer: Peer, intent: Register, done: CommitDone | None) -> Done:
        peer.name, peer.description = intent.name, intent.description
        peer.producer = intent.name.encode()
        peer.registered_us = self.clock_us()
        self.meter.counts["registry.registration"] += 1
        return Done()

    def _subscribe(self, peer: Peer, intent: Subscribe, done: CommitDone | None) -> Done:
        self.routing.subscribe(peer, intent.kind, intent.pattern, intent.priority)
        self.audited = bool(self.routing.subscribers(AUDIT))
        return Done()

    def _unsubscribe(self, peer: Peer, intent: Unsubscribe, done: CommitDone | None) -> Done:
        changed = self.routing.unsubscribe(peer, intent.kind, intent.pattern)
        self.audited = bool(self.routing.subscribers(AUDIT))
        return Done(changed)

    def _watch_log(self, peer: Peer, intent: WatchLog, done: CommitDone | None) -> Done:
        self.logs.watch(peer, intent.levels, intent.regex)
        self.routing.subscribe(peer, "publish", LOG, 0)
        return Done()

    def _unwatch_log(self, peer: Peer, intent: UnwatchLog, done: CommitDone | None) -> Done:
        self.logs.unwatch(peer)
        return Done(self.routing.unsubscribe(peer, "publish", LOG))

    def _list_peers(self, peer: Peer, intent: ListPeers, done: CommitDone | None) -> Peers:
        self.meter.counts["registry.discovery"] += 1
        return Peers(tuple(other.row() for other in self.peers))

    def _list_subscriptions(self, peer: Peer, intent: ListSubscriptions, done: CommitDone | None) -> Subscriptions:
        owner = peer if intent.peer is None else self.peers.get(intent.peer)
        rows = [SubscriptionRow(kind, pattern, p) for (kind, pattern), p in owner.subscriptions.items()]
        return Subscriptions(tuple(sorted(rows, key=lambda row: (row.pattern, row.kind))))

    def _list_topics(self, peer: Peer, intent: ListTopics, done: CommitDone | None) -> Patterns:
        return Patterns(patterns(self.peers))

    def _read_metrics(self, peer: Peer, intent: ReadMetrics, done: CommitDone | None) -> Metrics:
        now = self.clock_us()
        wanted = intent.parameters
        rows = self.meter.rows(self.peers, now)
        if wanted is not None:
            rows = [row for row in rows if row.parameters and wanted.items() <= row.parameters.items()]
        return Metrics(now, tuple(rows))
