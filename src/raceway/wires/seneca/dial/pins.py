"""Pins and their services as the broker sees them: responders of requests, observers of publishes.

A request goes to one service of the pin, in rotation; one that is down is skipped, and if one turns out to be
unreachable before anything was sent, the next is tried. A publish goes to every service of the pin, each in topic
order.

Calls of this wire reach only the pin that Seneca's router chose, and publishes of this wire the pins they match. Both
are forwarded as sent. Messages of other wires arrive by the pin's topic name, and are given the keys that a message to
this pin has.

The bus forwards ids and custom data and adds no hop of its own. Where a service writes no times the bus fills in the
responder and its own times, and marks the row `seneca.times: bus`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar

import msgspec

from raceway import errors
from raceway.broker.door import Door
from raceway.broker.peers import Peer, Pending, Responder
from raceway.broker.runs import Run
from raceway.errors import BusyError, RacewayError, UnreachableError
from raceway.model.document import read_members
from raceway.model.envelope import REQUEST, SENECA, Batch, Hop
from raceway.model.intents.batches import Park, Respond
from raceway.net.ids import random_id
from raceway.net.outgoing.courier import Courier, NotTaken, Parcel, Tried
from raceway.wires.seneca.codec.answer import Stamp
from raceway.wires.seneca.codec.call import Call
from raceway.wires.seneca.codec.failure import ACT_EXECUTE, CallFailure, failure_of
from raceway.wires.seneca.codec.outgoing import ListenerReply, Outgoing, filled_hops
from raceway.wires.seneca.codec.patterns import Pattern, Pin, PinTable
from raceway.wires.seneca.codec.rows import NOTHING, PayloadForm, ReplyRow, answer_batch, outgoing_of
from raceway.wires.seneca.codec.text import text_of
from raceway.wires.seneca.codec.trk import Hops, started
from raceway.wires.seneca.dial.service import ServiceLine
from raceway.wires.seneca.settings import SenecaDial

# Responses handed on in one batch at most, so that their callers can go on while more are read.
AT_ONCE = 24
# How much longer than the caller a service is waited for: a late response is still recorded.
GRACE_MS = 1000
_TIMED_BY_BUS = {"seneca.times": "bus"}


def random_text() -> str:
    """Return a random id as text."""
    return random_id().decode()


class Answerer(Peer):
    """A responder behind a pin. `services` are those it asks."""

    services: list[AttachedService]

    wire: ClassVar[bytes] = SENECA
    reads_source: ClassVar[bool] = True
    by_content: ClassVar[bool] = True

    def __init__(self, door: Door, pin: Pin, timeout_ms: int, message_limit: int) -> None:
        super().__init__(random_id().decode(), door.runtime.clock_us())
        self.runtime, self.pin = door.runtime, pin
        self._door = door
        self._timeout_ms, self._message_limit = timeout_ms, message_limit
        self._answers: list[ReplyRow] = []
        self._turn = 0

    def respond(self, answer: ReplyRow) -> None:
        """Queue a response; those of one turn become one batch."""
        if not self._answers:
            self.runtime.turn.gather(self._respond)
        self._answers.append(answer)
        if len(self._answers) == AT_ONCE:
            self.runtime.turn.advance()

    def _respond(self) -> None:
        """Hand on the queued responses."""
        answers, self._answers = self._answers, []
        self.put_down(answers)

    def put_down(self, answers: list[ReplyRow], refusal: RacewayError | None = None) -> None:
        """Store responses. `refusal` is the reason no service was asked, if none was."""
        # If they cannot be stored, the broker tells the requesters.
        self._door.perform(self, Respond(answer_batch(answers), refusal))

    def in_turn(self) -> list[AttachedService]:
        """Return the services with a known dialect, beginning with the next in rotation; those that are down only if no
        other is left."""
        services = [service for service in self.services if service.line.dialect is not None]
        if len(services) > 1:
            self._turn += 1
            start = self._turn % len(services)
            services = services[start:] + services[:start]
            services = [service for service in services if service.line.state != "down"] or services
        return services

    def forward(self, request: Pending, batch: Batch, row: int) -> None:
        """Forward a request to a service. Just after a start it waits for the first probe of a service."""
        services = self.in_turn()
        unknown = (
            None if services else next((each.line for each in self.services if each.line.state == "unknown"), None)
        )
        if unknown is not None:
            unknown.after_look(lambda: self._ask(request, batch, row, self.in_turn()))
        else:
            self._ask(request, batch, row, services)

    def _ask(self, request: Pending, batch: Batch, row: int, services: list[AttachedService]) -> None:
        """Forward a request to the first of `services` that can be reached."""
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
                # The journal's `trk` uses the sender's own id; the service only sees the masked one.
                hops = (Hop(request.sid, "", request.message_id.decode(), (request.accepted_us // 1000,)),)
        attempt = Attempt(self, request, outgoing, form, hops, iter(services), timeout_ms / 1000)
        if outgoing.is_larger_than(self._message_limit):
            what = f"a message to {self.pin.text}"
            attempt.refuse(errors.TooLargeError(what, outgoing.data_bytes, self._message_limit))
        else:
            attempt.go_on(None)

    def _maybe_same(self, sent: Call | None) -> Outgoing | None:
        """Return a call of this wire without decoding its row; None if there is none."""
        if sent is None:
            return None
        sent_ms = self.runtime.clock_us() // 1000 if sent.sent_ms is None else sent.sent_ms
        return Outgoing(
            sent.mid, sent.cid, sent.sid, sent.members, True, sent.custom, sent.hops, sent_ms,
            sent.pattern or self.pin.text, vin=sent.vin, unknown=sent.unknown, parents=sent.parents,
            document_bytes=sent.came_bytes,
        )  # fmt: skip

    def outgoing(self, batch: Batch, row: int, masked_id: bytes) -> tuple[Outgoing, PayloadForm]:
        """Build the request from a row. A message of another wire gets its masked id: the sender's own is internal to
        the bus."""
        keys: Pattern = {}
        if not self._is_matched_by(batch, row):
            # It came by topic name, and is given the members that make it match the pin.
            keys = self.pin.maybe_keys(self._door.view.public_name(batch.item("topic", row).decode())) or {}
        outgoing, form = outgoing_of(batch, row, keys, random_text, self.runtime.clock_us() // 1000, self.pin.text)
        if batch.item("wire", row) != SENECA:
            outgoing.mid = masked_id.decode()
            outgoing.hops = started((), outgoing.sid, outgoing.mid, outgoing.sent_ms)
        return outgoing, form

    def _is_matched_by(self, batch: Batch, row: int) -> bool:
        """Report whether a row matches the pin by its content."""
        if batch.item("wire", row) != SENECA:
            return False
        # The router has chosen this pin by content.
        if batch.item("kind", row) == REQUEST:
            return True
        # A publish may have come by topic name: the bus republishes dead letters so.
        members = read_members(batch.item("payload", row))
        return self.pin.matches(lambda key: text_of(members, key))


class Attempt:
    """A request being forwarded to a service, or to the next one if that cannot be reached.

    `hops` is its `trk` as the journal stores it: with the requester's own id.
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
        form: PayloadForm | None,
        hops: Hops,
        services: Iterator[AttachedService],
        timeout_s: float,
    ) -> None:
        self._answerer, self._masked_id, self._mid = answerer, request.forwarded_id, request.message_id.decode()
        self._outgoing, self._form, self._hops = outgoing, form, hops
        self._services, self._timeout_s = services, timeout_s
        self._service: AttachedService | None = None
        self._handed_ms = 0

    def go_on(self, because: RacewayError | None) -> None:
        """Try the next service; `because` is why the last one failed."""
        service = next(self._services, None)
        if service is not None:
            self._service, self._handed_ms = service, self._now_ms()
            service.line.call(self._outgoing, self._timeout_s, self._answered)
        elif because is not None:
            told = self._named(because)
            self._respond(_failed(told), told)
        else:
            self.refuse(UnreachableError(self._answerer.pin.text, "no service has been reached yet"))

    def refuse(self, reason: RacewayError) -> None:
        """Fail without asking a service; reported later, never synchronously."""
        self._answerer.runtime.loop.call_soon(partial(self._respond, _failed(reason), reason))

    def _answered(self, reply: ListenerReply | RacewayError) -> None:
        """Handle a service's reply or failure."""
        assert self._service is not None
        line = self._service.line
        # Fast path: a reply from a service that is up changes nothing.
        if type(reply) is not ListenerReply or line.state != "up":
            line.note(reply)
        if isinstance(reply, ListenerReply):
            self._respond(reply)
        # Nothing was sent, so another service may be asked without running the action twice.
        elif isinstance(reply, UnreachableError | BusyError):
            self.go_on(reply)
        else:
            self._respond(_failed(self._named(reply)))

    def _named(self, error: RacewayError) -> RacewayError:
        """Rephrase an error for the caller: with the pin's name, since the addresses of services are for the log
        only."""
        pin = self._answerer.pin.text
        if isinstance(error, UnreachableError):
            return UnreachableError(pin, "no service accepts connections")
        if isinstance(error, errors.ConnectionLostError):
            return errors.ConnectionLostError(pin, "closed by the service before it responded")
        return BusyError(f"too many calls are queued for {pin}") if isinstance(error, BusyError) else error

    def _respond(self, reply: ListenerReply, refusal: RacewayError | None = None) -> None:
        """Hand on a reply, with responder and times filled in where it has none."""
        if not reply.rid:
            reply.rid = self._service.line.address.url if self._service is not None else self._answerer.id
        is_timed = reply.hops is not None or (reply.received_ms is not None and reply.answered_ms is not None)
        if not is_timed:
            reply.received_ms, reply.answered_ms = self._handed_ms, self._now_ms()
        hops = partial(self._filled_hops, reply)
        answer = ReplyRow(reply, self._masked_id, hops, self._form, NOTHING if is_timed else _TIMED_BY_BUS)
        if refusal is None:
            self._answerer.respond(answer)
        else:
            self._answerer.put_down([answer], refusal)

    def _filled_hops(self, reply: ListenerReply) -> Hops:
        """Return the hops for the journal: with the requester's own id instead of the masked one."""
        stamp = Stamp(reply.rid or "", reply.received_ms or 0, reply.answered_ms or 0)
        hops = filled_hops(self._hops, self._outgoing.sid, self._mid, reply, stamp)
        masked = self._outgoing.mid
        if masked == self._mid:
            return hops
        return tuple(msgspec.structs.replace(hop, mid=self._mid) if hop.mid == masked else hop for hop in hops)

    def _now_ms(self) -> int:
        """Milliseconds of the bus's clock."""
        return self._answerer.runtime.clock_us() // 1000


