"""Sessions of the zbus wire: pass events of the codec to the broker, and answers and deliveries back.

The broker hands out a queue's messages with `hand_out`. They count as delivered when their bytes were written to the
socket; if the connection breaks before that, they return to the front of their queue. Replies are matched by `msgid`:
acknowledgements are sent in order after the commit, answers when they arrive.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any, ClassVar, TypeVar

from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.peers import Peer, Pending, Responder
from raceway.broker.queues.pubsub import Copy, PubSubQueue
from raceway.broker.queues.queue import Entry, Queue
from raceway.broker.queues.table import QueueResponder
from raceway.broker.requests.replies import RowAnswer
from raceway.broker.runs import stretches
from raceway.broker.security.tokens import is_signed
from raceway.errors import (
    BusyError,
    ForbiddenError,
    NameReservedError,
    NoRouteError,
    RacewayError,
    TooManyFailuresError,
    UnauthenticatedError,
    UnknownQueueError,
)
from raceway.model.addresses import host_port
from raceway.model.envelope import ZBUS, Batch
from raceway.model.intents import Publish, Reply, Request, Taken
from raceway.model.security import ANONYMOUS, Permission, Principal
from raceway.model.topics import is_reserved
from raceway.net.connection import Connection, Gate
from raceway.net.ids import random_id
from raceway.net.tcp import StreamProtocol
from raceway.wires.zbus.codec import receiver as zbus
from raceway.wires.zbus.codec.encode import queue_forbidden, queue_not_found, sent_of
from raceway.wires.zbus.codec.receiver import (
    Admin,
    Ask,
    Browser,
    Consume,
    Continue100,
    Produce,
    ZbusHeartbeat,
    ZbusLimits,
    ZbusRefused,
)
from raceway.wires.zbus.listen.admin import Administration
from raceway.wires.zbus.listen.deliveries import HeadCache, Unsent
from raceway.wires.zbus.settings import ZbusWire

# Reply queues of requests that were delivered to this connection; older ones can no longer be answered.
HANDED_REPLIES = 10_000
# Queues with a verified token that a connection remembers.
PROVEN = 100
NOBODY = Principal(ANONYMOUS, ZBUS.decode())

M = TypeVar("M", Produce, Ask)


class ZbusGate(Gate["ZbusSession"]):
    """All zbus connections. `advertised` is the address that clients get as `broker`."""

    wire: ClassVar[str] = ZBUS.decode()

    def __init__(
        self, broker: Broker, listen: config.Listen, port: int, console: str, serves_queues: bool = True
    ) -> None:
        self.settings = settings = listen.of(ZbusWire)
        super().__init__(broker.runtime, listen, settings.max_connections)
        self.broker = broker
        self.limits = ZbusLimits(
            head_bytes=settings.head_limit, headers=settings.header_limit, body_bytes=settings.body_limit
        )
        self.advertised = (settings.advertised or host_port(listen.host, port)).encode()
        self.administration = Administration(broker, listen, self.advertised.decode(), console, serves_queues)

    def is_welcome(self, browser: Browser | None) -> bool:
        return browser is None or self.is_ours(browser.host, browser.origin, browser.fetch_site)


class ZbusTcp(StreamProtocol):
    def __init__(self, gate: ZbusGate) -> None:
        super().__init__(gate, zbus.ZbusReceiver(gate.limits))
        self._zbus_gate = gate

    def open_session(self, transport: asyncio.Transport) -> ZbusSession:
        return ZbusSession(self._zbus_gate, transport, self.pending)


class ZbusPeer(Peer):
    """The client of a zbus connection. It does not subscribe; publish/subscribe queues do it for their consumers."""

    wire: ClassVar[bytes] = ZBUS

    def __init__(self, session: ZbusSession) -> None:
        super().__init__(session.id, session.connected_us)
        self._session = session
        self.network, self.last_heard = session.network, session.heard_us
        self.producer = session.address.encode()
        # Its requests that want no answer.
        self.silent: set[bytes] = set()

    @property
    def is_behind(self) -> bool:
        return self._session.broker.queues.is_behind(self._session)

    def timeout_ms(self, responder: Responder, default_ms: int) -> int | None:
        """Return the timeout of a request: none for a queue, the configured one for a service of another wire."""
        return None if isinstance(responder, QueueResponder) else self._session.gate.settings.request_timeout_ms

    def answer(self, request: Pending, batch: Batch, row: int) -> None:
        if request.message_id in self.silent:
            self.silent.discard(request.message_id)
            return
        head = zbus.delivery_head(sent_of(batch, row, self._session.gate.advertised))
        status = None if batch.item("wire", row) == ZBUS or batch.item("error", row) is None else 500
        self._session.write(zbus.answer(request.message_id, head, batch.item("payload", row), status))

    def fail(self, request: Pending, error: RacewayError) -> None:
        if request.message_id in self.silent:
            self.silent.discard(request.message_id)
            return
        self._session.refuse(error, request.message_id)


class ZbusSession(Connection):
    def __init__(self, gate: ZbusGate, transport: asyncio.Transport, pending: Callable[[], int]) -> None:
        super().__init__(gate, transport, pending)
        self.gate = gate
        self.broker = gate.broker
        self.peer = ZbusPeer(self)
        self.key = self.id.encode()
        self._unsent = Unsent(self.broker.loop, transport, self.idle, gate.settings.sweep_ms / 1000)
        self._heads = HeadCache(gate.advertised)
        self._handed: OrderedDict[bytes, None] = OrderedDict()
        # Whether the token of the current message names a principal; otherwise it is the token of a queue.
        self.identified = False
        # Queues whose token this connection has shown: not slowed down by failed attempts of others.
        self._proven: set[tuple[str, bytes]] = set()
        self.handlers = {
            Produce: self._produce,
            Ask: self._ask,
            Consume: self._consume,
            ZbusHeartbeat: lambda event: None,
            Admin: self._admin,
            ZbusRefused: self._refuse,
            Continue100: lambda event: self.write(zbus.CONTINUE),
        }

    def stop(self, reason: str) -> None:
        if self.open:
            self._unsent.clear()
            self.broker.queues.leave(self, self.peer)
            self.gate.administration.leave(self)
        super().stop(reason)

    def opened(self) -> None:
        self.broker.connect(self.peer)

    def closed(self) -> None:
        self.broker.disconnect(self.peer)

    def count_error(self) -> None:
        self.broker.count_error(self.peer)

    def close(self, reason: str) -> None:
        self.stop(reason)
        self.transport.close()

    def has_room(self) -> bool:
        return not self._is_full

    def detach(self) -> bool:
        """Leave the live path: copies wait in the buffers of its queues, so publishers need not wait for this peer."""
        return self.open and self.broker.queues.subscribes(self)

    def relieve(self) -> None:
        super().relieve()
        self.broker.queues.pump(self)
        self.gate.administration.relieve(self)

    def sweep(self, now: float) -> None:
        idle_ms = self.gate.settings.idle_ms
        if self.cut_stuck(now):
            return
        if self.is_stalled(now):
            self.cut("message not completed in time", "bus.stalled_closed")
        elif idle_ms and self.silence_ms(now) >= idle_ms:
            self.runtime.counts["bus.silent_closed"] += 1
            self.flush()
            self.close("idle")
        else:
            self._unsent.note_taken()

    # ---- identity ----------------------------------------------------------------------------------------------------

    def _by_token(self, event: M) -> Iterator[M]:
        """Split the messages of one read by token and set the principal for each part; one part with security off."""
        if self.broker.security.enabled and _varies(event.token):
            for token, rows in groupby(range(event.batch.count), partial(_item, event.token)):
                self._identify(token)
                yield event.keep(list(rows))
        else:
            self._identify(event.token)  # type: ignore[arg-type]  # one value, or unused
            yield event

    def _identify(self, token: bytes | None) -> None:
        """Set the principal from a signed token of the bus; anonymous otherwise. A no-op with security off."""
        if not self.broker.security.enabled:
            return
        self.peer.principal, self.identified = NOBODY, False
        if token and is_signed(token.decode("latin-1")):
            with suppress(UnauthenticatedError):  # it may be the token of a queue
                authorization = f"Bearer {token.decode('latin-1')}"
                self.peer.principal = self.broker.security.identify(authorization, ZBUS.decode(), self.host)
                self.identified = True

    def _find(self, name: str, token: bytes | None, permission: Permission) -> None:
        """Check that the queue exists and this peer may use it.

        Raises UnknownQueueError, ForbiddenError, or TooManyFailuresError after too many bad tokens. A peer without
        permission on the name gets ForbiddenError whether or not the queue exists.
        """
        security = self.broker.security
        if security.enabled and not security.allows(self.peer.principal, permission, name):
            raise ForbiddenError(str(self.peer.principal), f"{permission} on {name}")
        if self.identified or not token:
            self.broker.queues.find(name, None if self.identified else "")
            return
        guesses = () if (name, token) in self._proven else (f"{self.host} queue {name}",)
        security.guesses.check(guesses)
        try:
            record = self.broker.queues.find(name, token.decode("utf-8", "replace"))
        except ForbiddenError:
            security.guesses.fail(guesses)
            raise
        if record.token and len(self._proven) < PROVEN:
            self._proven.add((name, token))

    # ---- produce -----------------------------------------------------------------------------------------------------

    def _produce(self, event: Produce) -> None:
        if self._admit_page(event):
            for part in self._by_token(event):
                self._take_produces(part)

    def _take_produces(self, event: Produce) -> None:
        batch = event.batch
        rows: list[int] = []
        for mq, start, stop in stretches(batch.topic, batch.count):
            is_queue = self.broker.queues.exists(mq.decode("utf-8", "replace"))
            if is_queue or not (mq in self._handed or self.broker.replies.maybe_box(mq) is not None):
                rows += self._produced(event, mq, start, stop)
            else:
                self._answer_rows(event, mq, range(start, stop))
        if rows:
            self._publish(event, rows)

    def _produced(self, event: Produce, mq: bytes, start: int, stop: int) -> list[int]:
        """Return the rows to store. If the queue is also a reply queue, awaited answers are passed on instead."""
        rows = list(range(start, stop)) if self._may_produce(event, mq, start, stop) else []
        if mq not in self._handed:
            return rows
        answers = {row for row in rows if self.broker.replies.is_awaited(mq, event.batch.item("message_id", row))}
        self._answer_rows(event, mq, sorted(answers))
        return [row for row in rows if row not in answers]

    def _may_produce(self, event: Produce | Ask, mq: bytes, start: int, stop: int) -> bool:
        """Return whether rows may be produced to this queue or topic; refuse them otherwise. Checks all tokens."""
        name = mq.decode("utf-8", "replace")
        tokens: set[bytes | None] = {
            _item(event.token, row) for row in range(start, stop if _varies(event.token) else start + 1)
        }
        try:
            for token in tokens:
                self._find(name, token, "Produce")
        except UnknownQueueError as error:
            if self.broker.is_known(name) and not is_reserved(name):
                return True
            # Reserved names cannot become queues, so "not found" would mislead.
            self._refuse_rows(event, range(start, stop), NameReservedError(name) if is_reserved(name) else error)
            return False
        except (ForbiddenError, TooManyFailuresError) as error:
            self._refuse_rows(event, range(start, stop), error)
            return False
        return True

    def _publish(self, event: Produce, rows: list[int]) -> None:
        batch, ack = event.batch, event.ack
        if len(rows) < batch.count:
            batch = batch.keep(rows)
            ack = [ack[row] for row in rows] if type(ack) is list else ack
        self._complete(batch)
        ids: list[bytes] = batch.message_id  # type: ignore[assignment]  # completed
        wanting = [each for row, each in enumerate(ids) if _item(ack, row)] if _varies(ack) else ids if ack else []
        done = ProduceAcknowledgement(self, wanting) if wanting else None
        kept = Produce(batch, ack)
        try:
            outcome = self.broker.perform(self.peer, Publish(batch), done)
        except RacewayError as refusal:
            self._refuse_rows(kept, range(batch.count), refusal)
            return
        assert isinstance(outcome, Taken)
        for start, stop, error in outcome.refused:
            # A known topic without subscribers is no error: the message is stored.
            if not isinstance(error, NoRouteError):
                self._refuse_rows(kept, range(start, stop), error)
                if done is not None:
                    done.leave_out(ids[start:stop])

    def _complete(self, batch: Batch) -> None:
        """Fill in missing message ids and reply queues."""
        given = [batch.item("message_id", row) for row in range(batch.count)]
        batch.message_id = given if all(given) else [each or random_id() for each in given]
        if batch.reply_to is None:
            batch.reply_to = self.key
        elif type(batch.reply_to) is list:
            batch.reply_to = [each or self.key for each in batch.reply_to]

    # ---- request and answer ------------------------------------------------------------------------------------------

    def _ask(self, event: Ask) -> None:
        if self._admit_page(event):
            for part in self._by_token(event):
                self._take_requests(part)

    def _take_requests(self, event: Ask) -> None:
        rows: list[int] = []
        for mq, start, stop in stretches(event.batch.topic, event.batch.count):
            if self._may_ask(event, mq, start, stop):
                rows += range(start, stop)
        if not rows:
            return
        batch = event.batch.keep(rows) if len(rows) < event.batch.count else event.batch
        self._complete(batch)
        kept = Ask(batch, [_item(event.ack, row) for row in rows])
        for row in range(batch.count):
            self._expect_answer(batch.item("reply_to", row), batch.item("message_id", row), bool(_item(kept.ack, row)))
        try:
            outcome = self.broker.perform(self.peer, Request(batch, waits=True))
        except RacewayError as refusal:
            outcome = Taken(((0, batch.count, refusal),))
        assert isinstance(outcome, Taken)
        for start, stop, error in outcome.refused:
            self._refuse_rows(kept, range(start, stop), error)
            self.peer.silent.difference_update(batch.item("message_id", row) for row in range(start, stop))

    def _may_ask(self, event: Ask, mq: bytes, start: int, stop: int) -> bool:
        """Return whether a request may be sent to this queue, or to a service of another wire with this name."""
        name = mq.decode("utf-8", "replace")
        if not self.broker.queues.exists(name) and self.broker.has_responder(name):
            return True
        return self._may_produce(event, mq, start, stop)

    def _expect_answer(self, reply_to: bytes, message_id: bytes, wanted: bool) -> None:
        """Open the reply queue if needed; it is removed with this connection. Note requests that want no answer."""
        if not self.broker.queues.exists(reply_to.decode("utf-8", "replace")):
            self.broker.replies.open_box(reply_to, self.peer)
        if not wanted:
            self.peer.silent.add(message_id)

    def _answer_rows(self, event: Produce, mq: bytes, rows: Iterable[int]) -> None:
        """Treat rows produced to a reply queue as answers. Allowed only if its request was delivered here."""
        for row in rows:
            if mq not in self._handed:
                self._refuse_rows(event, [row], ForbiddenError(self.address, "answer a request that it was not given"))
                continue
            one = event.batch.keep([row])
            self._complete(one)
            status = _item(event.status, row)
            one.error = None if status is None or status < 400 else b"%d" % status
            done = ProduceAcknowledgement(self, list(one.message_id)) if _item(event.ack, row) else None  # type: ignore[arg-type]  # a list
            try:
                outcome = self.broker.perform(self.peer, Reply(mq, one), done)
            except RacewayError as error:
                self._refuse_rows(Produce(one, _item(event.ack, row)), [0], error)
                continue
            assert isinstance(outcome, Taken)
            for _, _, refusal in outcome.refused:
                self._refuse_rows(Produce(one, _item(event.ack, row)), [0], refusal)

    # ---- consume -----------------------------------------------------------------------------------------------------

    def _consume(self, event: Consume) -> None:
        msgid = event.msgid or random_id()
        if not self.gate.is_welcome(event.browser):
            self._refuse(ZbusRefused(403, "requests from other sites are refused", msgid))
            return
        box = self.broker.replies.maybe_box(event.mq)
        if box is not None and box.owner is self.peer:
            box.arm(msgid, self)
            return
        name = event.mq.decode("utf-8", "replace")
        self._identify(event.token)
        try:
            self._find(name, event.token, "Consume")
            topics = tuple(topic.decode("utf-8", "replace") for topic in event.topics)
            self.broker.queues.arm(self, self.peer, name, msgid, topics, event.window)
        except RacewayError as error:
            if event.ack:
                self._refuse(self._refusal(error, event.mq, msgid))

    def hand_out(self, queue: Queue, ticket: bytes, entry: Entry) -> None:
        batch, row, request = entry.batch, entry.row, entry.request
        raw_id, reply_to = batch.item("message_id", row), batch.item("reply_to", row)
        if request is not None:
            if batch.item("wire", row) != ZBUS:
                raw_id, reply_to = request.forwarded_id, request.requester_id.encode()
            self.broker.replies.expect(reply_to, raw_id, request)
        if batch.item("kind", row) == b"request" and reply_to is not None:
            self._note_handed(reply_to)
        if batch.correlation_id is not None:
            self._remember_chain(batch, row, raw_id)
        self._write_delivery(ticket, batch, row, raw_id, reply_to, queue.topic.spoken)
        self._unsent.add(queue, entry)

    def dismiss(self, queue: str, ticket: bytes, error: ForbiddenError) -> None:
        self._refuse(queue_forbidden(queue.encode(), ticket))

    def hand_copy(self, queue: PubSubQueue, ticket: bytes, copy: Copy) -> None:
        batch, row = copy
        self._write_delivery(
            ticket, batch, row, batch.item("message_id", row), batch.item("reply_to", row), queue.topic.spoken
        )

    def _remember_chain(self, batch: Batch, row: int, raw_id: bytes | None) -> None:
        """Remember the chain of a delivered message, which may have waited in the queue across a restart."""
        message_id, root = batch.item("message_id", row), batch.item("correlation_id", row)
        if raw_id is not None and root is not None and root != raw_id:
            self.broker.chains.remember(raw_id.lower(), message_id, root)

    def hand_answer(self, ticket: bytes, answer: RowAnswer) -> None:
        head = zbus.delivery_head(sent_of(answer.batch, 0, self.gate.advertised))
        self.write(zbus.answer(ticket, head, answer.batch.item("payload", 0)))

    def _write_delivery(
        self, ticket: bytes, batch: Batch, row: int, raw_id: bytes | None, reply_to: bytes | None, mq: bytes
    ) -> None:
        head = self._heads.of(batch, row, reply_to, mq)
        self.write(zbus.delivery(ticket, head.status, zbus.delivery_tail(raw_id, head, batch.item("payload", row))))

    def _note_handed(self, reply_to: bytes) -> None:
        self._handed[reply_to] = None
        self._handed.move_to_end(reply_to)
        if len(self._handed) > HANDED_REPLIES:
            self._handed.popitem(last=False)

    def flush(self) -> None:
        self._heads.forget()
        super().flush()
        self._unsent.note_taken()

    # ---- admin and refusals ------------------------------------------------------------------------------------------

    def _admin(self, event: Admin) -> None:
        if not self.gate.is_welcome(event.browser):
            self._refuse(ZbusRefused(403, "requests from other sites are refused", event.msgid))
            return
        self._identify(event.token)
        answer = self.gate.administration.perform(self, event)
        if answer is not None:
            self.write(answer)

    def _admit_page(self, event: Produce | Ask) -> bool:
        rows = range(event.batch.count if _varies(event.browser) else 1)
        if all(self.gate.is_welcome(_item(event.browser, row)) for row in rows):
            return True
        for row in range(event.batch.count):
            self._refuse(ZbusRefused(403, "requests from other sites are refused", event.batch.item("message_id", row)))
        return False

    def _refuse_rows(self, event: Produce | Ask, rows: Iterable[int], error: RacewayError) -> None:
        """Refuse rows. Those without `ack` get no reply."""
        for row in rows:
            if _item(event.ack, row):
                mq, msgid = event.batch.item("topic", row) or b"", event.batch.item("message_id", row)
                self._refuse(self._refusal(error, mq, msgid or random_id()))

    def _refusal(self, error: RacewayError, mq: bytes, msgid: bytes) -> ZbusRefused:
        if isinstance(error, UnknownQueueError | NoRouteError):
            return queue_not_found(mq, msgid)
        if isinstance(error, ForbiddenError):
            return queue_forbidden(mq, msgid)
        return zbus.refusal_of(error, msgid)

    def refuse(self, error: RacewayError, msgid: bytes) -> None:
        self._refuse(zbus.refusal_of(error, msgid))

    def refuse_unfinished(self, error: BusyError) -> None:
        self.write(zbus.refusal_reply(zbus.refusal_of(error, None)))
        super().refuse_unfinished(error)

    def _refuse(self, refused: ZbusRefused) -> None:
        self.count_error()
        self.write(zbus.refusal_reply(refused))
        if refused.close:
            self.flush()
            self.close("framing lost")


class ProduceAcknowledgement:
    """Acknowledges produced messages after their commit, or refuses them if it failed. Called by the journal."""

    __slots__ = ("_ids", "_session")

    def __init__(self, session: ZbusSession, ids: list[bytes]) -> None:
        self._session = session
        self._ids = ids

    def leave_out(self, ids: list[bytes]) -> None:
        gone = set(ids)
        self._ids = [each for each in self._ids if each not in gone]

    def __call__(self, error: RacewayError | None) -> None:
        session = self._session
        if not session.open:
            return
        if error is None:
            session.write(zbus.acknowledgements(self._ids, session.broker.clock_us() // 1000))
            return
        for msgid in self._ids:
            session.refuse(error, msgid)


def _varies(column: Any) -> bool:
    return type(column) is list


def _item(column: Any, row: int) -> Any:
    return column[row] if type(column) is list else column
