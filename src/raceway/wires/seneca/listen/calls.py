"""One call of a Seneca client, as the broker sees it.

The caller is the instance that the document names, not the connection: a connection carries calls of many instances,
and a chain is traced by their ids. So each call is a peer of its own. Its states:

    asked ──answer──> told, in the dialect it came in
      │
      └──held too long, and it names a return path──> accepted (202) ──answer──> sent there

A call with `multiple` collects the answers of all responders and gets them together; with a return path each is sent
there as it arrives.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Protocol

import msgspec

from raceway.broker.door import Door
from raceway.broker.peers import Peer, Pending
from raceway.broker.topics import Topic
from raceway.errors import NoRouteError, RacewayError, RequestTimeoutError, UnreachableError
from raceway.model.envelope import SENECA, Batch, decode_hops, encode_json
from raceway.wires.seneca.codec.answer import CallOutcome, Stamp, response_document
from raceway.wires.seneca.codec.call import SEED, SEED_LINE, Call
from raceway.wires.seneca.codec.failure import ACT_EXECUTE, CallFailure, failure_of
from raceway.wires.seneca.codec.outgoing import ListenerReply
from raceway.wires.seneca.codec.rows import outcome_of
from raceway.wires.seneca.codec.trk import maybe_own
from raceway.wires.seneca.dial.returns import Returns
from raceway.wires.seneca.listen.repeats import Repeats, Settled

# Number of expected answers before it is known how many responders were asked: more than can be.
UNKNOWN = 1 << 30
# Dialects whose answers contain all hops.
_WITH_HOPS = (SEED, SEED_LINE)


class CallConnection(Protocol):
    """The connection of a call: over HTTP or TCP."""

    id: str
    network: str

    def reply(self, call: SenecaCall, outcome: CallOutcome, stamp: Stamp) -> None: ...
    def reply_several(self, call: SenecaCall, answers: tuple[tuple[CallOutcome, Stamp], ...], stamp: Stamp) -> None: ...
    def accept(self, call: SenecaCall, stamp: Stamp) -> None: ...


class CallContext:
    """State of all calls. `instance` is the id of this bus in hops; `returns` sends late answers to their callers."""

    def __init__(self, door: Door, instance: str, repeats: Repeats, returns: Returns) -> None:
        self.instance, self.repeats, self.returns = instance, repeats, returns
        self.count_error = door.count_error
        self._clock_us = door.runtime.clock_us

    def now_ms(self) -> int:
        return self._clock_us() // 1000


class SenecaCall(Peer):
    """A call. `place` belongs to the connection: the answer's position in its output. `pattern`: what matched."""

    wire: ClassVar[bytes] = SENECA
    reads_source: ClassVar[bool] = True

    pattern: str | None = None
    pattern_keys: Collection[str] = ()
    # Whether answers go to the return path.
    is_returning = False
    _expected = 1
    _gathered: tuple[tuple[CallOutcome, Stamp], ...] = ()
    _is_settled = False

    def __init__(self, context: CallContext, connection: CallConnection, sent: Call, place: Any = None) -> None:
        self.received_ms = context.now_ms()
        super().__init__(connection.id, self.received_ms * 1000)
        self.sid, self.producer = sent.sid, sent.sid.encode()
        self.network = connection.network
        self.sent, self.key, self.place = sent, sent.id, place
        self._context, self._connection = context, connection
        if sent.multiple:
            self._expected = UNKNOWN

    def judged(self, topic: Topic, payload: bytes) -> bytes:
        """Return the document without its routing keys: schemas describe only the rest."""
        members = self.sent.members
        return encode_json({name: value for name, value in members.items() if name not in self.pattern_keys})

    # ---- from the broker ---------------------------------------------------------------------------------------------

    def answer(self, request: Pending, batch: Batch, row: int) -> None:
        reply: ListenerReply | None = batch.item("source", row)
        if reply is None or self.sent.dialect in _WITH_HOPS:
            batch.complete()
        self._gather((outcome_of(batch, row), self._stamp_of(request, batch, row, reply)))

    def _stamp_of(self, request: Pending, batch: Batch, row: int, reply: ListenerReply | None) -> Stamp:
        """Return the stamp of an answer. `reply` is that of a service of this wire, if it was one."""
        if reply is not None and reply.received_ms is not None and reply.answered_ms is not None:
            return Stamp(reply.rid or request.responder_id, reply.received_ms, reply.answered_ms, self.pattern)
        batch.complete()
        times = None if reply is None else self._maybe_times(batch.item("hops", row))
        received_ms, answered_ms = times or (request.handed_us // 1000, self._context.now_ms())
        rid = request.responder_id if reply is None else reply.rid or request.responder_id
        return Stamp(rid, received_ms, answered_ms, self.pattern)

    def _maybe_times(self, column: bytes | None) -> tuple[int, int] | None:
        """Return when the responder received and answered the call by its own clock, if its hops say so."""
        hops = decode_hops(column)
        own = maybe_own(hops, self.sent.mid)
        times = () if own is None else hops[own].tms[1:3]
        return (times[0], times[1]) if len(times) == 2 and times[0] is not None and times[1] is not None else None

    def fail(self, request: Pending, error: RacewayError) -> None:
        if self.sent.multiple:
            self._gather(None)
        elif isinstance(error, UnreachableError):
            failure = CallFailure(ACT_EXECUTE, f"seneca: {error}", is_seneca=True)
            self._gather((failure, self._stamp(request.responder_id)))
        else:
            self.refuse(error)

    def expect(self, count: int) -> None:
        """Set how many responders were asked. Some may have answered already, or failed."""
        self._expected += count - UNKNOWN
        self._maybe_settle()

    def committed(self, error: RacewayError | None) -> None:
        """Accept an asynchronous message after its commit, or refuse it if the commit failed."""
        if error is not None:
            self.refuse(error)
        elif not self._is_settled:
            self._context.repeats.settle(self, Settled(accepted=True))
            self.accept()

    def refuse(self, error: RacewayError) -> None:
        """End the call with an error of the bus; repeats of it are tried again."""
        self._is_settled = True
        if not isinstance(error, NoRouteError):
            self._context.count_error(self)
        failed = Settled(((failure_of(error, self.sent.members), self._own_stamp()),), by_services=False)
        self._context.repeats.forget(self, failed)
        self._tell(failed)

    # ---- to the caller -----------------------------------------------------------------------------------------------

    def let_go(self) -> None:
        """Stop holding the call: answer 202 and use the return path, if its address is allowed."""
        urn = self.sent.reply_to
        if self._is_settled or urn is None:
            return
        if self._context.returns.allows(urn):
            self.is_returning = True
            self.accept()
        else:
            self._context.returns.note_refusal(urn)

    def accept(self) -> None:
        self._connection.accept(self, self._own_stamp())

    def tell_again(self, settled: Settled) -> None:
        """Answer this repeat with the result of the first call, but with its own times."""
        if settled.accepted:
            self.accept()
            return
        own = [
            (msgspec.structs.replace(outcome, hops=None), self._stamp(stamp.rid)) for outcome, stamp in settled.answers
        ]
        self._tell(Settled(tuple(own), by_services=settled.by_services))

    def _gather(self, answer: tuple[CallOutcome, Stamp] | None) -> None:
        if answer is not None:
            self._gathered += (answer,)
            if self.is_returning and self.sent.multiple:
                self._return(*answer)
        self._expected -= 1
        self._maybe_settle()

    def _maybe_settle(self) -> None:
        if self._expected > 0:
            return
        if not self._gathered:
            self.refuse(RequestTimeoutError("", ""))
            return
        self._is_settled = True
        settled = Settled(self._gathered)
        self._context.repeats.settle(self, settled)
        if not (self.is_returning and self.sent.multiple):
            self._tell(settled)

    def _tell(self, settled: Settled) -> None:
        if self.is_returning:
            for outcome, stamp in settled.answers:
                self._return(outcome, stamp)
        elif self.sent.multiple and settled.by_services:
            self._connection.reply_several(self, settled.answers, self._own_stamp())
        else:
            self._connection.reply(self, *settled.answers[0])

    def _return(self, outcome: CallOutcome, stamp: Stamp) -> None:
        assert self.sent.reply_to is not None
        self._context.returns.send(self.sent.reply_to, response_document(self.sent, outcome, stamp), self.key)

    def _own_stamp(self) -> Stamp:
        """Return the stamp of an answer by the bus itself."""
        return self._stamp(self._context.instance)

    def _stamp(self, rid: str) -> Stamp:
        return Stamp(rid, self.received_ms, self._context.now_ms(), self.pattern)
