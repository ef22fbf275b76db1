"""Requests and their answers: to exactly one responder, and back to exactly one requester.

A request is forwarded under a masked id and waits in the correlation table. Its answer is stored under the request's
topic, with the request's id and position (`answers`) and the hop: requester, responder, times.

Both are sent before their rows are committed, so on an idle bus they are sent first and appended afterwards, while the
other side works. Whether the journal is writable is checked before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from raceway import errors
from raceway.broker.bus import Bus
from raceway.broker.peers import Peer, Pending, Responder
from raceway.broker.queues.consumer import Entry, RowAnswer
from raceway.broker.queues.queue import Queue
from raceway.broker.queues.table import QueueTable
from raceway.broker.registry.schemas import SchemaDoor
from raceway.broker.requests.correlation import Correlation
from raceway.broker.requests.refusals import evicted_rows, unserved_rows
from raceway.broker.requests.reply_queues import ReplyQueue, ReplyQueues
from raceway.broker.runs import Refused, RowSpan, keep_named, name_rows
from raceway.broker.topics import Topic
from raceway.broker.tracing import answer_hops
from raceway.chance import pick
from raceway.journal.contract import OnCommit
from raceway.model.envelope import PUBLISH, RESPONSE, Batch, agreed
from raceway.model.intents.batches import AskAll, Asked, Request, Respond, Taken
from raceway.net.ids import random_id, random_ids

# A request with a responder: its row, its entry in the correlation table, and its timeout in milliseconds.
OpenRequest = tuple[int, Pending, int | None]
# Row of an answer, its request, and `late` or `duplicate` if the request was closed already.
Matched = tuple[int, Pending, bytes | None]


class _Facts:
    """Columns of a batch of requests that are needed per row, taken once."""

    __slots__ = ("message_ids", "roots", "time_us", "timeouts_ms", "versions")

    def __init__(self, batch: Batch) -> None:
        column = batch.column
        self.message_ids, self.timeouts_ms = column("message_id"), column("timeout_ms")
        self.versions, self.roots = column("version"), column("correlation_id")
        self.time_us: int = batch.time_us  # type: ignore[assignment]  # one value


class Exchanges:
    def __init__(self, bus: Bus, queues: QueueTable, schema_door: SchemaDoor) -> None:
        self._bus = bus
        self._queues = queues
        self._schema_door = schema_door
        self.reply_queues = ReplyQueues()
        # Requests that were just evicted, with the wires of their requesters.
        self._evicted: list[tuple[bytes, Pending]] = []
        self.correlation = Correlation(bus.settings.max_outstanding, self._fail, bus.loop)

    # ---- requests ----------------------------------------------------------------------------------------------------

    def request(self, peer: Peer, intent: Request, done: OnCommit | None) -> Taken:
        self._bus.check_open()
        try:
            return self._request(peer, intent, done)
        finally:  # counted last: no peer waits for it
            self._bus.count("request", peer, intent.batch)

    def _request(self, peer: Peer, intent: Request, done: OnCommit | None) -> Taken:
        bus, batch = self._bus, intent.batch
        spans, refused = name_rows(batch, bus.topics, peer.folds_case, peer.network)
        spans = bus.security.admit(peer.principal, "Produce", spans, refused)
        spans = self._schema_door.admit(peer, batch, spans, refused, intent.askers)
        chosen: list[Responder | None] = []
        for span in spans:
            responders = self._responders(span.topic, intent)
            count = span.stop - span.start
            if not responders:
                refused.append((span.start, span.stop, errors.NoRouteError(span.sent.decode())))
                bus.meter.counts["router.request.error"] += count
            chosen += _choose(responders, count)
        askers: Sequence[Peer] | None = intent.askers
        if askers is not None and refused:
            askers = [askers[row] for span in spans for row in range(span.start, span.stop)]
        batch, spans = keep_named(batch, spans, peer.wire)
        if batch.count:
            askers = askers or (peer,) * batch.count
            batch.producer = peer.producer if intent.askers is None else [asker.producer for asker in askers]
            bus.chains.unmask_parents(batch)
            masked = _masked_ids(chosen)
            batch.forwarded_id = _without_queued(masked, chosen) if intent.waits else masked
            bus.journal.check_writable()
            batch.time_us = self._now_us()
            facts = _Facts(batch)
            opened = [
                self._opened(askers[row], facts, span, row, responder, masked_id)
                for span in spans
                for row in range(span.start, span.stop)
                if (responder := chosen[row]) is not None and (masked_id := masked[row]) is not None
            ]
            _name_deadlines(batch, opened)
            self._forward(opened, batch)
            first = self._keep(batch, spans, opened, done)
            if len(opened) < batch.count:
                rows = [row for row, responder in enumerate(chosen) if responder is None]
                bus.append(unserved_rows(batch, rows, first), None)
        bus.count_refused("router.request.error", refused)
        return Taken(tuple(refused))

    def ask_all(self, peer: Peer, intent: AskAll, done: OnCommit | None) -> Asked:
        """Send a request to several responders. Raises NoRouteError without responders, after it was stored."""
        bus, batch = self._bus, intent.batch
        bus.admit("request", peer, batch)
        spans, refused = name_rows(batch, bus.topics, peer.folds_case, peer.network)
        spans = bus.security.admit(peer.principal, "Produce", spans, refused)
        spans = self._schema_door.admit(peer, batch, spans, refused)
        if refused:
            raise refused[0][2]
        topic = spans[0].topic
        found = [one for responder in self._all_responders(topic, intent) for one in responder.members()]
        asked = list(dict.fromkeys(found))[: intent.limit]
        batch, spans = keep_named(batch, spans, peer.wire)
        batch.producer = peer.producer
        bus.chains.unmask_parents(batch)
        bus.journal.check_writable()
        batch.time_us = self._now_us()
        facts = _Facts(batch)
        opened = [self._opened(peer, facts, spans[0], 0, responder, random_id()) for responder in asked]
        _name_deadlines(batch, opened)
        self._forward(opened, batch)
        first = self._keep(batch, spans, opened, done)
        if not asked:
            bus.append(unserved_rows(batch, [0], first), None)
            bus.meter.counts["router.request.error"] += 1
            raise errors.NoRouteError(spans[0].sent.decode())
        return Asked(len(asked))

    def _responders(self, topic: Topic, intent: Request) -> tuple[Responder, ...]:
        """Return the responders of highest priority; failing those, a queue without consumers."""
        if intent.responder is not None:
            return (intent.responder,)
        route = self._bus.routing.route(topic)
        responders = route.by_name if intent.by_name else route.responders
        if not responders and intent.waits and (queue := self._queues.maybe_responder(topic)) is not None:
            return (queue,)
        return responders

    def _all_responders(self, topic: Topic, intent: AskAll) -> Iterable[Responder]:
        if intent.responder is not None:
            return (intent.responder,)
        found = self._bus.routing.all_responders(topic.name)
        return [responder for responder in found if not (intent.by_name and responder.by_content)]

    def _opened(
        self, peer: Peer, facts: _Facts, span: RowSpan, row: int, responder: Responder, masked_id: bytes
    ) -> OpenRequest:
        """Return a request with its responder. It has no journal position yet."""
        message_id, timeout_ms = facts.message_ids[row], facts.timeouts_ms[row]
        if timeout_ms is None and not (peer.waits_in_queues and isinstance(responder, Queue)):
            timeout_ms = peer.request_timeout_ms
            if timeout_ms is None:
                timeout_ms = self._bus.settings.request_timeout_ms
        request = Pending(
            peer, responder, span.topic, span.sent, facts.versions[row], message_id, masked_id,
            facts.roots[row] or message_id, facts.time_us,
        )  # fmt: skip
        return row, request, timeout_ms

    def _forward(self, opened: list[OpenRequest], batch: Batch) -> None:
        """Forward requests to peers immediately. Queues deliver after the commit."""
        self._bus.chains.remember_all(
            {each.forwarded_id: (each.message_id, each.correlation_id) for _, each, _ in opened}
        )
        asked: list[Matched] = [(row, each, None) for row, each, _ in opened if isinstance(each.responder, Peer)]
        responders: list[Peer] = [each.responder for _, each, _ in asked]  # type: ignore[misc]  # peers, as just found
        for responder, requests, rows in _by_peer(responders, asked):
            if not responder.reads_source:
                batch.complete()
            responder.forward_all(requests, batch, rows)
            handed_us = max(self._bus.clock_us(), requests[0].accepted_us)
            for request in requests:
                request.handed_us = handed_us
        self._bus.turn.hasten()

    def _keep(self, batch: Batch, spans: list[RowSpan], opened: list[OpenRequest], done: OnCommit | None) -> int:
        """Append the requests and start their deadlines. Return the position of the first row."""
        bus, settle = self._bus, partial(self._settle, opened, done)
        told = bus.readers.watch(batch, spans, settle)
        # A queue delivers after the commit, so the commit is awaited.
        first = bus.append(batch, told, awaited=done is not None or told is not settle)
        offsets = batch.offset
        for row, request, _ in opened:
            request.sequence, request.offset = first + row, offsets[row]  # type: ignore[index]  # just given
            if isinstance(request.responder, Queue):
                request.responder.forward(request, batch, row)
        self.correlation.add([(request, timeout_ms) for _, request, timeout_ms in opened])
        if self._evicted:
            evicted, self._evicted = self._evicted, []
            bus.append(evicted_rows(evicted), None)
        return first

    def _now_us(self) -> int:
        """Return the current time, never before the journal's: the times of a hop must not go back."""
        return max(self._bus.clock_us(), self._bus.journal.state.time_us)

    # ---- answers -----------------------------------------------------------------------------------------------------

    def respond(self, peer: Peer, intent: Respond, done: OnCommit | None) -> Taken:
        """Pass answers to their requesters. Late and duplicate ones are stored and refused, unknown ones refused."""
        try:
            return self._respond(peer, intent, done)
        finally:
            self._bus.count("response", peer, intent.batch)

    def _respond(self, peer: Peer, intent: Respond, done: OnCommit | None) -> Taken:
        bus, batch = self._bus, intent.batch
        refused: Refused = []
        message_ids = batch.column("message_id")
        # Almost every answer.
        rows: list[Matched] = [
            (row, request, None) for row, request in enumerate(self.correlation.take_all(peer, message_ids))
        ]
        for row in range(len(rows), batch.count):
            message_id = message_ids[row]
            request = None if message_id is None else self.correlation.take(peer, message_id)
            if request is not None:
                rows.append((row, request, None))
                continue
            request, verdict = self._match(peer, batch, row, message_id)
            if request is not None:
                rows.append((row, request, verdict))
            if request is None or verdict is not None:
                refused.append((row, row + 1, errors.UnmatchedAnswerError(message_id and message_id.decode())))
                bus.meter.counts[f"bus.answer.{(verdict or b'unknown').decode()}"] += 1
        if rows:
            self._finish(peer, batch, rows, done, intent.refusal)
        return Taken(tuple(refused))

    def answer_named(self, peer: Peer, batch: Batch, done: OnCommit | None) -> Taken:
        """Pass on answers, each addressed by reply queue (`topic`) and id.

        An answer that no request waits for is kept in the reply queue and, if it is late or a duplicate, stored.
        Without a reply queue it is refused.
        """
        self._bus.admit("response", peer, batch)
        rows: list[Matched] = []
        refused: Refused = []
        unclaimed: list[tuple[ReplyQueue, RowAnswer]] = []
        for row in range(batch.count):
            name = (batch.item("topic", row), batch.item("message_id", row))
            request = self.correlation.take_named(name)
            if request is not None:
                rows.append((row, request, None))
                continue
            queue, known_as = self.reply_queues.maybe_get(name[0]), text_of(name[0])
            # A further answer to an ordinary queue is a message of it, neither late nor a duplicate.
            finished = None if self._queues.exists(known_as) else self.correlation.finished_named(name)
            if finished is not None:
                rows.append((row, *finished))
            if queue is not None:
                unclaimed.append((queue, RowAnswer(name[1], batch.keep([row]))))
            else:
                refused.append((row, row + 1, errors.UnknownQueueError(known_as)))
            if finished is not None or queue is not None:
                verdict = b"unknown" if finished is None else finished[1]
                self._bus.meter.counts[f"bus.answer.{verdict.decode()}"] += 1
        done = done if len(refused) < batch.count else None
        if rows:
            self._finish(peer, batch, rows, done)
        elif done is not None:
            self._bus.journal.after_commit(done)
        for queue, answer in unclaimed:
            queue.put(answer)
        return Taken(tuple(refused))

    def note_delivery(self, peer: Peer, entry: Entry) -> None:
        """Note that a queue is about to deliver this row to a peer: requests may be answered, chains continued."""
        batch, row, request = entry.batch, entry.row, entry.request
        message_id, reply_to = batch.item("message_id", row), batch.item("reply_to", row)
        delivered_id = message_id
        if request is not None:
            if entry.is_masked:
                delivered_id, reply_to = request.forwarded_id, request.requester_id.encode()
            self.correlation.name(request, (reply_to, delivered_id))
        if reply_to is not None and batch.item("kind", row) != PUBLISH:
            self.reply_queues.grant(peer, reply_to)
        root = batch.item("correlation_id", row)
        if root is not None and delivered_id is not None and root != delivered_id:
            # It may have waited in the queue across a restart.
            self._bus.chains.remember(delivered_id.lower(), message_id, root)

    def _hand_back(self, batch: Batch, answered: list[Matched], refusal: errors.RacewayError | None) -> None:
        if batch.error is not None:
            failures = [batch.item("error", row) for row, _, _ in answered]
            self._bus.meter.counts["router.response.error"] += len(failures) - failures.count(None)
        for requester, requests, rows in _by_peer([request.requester for _, request, _ in answered], answered):
            if not requester.open:
                continue
            if not requester.reads_source:
                batch.complete()
            if refusal is None:
                requester.answer_all(requests, batch, rows)
            else:
                for request in requests:
                    requester.fail(request, refusal)

    def _match(
        self, peer: Peer, batch: Batch, row: int, message_id: bytes | None
    ) -> tuple[Pending | None, bytes | None]:
        """Return the request of an answer, by its parent, or a closed one, which is then `late` or `duplicate`."""
        parent_id = batch.item("parent_id", row)
        if parent_id is not None and (request := self.correlation.take(peer, parent_id)) is not None:
            return request, None
        names = [name for name in (message_id, parent_id) if name is not None]
        for name in names:
            if (finished := self.correlation.finished(peer, name)) is not None:
                return finished
        return None, None

    def _finish(
        self,
        peer: Peer,
        batch: Batch,
        rows: list[Matched],
        done: OnCommit | None,
        refusal: errors.RacewayError | None = None,
    ) -> None:
        """Pass on and store answers. If the journal is not writable, requesters and responder get the error."""
        answered = [matched for matched in rows if matched[2] is None]
        try:
            self._bus.journal.check_writable()
        except errors.UnavailableError as error:
            for _, request, _ in answered:
                self._fail(request, error)
            raise
        self._hand_back(batch, answered, refusal)
        self._bus.turn.hasten()
        self._bus.append(self._answer_rows(peer, batch, rows), done)
        for _, request, _ in answered:
            request.release()

    def _answer_rows(self, peer: Peer, batch: Batch, rows: list[Matched]) -> Batch:
        batch.complete()
        if len(rows) < batch.count:
            batch = batch.keep([row for row, _, _ in rows])
        requests = [request for _, request, _ in rows]
        verdicts = [verdict for _, _, verdict in rows]
        ids = [request.message_id for request in requests]
        return Batch(
            len(rows),
            wire=peer.wire,
            kind=RESPONSE,
            producer=batch.producer or peer.producer,
            topic=agreed([request.topic.encoded for request in requests]),
            version=batch.version,
            message_id=ids,
            parent_id=ids,
            correlation_id=[request.correlation_id for request in requests],
            answers=[request.sequence for request in requests],
            hops=self._hops(peer, batch, requests),
            error=[verdict or batch.item("error", row) for row, verdict in enumerate(verdicts)]
            if any(verdicts)
            else batch.error,
            encoding=batch.encoding,
            attributes=batch.attributes,
            payload=batch.payload,
        )

    def _hops(self, peer: Peer, batch: Batch, requests: list[Pending]) -> list[bytes]:
        """Return the hops of each answer, made here if the responder sent none."""
        told: list[bytes | None] = batch.hops if type(batch.hops) is list else [batch.hops] * batch.count  # type: ignore[list-item]
        if None not in told:
            return told  # type: ignore[return-value]
        legs = [(request.sid, request.accepted_us, request.handed_us) for request in requests]
        made = answer_hops(legs, peer.sid, [request.message_id for request in requests], self._now_us())
        return [hops or own for hops, own in zip(told, made, strict=True)]

    def _fail(self, request: Pending, error: errors.RacewayError) -> None:
        """End a request without an answer: deadline, eviction, or a journal that is not writable."""
        reason = "timeout" if isinstance(error, errors.RequestTimeoutError) else "dropped"
        self._bus.meter.counts[f"router.request.{reason}"] += 1
        _withdraw(request)
        if isinstance(error, errors.BusyError) and request.sequence is not None:
            self._evicted.append((request.requester.wire, request))
        if request.requester.open:
            request.requester.fail(request, error)
        request.release()

    def leave(self, peer: Peer) -> None:
        """Remove the reply queues and open requests without deadline of a peer that has disconnected."""
        self.reply_queues.leave(peer)
        for request in self.correlation.abandon(peer):
            _withdraw(request)

    def _settle(self, opened: list[OpenRequest], done: OnCommit | None, error: errors.RacewayError | None) -> None:
        """Handle the commit of requests. After a failure their positions belong to other rows, so answers must not
        name them.

        Peers have received their requests already; queues will not, so theirs fail.
        """
        if error is not None:
            for _, request, _ in opened:
                request.sequence = None
                if request.open and isinstance(request.responder, Queue):
                    self.correlation.take(request.responder, request.forwarded_id)
                    self._fail(request, error)
        if done is not None:
            done(error)