def _failed(error: RacewayError) -> ListenerReply:
    """Build the reply for a service that gave none, or none that can be read."""
    # These have codes of their own on this wire; for any other the caller sees a failed action.
    if isinstance(error, BusyError | errors.RequestTimeoutError):
        return ListenerReply(failure=failure_of(error, {}))
    return ListenerReply(failure=CallFailure(ACT_EXECUTE, f"seneca: {error}", is_seneca=True))


class AttachedService(Answerer):
    """An attached service: an observer of its pin's topics, and a responder if all services are asked."""

    def __init__(self, door: Door, pin: Pin, timeout_ms: int, line: ServiceLine, settings: SenecaDial) -> None:
        super().__init__(door, pin, timeout_ms, settings.message_limit)
        self.line, self.services = line, [self]
        limits = (settings.observer_messages, settings.observer_bytes)
        self.courier = Courier(self.runtime.loop, settings.retries_ms, limits, self._hand, self._park)

    def deliver(self, run: Run, data: bytes) -> None:
        """Queue a run for delivery, without messages of this wire that do not match the pin."""
        for row in range(run.span.start, run.span.stop):
            sent: Call | None = run.batch.item("source", row)
            if sent is None or self.pin.matches(sent.look):
                self.courier.take(run.span.topic.name, Parcel(run.batch, row, run.ids[row]))
            else:
                self.runtime.counts["bus.delivered"] -= 1

    def _hand(self, parcel: Parcel, tried: Tried) -> None:
        """Send a publish once."""
        outgoing, _ = self.outgoing(parcel.batch, parcel.row, parcel.data)
        outgoing.sync = False
        if outgoing.is_larger_than(self._message_limit):
            reason = errors.TooLargeError("the message", outgoing.data_bytes, self._message_limit)
            self.runtime.loop.call_soon(partial(tried, NotTaken(str(reason), again=False)))
        else:
            self.line.tell(outgoing, self._timeout_ms / 1000, tried)

    def _park(self, parcel: Parcel, reason: str) -> None:
        """Park a message that was not accepted."""
        self._door.perform(self, Park(parcel.batch, parcel.row, self.line.address.url, reason))

    def close(self, reason: str) -> None:
        """Park what waits and close the connections."""
        self.courier.give_up(reason)
        self.line.close()


class PinGroup(Answerer):
    """The responder of a pin: its services, in rotation."""

    def __init__(self, door: Door, pin: Pin, timeout_ms: int, message_limit: int, pins: PinTable[PinGroup]) -> None:
        super().__init__(door, pin, timeout_ms, message_limit)
        self.name, self.description = pin.text, "Seneca services"
        self.services = []
        self._pins = pins

    def spells(self, name: str) -> bool:
        """Report whether a topic name means this pin. Of several pins that cover the name exactly one does."""
        return self._pins.maybe_named(name) == self.pin

    def members(self) -> Sequence[Responder]:
        """Return the services that can be asked, or all if none is known to be up."""
        return self.in_turn() or self.services
