"""Sessions of the MB wire: pass events of the codec to the broker, and answers and copies back.

A session neither reads nor frames: `tcp.py` and `websocket.py` feed it events and give it the function that frames a
message. It behaves the same on both transports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar, NamedTuple

from raceway import config
from raceway.broker.door import Door
from raceway.broker.peers import Encoder
from raceway.errors import BusyError, NoRouteError, RacewayError
from raceway.model.envelope import MB, Batch, Column
from raceway.model.failure import failure_codes
from raceway.model.intents.batches import Publish, Request, Respond, Taken
from raceway.model.intents.kinds import Done, Outcome
from raceway.model.intents.peers import ListPeers, ListSubscriptions, ListTopics, PeerOutcome, ReadMetrics
from raceway.net.connection import Connection, Gate
from raceway.net.ids import random_id
from raceway.wires.mb.codec import audit, system
from raceway.wires.mb.codec import encode as mb
from raceway.wires.mb.codec.header import MbHeader, MbLimits, MbRefused
from raceway.wires.mb.codec.receiver import HeartbeatAnswer, Oversized, SystemCall
from raceway.wires.mb.listen.peer import MbPeer, bare
from raceway.wires.mb.listen.rates import RateLimits
from raceway.wires.mb.settings import MbWire

# Calls whose answers may be long.
LISTS = (ListPeers, ListSubscriptions, ListTopics, ReadMetrics)
# Estimated size of an error reply to a publish without subscribers.
UNASKED_BYTES = 256


class MbGate(Gate["MbSession"]):
    """All MB connections, over TCP and WebSocket."""

    wire: ClassVar[str] = MB.decode()

    def __init__(self, door: Door, listen: config.Listen) -> None:
        self.settings = settings = listen.of(MbWire)
        super().__init__(door.runtime, listen, settings.max_connections)
        self.door = door
        self.limits = MbLimits(
            payload_limit=settings.payload_limit, timeout_max_ms=self.runtime.settings.request_timeout_max_ms
        )
        self.rates = RateLimits(settings, self.time)


class MbSession(Connection):
    def __init__(
        self,
        gate: MbGate,
        transport: asyncio.Transport,
        frame: mb.FrameMaker,
        encoder: Encoder,
        close: Callable[[], None],
        pending: Callable[[], int],
    ) -> None:
        super().__init__(gate, transport, pending)
        self.gate = gate
        self._door = gate.door
        self.holder = self.peer = MbPeer(gate.door, self, frame, encoder)
        self._close = close
        self._asked = False
        # Estimated bytes of unsolicited error replies in this turn.
        self._unasked = 0
        self.handlers = {
            Publish: self._perform,
            Request: self._perform,
            Respond: self._respond,
            SystemCall: self._call,
            # The idle timer was reset by receiving it.
            HeartbeatAnswer: self._audit,
            MbRefused: lambda event: self.when_answered(partial(self._refuse, event)),
            Oversized: self._oversized,
        }

    def start(self) -> None:
        super().start()
        self.peer.say(mb.initialize)

    def opened(self) -> None:
        self._door.connect(self.peer)

    def closed(self) -> None:
        self._door.disconnect(self.peer)

    def count_error(self) -> None:
        self._door.count_error(self.peer)

    def close(self, reason: str) -> None:
        self.stop(reason)
        self._close()

    # ---- heartbeats --------------------------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        if self.cut_stuck(now):
            return
        silence_ms, settings = self.silence_ms(now), self.gate.settings
        if silence_ms >= settings.deregister_ms:
            self.runtime.counts["bus.silent_closed"] += 1
            self.flush()
            self.close("no sign of life")
        elif self.is_stalled(now):
            self.cut("message not completed in time", "bus.stalled_closed")
        elif silence_ms >= settings.heartbeat_ms and not self._asked:
            self._asked = True
            fresh_id = random_id()
            self.peer.say(lambda frame: mb.heartbeat(fresh_id, frame))

    def hear(self) -> None:
        super().hear()
        self._asked = False

    def is_sign_of_life(self, event: Any) -> bool:
        """Return whether the event resets the idle timer: a message with a malformed header does not."""
        return type(event) is not MbRefused or event.head is not None

    def refuse_unfinished(self, error: BusyError) -> None:
        self.peer.reply(mb.refusal_of(error, None), None)
        super().refuse_unfinished(error)

    def _oversized(self, event: Oversized) -> None:
        """Close without an error reply: after an oversized frame the start of the next one is unknown."""
        self.count_error()
        self.when_answered(self._end_oversized)

    def _end_oversized(self) -> None:
        self.flush()
        self.close("frame too large")

    # ---- from the peer -----------------------------------------------------------------------------------------------

    def _respond(self, intent: Respond) -> None:
        batch = intent.batch
        failures = failure_codes(batch.payload or ())  # type: ignore[arg-type]  # a list
        if failures:
            batch.error = failures
        self._perform(intent)

    def _perform(self, intent: Publish | Request | Respond) -> None:
        if self.runtime.audited:
            self.peer.audit_received(intent.batch)
        if self.gate.rates.active:
            intent.batch = self._admitted(intent.batch)
            if not intent.batch.count:
                return
        batch = intent.batch
        sent = SentHeaders.of(batch)
        reply = BatchReply(self, sent, batch.count)
        waits = type(intent) is Publish and sent.message_id is not None
        self.note_asked()
        self._door.perform(self.peer, intent, reply.answered, reply.committed if waits else None)

    def _call(self, event: SystemCall) -> None:
        self._audit(event)
        call = event.call
        self.note_asked()
        if isinstance(call, Done | MbRefused):
            self._called(event, call)
        elif isinstance(call, LISTS) and (refusal := self.maybe_refuse_list()) is not None:
            self._called(event, refusal)
        else:
            self._door.perform(self.peer, call, partial(self._called, event))

    def _called(self, event: SystemCall, outcome: PeerOutcome | MbRefused | RacewayError) -> None:
        if not self.open:
            return
        if isinstance(outcome, RacewayError):
            outcome = mb.refusal_of(outcome, event.head)
        if isinstance(outcome, MbRefused):
            self._refuse(outcome)
        else:
            said = self.peer.say(lambda frame: system.system_reply(event.head, outcome, frame, event.show_all))
            self.note_listed(said)
        self.note_answered()

    def _audit(self, event: SystemCall | HeartbeatAnswer) -> None:
        if self.runtime.audited:
            now = self.runtime.clock_us()
            self.peer.audit(audit.audit_received(event.head, event.payload, self.id, now))

    def _admitted(self, batch: Batch) -> Batch:
        """Return the rows within the rate limits; refuse the others one by one."""
        sent = SentHeaders.of(batch)
        admitted = [row for row in range(batch.count) if self.gate.rates.admits(self.id, sent.head(row).topic.decode())]
        over = set(range(batch.count)).difference(admitted)
        self.refuse_rows(sent, sorted(over), BusyError("Rate limit exceeded"))
        return batch.keep(admitted) if over else batch

    # ---- flow control ------------------------------------------------------------------------------------------------

    @property
    def is_fed(self) -> bool:
        return self.peer.is_fed

    def relieve(self) -> None:
        super().relieve()
        self.peer.wake()

    def crowd(self) -> None:
        if self.peer.is_behind:
            self._is_full = True
        else:
            super().crowd()

    # ---- replies -----------------------------------------------------------------------------------------------------

    def refuse_rows(self, sent: SentHeaders, rows: Iterable[int], error: RacewayError) -> None:
        for row in rows:
            if isinstance(error, NoRouteError) and (sent.message_id is None or sent.message_id[row] is None):
                self._tell_unrouted(mb.refusal_of(error, sent.head(row)))
            else:
                self._refuse(mb.refusal_of(error, sent.head(row)))

    def _tell_unrouted(self, refused: MbRefused) -> None:
        """Send the error reply to a publish without an id; drop and count it if the peer does not read such replies."""
        if self.transport.get_write_buffer_size() + self._unasked > self._least_mark // 2:
            self.runtime.counts["bus.answers_dropped"] += 1
            return
        self._unasked += UNASKED_BYTES
        self._refuse(refused)

    def flush(self) -> None:
        self._unasked = 0
        super().flush()

    def _refuse(self, refused: MbRefused) -> None:
        # A publish without subscribers is no fault: it is stored, counted among those without route, and not logged.
        quiet = refused.code == "NO_ROUTE_FOUND" and refused.head is not None and refused.head.action == b"publish"
        if not quiet:
            self.count_error()
        self.peer.reply(refused, None if quiet else "error")

    def acknowledge(self, sent: SentHeaders, ids: list[bytes]) -> None:
        self.write(mb.acknowledgements(sent.topic, sent.version, ids, self.peer.frame))
        if self.runtime.audited:
            for row, message_id in enumerate(ids):
                one = mb.acknowledgements(sent.head(row).topic, sent.head(row).version, [message_id], bare)
                self.peer.audit_sent(one)


class SentHeaders(NamedTuple):
    """Headers of a batch as the peer sent them, kept for replies: the broker replaces them with canonical names."""

    kind: bytes
    topic: Column[bytes]
    version: Column[bytes]
    message_id: list[bytes | None] | None

    @classmethod
    def of(cls, batch: Batch) -> SentHeaders:
        return cls(batch.kind, batch.topic, batch.version, batch.message_id)  # type: ignore[arg-type]  # as the codec made it

    def head(self, row: int) -> MbHeader:
        topic = self.topic[row] if type(self.topic) is list else self.topic
        version = self.version[row] if type(self.version) is list else self.version
        assert isinstance(topic, bytes)
        assert isinstance(version, bytes)
        return MbHeader(self.kind, topic, version, self.message_id[row] if self.message_id is not None else None)


class BatchReply:
    """Replies to a batch: refuses rows when the outcome comes, acknowledges publishes with an id after the commit."""

    __slots__ = ("_count", "_refused", "_sent", "_session")

    def __init__(self, session: MbSession, sent: SentHeaders, count: int) -> None:
        self._session = session
        self._sent = sent
        self._count = count
        self._refused: set[int] | None = None

    def answered(self, outcome: Outcome | RacewayError) -> None:
        session = self._session
        if not session.open:
            return
        if isinstance(outcome, RacewayError):
            session.refuse_rows(self._sent, range(self._count), outcome)
        else:
            assert isinstance(outcome, Taken)
            for start, stop, error in outcome.refused:
                session.refuse_rows(self._sent, range(start, stop), error)
                self._refused = (self._refused or set()).union(range(start, stop))
        session.note_answered()

    def committed(self, error: RacewayError | None) -> None:
        """Acknowledge publishes, or refuse them if the commit failed. Refused rows have had their reply."""
        session, sent = self._session, self._sent
        if not session.open:
            return
        ids = sent.message_id
        assert ids is not None
        if self._refused is None and all(ids) and error is None:
            session.acknowledge(sent, ids)  # type: ignore[arg-type]  # none is None
            return
        rows = [row for row in range(len(ids)) if ids[row] and row not in (self._refused or ())]
        if error is not None:
            session.refuse_rows(sent, rows, error)
        elif rows:
            heads = [sent.head(row) for row in rows]
            topic: list[bytes | None] = [head.topic for head in heads]
            version: list[bytes | None] = [head.version for head in heads]
            session.acknowledge(SentHeaders(sent.kind, topic, version, None), [ids[row] for row in rows])  # type: ignore[misc]  # none is None