def _by_peer(peers: list[Peer], matched: list[Matched]) -> Iterable[tuple[Peer, list[Pending], list[int]]]:
    """Return the requests and rows of each peer, in order; `peers` has that of each request."""
    if peers and peers.count(peers[0]) == len(peers):
        return [(peers[0], [request for _, request, _ in matched], [row for row, _, _ in matched])]
    found: dict[Peer, tuple[Peer, list[Pending], list[int]]] = {}
    for peer, (row, request, _) in zip(peers, matched, strict=True):
        if peer not in found:
            found[peer] = (peer, [], [])
        found[peer][1].append(request)
        found[peer][2].append(row)
    return found.values()


def _masked_ids(chosen: list[Responder | None]) -> list[bytes | None]:
    """Return a new id for each request that has a responder."""
    if None in chosen:
        return [None if responder is None else random_id() for responder in chosen]
    return list(random_ids(len(chosen)))


def _withdraw(request: Pending) -> None:
    """Remove a finished request from the queue in which it waits, if it does."""
    if isinstance(request.responder, Queue):
        request.responder.withdraw(request)


def text_of(name: bytes) -> str:
    """Decode the name of a queue."""
    return name.decode("utf-8", "replace")


def _choose(responders: tuple[Responder, ...], count: int) -> list[Responder | None]:
    """Choose a random responder for each request; None if there are none."""
    if len(responders) > 1:
        return [*pick(responders, count)]
    return [responders[0] if responders else None] * count


def _name_deadlines(batch: Batch, opened: list[OpenRequest]) -> None:
    """Write the effective timeout into each row, for readers that do not know the settings of this bus.

    A row without a responder or without a deadline keeps the timeout of its sender.
    """
    timeouts_ms = list(batch.column("timeout_ms"))
    for row, _, timeout_ms in opened:
        timeouts_ms[row] = timeout_ms
    batch.timeout_ms = agreed(timeouts_ms)


def _without_queued(masked: list[bytes | None], chosen: list[Responder | None]) -> list[bytes | None]:
    """Return the masked ids without those of requests in queues, which are delivered under their own id."""
    return [
        None if isinstance(responder, Queue) else masked_id for masked_id, responder in zip(masked, chosen, strict=True)
    ]
