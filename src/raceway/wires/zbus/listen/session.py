"""Sessions of the zbus wire: pass events of the codec to the broker, and outcomes back.

Replies are matched by `msgid`: acknowledgements are sent in order after the commit, answers when they arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar

from raceway import config
from raceway.broker.door import Door
from raceway.errors import BusyError, ForbiddenError, NoRouteError, RacewayError, UnknownQueueError
from raceway.model.addresses import host_port
from raceway.model.envelope import ZBUS, Batch, Column
from raceway.model.intents.batches import Taken
from raceway.model.intents.kinds import Done, Outcome
from raceway.model.intents.queues import Arm, Enqueue, EnqueueRequests, ResumeDeliveries
from raceway.net.connection import Connection, Gate
from raceway.net.ids import random_id
from raceway.net.tcp import StreamProtocol
from raceway.wires.zbus.codec import encode
from raceway.wires.zbus.codec.head import ZbusLimits, ZbusRefused
from raceway.wires.zbus.codec.receiver import Admin, Ask, Consume, Produce, ZbusHeartbeat, ZbusReceiver
from raceway.wires.zbus.codec.rows import Browser
from raceway.wires.zbus.codec.stream import Continue100
from raceway.wires.zbus.listen.admin import Administration
from raceway.wires.zbus.listen.peer import ZbusPeer
from raceway.wires.zbus.settings import ZbusWire


class ZbusGate(Gate["ZbusSession"]):
    """All zbus connections. `advertised` is the address that clients get as `broker`."""

    wire: ClassVar[str] = ZBUS.decode()

    def __init__(self, door: Door, listen: config.Listen, port: int, console: str, serves_queues: bool = True) -> None:
        self.settings = settings = listen.of(ZbusWire)
        super().__init__(door.runtime, listen, settings.max_connections)
        self.door = door
        self.limits = ZbusLimits(
            head_bytes=settings.head_limit, headers=settings.header_limit, body_bytes=settings.body_limit
        )
        self.advertised = (settings.advertised or host_port(listen.host, port)).encode()
        self.administration = Administration(door, listen, self.advertised.decode(), console, serves_queues)

    def is_welcome(self, browser: Browser | None) -> bool:
        return browser is None or self.is_ours(browser.host, browser.origin, browser.fetch_site)


class ZbusTcp(StreamProtocol):
    def __init__(self, gate: ZbusGate) -> None:
        super().__init__(gate, ZbusReceiver(gate.limits))
        self._zbus_gate = gate

    def open_session(self, transport: asyncio.Transport) -> ZbusSession:
        return ZbusSession(self._zbus_gate, transport, self.pending)


class ZbusSession(Connection):
    def __init__(self, gate: ZbusGate, transport: asyncio.Transport, pending: Callable[[], int]) -> None:
        super().__init__(gate, transport, pending)
        self.gate = gate
        self._door = gate.door
        self.peer = ZbusPeer(gate.door, self, gate.settings, gate.advertised)
        self._key = self.id.encode()
        self.handlers = {
            Produce: self._produce,
            Ask: self._ask,
            Consume: self._consume,
            ZbusHeartbeat: lambda event: None,
            Admin: self._admin,
            ZbusRefused: lambda event: self.when_answered(partial(self._refuse, event)),
            Continue100: lambda event: self.write(encode.CONTINUE),
        }

    def stop(self, reason: str) -> None:
        if self.open:
            self.peer.lose()
            self.gate.administration.tracker.leave(self)
        super().stop(reason)

    def opened(self) -> None:
        self._door.connect(self.peer)

    def closed(self) -> None:
        self._door.disconnect(self.peer)

    def count_error(self) -> None:
        self._door.count_error(self.peer)

    def close(self, reason: str) -> None:
        self.stop(reason)
        self.transport.close()

    def flush(self) -> None:
        super().flush()
        self.peer.note_flushed()

    def detach(self) -> bool:
        """Leave the live path: copies wait in the buffers of its queues, so publishers need not wait for this peer."""
        return self.open and self._door.view.queues.is_subscriber(self.peer)

    def relieve(self) -> None:
        super().relieve()
        self._door.perform(self.peer, ResumeDeliveries())
        self.gate.administration.tracker.relieve(self)

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
            self.peer.note_flushed()

    # ---- produce and request -----------------------------------------------------------------------------------------

    def _produce(self, event: Produce) -> None:
        if self._admit_page(event):
            ids = self._complete(event.batch)
            reply = MessagesReply(self, event, ids)
            intent = Enqueue(event.batch, event.token, _errors(event.status))
            waits = any(event.ack) if type(event.ack) is list else event.ack
            self.note_asked()
            self._door.perform(self.peer, intent, reply.answered, reply.committed if waits else None)

    def _ask(self, event: Ask) -> None:
        if self._admit_page(event):
            ids = self._complete(event.batch)
            self.peer.silent.update(each for row, each in enumerate(ids) if not _item(event.ack, row))
            reply = MessagesReply(self, event, ids)
            self.note_asked()
            self._door.perform(self.peer, EnqueueRequests(event.batch, event.token), reply.answered)

    def _admit_page(self, event: Produce | Ask) -> bool:
        rows = range(event.batch.count if type(event.browser) is list else 1)
        if all(self._is_welcome(_item(event.browser, row)) for row in rows):
            return True
        for row in range(event.batch.count):
            self._refuse(ZbusRefused(403, "requests from other sites are refused", event.batch.item("message_id", row)))
        return False

    def _is_welcome(self, browser: Browser | None) -> bool:
        if browser is not None and browser.is_browser:
            self.peer.is_browser = True
        return self.gate.is_welcome(browser)

    def _complete(self, batch: Batch) -> list[bytes]:
        """Fill in missing message ids and reply queues. Return the ids."""
        given = list(batch.column("message_id"))
        ids = given if all(given) else [each or random_id() for each in given]
        batch.message_id = ids
        if batch.reply_to is None:
            batch.reply_to = self._key
        elif type(batch.reply_to) is list:
            batch.reply_to = [each or self._key for each in batch.reply_to]
        return ids

    # ---- consume and admin -------------------------------------------------------------------------------------------

    def _consume(self, event: Consume) -> None:
        msgid = event.msgid or random_id()
        if not self._is_welcome(event.browser):
            self._refuse(ZbusRefused(403, "requests from other sites are refused", msgid))
            return
        topics = tuple([topic.decode("utf-8", "replace") for topic in event.topics]) if event.topics else ()
        call = Arm(event.mq, msgid, topics, event.window, event.token)
        self.note_asked()
        self._door.perform(self.peer, call, partial(self._consumed, event, msgid))

    def _consumed(self, event: Consume, msgid: bytes, outcome: Done | RacewayError) -> None:
        if isinstance(outcome, RacewayError) and event.ack and self.open:
            self.refuse(outcome, event.mq, msgid)
        self.note_answered()

    def _admin(self, event: Admin) -> None:
        if self.gate.is_welcome(event.browser):
            self.gate.administration.perform(self, self.peer, event)
        else:
            self._refuse(ZbusRefused(403, "requests from other sites are refused", event.msgid))

    # ---- refusals ----------------------------------------------------------------------------------------------------

    def refuse(self, error: RacewayError, mq: bytes, msgid: bytes) -> None:
        """Write the error reply to a message for this queue."""
        if isinstance(error, UnknownQueueError | NoRouteError):
            self._refuse(encode.queue_not_found(mq, msgid))
        elif isinstance(error, ForbiddenError):
            self._refuse(encode.queue_forbidden(mq, msgid))
        else:
            self._refuse(encode.refusal_of(error, msgid))

    def refuse_unfinished(self, error: BusyError) -> None:
        self.write(encode.refusal_reply(encode.refusal_of(error, None)))
        super().refuse_unfinished(error)

    def _refuse(self, refused: ZbusRefused) -> None:
        self.peer.refuse(refused)
        if refused.close:
            self.flush()
            self.close("framing lost")


class MessagesReply:
    """Replies to produced messages or requests: refuses rows when the outcome comes, acknowledges the others of a
    produce after the commit. Rows without `ack` get no reply."""

    __slots__ = ("_ack", "_ids", "_is_request", "_mq", "_refused", "_session")

    def __init__(self, session: ZbusSession, event: Produce | Ask, ids: list[bytes]) -> None:
        self._session, self._ids, self._ack = session, ids, event.ack
        self._is_request = isinstance(event, Ask)
        # Queues as the peer named them: the broker replaces them with canonical names.
        self._mq = event.batch.topic
        self._refused: set[int] = set()

    def answered(self, outcome: Outcome | RacewayError) -> None:
        session = self._session
        if not session.open:
            return
        if isinstance(outcome, RacewayError):
            self._refuse(range(len(self._ids)), outcome)
        else:
            assert isinstance(outcome, Taken)
            for start, stop, error in outcome.refused:
                self._refuse(range(start, stop), error)
        session.note_answered()

    def committed(self, error: RacewayError | None) -> None:
        session = self._session
        if not session.open:
            return
        if error is not None:
            self._refuse([row for row in range(len(self._ids)) if row not in self._refused], error)
            return
        ids = self._ids
        if self._refused or type(self._ack) is list:
            ids = [each for row, each in enumerate(ids) if _item(self._ack, row) and row not in self._refused]
        if ids:
            session.write(encode.acknowledgements(ids, session.runtime.clock_us() // 1000))

    def _refuse(self, rows: Iterable[int], error: RacewayError) -> None:
        self._refused.update(rows)
        for row in rows:
            if self._is_request:
                self._session.peer.silent.discard(self._ids[row])
            if _item(self._ack, row):
                self._session.refuse(error, _item(self._mq, row) or b"", self._ids[row])


def _errors(status: Column[int]) -> Column[bytes]:
    """Return the error codes of answers with these statuses: those from 400 on report a failure."""
    if type(status) is list:
        return [_errors(each) for each in status]  # type: ignore[misc]  # each is one value
    return b"%d" % status if isinstance(status, int) and status >= 400 else None


def _item(column: Any, row: int) -> Any:
    return column[row] if type(column) is list else column
