"""Sessions of the MB wire: pass events of the codec to the broker, and answers and copies back.

A session neither reads nor frames: `tcp.py` and `websocket.py` feed it events and give it the function that frames a
message. It behaves the same on both transports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.delivery.catch_up import CatchUp
from raceway.broker.peers import Encoder, LivePeer, Pending
from raceway.broker.runs import Run
from raceway.broker.topics import Topic
from raceway.broker.tracing import random_id
from raceway.errors import BusyError, NoRouteError, RacewayError
from raceway.model.envelope import MB, Batch, Column
from raceway.model.intents import Done, Publish, Request, Respond, Taken
from raceway.model.topics import fold, is_mb_topic
from raceway.net.gate import Gate
from raceway.net.session import Session
from raceway.wires.mb.codec import audit as mb_audit
from raceway.wires.mb.codec import receiver as mb
from raceway.wires.mb.codec import system as mb_system
from raceway.wires.mb.codec.receiver import Frame, Head, MbLimits, Refused
from raceway.wires.mb.listen.rates import RateLimits

FOREIGN_VERSION = b"1.0.0"
# Estimated size of an error reply to a publish without subscribers.
UNASKED_BYTES = 256


def publish_encoder(frame: Frame) -> Encoder:
    """Return the encoder of published runs for this kind of frame."""

    def encode(run: Run) -> bytes:
        batch, (_, sent, start, stop) = run.batch, run.span
        version, payloads = batch.version, batch.payload
        assert type(payloads) is list
        ids = run.ids
        if stop - start < batch.count:
            ids, payloads = ids[start:stop], payloads[start:stop]
        if type(version) is not list:
            return mb.deliveries(sent, version or FOREIGN_VERSION, ids, payloads, frame)  # type: ignore[arg-type]  # every row has an id
        return b"".join(
            mb.deliveries(sent, version[start + row] or FOREIGN_VERSION, [ids[row]], [payloads[row]], frame)  # type: ignore[list-item]  # every row has an id
            for row in range(stop - start)
        )

    return encode


class MbGate(Gate["MbSession"]):
    """All MB connections, over TCP and WebSocket."""

    def __init__(self, broker: Broker, listen: config.Listen, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(broker, listen, loop.time, listen.mb.max_connections)
        self.settings = listen.mb
        self.limits = MbLimits(
            payload_limit=listen.mb.payload_limit, timeout_max_ms=broker.settings.request_timeout_max_ms
        )
        self.rates = RateLimits(listen.mb, loop.time)


class MbSession(Session, LivePeer):
    wire: ClassVar[bytes] = b"mb"
    folds_case: ClassVar[bool] = True

    def __init__(
        self,
        gate: MbGate,
        transport: asyncio.Transport,
        frame: Frame,
        encoder: Encoder,
        close: Callable[[], None],
        pending: Callable[[], int],
    ) -> None:
        super().__init__(gate, transport, encoder, pending)
        self.gate = gate
        self.frame = frame
        self._close = close
        self._asked = False
        self._is_fed = False
        # Estimated bytes of unsolicited error replies in this turn.
        self._unasked = 0
        self._catch_up: CatchUp | None = None
        # Its subscriptions at the position its catch-up has reached.
        self._wanted: set[str] = set()
        self._forbidden: set[str] = set()
        self.handlers = {
            Publish: self._perform,
            Request: self._perform,
            Respond: self._respond,
            mb.SystemCall: self._call,
            mb.HeartbeatAnswer: self._heartbeat_answer,
            Refused: self._refuse,
            mb.Oversized: self._oversized,
        }

    def start(self) -> None:
        super().start()
        self._say(mb.initialize)

    def stop(self, reason: str) -> None:
        if self._catch_up is not None:
            self._catch_up.close()
            self._catch_up = None
        super().stop(reason)

    def close(self, reason: str) -> None:
        self.stop(reason)
        self._close()

    # ---- heartbeats --------------------------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        if self.cut_stuck(now):
            return
        silence_ms, settings = self.silence_ms(now), self.gate.settings
        if silence_ms >= settings.deregister_ms:
            self.broker.meter.counts["bus.silent_closed"] += 1
            self.flush()
            self.close("no sign of life")
        elif self.is_stalled(now):
            self.cut("message not completed in time", "bus.stalled_closed")
        elif silence_ms >= settings.heartbeat_ms and not self._asked:
            self._asked = True
            fresh_id = random_id()
            self._say(lambda frame: mb.heartbeat(fresh_id, frame))

    def hear(self) -> None:
        super().hear()
        self._asked = False

    def is_sign_of_life(self, event: Any) -> bool:
        """Return whether the event resets the idle timer: a message with a malformed header does not."""
        return type(event) is not Refused or event.head is not None

    def refuse_unfinished(self, error: BusyError) -> None:
        self._reply(mb.refusal_of(error, None), None)
        super().refuse_unfinished(error)

    def _oversized(self, event: mb.Oversized) -> None:
        """Close without an error reply: after an oversized frame the start of the next one is unknown."""
        self.broker.count_error(self)
        self.flush()
        self.close("frame too large")

    # ---- from the peer -----------------------------------------------------------------------------------------------

    def _respond(self, intent: Respond) -> None:
        batch = intent.batch
        failures = [mb.maybe_failure_code(payload) for payload in batch.payload or ()]  # type: ignore[arg-type]  # a list
        if any(failures):
            batch.error = failures
        self._perform(intent)

    def _perform(self, intent: Publish | Request | Respond) -> None:
        if self.broker.audited:
            self._audit_received(intent.batch)
        if self.gate.rates.active:
            intent.batch = self._admitted(intent.batch)
            if not intent.batch.count:
                return
        batch = intent.batch
        sent = Sent.of(batch)
        waits = type(intent) is Publish and sent.message_id is not None
        acknowledgement = Acknowledgement(self, sent) if waits else None
        try:
            outcome = self.broker.perform(self, intent, acknowledgement)
        except RacewayError as refusal:
            self.refuse_rows(sent, range(intent.batch.count), refusal)
            return
        assert isinstance(outcome, Taken)
        for start, stop, error in outcome.refused:
            self.refuse_rows(sent, range(start, stop), error)
            if acknowledgement is not None:
                acknowledgement.leave_out(start, stop)

    def _call(self, event: mb.SystemCall) -> None:
        if self.broker.audited:
            self.broker.audit(mb_audit.audit_received(event.head, event.payload, self.id, self.broker.clock_us()))
        call = event.call
        if isinstance(call, Refused):
            self._refuse(call)
            return
        try:
            outcome = call if isinstance(call, Done) else self.broker.perform(self, call)
        except RacewayError as error:
            self._refuse(mb.refusal_of(error, event.head))
            return
        self._say(lambda frame: mb_system.system_reply(event.head, outcome, frame, event.show_all))

    def _heartbeat_answer(self, event: mb.HeartbeatAnswer) -> None:
        """Audit the answer to a heartbeat. The idle timer was reset by receiving it."""
        if self.broker.audited:
            self.broker.audit(mb_audit.audit_received(event.head, event.payload, self.id, self.broker.clock_us()))

    def _admitted(self, batch: Batch) -> Batch:
        """Return the rows within the rate limits; refuse the others one by one."""
        sent = Sent.of(batch)
        admitted = [row for row in range(batch.count) if self.gate.rates.admits(self.id, sent.head(row).topic.decode())]
        over = set(range(batch.count)).difference(admitted)
        self.refuse_rows(sent, sorted(over), BusyError("Rate limit exceeded"))
        return batch.keep(admitted) if over else batch

    # ---- from the broker ---------------------------------------------------------------------------------------------

    def spells(self, name: str) -> bool:
        return is_mb_topic(name)

    def deliver(self, run: Run, data: bytes) -> None:
        if self._catch_up is None:
            self._hand_over(run, data)
        else:
            self._catch_up.offer(run, data)

    def _hand_over(self, run: Run, data: bytes) -> None:
        self.write(data)
        if self.broker.audited:
            for row in range(run.span.start, run.span.stop):
                one = run.span._replace(start=row, stop=row + 1)
                self._audit_sent(_bare_encoder(Run(one, run.batch, run.ids)))

    def forward(self, request: Pending, batch: Batch, row: int) -> None:
        told = (request.sent, request.version or FOREIGN_VERSION, request.forwarded_id, batch.item("payload", row))
        self.write(mb.forwarded(*told, self.frame))
        if self.broker.audited:
            self._audit_sent(mb.forwarded(*told, _bare))

    def answer(self, request: Pending, batch: Batch, row: int) -> None:
        payload = batch.item("payload", row)
        failure = batch.item("error", row)
        if failure is not None and batch.item("wire", row) != MB and mb.maybe_failure_code(payload) is None:
            payload = mb.failure_payload(failure, payload, self.broker.clock_us())
        told = (request.sent, request.version or FOREIGN_VERSION, request.message_id, payload)
        self.write(mb.answer(*told, self.frame))
        if self.broker.audited:
            self._audit_sent(mb.answer(*told, _bare))

    def fail(self, request: Pending, error: RacewayError) -> None:
        head = Head(b"request", request.sent, request.version or FOREIGN_VERSION, request.message_id)
        self._reply(mb.refusal_of(error, head), "warn")

    def announce(self, topic: str, payload: bytes) -> None:
        if self._may_add():
            self.write(mb_audit.system_message(payload, self.frame))

    def log_record(self, level: str, message: str, time_us: int, extra: dict[str, str]) -> None:
        if self._may_add():
            self._say(lambda frame: mb_system.log_record(level, message, time_us, extra, frame))

    def _may_add(self) -> bool:
        """Return whether a system message may be written. A full peer misses it, which is counted."""
        if self.is_full:
            self.broker.meter.counts["bus.answers_dropped"] += 1
        return not self.is_full

    # ---- off the live path -------------------------------------------------------------------------------------------

    @property
    def is_fed(self) -> bool:
        return self._is_fed

    @property
    def is_behind(self) -> bool:
        return self._catch_up is not None

    def detach(self) -> bool:
        if self._catch_up is not None or not self._is_fed or not self.open:
            return False
        self._wanted = {pattern for kind, pattern in self.subscriptions if kind == "publish"}
        self._catch_up = self.broker.catch_ups.open(self)
        self._set_limits(self._least_mark)
        return True

    def relieve(self) -> None:
        super().relieve()
        if self._catch_up is not None:
            self._catch_up.wake()

    def crowd(self) -> None:
        if self._catch_up is None:
            super().crowd()
        else:
            self._is_full = True

    def note_subscribed(self, pattern: str) -> None:
        self._is_fed = True
        self._forbidden.discard(fold(pattern))
        self._change(lambda: self._wanted.add(fold(pattern)))

    def note_unsubscribed(self, pattern: str, *, forbidden: bool = False) -> None:
        if forbidden and self._catch_up is not None:
            self._forbidden.add(fold(pattern))
            self._catch_up.forget_verdicts()
        self._change(lambda: self._wanted.discard(fold(pattern)))

    def _change(self, apply: Callable[[], None]) -> None:
        """Apply a change of subscriptions when the catch-up reaches the current position; now if there is none."""
        if self._catch_up is not None and not self._catch_up.change(apply):
            self.cut("too many subscription changes during catch-up", "bus.slow_closed")

    def has_room(self) -> bool:
        return self.open and not self._is_full

    def wants(self, topic: Topic) -> bool:
        return self.spells(topic.public) and self.broker.routing.reaches(self._wanted - self._forbidden, topic)

    def emit(self, run: Run) -> None:
        self._hand_over(run, self.encoder(run))
        self.flush()

    def join(self, aside: list[tuple[Run, bytes]]) -> None:
        self._catch_up = None
        self._forbidden.clear()
        for run, data in aside:
            self._hand_over(run, data)

    def tell_gap(self, first: int, stop: int) -> None:
        self.broker.catch_ups.tell_gap(self.id, first, stop)

    # ---- replies -----------------------------------------------------------------------------------------------------

    def refuse_rows(self, sent: Sent, rows: Iterable[int], error: RacewayError) -> None:
        for row in rows:
            if isinstance(error, NoRouteError) and (sent.message_id is None or sent.message_id[row] is None):
                self._tell_unrouted(mb.refusal_of(error, sent.head(row)))
            else:
                self._refuse(mb.refusal_of(error, sent.head(row)))

    def _tell_unrouted(self, refused: Refused) -> None:
        """Send the error reply to a publish without an id; drop and count it if the peer does not read such replies."""
        if self.transport.get_write_buffer_size() + self._unasked > self._least_mark // 2:
            self.broker.count_error(self)
            self.broker.meter.counts["bus.answers_dropped"] += 1
            return
        self._unasked += UNASKED_BYTES
        self._refuse(refused)

    def flush(self) -> None:
        self._unasked = 0
        super().flush()

    def _refuse(self, refused: Refused) -> None:
        self.broker.count_error(self)
        # A publish without subscribers is no fault, so it is not logged.
        quiet = refused.code == "NO_ROUTE_FOUND" and refused.head is not None and refused.head.action == b"publish"
        self._reply(refused, None if quiet else "error")

    def _reply(self, refused: Refused, level: str | None) -> None:
        fresh_id, now = random_id(), self.broker.clock_us()
        self._say(lambda frame: mb.error_reply(refused, fresh_id, now, frame))
        if level is not None:
            self.broker.logs.emit(level, f"[{refused.code}] {refused.text}", module="mb")

    def acknowledge(self, sent: Sent, ids: list[bytes]) -> None:
        self.write(mb.acknowledgements(sent.topic, sent.version, ids, self.frame))
        if self.broker.audited:
            for row, message_id in enumerate(ids):
                one = mb.acknowledgements(sent.head(row).topic, sent.head(row).version, [message_id], _bare)
                self._audit_sent(one)

    def _say(self, encode: Callable[[Frame], bytes]) -> None:
        """Write one message of the broker to this peer, and its audit record if the audit has subscribers."""
        self.write(encode(self.frame))
        if self.broker.audited:
            self._audit_sent(encode(_bare))

    # ---- audit -------------------------------------------------------------------------------------------------------

    def _audit_received(self, batch: Batch) -> None:
        now = self.broker.clock_us()
        for row in range(batch.count):
            head = Head(
                *(batch.item(n, row) for n in ("kind", "topic", "version", "message_id", "parent_id", "timeout_ms"))
            )
            self.broker.audit(mb_audit.audit_received(head, batch.item("payload", row), self.id, now))

    def _audit_sent(self, message: bytes) -> None:
        """Write the audit record of an unframed message that was sent to this peer."""
        header, _, payload = message.partition(b"\n")
        action, topic, version, message_id = (*header.split(b":"), None)[:4]
        head = Head(action or b"", topic or b"", version or b"", message_id)
        original = self.broker.chains.unmask(head.message_id)[0] if head.message_id is not None else None
        masked = original if original != head.message_id and head.action != b"response" else None
        self.broker.audit(mb_audit.audit_sent(head, payload, self.id, self.broker.clock_us(), masked))


def _bare(length: int) -> bytes:
    """Frame nothing: messages in audit records have no frame."""
    return b""


_bare_encoder = publish_encoder(_bare)


class Sent(NamedTuple):
    """Headers of a batch as the peer sent them, kept for replies: the broker replaces them with canonical names."""

    kind: bytes
    topic: Column[bytes]
    version: Column[bytes]
    message_id: list[bytes | None] | None

    @classmethod
    def of(cls, batch: Batch) -> Sent:
        return cls(batch.kind, batch.topic, batch.version, batch.message_id)  # type: ignore[arg-type]  # as the codec made it

    def head(self, row: int) -> Head:
        topic = self.topic[row] if type(self.topic) is list else self.topic
        version = self.version[row] if type(self.version) is list else self.version
        assert isinstance(topic, bytes)
        assert isinstance(version, bytes)
        return Head(self.kind, topic, version, self.message_id[row] if self.message_id is not None else None)


class Acknowledgement:
    """Acknowledges the publishes of a batch after their commit, or refuses them if the commit failed.

    Rows without an id get no answer; rows that were refused have had theirs (`leave_out`).
    """

    __slots__ = ("_left_out", "_sent", "_session")

    def __init__(self, session: MbSession, sent: Sent) -> None:
        self._session = session
        self._sent = sent
        self._left_out: set[int] | None = None

    def leave_out(self, start: int, stop: int) -> None:
        self._left_out = (self._left_out or set()).union(range(start, stop))

    def __call__(self, error: RacewayError | None) -> None:
        session, sent = self._session, self._sent
        if not session.open:
            return
        ids = sent.message_id
        assert ids is not None
        if self._left_out is None and all(ids) and error is None:
            session.acknowledge(sent, ids)  # type: ignore[arg-type]  # none is None
            return
        rows = [row for row in range(len(ids)) if ids[row] and row not in (self._left_out or ())]
        if error is not None:
            session.refuse_rows(sent, rows, error)
        elif rows:
            heads = [sent.head(row) for row in rows]
            topic: list[bytes | None] = [head.topic for head in heads]
            version: list[bytes | None] = [head.version for head in heads]
            session.acknowledge(Sent(sent.kind, topic, version, None), [ids[row] for row in rows])  # type: ignore[misc]  # none is None
