"""Pins with the services behind them, as the broker sees them: who is asked, and who observes.

A request goes to one service of the pin, each in turn; one that is down is passed over, and one that turns out to be
gone before anything was sent is followed by the next. A publish goes to every service of the pin, each in topic order.

Calls of this wire come to the pin that Seneca's router has chosen, and to no other; publishes of this wire to those
that they match. Both go on as they were sent. Messages of other wires come by the pin's name, and are given the keys
that a message to this pin has.

The bus passes ids and custom data on and adds no hop of its own. Where a service writes no times the bus fills in who
answered and when, by its own clock, and marks the row `seneca.times: bus`.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar, Protocol

import msgspec

from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.peers import Peer, Pending, Responder
from raceway.broker.runs import Run
from raceway.broker.tracing import random_id
from raceway.codec.seneca import (
    Answer,
    Call,
    Failure,
    Form,
    Outgoing,
    Reply,
    Stamp,
    answer_batch,
    failure_of,
    filled_hops,
    outgoing_of,
    started,
)
from raceway.codec.seneca_custom import PARENTS
from raceway.codec.seneca_document import read_members, text_of
from raceway.codec.seneca_failure import ACT_EXECUTE
from raceway.codec.seneca_rows import NOTHING
from raceway.codec.seneca_trk import Hops
from raceway.dial.courier import Courier, NotTaken, Parcel, Tried
from raceway.dial.seneca_service import ServiceLine
from raceway.errors import (
    BusyError,
    ConnectionLostError,
    RacewayError,
    RequestTimeoutError,
    TooLargeError,
    UnavailableError,
    UnreachableError,
)
from raceway.model.envelope import REQUEST, SENECA, Batch, Hop
from raceway.model.intents import Respond
from raceway.model.patterns import Pattern, Pin, PinTable

# Answers that are handed on together at most: while the next are read, their callers can go on.
AT_ONCE = 24
# An answer after the deadline is still worth a row, so a service is listened to a little longer.
GRACE_MS = 1000
_TIMED_BY_BUS = {"seneca.times": "bus"}
PARENTS_KEY = PARENTS.encode()


def random_text() -> str:
    return random_id().decode()


def _no_copies(run: Run) -> bytes:
    """Each service is told in its own dialect."""
    return b""


class SentCall(Protocol):
    """The source of a request of this wire."""

    sent: Call


class Answerer(Peer):
    """Somebody behind a pin who answers."""

    wire: ClassVar[bytes] = SENECA
    reads_source: ClassVar[bool] = True
    by_content: ClassVar[bool] = True

    def __init__(self, broker: Broker, pin: Pin, timeout_ms: int, message_limit: int) -> None:
        super().__init__(random_id().decode(), _no_copies, broker.clock_us())
        self.broker, self.pin = broker, pin
        self._timeout_ms, self._message_limit = timeout_ms, message_limit
        self._answers: list[Answer] = []

    def answer(self, request: Pending, batch: Batch, row: int) -> None:
        raise AssertionError("it asks nothing")

    def fail(self, request: Pending, error: RacewayError) -> None:
        raise AssertionError("it asks nothing")

    def respond(self, answer: Answer) -> None:
        """Answers that came together are one batch."""
        if not self._answers:
            self.broker.turn.gather(self._respond)
        self._answers.append(answer)
        if len(self._answers) == AT_ONCE:
            self.broker.turn.advance()

    def _respond(self) -> None:
        answers, self._answers = self._answers, []
        self.put_down(answers)

    def put_down(self, answers: list[Answer], refusal: RacewayError | None = None) -> None:
        """`refusal`: nobody was asked, and this is why."""
        with contextlib.suppress(UnavailableError):  # the requesters were told
            self.broker.perform(self, Respond(answer_batch(answers), refusal))

    @abstractmethod
    def in_turn(self) -> list[Service]:
        """Services that can be asked, in the order in which to try them."""

    @abstractmethod
    def maybe_unknown(self) -> ServiceLine | None:
        """A service of which nobody knows yet whether it is there."""

    def forward(self, request: Pending, batch: Batch, row: int) -> None:
        """Just after a start a service may not have been found yet: then the request waits for that."""
        services = self.in_turn()
        unknown = None if services else self.maybe_unknown()
        if unknown is not None:
            unknown.after_look(lambda: self._ask(request, batch, row, self.in_turn()))
        else:
            self._ask(request, batch, row, services)

    def _ask(self, request: Pending, batch: Batch, row: int, services: list[Service]) -> None:
        timeout_ms = max(batch.item("timeout_ms", row) or 0, self._timeout_ms) + GRACE_MS
        outgoing, form = self._maybe_same(batch.item("source", row)), None
        if outgoing is not None:
            hops = outgoing.hops
        else:
            batch.complete()
            outgoing, form = self.outgoing(batch, row, request.forwarded_id)
            if batch.item("wire", row) == SENECA:
                form, hops = None, outgoing.hops
            else:
                hops = (Hop(request.sid, "", request.message_id.decode(), (request.accepted_us // 1000,)),)
        attempt = Attempt(self, request, outgoing, form, hops, iter(services), timeout_ms / 1000)
        if outgoing.is_larger_than(self._message_limit):
            what = f"a message to {self.pin.text}"
            attempt.refuse(TooLargeError(what, outgoing.data_bytes, self._message_limit))
        else:
            attempt.go_on(None)

    def _maybe_same(self, call: SentCall | None) -> Outgoing | None:
        """A call of this wire goes on as it came: it need not be read from its row. Only a chain of calls in the web
        dialect is kept there and nowhere else."""
        if call is None:
            return None
        sent = call.sent
        if sent.attributes is not None and PARENTS_KEY in sent.attributes:
            return None
        sent_ms = self.broker.clock_us() // 1000 if sent.sent_ms is None else sent.sent_ms
        return Outgoing(
            sent.mid, sent.cid, sent.sid, sent.members, True, sent.custom, sent.hops, sent_ms,
            sent.pattern or self.pin.text, vin=sent.vin, unknown=sent.unknown, document_bytes=sent.came_bytes,
        )  # fmt: skip

    def outgoing(self, batch: Batch, row: int, masked_id: bytes) -> tuple[Outgoing, Form]:
        """A message of another wire is called by its masked id: the sender's own is for the bus alone."""
        keys = {} if self._is_matched_by(batch, row) else self._keys(batch.item("topic", row).decode())
        outgoing, form = outgoing_of(batch, row, keys, random_text, self.broker.clock_us() // 1000, self.pin.text)
        if batch.item("wire", row) != SENECA:
            outgoing.mid = masked_id.decode()
            outgoing.hops = started((), outgoing.sid, outgoing.mid, outgoing.sent_ms)
        return outgoing, form

    def _is_matched_by(self, batch: Batch, row: int) -> bool:
        """What the bus publishes again, such as a dead letter, is of this wire and may have come by its name."""
        if batch.item("wire", row) != SENECA:
            return False
        if batch.item("kind", row) == REQUEST:
            return True
        members = read_members(batch.item("payload", row))
        return self.pin.matches(lambda key: text_of(members, key))

    def _keys(self, name: str) -> Pattern:
        """What a message of the topic must say to match the pin."""
        topic = self.broker.topics.maybe_exact(name)
        # A partition goes by the name of its base here, another namespace by its alias.
        return self.pin.maybe_keys(name if topic is None else topic.public) or {}


class Attempt:
    """A request on its way to a service, and on to the next one if that cannot be reached.

    `hops` is its `trk` as the journal knows it: with the requester's own id.
    """

    __slots__ = (
        "_answerer", "_form", "_handed_ms", "_hops", "_masked_id", "_mid", "_outgoing", "_service", "_services",
        "_timeout_s",
    )  # fmt: skip

    def __init__(
        self,
        answerer: Answerer,
        request: Pending,
        outgoing: Outgoing,
        form: Form | None,
        hops: Hops,
        services: Iterator[Service],
        timeout_s: float,
    ) -> None:
        self._answerer, self._masked_id, self._mid = answerer, request.forwarded_id, request.message_id.decode()
        self._outgoing, self._form, self._hops = outgoing, form, hops
        self._services, self._timeout_s = services, timeout_s
        self._service: Service | None = None
        self._handed_ms = 0

    def go_on(self, because: RacewayError | None) -> None:
        """To the next service; `because` says why the last one was not it."""
        service = next(self._services, None)
        if service is not None:
            self._service, self._handed_ms = service, self._now_ms()
            service.line.call(self._outgoing, self._timeout_s, self._answered)
        elif because is not None:
            told = self._named(because)
            self._respond(_failed(told), told)
        else:
            self.refuse(UnreachableError(f"every service of {self._answerer.pin.text}", "none has answered yet"))

    def refuse(self, reason: RacewayError) -> None:
        """Nobody is asked. Told later, never at once."""
        self._answerer.broker.loop.call_soon(partial(self._respond, _failed(reason), reason))

    def _answered(self, reply: Reply | RacewayError) -> None:
        assert self._service is not None
        line = self._service.line
        if type(reply) is not Reply or line.state != "up":
            line.note(reply)
        if isinstance(reply, Reply):
            self._respond(reply)
        elif isinstance(reply, UnreachableError | BusyError):
            self.go_on(reply)
        else:
            self._respond(_failed(self._named(reply)))

    def _named(self, error: RacewayError) -> RacewayError:
        """As the caller is told it: by the pin. Where its services are is for the log."""
        pin = self._answerer.pin.text
        if isinstance(error, UnreachableError):
            return UnreachableError(pin, "no service takes connections")
        if isinstance(error, ConnectionLostError):
            return ConnectionLostError(pin, "the service ended it before it answered")
        return BusyError(f"too much waits for {pin} already") if isinstance(error, BusyError) else error

    def _respond(self, reply: Reply, refusal: RacewayError | None = None) -> None:
        if not reply.rid:
            reply.rid = self._service.line.address.url if self._service is not None else self._answerer.id
        is_timed = reply.hops is not None or (reply.received_ms is not None and reply.answered_ms is not None)
        if not is_timed:
            reply.received_ms, reply.answered_ms = self._handed_ms, self._now_ms()
        hops = partial(self._filled_hops, reply)
        answer = Answer(reply, self._masked_id, hops, self._form, NOTHING if is_timed else _TIMED_BY_BUS)
        if refusal is None:
            self._answerer.respond(answer)
        else:
            self._answerer.put_down([answer], refusal)

    def _filled_hops(self, reply: Reply) -> Hops:
        """A service knows a request of another wire by its masked id; the journal by its own."""
        stamp = Stamp(reply.rid or "", reply.received_ms or 0, reply.answered_ms or 0)
        hops = filled_hops(self._hops, self._outgoing.sid, self._mid, reply, stamp)
        masked = self._outgoing.mid
        if masked == self._mid:
            return hops
        return tuple(msgspec.structs.replace(hop, mid=self._mid) if hop.mid == masked else hop for hop in hops)

    def _now_ms(self) -> int:
        return self._answerer.broker.clock_us() // 1000


def _failed(error: RacewayError) -> Reply:
    """A service that gave no answer, or none that can be read: for its caller the action failed, whatever it was."""
    if isinstance(error, BusyError | RequestTimeoutError):
        return Reply(failure=failure_of(error, {}))
    return Reply(failure=Failure(ACT_EXECUTE, f"seneca: {error}", is_seneca=True))


class Service(Answerer):
    """One attached service: a subscriber of its pin's topics, and a responder when everybody is asked."""

    def __init__(self, broker: Broker, pin: Pin, timeout_ms: int, line: ServiceLine, settings: config.Seneca) -> None:
        super().__init__(broker, pin, timeout_ms, settings.message_limit)
        self.line = line
        limits = (settings.observer_messages, settings.observer_bytes)
        self.courier = Courier(broker.loop, settings.retries_ms, limits, self._hand, self._park)

    def deliver(self, run: Run, data: bytes) -> None:
        """A message of this wire that does not match the pin is not for it, though it has the topic."""
        for row in range(run.span.start, run.span.stop):
            sent: Call | None = run.batch.item("source", row)
            if sent is None or self.pin.matches(sent.look):
                self.courier.take(run.span.topic.name, Parcel(run.batch, row, run.ids[row]))
            else:
                self.broker.meter.counts["bus.delivered"] -= 1

    def _hand(self, parcel: Parcel, tried: Tried) -> None:
        outgoing, _ = self.outgoing(parcel.batch, parcel.row, parcel.data)
        outgoing.sync = False
        if outgoing.is_larger_than(self._message_limit):
            reason = TooLargeError("the message", outgoing.data_bytes, self._message_limit)
            self.broker.loop.call_soon(partial(tried, NotTaken(str(reason), again=False)))
        else:
            self.line.tell(outgoing, self._timeout_ms / 1000, tried)

    def _park(self, parcel: Parcel, reason: str) -> None:
        self.broker.parking.park(parcel.batch, parcel.row, self.line.address.url, reason)

    def in_turn(self) -> list[Service]:
        return [self] if self.line.dialect is not None else []

    def maybe_unknown(self) -> ServiceLine | None:
        return self.line if self.line.state == "unknown" else None

    def members(self) -> Sequence[Responder]:
        return (self,)

    def close(self, reason: str) -> None:
        self.courier.give_up(reason)
        self.line.close()


class PinGroup(Answerer):
    """The responder of a pin: its services, each in turn."""

    def __init__(self, broker: Broker, pin: Pin, timeout_ms: int, message_limit: int, pins: PinTable[PinGroup]) -> None:
        super().__init__(broker, pin, timeout_ms, message_limit)
        self.name, self.description = pin.text, "Seneca services"
        self.services: list[Service] = []
        self._pins = pins
        self._turn = 0

    def spells(self, name: str) -> bool:
        """Where the names of several pins cover a topic, one of them is meant, and no other is asked."""
        return self._pins.maybe_named(name) == self.pin

    def members(self) -> Sequence[Responder]:
        """Those that are there, or all if none is known to be."""
        return self.in_turn() or self.services

    def maybe_unknown(self) -> ServiceLine | None:
        return next((service.line for service in self.services if service.line.state == "unknown"), None)

    def in_turn(self) -> list[Service]:
        """Those that are there, beginning with the next one; those that seem down if there is no other."""
        services = [service for service in self.services if service.line.dialect is not None]
        if len(services) > 1:
            self._turn += 1
            start = self._turn % len(services)
            services = services[start:] + services[:start]
            services = [service for service in services if service.line.state != "down"] or services
        return services
