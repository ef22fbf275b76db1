"""One connection: what all wires share. Output gathered per turn and bounded, flow control, an orderly end.

Output. `write` only adds to a list; the broker's turn calls `flush` once, which makes one socket write. The loop's
transport keeps what the kernel does not take. A peer that lets more than its high-water mark wait is *full*: whoever
feeds it is not read from until it has drained (`broker/credits.py`). One that takes nothing for `stall_s` is closed.

Input. A peer that is full is not read from (its own answers are among what waits), unless it left the live path; nor is
anybody while the journal is behind.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import structlog

from raceway import config
from raceway.broker.peers import Encoder, Peer
from raceway.broker.tracing import random_id
from raceway.broker.unsent import unsent
from raceway.errors import BusyError
from raceway.listen.gate import Gate
from raceway.model.addresses import network_of
from raceway.model.intents import PeerRow

# Where the transport says stop and go on. Small against the limit, large against a socket buffer.
HIGH_WATER, LOW_WATER = config.MIB, 256 * config.KIB
# How long what was written may still leave after a close. A peer that does not read would keep it for ever.
LINGER_S = 10.0

# A peer off the live path is read from although it is full, until answers have made it so many times that, and more
# than what was being read when publishers were told to wait.
HARD = 2

# One message or a few; whoever sends more at a time does not wait for each answer.
SMALL_READ = 4 * config.KIB

UNFINISHED = "too many messages are unfinished"

log = structlog.get_logger("raceway.listen")


class Session(Peer):
    """Subclasses say what bytes mean. `transport` is the loop's: writes go to it ready framed.

    `pending` tells how many bytes of an unfinished message there are.
    """

    # A wire that opens a connection for each call: then they are not worth a line of the log.
    is_brief: ClassVar[bool] = False
    # What to do with an event of the codec, by its type.
    handlers: dict[type, Callable[[Any], None]]

    def __init__(
        self, gate: Gate[Any], transport: asyncio.Transport, encoder: Encoder, pending: Callable[[], int]
    ) -> None:
        super().__init__(random_id().decode(), encoder, gate.broker.clock_us())
        self.broker = gate.broker
        self.transport = transport
        self.host, self.address = _address(transport)
        self.network = network_of(self.host)
        self.is_tls = transport.get_extra_info("sslcontext") is not None
        self._gate = gate
        self._pending = pending
        self._output_bytes = gate.listen.output_bytes
        self._least_mark = min(self._output_bytes, HIGH_WATER)
        self._outbox: list[bytes] = []
        self._is_full = self._choked = False
        self._sent = self._seen = 0
        self._moved = gate.time()
        self._pauses = 0
        self._heard = gate.time()
        self._began: float | None = None
        self._counted = 0
        # Drops what was received of an unfinished message; whoever feeds the session sets it.
        self.drop_input: Callable[[], None] = _nothing
        self._set_limits(self._least_mark)

    def start(self) -> None:
        """Call once, when the connection is ready to be written to."""
        self.broker.connect(self)
        self._log("opened")
        self._gate.sessions.add(self)
        if self._gate.paused:
            self.pause()

    def stop(self, reason: str) -> None:
        """The connection is gone. May be repeated."""
        self._gate.sessions.discard(self)
        if self.open:
            self._log("closed", reason=reason)
            if self.transport.get_write_buffer_size():
                self.broker.loop.call_later(LINGER_S, self.transport.abort)
        self.broker.disconnect(self)
        self.broker.credits.forget(self)
        self.broker.credits.leave(self)
        self._outbox.clear()
        self.drop_input()
        if self._counted:
            self.broker.unfinished.release(self)

    def _log(self, event: str, **facts: str) -> None:
        note = log.debug if self.is_brief else log.info
        note(event, wire=self.wire.decode(), peer=self.id, address=self.address, **facts)

    @abstractmethod
    def close(self, reason: str) -> None:
        """End the connection in the wire's own way, after what was written has left."""

    def read(self, events: Iterable[Any], size: int) -> None:
        """The same, when the events are all of a read of `size` bytes: then a quiet bus answers at once."""
        turn, credits = self.broker.turn, self.broker.credits
        if credits.fed:
            credits.begin()
        turn.begin_read(small=size <= SMALL_READ)
        try:
            self.take(events)
        finally:
            turn.end_read()
        if credits.fed and self.open:
            credits.settle(self)

    # ---- output ------------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not self._outbox:
            self.broker.turn.owe(self)
        self._outbox.append(data)

    def flush(self) -> None:
        outbox, self._outbox = self._outbox, []
        if not outbox or self.transport.is_closing():  # nothing more can leave then, so nothing may pile up
            return
        waiting = self.transport.get_write_buffer_size()
        if waiting > self._least_mark:
            self._note_waiting(waiting)
        data = outbox[0] if len(outbox) == 1 else b"".join(outbox)
        self._sent += len(data)
        self.transport.write(data)

    # ---- a peer that is full -----------------------------------------------------------------------------------------

    @property
    def is_fed(self) -> bool:
        """Is it given copies of publishes? Then it is full at its mark, not where the transport says stop."""
        return False

    @property
    def is_full(self) -> bool:
        return self._is_full

    def waiting(self) -> int:
        """Bytes that the peer has not taken."""
        return self.transport.get_write_buffer_size() + sum(map(len, self._outbox))

    def taken(self) -> int:
        """Bytes that have left."""
        return self._sent - self.transport.get_write_buffer_size()

    def detach(self) -> bool:
        """Nothing but copies of publishes can be had elsewhere."""
        return False

    def crowd(self) -> None:
        """The transport has more waiting than it likes."""
        if not self.is_fed:
            self._fill()

    def relieve(self) -> None:
        """The transport has room again."""
        if self._is_full:
            self._is_full = False
            self.broker.credits.drain(self)
        if self._choked:
            self._choked = False
            self.resume()

    def _note_waiting(self, waiting: int) -> None:
        mark = self._gate.output_mark()
        if not self._is_full and self.is_fed and waiting > mark:
            self._set_limits(mark)
            self._fill()
        elif self._is_full and not self._choked and waiting > HARD * mark + HIGH_WATER:
            self._choke()

    def _fill(self) -> None:
        """Whoever feeds it waits, and so does it itself: what it asks would be answered here."""
        self._is_full = True
        self.broker.credits.fill(self)
        self.broker.credits.hold(self, self)

    def _choke(self) -> None:
        """More came than publishers were to give. Off the live path it is not read from until it has drained."""
        credits = self.broker.credits
        if self not in credits.full or not credits.detach(self):
            self._choked = True
            self.pause()

    def _set_limits(self, mark: int) -> None:
        """Where the transport says stop and go on."""
        low = LOW_WATER if mark == HIGH_WATER else mark * 3 // 4
        self.transport.set_write_buffer_limits(mark, low)

    def is_stuck(self, now: float) -> bool:
        """Has it taken none of what waits for `stall_s`? One that takes something lives, although it says nothing."""
        taken = self._sent - unsent(self.transport)
        if taken != self._seen or self.idle():
            if taken != self._seen and self._is_full:
                self.hear()
            self._seen, self._moved = taken, now
        return now - self._moved > self._gate.listen.stall_s

    def cut_stuck(self, now: float) -> bool:
        """Close it if it takes nothing. Was it?"""
        if not self.is_stuck(now):
            return False
        self.cut("takes nothing", "bus.slow_closed", waiting=self.waiting())
        return True

    def cut(self, reason: str, counter: str, **facts: float) -> None:
        """End the connection at once: what waits for this peer would wait for ever."""
        self.broker.meter.counts[counter] += 1
        log.warning("closing", peer=self.id, address=self.address, reason=reason, **facts)
        self.broker.logs.emit("warn", f"connection {self.id} closed: {reason}", module="listen")
        self.stop(reason)
        self.transport.abort()

    def idle(self) -> bool:
        """Has everything left?"""
        return not self._outbox and self.transport.get_write_buffer_size() == 0

    # ---- input -------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """One more reason not to read. Each wants its own `resume`."""
        self._pauses += 1
        if self._pauses == 1 and not self.transport.is_closing():
            self.transport.pause_reading()

    def yield_turn(self) -> None:
        """Much was read at once: let others be read and everything be written before this peer is read again."""
        if not self.open:
            return
        self.pause()
        self.broker.turn.call_soon(self.resume)

    def resume(self) -> None:
        self._pauses -= 1
        if self._pauses == 0 and not self.transport.is_closing():
            self.transport.resume_reading()
        if self._began is not None:
            self._began = self._gate.time()
        if not self._pauses:  # it could not be heard
            self.hear()

    def take(self, events: Iterable[Any]) -> None:
        """Everything one read brought, in order."""
        finished = heard = False
        for event in events:
            finished = True
            if not self.open:
                return
            heard = heard or self.is_sign_of_life(event)
            self.handlers[type(event)](event)
        if heard:
            self.hear()
        if not self._pending():
            self._began = None
        elif finished or self._began is None:
            self._began = self._gate.time()
        self.note_held()

    def held(self) -> int:
        """Bytes kept of messages that are not whole."""
        return self._pending()

    def note_held(self) -> None:
        """Tell the budget that all connections share. This connection may be one that has to give way."""
        held = self.held()
        if held != self._counted and self.open:
            self._counted = held
            self.broker.unfinished.hold(self, held)

    def give_way(self) -> None:
        """All connections together hold too much of unfinished messages, and this one most of it: it ends."""
        log.warning("closing", peer=self.id, address=self.address, reason=UNFINISHED, held=self._counted)
        self.broker.logs.emit("warn", f"connection {self.id} closed: {UNFINISHED}", module="listen")
        self.broker.count_error(self)
        self.refuse_unfinished(BusyError(UNFINISHED))
        self.drop_input()

    def refuse_unfinished(self, error: BusyError) -> None:
        """End the connection. A wire that has words for it says why before."""
        self.flush()
        self.close(UNFINISHED)

    def is_sign_of_life(self, event: Any) -> bool:
        """Does this event end a silence?"""
        return True

    def row(self) -> PeerRow:
        """When it was heard is known by the monotonic clock; the wall clock is asked only when it is to be shown."""
        heard_us = self.broker.clock_us() - round((self._gate.time() - self._heard) * 1_000_000)
        self.heard_us = max(heard_us, self.connected_us)
        return super().row()

    def hear(self) -> None:
        """Silence begins anew."""
        self._heard = self._gate.time()

    @abstractmethod
    def sweep(self, now: float) -> None:
        """Look at the clock: is the peer silent, or stalled?"""

    def silence_ms(self, now: float) -> float:
        """Not while we do not read: what it says may be waiting for us."""
        return 0.0 if self._pauses else (now - self._heard) * 1000

    def is_stalled(self, now: float) -> bool:
        """Has a message been begun too long ago? Not while we do not read: its end may be waiting for us."""
        if self._began is None or self._pauses:
            return False
        listen = self._gate.listen
        return now - self._began > listen.head_s + self._pending() / listen.body_rate


def _nothing() -> None:
    """There is no input to drop."""


def _address(transport: asyncio.Transport) -> tuple[str, str]:
    """The host, and the host with its port."""
    name = transport.get_extra_info("peername")
    return (name[0], f"{name[0]}:{name[1]}") if name else ("unknown", "unknown")
