"""The Seneca wire's gate: a received document becomes a request or a publish of the bus.

Attached pins are looked at first, by the rule of Seneca's own router; the pin that wins says under which topic the
message goes. Without one the topic is made of the keys that commonly name an action. Whoever answers that topic, on any
wire, answers the call.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from typing import Any, ClassVar

from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.peers import Pending
from raceway.codec.seneca import Dialect, batch_of
from raceway.errors import NoRouteError, RacewayError
from raceway.listen.gate import Gate
from raceway.listen.seneca_calls import ReturnPath, SenecaCall, no_copies
from raceway.listen.seneca_repeats import Repeats
from raceway.listen.session import Session
from raceway.model.envelope import SENECA, Batch
from raceway.model.intents import AskAll, Asked, Outcome, Publish, Request, Taken
from raceway.model.patterns import KEY_ORDER, PinTable, canonical_text, is_internal, maybe_topic

ID_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
ID_LENGTH = 12


def fresh_id() -> str:
    """As Seneca's own: twelve letters and digits."""
    number = secrets.randbits(63)  # 36 ** 12 is a little over 2 ** 62
    letters = []
    for _ in range(ID_LENGTH):
        number, letter = divmod(number, len(ID_LETTERS))
        letters.append(ID_LETTERS[letter])
    return "".join(letters)


def instance_id(address: str) -> str:
    """Who we are in hops: random letters, start in milliseconds, address, process, tag."""
    return f"{fresh_id()}/{time.time_ns() // 1_000_000}/{address}/{os.getpid()}/raceway"


class NoReturns:
    """The return path of a bus that connects to nobody."""

    def allows(self, urn: str) -> bool:
        return False

    def send(self, urn: str, document: bytes, call_id: str) -> None:
        raise AssertionError("nothing is allowed")


class SenecaSession(Session):
    """One connection. Calls ask; it only carries them, and their answers."""

    wire: ClassVar[bytes] = SENECA
    in_flight: int

    def __init__(self, gate: SenecaGate, transport: asyncio.Transport, pending: Callable[[], int]) -> None:
        super().__init__(gate, transport, no_copies, pending)
        self.gate = gate

    def close(self, reason: str) -> None:
        self.stop(reason)
        self.transport.close()

    def sweep(self, now: float) -> None:
        idle_ms = self.gate.settings.idle_ms
        if self.is_stalled(now):
            self.cut("unfinished message", "bus.stalled_closed")
        elif idle_ms and not self.in_flight and self.silence_ms(now) >= idle_ms:
            self.broker.meter.counts["bus.silent_closed"] += 1
            self.flush()
            self.close("silent")

    def answer(self, request: Pending, batch: Batch, row: int) -> None:
        raise AssertionError("it asks nothing")

    def fail(self, request: Pending, error: RacewayError) -> None:
        raise AssertionError("it asks nothing")


class SenecaGate(Gate[SenecaSession]):
    """All Seneca connections. `pins` are those of attached services; `returns` brings late answers to their callers."""

    def __init__(
        self,
        broker: Broker,
        listen: config.Listen,
        loop: asyncio.AbstractEventLoop,
        port: int,
        pins: PinTable[Any],
        returns: ReturnPath,
    ) -> None:
        super().__init__(broker, listen, loop.time)
        self.settings = settings = listen.seneca
        self.instance = instance_id(f"{config.plain_host(listen)}:{port}")
        self.returns = returns
        self.repeats = Repeats(
            settings.request_timeout_ms, settings.repeat_ids, settings.repeat_bytes, lambda: loop.time() * 1000
        )
        self._pins = pins
        self._call_later = loop.call_later

    def now_ms(self) -> int:
        return self.broker.clock_us() // 1000

    def count_error(self, call: SenecaCall) -> None:
        self.broker.count_error(call)

    def take(self, call: SenecaCall) -> None:
        """A call has come in. It will be told what became of it."""
        if self.repeats.is_repeat(call):
            self.broker.meter.counts["bus.repeated"] += 1
            return
        try:
            self._perform(call, self._name(call).encode())
        except RacewayError as error:
            call.refuse(error)

    def _name(self, call: SenecaCall) -> str:
        """The topic of its document. Raises NoRouteError if nothing names one, and the errors of names."""
        sent = call.sent
        if is_internal(sent.look):
            raise NoRouteError("")
        found = self._pins.maybe_find(sent.look)
        if found is not None:
            call.pattern, call.pattern_keys = found[0].text, found[0].pattern.keys()
            return found[0].topic_for(sent.look)
        topic = maybe_topic(sent.text)
        if topic is None:
            raise NoRouteError("")
        named = {key: text for key in KEY_ORDER if (text := sent.text(key)) is not None}
        call.pattern, call.pattern_keys = canonical_text(named), named.keys()
        return topic

    def _perform(self, call: SenecaCall, topic: bytes) -> None:
        sent, broker = call.sent, self.broker
        batch = batch_of(sent, topic)
        if not sent.sync:
            # A topic that nobody listens on just now is no fault: the message is kept.
            _check(broker.perform(call, Publish(batch), call.committed), NoRouteError)
            return
        returns = sent.dialect is Dialect.SEED and sent.reply_to is not None
        batch.timeout_ms = self._timeout_ms(call, returns)
        if sent.multiple:
            call.is_returning = returns and call.may_return()
            asked = broker.perform(call, AskAll(batch, self.settings.several_limit))
            assert isinstance(asked, Asked)
            call.expect(asked.count)
            if call.is_returning:
                call.accept()
            return
        _check(broker.perform(call, Request(batch)))
        if returns:
            self._call_later(self.settings.hold_ms / 1000, call.let_go)

    def _timeout_ms(self, call: SenecaCall, returns: bool) -> int:
        if call.sent.dialect is Dialect.LEGACY:
            return self.settings.legacy_timeout_ms
        if returns and self.returns.allows(call.sent.reply_to or ""):
            return self.settings.return_timeout_ms
        return self.settings.request_timeout_ms


def _check(outcome: Outcome, but: type[RacewayError] | None = None) -> None:
    """Raises why the one message of a batch was refused."""
    assert isinstance(outcome, Taken)
    for _, _, error in outcome.refused:
        if but is None or not isinstance(error, but):
            raise error
