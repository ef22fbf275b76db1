"""The Seneca wire: received documents become requests or publishes of the bus.

If the pin of an attached service matches, that service answers the call; otherwise a responder on another wire does.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from raceway import config
from raceway.broker.door import Door
from raceway.errors import NoRouteError, RacewayError
from raceway.model.envelope import SENECA, Batch
from raceway.model.intents.batches import AskAll, Asked, Publish, Request, Taken
from raceway.model.intents.kinds import Outcome
from raceway.net.connection import Connection, Gate
from raceway.net.tcp import StreamProtocol
from raceway.wires.seneca.codec.call import LEGACY, SEED, Call, batch_of, batch_of_all
from raceway.wires.seneca.codec.patterns import PinTable
from raceway.wires.seneca.dial.returns import Returns, SenecaPeer
from raceway.wires.seneca.ids import instance_id
from raceway.wires.seneca.listen.calls import CallContext, SenecaCall
from raceway.wires.seneca.listen.names import Named, Names
from raceway.wires.seneca.listen.repeats import Repeats
from raceway.wires.seneca.settings import SenecaWire

# Largest batch of calls: services can start on it while the next calls are read.
AT_ONCE = 24
# Cached `Host` values that passed the check.
KNOWN_HOSTS = 100


class SenecaSession(Connection):
    def __init__(self, gate: SenecaGate, transport: asyncio.Transport, pending: Callable[[], int]) -> None:
        super().__init__(gate, transport, pending)
        self.gate = gate
        self.peer = SenecaPeer(self.id, self.connected_us)
        self.peer.network, self.peer.last_heard = self.network, self.heard_us
        self.peer.address, self.peer.hang_up = self.address, self.hang_up

    def opened(self) -> None:
        self.gate.door.connect(self.peer)

    def closed(self) -> None:
        self.gate.door.disconnect(self.peer)

    def count_error(self) -> None:
        self.gate.door.count_error(self.peer)

    @abstractmethod
    def is_waited_for(self) -> bool:
        """Return whether answers are outstanding."""

    @abstractmethod
    def end_when_answered(self) -> None:
        """Close when all calls are answered."""

    def close(self, reason: str) -> None:
        self.stop(reason)
        self.transport.close()

    def sweep(self, now: float) -> None:
        idle_ms = self.gate.settings.idle_ms
        if self.cut_stuck(now):
            return
        if self.is_stalled(now):
            self.cut("message not completed in time", "bus.stalled_closed")
        elif idle_ms and not self.is_waited_for() and self.silence_ms(now) >= idle_ms:
            self.runtime.counts["bus.silent_closed"] += 1
            self.flush()
            self.close("idle")


class SenecaProtocol(StreamProtocol):
    """A connection over either transport."""

    _gate: SenecaGate
    _session: SenecaSession | None

    def eof_received(self) -> bool:
        """Handle a half-close (RFC 9293, 3.6.1): close when all calls are answered."""
        if self._session is None or self._session.is_tls:
            return False
        self._session.end_when_answered()
        return True


class SenecaGate(Gate[SenecaSession]):
    """All Seneca connections. `pins` are those of attached services; `returns` sends late answers to their callers."""

    wire: ClassVar[str] = SENECA.decode()

    def __init__(self, door: Door, listen: config.Listen, port: int, pins: PinTable[Any], returns: Returns) -> None:
        self.settings = settings = listen.of(SenecaWire)
        super().__init__(door.runtime, listen, settings.max_connections)
        self.door = door
        repeats = Repeats(
            settings.request_timeout_ms, settings.repeat_ids, settings.repeat_bytes, lambda: self.time() * 1000
        )
        instance = instance_id(f"{config.plain_host(listen)}:{port}", "raceway")
        self.context = CallContext(door, instance, repeats, returns)
        self._names = Names(pins)
        self._known_hosts: set[bytes | None] = {None}
        # Calls of this turn by topic and responder: pins may share a topic.
        self._asking: dict[tuple[bytes, Any], list[SenecaCall]] = {}

    def is_welcome(self, headers: dict[bytes, bytes]) -> bool:
        """Return whether an HTTP request does not come from a page of another site."""
        host, origin, site = headers.get(b"host"), headers.get(b"origin"), headers.get(b"sec-fetch-site")
        if origin is None and site is None and host in self._known_hosts:
            return True
        welcome = self.is_ours(host, origin, site)
        if welcome and len(self._known_hosts) < KNOWN_HOSTS:
            self._known_hosts.add(host)
        return welcome

    def take(self, call: SenecaCall) -> None:
        """Handle a received call; its answer or error is written to the call."""
        if self.context.repeats.is_repeat(call):
            self.runtime.counts["bus.repeated"] += 1
            return
        try:
            named = self._names.of(call.sent)
            call.pattern, call.pattern_keys = named.pattern, named.keys
            self._perform(call, named)
        except RacewayError as error:
            call.refuse(error)

    def _perform(self, call: SenecaCall, named: Named) -> None:
        sent = call.sent
        if not sent.sync:
            batch = batch_of(sent, named.topic, call.pattern)
            batch.source = [sent]
            self.door.perform(call, Publish(batch), partial(_published, call, batch), call.committed)
        elif sent.multiple:
            rows, limit = self._rows([call], named.topic), self.settings.several_limit
            intent = AskAll(rows, limit, responder=named.group, by_name=named.group is None)
            self.door.perform(call, intent, partial(_asked_all, call))
        else:
            self._gather(call, named)
            if _returns(sent):
                self.runtime.loop.call_later(self.settings.hold_ms / 1000, call.let_go)

    def _gather(self, call: SenecaCall, named: Named) -> None:
        if not self._asking:
            self.runtime.turn.gather(self._ask)
        calls = self._asking.setdefault((named.topic, named.group), [])
        calls.append(call)
        if len(calls) == AT_ONCE:
            self.runtime.turn.advance()

    def _ask(self) -> None:
        """Send the gathered calls to the broker: one batch per topic and pin."""
        asking, self._asking = self._asking, {}
        for (topic, group), calls in asking.items():
            intent = Request(self._rows(calls, topic), False, calls, group, group is None)
            self.door.perform(calls[0], intent, partial(_asked, calls))

    def _rows(self, calls: list[SenecaCall], topic: bytes) -> Batch:
        sent, patterns = [call.sent for call in calls], [call.pattern for call in calls]
        batch = batch_of_all(sent, topic, patterns, [self._timeout_ms(each) for each in sent])
        batch.source = sent
        return batch

    def _timeout_ms(self, sent: Call) -> int:
        if sent.dialect is LEGACY:
            return self.settings.legacy_timeout_ms
        if _returns(sent) and self.context.returns.allows(sent.reply_to or ""):
            return self.settings.return_timeout_ms
        limit_ms = self.settings.request_timeout_ms
        return min(sent.timeout_ms or limit_ms, limit_ms)


def _returns(sent: Call) -> bool:
    """Return whether the call names a return path."""
    return sent.reply_to is not None and sent.dialect is SEED


def _published(call: SenecaCall, batch: Batch, outcome: Outcome | RacewayError) -> None:
    batch.source = None  # no longer needed; subscribers may keep the batch
    for _, _, error in _refused(outcome, 1):
        # A topic without subscribers is no error: the message is stored.
        if not isinstance(error, NoRouteError):
            call.refuse(error)


def _asked(calls: list[SenecaCall], outcome: Outcome | RacewayError) -> None:
    for start, stop, error in _refused(outcome, len(calls)):
        for call in calls[start:stop]:
            call.refuse(error)


def _asked_all(call: SenecaCall, outcome: Outcome | RacewayError) -> None:
    if isinstance(outcome, RacewayError):
        call.refuse(outcome)
        return
    assert isinstance(outcome, Asked)
    call.expect(outcome.count)
    if _returns(call.sent):
        call.let_go()


def _refused(outcome: Outcome | RacewayError, count: int) -> tuple[tuple[int, int, RacewayError], ...]:
    """Return the refused rows of a batch of `count`, which are all of them if the outcome is an error."""
    if isinstance(outcome, RacewayError):
        return ((0, count, outcome),)
    assert isinstance(outcome, Taken)
    return outcome.refused
