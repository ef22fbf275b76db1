"""One connection: what all wires share. Output gathered per turn and bounded, flow control, an orderly end.

Output. `write` only adds to a list; the broker's turn calls `flush` once, which makes one socket write. The loop's
transport keeps what the kernel does not take. A peer that lets more than `output_bytes` wait is closed: it could not be
told what it missed, and its place in memory belongs to others.

Input. A peer whose output waits is not read from (its own answers are among what waits), nor is anybody while the
journal is behind. A peer that sends as fast as it can is held back a little while some other has half of that waiting:
one that only lost the processor for a moment then catches up, and one that reads nothing is closed all the same.
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
from raceway.errors import BusyError
from raceway.listen.gate import Gate
from raceway.model.addresses import network_of
from raceway.model.intents import PeerRow

# Where the transport says stop and go on. Small against the limit, large against a socket buffer.
HIGH_WATER, LOW_WATER = config.MIB, 256 * config.KIB
# How long what was written may still leave after a close. A peer that does not read would keep it for ever.
LINGER_S = 10.0

# A flood is held back so long after each read while a peer is crowded: 64 KiB in 2 ms is still 32 MB/s.
STALL_S = 0.002

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
        # Not below where the transport says stop: only then does it say go on.
        self._crowded_bytes = max(self._output_bytes // 2, HIGH_WATER)
        self._outbox: list[bytes] = []
        self._pauses = 0
        self._heard = gate.time()
        self._began: float | None = None
        self._counted = 0
        # Drops what was received of an unfinished message; whoever feeds the session sets it.
        self.drop_input: Callable[[], None] = _nothing
        transport.set_write_buffer_limits(HIGH_WATER, LOW_WATER)

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
        self.broker.crowded.discard(self)
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
        turn = self.broker.turn
        turn.begin_read(small=size <= SMALL_READ)
        try:
            self.take(events)
        finally:
            turn.end_read()

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
        if waiting > self._output_bytes:
            self.cut("too slow", "bus.slow_closed", waiting=waiting)
            return
        if waiting > self._crowded_bytes:
            self.broker.crowded.add(self)
        self.transport.write(outbox[0] if len(outbox) == 1 else b"".join(outbox))

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

    def relieve(self) -> None:
        """The transport has room again."""
        self.broker.crowded.discard(self)
        self.resume()

    def yield_turn(self) -> None:
        """Much was read at once: let others be read and everything be written before this peer is read again."""
        if not self.open:
            return
        self.pause()
        if self.broker.crowded:
            self.broker.loop.call_later(STALL_S, self.resume)
        else:
            self.broker.turn.call_soon(self.resume)

    def resume(self) -> None:
        self._pauses -= 1
        if self._pauses == 0 and not self.transport.is_closing():
            self.transport.resume_reading()
        if self._began is not None:
            self._began = self._gate.time()

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
        return (now - self._heard) * 1000

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
