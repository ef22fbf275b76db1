"""What peers ask of queues: produce, request, consume, create; after their tokens and permissions were checked.

Whether a row that is produced to a reply queue is the answer to a request is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from raceway.broker.bus import Bus, IntentHandler
from raceway.broker.peers import Peer
from raceway.broker.places import find_offset, rows_of
from raceway.broker.publishing import Publishing
from raceway.broker.queues.access import QueueAccess
from raceway.broker.queues.consumer import QueueConsumer
from raceway.broker.queues.listing import summaries
from raceway.broker.queues.table import QueueTable
from raceway.broker.requests.exchanges import Exchanges, text_of
from raceway.broker.runs import Refused, stretches
from raceway.broker.steps import Steps
from raceway.errors import (
    ForbiddenError,
    NameReservedError,
    NoRouteError,
    RacewayError,
    TooManyFailuresError,
    UnknownQueueError,
)
from raceway.journal.contract import OnCommit
from raceway.model.envelope import Batch
from raceway.model.intents.administration import PeekQueue, PurgeQueue, QueuePeek, RemoveQueue
from raceway.model.intents.batches import Publish, Request, Taken
from raceway.model.intents.credentials import Authorization, Authorize
from raceway.model.intents.kinds import Done
from raceway.model.intents.queues import (
    Arm,
    ConfirmDeliveries,
    CreateQueue,
    Enqueue,
    EnqueueRequests,
    ListQueues,
    QueueList,
    ResumeDeliveries,
)
from raceway.model.subscriptions import Start
from raceway.model.topics import is_reserved

E = TypeVar("E", Enqueue, EnqueueRequests)
DONE = Done()


class QueueCalls:
    def __init__(self, bus: Bus, queues: QueueTable, publishing: Publishing, exchanges: Exchanges) -> None:
        self._bus, self._queues = bus, queues
        self._publishing, self._exchanges = publishing, exchanges
        self._correlation, self._reply_queues = exchanges.correlation, exchanges.reply_queues
        self._access = QueueAccess(bus.security, queues)
        queues.linked = exchanges.note_delivery

    def batches(self) -> dict[type, Callable[[Peer, Any, OnCommit | None], Taken]]:
        return {Enqueue: self.enqueue, EnqueueRequests: self.request}

    def calls(self) -> dict[type, IntentHandler]:
        return {
            Arm: self._arm,
            ConfirmDeliveries: self._confirm,
            ResumeDeliveries: self._resume,
            CreateQueue: self._create,
            PeekQueue: self._peek,
            PurgeQueue: self._purge,
            RemoveQueue: self._remove,
            Authorize: self._authorize,
            ListQueues: lambda peer, call: QueueList(tuple(summaries(self._queues))),
        }

    def leave(self, peer: Peer) -> None:
        """Remove a peer that has disconnected from all queues."""
        self._queues.leave(peer)
        self._access.leave(peer)

    # ---- messages ----------------------------------------------------------------------------------------------------

    def enqueue(self, peer: Peer, intent: Enqueue, done: OnCommit | None) -> Taken:
        if self._bus.security.enabled and type(intent.tokens) is list:
            return self._by_token(peer, intent, intent.tokens, self.enqueue, done)
        batch, tokens, reply_queues = intent.batch, intent.tokens, self._reply_queues
        identified = self._access.identify(peer, None if isinstance(tokens, list) else tokens)
        refused: Refused = []
        produced: list[int] = []
        answers: list[int] = []
        for name, start, stop in stretches(batch.topic, batch.count):
            rows, granted = range(start, stop), reply_queues.is_granted(peer, name)
            if self._queues.exists(text_of(name)) or not (granted or reply_queues.maybe_get(name) is not None):
                error = self._maybe_refusal(peer, name, _tokens(tokens, start, stop), identified)
                if error is not None:
                    refused.append((start, stop, error))
                elif granted:  # also an ordinary queue: only what is awaited is an answer
                    for row in rows:
                        awaited = self._correlation.is_awaited((name, batch.item("message_id", row)))
                        (answers if awaited else produced).append(row)
                else:
                    produced += rows
            elif granted:
                answers += rows
            else:
                refused.append((start, stop, ForbiddenError(peer.id, "answer a request that it was not given")))
        if len(produced) == batch.count:
            return self._publish(peer, batch, done)
        if len(answers) == batch.count:
            return self._answer(peer, intent, done)
        if answers:
            refused += _placed(answers, partial(self._answer, peer, intent.keep(answers), None))
        if produced:
            refused += _placed(produced, partial(self._publish, peer, batch.keep(produced), None))
        return self._taken(batch, refused, done)

    def _publish(self, peer: Peer, batch: Batch, done: OnCommit | None) -> Taken:
        """Publish rows. A topic without subscribers is no error: the row is stored."""
        taken = self._publishing.publish(peer, Publish(batch), done)
        if not taken.refused:
            return taken
        return Taken(tuple(row for row in taken.refused if not isinstance(row[2], NoRouteError)))

    def _answer(self, peer: Peer, intent: Enqueue, done: OnCommit | None) -> Taken:
        intent.batch.error = intent.errors
        return self._exchanges.answer_named(peer, intent.batch, done)

    def _taken(self, batch: Batch, refused: Refused, done: OnCommit | None) -> Taken:
        """Return the outcome of a batch that was performed in parts. `done` is called after the last commit."""
        if done is not None and sum(stop - start for start, stop, _ in refused) < batch.count:
            self._bus.after_commit(done)
        return Taken(tuple(refused))

    def request(self, peer: Peer, intent: EnqueueRequests, done: OnCommit | None) -> Taken:
        if self._bus.security.enabled and type(intent.tokens) is list:
            return self._by_token(peer, intent, intent.tokens, self.request, done)
        batch, tokens = intent.batch, intent.tokens
        identified = self._access.identify(peer, None if isinstance(tokens, list) else tokens)
        refused: Refused = []
        asked: list[int] = []
        for name, start, stop in stretches(batch.topic, batch.count):
            error = None
            if self._queues.exists(text_of(name)) or not self._bus.has_responder(text_of(name)):
                error = self._maybe_refusal(peer, name, _tokens(tokens, start, stop), identified)
            if error is None:
                asked += range(start, stop)
            else:
                refused.append((start, stop, error))
        if len(asked) == batch.count:
            return self._request(peer, batch, done)
        if asked:
            refused += _placed(asked, partial(self._request, peer, batch.keep(asked), done))
        return Taken(tuple(refused))

    def _request(self, peer: Peer, batch: Batch, done: OnCommit | None) -> Taken:
        for reply_to in dict.fromkeys(batch.column("reply_to")):
            if not self._queues.exists(text_of(reply_to)):
                self._reply_queues.open(reply_to, peer)
        return self._exchanges.request(peer, Request(batch, waits=True), done)

    def _by_token(
        self,
        peer: Peer,
        intent: E,
        tokens: list[bytes | None],
        perform: Callable[[Peer, E, OnCommit | None], Taken],
        done: OnCommit | None,
    ) -> Taken:
        """Perform the rows of each token by themselves: each may have another principal."""
        refused: Refused = []
        for _, group in groupby(range(intent.batch.count), tokens.__getitem__):
            rows = list(group)
            refused += _placed(rows, partial(perform, peer, intent.keep(rows), None))
        return self._taken(intent.batch, refused, done)

    def _maybe_refusal(
        self, peer: Peer, name: bytes, tokens: Iterable[bytes | None], identified: bool
    ) -> RacewayError | None:
        """Return why rows with these tokens may not be produced to a queue or topic, if so."""
        text = text_of(name)
        try:
            for token in tokens:
                self._access.check(peer, text, token, identified, "Produce")
        except UnknownQueueError as error:
            if is_reserved(text):  # it cannot become a queue, so "not found" would mislead
                return NameReservedError(text)
            return None if self._is_known(text) else error
        except (ForbiddenError, TooManyFailuresError) as error:
            return error
        return None

    def _is_known(self, name: str) -> bool:
        """Return whether the topic was ever used or has subscribers."""
        used = self._bus.topics.maybe_known_as(name) is not None and not self._queues.is_gone(name)
        return used or bool(self._bus.routing.subscribers(name))

    # ---- consumers ---------------------------------------------------------------------------------------------------

    def _arm(self, peer: QueueConsumer, call: Arm) -> Done:
        reply_queue = self._reply_queues.maybe_get(call.queue)
        if reply_queue is not None and reply_queue.owner is peer:
            reply_queue.arm(call.ticket, peer)
            return DONE
        name = text_of(call.queue)
        self._access.check(peer, name, call.token, self._access.identify(peer, call.token), "Consume")
        self._queues.arm(peer, name, call.ticket, call.topics, call.window)
        return DONE

    def _confirm(self, peer: QueueConsumer, call: ConfirmDeliveries) -> Done:
        self._queues.confirm(peer, call.deliveries)
        return DONE

    def _resume(self, peer: QueueConsumer, call: ResumeDeliveries) -> Done:
        self._queues.pump(peer)
        return DONE

    # ---- administration ----------------------------------------------------------------------------------------------

    def _create(self, peer: Peer, call: CreateQueue) -> Steps[Done]:
        if call.credential is not None:
            self._access.check_administrator(peer, call.credential)
        self._bus.security.check(peer.principal, "ManageTopic", call.name)
        existed, start = self._queues.exists(call.name), call.start
        if start.at == "time" and not existed:
            # Rows of that time may be in the archive, for which this thread must not wait.
            offset = yield self._bus.aside(lambda: find_offset(self._bus.journal, call.name, call.start))
            start = Start("offset", offset)
        self._queues.create(peer, call.maker, call.name, call.mode, call.token, start)
        yield self._bus.commit
        return Done(not existed)

    def _peek(self, peer: Peer, call: PeekQueue) -> Steps[QueuePeek]:
        """Return messages, oldest first, including those handed out and not taken."""
        self._queues.find(call.name, call.token)
        queue, journal = self._queues.ordinary(call.name), self._bus.journal
        name = queue.topic.name
        begin = max(queue.cursor, journal.offsets(name)[0])
        limits = max(call.limit, 1), call.max_bytes, call.columns
        rows: list[dict[str, Any]] = yield self._bus.aside(lambda: rows_of(journal.read_topic(name, begin, *limits)))
        return QueuePeek(queue.backlog, rows[: call.limit])

    def _purge(self, peer: Peer, call: PurgeQueue) -> Steps[int]:
        self._queues.find(call.name, call.token)
        self._bus.journal.check_writable()
        dropped = self._queues.purge(call.name)
        yield self._bus.commit
        return dropped

    def _remove(self, peer: Peer, call: RemoveQueue) -> Steps[Done]:
        self._bus.security.check(peer.principal, "ManageTopic", call.name)
        self._queues.find(call.name, call.token)
        self._queues.remove(call.name)
        yield self._bus.commit
        return DONE

    def _authorize(self, peer: Peer, call: Authorize) -> Authorization:
        self._access.check_administrator(peer, call.credential)
        if call.permission is not None:
            self._bus.security.check(peer.principal, call.permission)
        return Authorization(peer.principal)


def _placed(rows: list[int], perform: Callable[[], Taken]) -> Refused:
    """Perform these rows of a batch. Return those that were refused, all if none was done, by their place in it."""
    try:
        refused = perform().refused
    except RacewayError as error:
        return [(row, row + 1, error) for row in rows]
    return [(rows[row], rows[row] + 1, error) for start, stop, error in refused for row in range(start, stop)]


def _tokens(tokens: Any, start: int, stop: int) -> Iterable[bytes | None]:
    return set(tokens[start:stop]) if type(tokens) is list else (tokens,)
