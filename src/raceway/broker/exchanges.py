"""Requests and their answers: to exactly one responder, and back to exactly one requester.

A request is forwarded under a masked id and waits in the correlation table. Its answer lies in the journal under the
request's topic, repeats its id, names its position (`answers`), and carries the hop: who asked, who answered, when.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

from raceway.broker.bus import Bus
from raceway.broker.correlation import Correlation
from raceway.broker.peers import Peer, Pending, Responder
from raceway.broker.queue_table import QueueResponder, QueueTable
from raceway.broker.replies import Answer, Replies
from raceway.broker.runs import Refused, Span, keep_named, name_rows
from raceway.broker.topics import Topic
from raceway.broker.tracing import answer_hop, random_id
from raceway.errors import (
    NoRouteError,
    RacewayError,
    RequestTimeoutError,
    UnavailableError,
    UnknownQueueError,
    UnmatchedAnswerError,
)
from raceway.journal.contract import Done
from raceway.model.envelope import LATE, RESPONSE, Batch
from raceway.model.intents import Reply, Request, Respond, Taken


class Exchanges:
    def __init__(self, bus: Bus, queues: QueueTable) -> None:
        self._bus = bus
        self._queues = queues
        self.replies = Replies()
        self.correlation = Correlation(
            bus.settings.max_outstanding, self._fail, lambda: bus.loop.time() * 1000, bus.loop.call_later
        )

    # ---- requests ----------------------------------------------------------------------------------------------------

    def request(self, peer: Peer, intent: Request, done: Done | None) -> Taken:
        bus, batch = self._bus, intent.batch
        bus.admit("request", peer, batch)
        spans, refused = name_rows(batch, bus.topics, peer.folds_case)
        chosen: list[Responder | None] = []
        for span in spans:
            responders = self._responders(span.topic, intent.waits)
            count = span.stop - span.start
            if not responders:
                refused.append((span.start, span.stop, NoRouteError(span.sent.decode())))
                bus.meter.counts["router.request.error"] += count
            chosen += _choose(responders, count)
        batch, spans = keep_named(batch, spans, peer.wire)
        if batch.count:
            batch.producer = peer.producer
            bus.chains.unmask_parents(batch)
            masked: list[bytes | None] = [None if responder is None else random_id() for responder in chosen]
            batch.forwarded_id = _without_queued(masked, chosen) if intent.waits else masked
            requests: list[Pending] = []
            settle = partial(self._settle, requests, done)
            told = bus.readers.watch(batch, spans, settle)
            # A queue hands out what is committed, so somebody waits for it there.
            first = bus.append(batch, told, awaited=done is not None or told is not settle)
            for request, payload, timeout_ms in self._open(peer, batch, spans, chosen, masked, first):
                requests.append(request)
                bus.chains.remember(request.forwarded_id, request.message_id, request.correlation_id)
                request.responder.forward(request, payload)
                request.handed_us = max(bus.clock_us(), request.accepted_us)
                self.correlation.add(request, timeout_ms)
        return Taken(tuple(refused))

    def _responders(self, topic: Topic, waits: bool) -> tuple[Responder, ...]:
        """Those of the highest priority; a queue that nobody consumes from if there is nobody else."""
        responders = self._bus.routing.route(topic).responders
        if not responders and waits and (queue := self._queues.maybe_responder(topic)) is not None:
            return (queue,)
        return responders

    def _open(
        self,
        peer: Peer,
        batch: Batch,
        spans: list[Span],
        chosen: list[Responder | None],
        masked: list[bytes | None],
        first: int,
    ) -> Iterator[tuple[Pending, bytes, int | None]]:
        """The requests that have a responder, with payload and timeout in milliseconds."""
        default_ms, time_us = self._bus.settings.request_timeout_ms, batch.item("time_us", 0)
        ids: list[bytes] = batch.message_id  # type: ignore[assignment]  # every request has one
        payloads: list[bytes] = batch.payload  # type: ignore[assignment]
        for span in spans:
            for row in range(span.start, span.stop):
                responder, masked_id = chosen[row], masked[row]
                if responder is None or masked_id is None:
                    continue
                message_id = ids[row]
                root = batch.item("correlation_id", row) or message_id
                version = batch.item("version", row)
                request = Pending(
                    peer, responder, span.topic, span.sent, version, message_id, masked_id, root, first + row, time_us,
                    batch.offset[row], batch.item("reply_to", row),  # type: ignore[index]
                )  # fmt: skip
                timeout_ms = batch.item("timeout_ms", row)
                if timeout_ms is None:
                    timeout_ms = peer.timeout_ms(responder, default_ms)
                yield request, payloads[row], timeout_ms

    # ---- answers -----------------------------------------------------------------------------------------------------

    def respond(self, peer: Peer, intent: Respond, done: Done | None) -> Taken:
        """Late and second answers are stored and refused; an answer to a request that never was is only refused."""
        bus, batch = self._bus, intent.batch
        bus.admit("response", peer, batch)
        refused: Refused = []
        rows: list[tuple[int, Pending, bytes | None]] = []
        for row in range(batch.count):
            request, verdict = self._match(peer, batch, row)
            if request is not None:
                rows.append((row, request, verdict))
            if request is None or verdict is not None:
                message_id = batch.item("message_id", row)
                refused.append((row, row + 1, UnmatchedAnswerError(message_id and message_id.decode())))
                bus.meter.counts[f"bus.answer.{(verdict or b'unknown').decode()}"] += 1
        answered = [(row, request) for row, request, verdict in rows if verdict is None]
        if rows:
            self._store(peer, batch, rows, answered, done)
        self._hand_back(batch, answered)
        return Taken(tuple(refused))

    def reply(self, peer: Peer, intent: Reply, done: Done | None) -> Taken:
        """An answer by name. Raises UnknownQueueError if it is for nobody that ever waited, and can be kept for nobody.

        Late and second answers are stored; they are refused if there is no reply queue to keep them in.
        """
        batch, reply_to, message_id = intent.batch, intent.reply_to, intent.batch.item("message_id", 0)
        self._bus.admit("response", peer, batch)
        request = self.replies.maybe_take(reply_to, message_id)
        if request is not None:
            answered = [(0, request)]
            self.correlation.take(request.responder, request.forwarded_id)
            self._store(peer, batch, [(0, request, None)], answered, done)
            self._hand_back(batch, answered)
            return Taken()
        return self._keep_unawaited(peer, reply_to, batch, done)

    def _keep_unawaited(self, peer: Peer, reply_to: bytes, batch: Batch, done: Done | None) -> Taken:
        message_id, unknown = batch.item("message_id", 0), UnknownQueueError(reply_to.decode("utf-8", "replace"))
        box = self.replies.maybe_box(reply_to)
        request = None if self._queues.exists(unknown.name) else self.replies.maybe_ended(reply_to, message_id)
        if request is None and box is None:
            raise unknown
        if request is not None:
            self._store(peer, batch, [(0, request, self._verdict(request))], [], done if box is not None else None)
        else:
            self._bus.meter.counts["bus.answer.unknown"] += 1
            if done is not None:
                self._bus.journal.after_commit(partial(done, None))
        if box is None:
            return Taken(((0, 1, unknown),))
        box.put(Answer(message_id, batch))
        return Taken()

    def _verdict(self, request: Pending) -> bytes:
        """What a further answer to it is: `late` or `duplicate`."""
        verdict = self.correlation.maybe_verdict(request) or LATE
        self._bus.meter.counts[f"bus.answer.{verdict.decode()}"] += 1
        return verdict

    def _hand_back(self, batch: Batch, answered: list[tuple[int, Pending]]) -> None:
        for row, request in answered:
            failure = batch.item("error", row)
            self._bus.meter.counts["router.response.error"] += failure is not None
            if request.requester.open:
                request.requester.answer(request, batch, row)
            request.release()

    def _match(self, peer: Peer, batch: Batch, row: int) -> tuple[Pending | None, bytes | None]:
        """The request an answer is for, by its id, else by its parent; and `late` or `duplicate` if it was closed."""
        message_id = batch.item("message_id", row)
        if message_id is not None and (request := self.correlation.take(peer, message_id)) is not None:
            return request, None
        parent_id = batch.item("parent_id", row)
        if parent_id is not None and (request := self.correlation.take(peer, parent_id)) is not None:
            return request, None
        names = [name for name in (message_id, parent_id) if name is not None]
        for name in names:
            if (finished := self.correlation.finished(peer, name)) is not None:
                return finished
        return None, None

    def _store(
        self,
        peer: Peer,
        batch: Batch,
        rows: list[tuple[int, Pending, bytes | None]],
        answered: list[tuple[int, Pending]],
        done: Done | None,
    ) -> None:
        """If the journal takes nothing, the requesters are told that, and so is the responder."""
        try:
            self._bus.append(self._answer_rows(peer, batch, rows), done)
        except UnavailableError as error:
            for _, request in answered:
                self._fail(request, error)
            raise

    def _answer_rows(self, peer: Peer, batch: Batch, rows: list[tuple[int, Pending, bytes | None]]) -> Batch:
        # The journal's clock never goes back, so neither may a hop's times: this is what the answer's row will have.
        now = max(self._bus.clock_us(), self._bus.journal.state.time_us)
        requests = [request for _, request, _ in rows]
        errors = [verdict or batch.item("error", row) for row, _, verdict in rows]
        ids = [request.message_id for request in requests]
        return Batch(
            len(rows),
            wire=peer.wire,
            kind=RESPONSE,
            producer=peer.producer,
            topic=requests[0].topic.encoded if len(rows) == 1 else [request.topic.encoded for request in requests],
            version=batch.version if len(rows) == batch.count else [batch.item("version", row) for row, _, _ in rows],
            message_id=ids,
            parent_id=ids,
            correlation_id=[request.correlation_id for request in requests],
            answers=[request.sequence for request in requests],
            hops=[
                answer_hop(r.requester_id, peer.id, r.message_id, (r.accepted_us, r.handed_us, max(now, r.handed_us)))
                for r in requests
            ],
            error=errors if any(errors) else None,
            encoding=_maybe_column(batch, "encoding", rows),
            attributes=_maybe_column(batch, "attributes", rows),
            payload=[batch.item("payload", row) for row, _, _ in rows],
        )

    def _fail(self, request: Pending, error: RacewayError) -> None:
        """A request ends without an answer: its deadline, eviction, or a journal that takes nothing."""
        reason = "timeout" if isinstance(error, RequestTimeoutError) else "dropped"
        self._bus.meter.counts[f"router.request.{reason}"] += 1
        self._forget(request)
        if request.requester.open:
            request.requester.fail(request, error)
        request.release()

    def _forget(self, request: Pending) -> None:
        """Nobody waits for it any more."""
        self.replies.forget(request)
        if isinstance(request.responder, QueueResponder):
            request.responder.queue.withdraw(request)

    def leave(self, peer: Peer) -> None:
        """A peer is gone: its reply queues too, and its requests that have no deadline."""
        self.replies.close_boxes(peer)
        for request in self.correlation.abandon(peer):
            self._forget(request)

    def _settle(self, requests: list[Pending], done: Done | None, error: RacewayError | None) -> None:
        """The rows are stored, or not: then others get their positions, and no answer may name them.

        A peer was handed its requests before; a queue never will be.
        """
        if error is not None:
            for request in requests:
                request.sequence = None
                if request.open and isinstance(request.responder, QueueResponder):
                    self.correlation.take(request.responder, request.forwarded_id)
                    self._fail(request, error)
        if done is not None:
            done(error)


def _choose(responders: tuple[Responder, ...], count: int) -> list[Responder | None]:
    """One of them for each of so many requests, at random; None where there is nobody."""
    if len(responders) > 1:
        return random.choices(responders, k=count)  # noqa: S311 - a choice, not a secret
    return [responders[0] if responders else None] * count


def _without_queued(masked: list[bytes | None], chosen: list[Responder | None]) -> list[bytes | None]:
    """A request that waits in a queue is handed out under its own id."""
    return [
        None if isinstance(responder, QueueResponder) else masked_id
        for masked_id, responder in zip(masked, chosen, strict=True)
    ]


def _maybe_column(batch: Batch, name: str, rows: list[tuple[int, Pending, bytes | None]]) -> list[Any] | None:
    return None if getattr(batch, name) is None else [batch.item(name, row) for row, _, _ in rows]
