"""Requests and their answers: to exactly one responder, and back to exactly one requester.

A request is forwarded under a masked id and waits in the correlation table. Its answer lies in the journal under the
request's topic, repeats its id, names its position (`answers`), and carries the hop: who asked, who answered, when.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

from raceway.broker.bus import Bus
from raceway.broker.correlation import Correlation
from raceway.broker.peers import Peer, Pending
from raceway.broker.runs import Refused, Span, keep_named, name_rows
from raceway.broker.tracing import answer_hop, random_id
from raceway.errors import NoRouteError, RacewayError, RequestTimeoutError, UnavailableError, UnmatchedAnswerError
from raceway.journal.contract import Done
from raceway.model.envelope import RESPONSE, Batch
from raceway.model.intents import Request, Respond, Taken


class Exchanges:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.correlation = Correlation(
            bus.settings.max_outstanding, self._fail, lambda: bus.loop.time() * 1000, bus.loop.call_later
        )

    # ---- requests ----------------------------------------------------------------------------------------------------

    def request(self, peer: Peer, intent: Request, done: Done | None) -> Taken:
        bus, batch = self._bus, intent.batch
        bus.admit("request", peer, batch)
        spans, refused = name_rows(batch, bus.topics, peer.folds_case)
        for topic, sent, start, stop in spans:
            if not bus.routing.route(topic).responders:
                refused.append((start, stop, NoRouteError(sent.decode())))
                bus.meter.counts["router.request.error"] += stop - start
        batch, spans = keep_named(batch, spans, peer.wire)
        if batch.count:
            batch.producer = peer.producer
            bus.chains.unmask_parents(batch)
            chosen = self._choose(spans)
            batch.forwarded_id = [None if responder is None else random_id() for responder in chosen]
            requests: list[Pending] = []
            first = bus.append(batch, partial(_settle, requests, done), awaited=done is not None)
            for request, payload, timeout_ms in self._open(peer, batch, spans, chosen, first):
                requests.append(request)
                bus.chains.remember(request.forwarded_id, request.message_id, request.correlation_id)
                request.responder.forward(request, payload)
                request.handed_us = max(bus.clock_us(), request.accepted_us)
                self.correlation.add(request, timeout_ms)
        return Taken(tuple(refused))

    def _choose(self, spans: list[Span]) -> list[Peer | None]:
        """For each row one of the responders of the highest priority, at random; None where there is nobody."""
        chosen: list[Peer | None] = []
        for topic, _, start, stop in spans:
            responders = self._bus.routing.route(topic).responders
            if len(responders) > 1:
                chosen += random.choices(responders, k=stop - start)  # noqa: S311 - a choice, not a secret
            else:
                chosen += [responders[0] if responders else None] * (stop - start)
        return chosen

    def _open(
        self, peer: Peer, batch: Batch, spans: list[Span], chosen: list[Peer | None], first: int
    ) -> Iterator[tuple[Pending, bytes, int]]:
        """The requests that have a responder, with payload and timeout in milliseconds."""
        default_ms, time_us = self._bus.settings.request_timeout_ms, batch.item("time_us", 0)
        ids: list[bytes] = batch.message_id  # type: ignore[assignment]  # every request has one
        masked_ids: list[bytes] = batch.forwarded_id  # type: ignore[assignment]  # where there is a responder
        payloads: list[bytes] = batch.payload  # type: ignore[assignment]
        for span in spans:
            for row in range(span.start, span.stop):
                responder = chosen[row]
                if responder is None:
                    continue
                message_id, masked_id = ids[row], masked_ids[row]
                root = batch.item("correlation_id", row) or message_id
                version = batch.item("version", row)
                request = Pending(
                    peer,
                    responder,
                    span.topic,
                    span.sent,
                    version,
                    message_id,
                    masked_id,
                    root,
                    first + row,
                    time_us,
                )
                timeout_ms = batch.item("timeout_ms", row)
                yield request, payloads[row], default_ms if timeout_ms is None else timeout_ms

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
        for row, request in answered:
            failure = batch.item("error", row)
            bus.meter.counts["router.response.error"] += failure is not None
            if request.requester.open:
                request.requester.answer(request, batch.item("payload", row), failure)
            request.release()
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
            payload=[batch.item("payload", row) for row, _, _ in rows],
        )

    def _fail(self, request: Pending, error: RacewayError) -> None:
        """A request ends without an answer: its deadline, eviction, or a journal that takes nothing."""
        reason = "timeout" if isinstance(error, RequestTimeoutError) else "dropped"
        self._bus.meter.counts[f"router.request.{reason}"] += 1
        if request.requester.open:
            request.requester.fail(request, error)
        request.release()


def _settle(requests: list[Pending], done: Done | None, error: RacewayError | None) -> None:
    """The rows are stored, or not: then others get their positions, and no answer may name them."""
    if error is not None:
        for request in requests:
            request.sequence = None
    if done is not None:
        done(error)
