"""Connections, the part that all wires share: batched and bounded output, flow control, orderly close, limits.

Output. `write` only appends to a list; the broker's turn calls `flush` once, which makes one socket write. The loop's
transport buffers what the kernel does not accept. A peer with more buffered output than its high-water mark is *full*:
publishers that feed it are not read from until it has drained (`net/credits.py`). A peer that reads nothing
for `stall_s` is closed.

Input. A full peer is not read from, because its own answers would add to the buffer, unless it has left the live path.
While the journal is behind, no peer is read from.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic, TypeVar

import structlog

from raceway import config
from raceway.errors import BusyError
from raceway.model.addresses import network_of
from raceway.net.credits import CreditHolder
from raceway.net.ids import random_id
from raceway.net.runtime import Runtime
from raceway.net.unsent import unsent

# Limits of the transport's write buffer. Small compared with `output_bytes`, large compared with a socket buffer.
HIGH_WATER, LOW_WATER = config.MIB, 256 * config.KIB

# A peer off the live path is read from although it is full, until its answers exceed this multiple of the mark. One
# HIGH_WATER is added for reads that were under way when publishers were paused.
HARD = 2

# Long answers (lists, figures) that one connection is given in one turn: a question is short, and one read may have a
# thousand of them.
MOST_LISTED = config.MIB

# One message or a few. A client that sends more at a time is not waiting for each answer.
SMALL_READ = 4 * config.KIB

# Intents without an outcome, and the input that was read meanwhile: above either a connection is not read from until
# all outcomes have come. Messages are batches, so a hundred intents are calls, whose answers may be long.
MAX_UNANSWERED, AHEAD_BYTES = 100, 256 * config.KIB

UNFINISHED = "too many unfinished messages"

log = structlog.get_logger("raceway.listen")


class Connection(ABC):
    """A connection of any wire. Sessions of a wire handle the events of its codec and have a peer of the broker.

    `transport` is the loop's and receives framed output. `pending` returns the size of an unfinished message so far.
    """

    # True on wires whose clients open a connection per call: opening and closing is logged at debug level only.
    is_brief: ClassVar[bool] = False
    # Handlers by type of the codec's event.
    handlers: dict[type, Callable[[Any], None]]
    open = True
    # How long buffered output may still be sent after a close. A peer that does not read would keep it for ever.
    linger_s = 10.0

    def __init__(self, gate: Gate[Any], transport: asyncio.Transport, pending: Callable[[], int]) -> None:
        self.id = random_id().decode()
        self.runtime = gate.runtime
        self.connected_us = gate.runtime.clock_us()
        self.transport = transport
        self.host, self.address = _address(transport)
        self.network = network_of(self.host)
        self.is_tls = transport.get_extra_info("sslcontext") is not None
        self._gate = gate
        self._pending = pending
        self._turn, self._credits = gate.runtime.turn, gate.runtime.credits
        # The subscriber whose publishers wait while this connection is full: the peer, on wires that subscribe.
        self.holder: CreditHolder = self
        self._output_bytes = gate.listen.output_bytes
        self._least_mark = min(self._output_bytes, HIGH_WATER)
        self._outbox: list[bytes] = []
        # Full: above the mark, publishers wait for it. Choked: not read from either.
        self._is_full = self._choked = False
        # Bytes of long answers in this turn.
        self._listed = 0
        # Bytes written to the transport; bytes that had left the host, and when that last changed.
        self._sent = self._seen = 0
        self._moved = gate.time()
        # Reasons not to read, and when the peer last said something.
        self._pauses = 0
        self._heard = gate.time()
        # Intents without an outcome, the bytes read since there was none, and what to do when there is none again.
        self._unanswered = self._ahead = 0
        self._is_ahead = False
        self._then: list[Callable[[], None]] = []
        # When the unfinished message began, if there is one, and its bytes as reported to the shared budget.
        self._began: float | None = None
        self._counted = 0
        # Discards the received part of an unfinished message; set by the protocol that feeds this session.
        self.drop_input: Callable[[], None] = lambda: None
        self._set_limits(self._least_mark)

    def start(self) -> None:
        """Register with the broker and the gate. Called once, when the connection can be written to."""
        self.opened()
        self._log("connection opened")
        self._gate.sessions.add(self)
        if self._gate.paused:
            self.pause()

    def stop(self, reason: str) -> None:
        """Deregister after the connection was lost or closed. Idempotent."""
        self._gate.sessions.discard(self)
        if self.open:
            self._log("connection closed", reason=reason)
            if self.transport.get_write_buffer_size():
                self.runtime.loop.call_later(self.linger_s, self.transport.abort)
        self.open = False
        self.closed()
        self._credits.forget(self.holder)
        self._credits.leave(self)
        self._outbox.clear()
        self.drop_input()
        if self._counted:
            self.runtime.unfinished.release(self)

    @abstractmethod
    def opened(self) -> None:
        """Register the peer of this connection with the broker."""

    @abstractmethod
    def closed(self) -> None:
        """Deregister the peer. Called by every `stop`."""

    @abstractmethod
    def count_error(self) -> None:
        """Count a message that was answered with an error."""

    def _log(self, event: str, **facts: str) -> None:
        note = log.debug if self.is_brief else log.info
        note(event, wire=self._gate.wire, peer=self.id, address=self.address, **facts)

    @abstractmethod
    def close(self, reason: str) -> None:
        """Close the connection as the wire prescribes, after pending output was sent."""

    def hang_up(self, reason: str) -> None:
        """Close the connection on behalf of an administrator, after pending output was sent."""
        self.flush()
        self.close(reason)

    def read(self, events: Iterable[Any], size: int) -> None:
        """Handle the events of one socket read of `size` bytes. On an idle bus, flush immediately."""
        turn, credits = self._turn, self._credits
        # Delivering to full subscribers during this read pauses this peer at its end (`settle`).
        if credits.fed:
            credits.begin()
        turn.begin_read(small=size <= SMALL_READ)
        try:
            self.take(events)
        finally:
            turn.end_read()
        if credits.fed and self.open:
            credits.settle(self)
        if self._unanswered and self.open:
            self._note_ahead(size)

    # ---- outcomes ----------------------------------------------------------------------------------------------------

    def note_asked(self) -> None:
        """Note that the bus was given an intent. `note_answered` must follow when its outcome comes."""
        self._unanswered += 1

    def note_answered(self) -> None:
        """Note that one intent has its outcome."""
        self._unanswered -= 1
        if self._unanswered:
            return
        self._ahead = 0
        if self._then and self.open:
            then, self._then = self._then, []
            for call in then:
                call()

    def when_answered(self, call: Callable[[], None]) -> None:
        """Call back when all messages received so far have their outcomes; never if the connection ends before."""
        if self._unanswered:
            self._then.append(call)
        else:
            call()

    def _note_ahead(self, size: int) -> None:
        """Note a read that left intents without an outcome. Stop reading if there are too many."""
        self._ahead += size
        if not self._is_ahead and (self._unanswered > MAX_UNANSWERED or self._ahead > AHEAD_BYTES):
            self._is_ahead = True
            self.pause()
            self.when_answered(self._catch_up)

    def _catch_up(self) -> None:
        """Read again after this turn, when the answers are written: the peer may not take them."""
        self._is_ahead = False
        self._turn.call_soon(self.resume)

    # ---- output ------------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not self._outbox:
            self._turn.owe(self)
        self._outbox.append(data)

    def maybe_refuse_list(self) -> BusyError | None:
        """Return the refusal of one more long answer in this turn, None if it may be made."""
        return BusyError("too many long answers at a time") if self._listed > MOST_LISTED else None

    def note_listed(self, size: int) -> None:
        """Note the size of a long answer."""
        self._listed += size

    def flush(self) -> None:
        self._listed = 0
        outbox, self._outbox = self._outbox, []
        if not outbox or self.transport.is_closing():  # a closing transport drops writes: keep nothing for it
            return
        waiting = self.transport.get_write_buffer_size()
        if waiting > self._least_mark:
            self._note_waiting(waiting)
        data = outbox[0] if len(outbox) == 1 else b"".join(outbox)
        self._sent += len(data)
        self.transport.write(data)

    # ---- output flow control -----------------------------------------------------------------------------------------

    @property
    def is_fed(self) -> bool:
        """Whether the peer receives copies of publishes; then it is full at its own mark, not at the transport's."""
        return False

    @property
    def is_full(self) -> bool:
        return self._is_full

    def waiting(self) -> int:
        """Return how many bytes of output have not left this process."""
        return self.transport.get_write_buffer_size() + sum(map(len, self._outbox))

    def taken(self) -> int:
        """Return how many bytes were handed to the kernel."""
        return self._sent - self.transport.get_write_buffer_size()

    def detach(self) -> bool:
        """Leave the live path, if the peer can read its messages elsewhere. Return whether it did: False here."""
        return False

    def crowd(self) -> None:
        """Note that the transport's write buffer is above its high-water mark."""
        if not self.is_fed:
            self._fill()

    def relieve(self) -> None:
        """Note that the transport's write buffer is below its low-water mark: let publishers and this peer continue."""
        if self._is_full:
            self._is_full = False
            self._credits.drain(self.holder)
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
        """Mark this peer as full: pause its publishers, and its own input, because answers would add to the buffer."""
        self._is_full = True
        self._credits.fill(self.holder)
        self._credits.hold(self, self.holder)

    def _choke(self) -> None:
        """Detach this peer from the live path; if that is not possible, stop reading from it until it has drained."""
        credits = self._credits
        if self.holder not in credits.full or not credits.detach(self.holder):
            self._choked = True
            self.pause()

    def lower_mark(self) -> None:
        """Count as full at the transport's own mark again, after the peer has left the live path."""
        self._set_limits(self._least_mark)

    def _set_limits(self, mark: int) -> None:
        """Set the high-water mark of the transport, and the low-water mark that belongs to it."""
        low = LOW_WATER if mark == HIGH_WATER else mark * 3 // 4
        self.transport.set_write_buffer_limits(mark, low)

    def is_stuck(self, now: float) -> bool:
        """Return whether the peer has read none of its pending output for `stall_s`."""
        # Includes the kernel's buffer (TIOCOUTQ), so that single acknowledged bytes count as progress.
        taken = self._sent - unsent(self.transport)
        if taken != self._seen or self.idle():
            if taken != self._seen and self._is_full:
                # A full peer is not read from, so it cannot send heartbeats: reading our output is its sign of life.
                self.hear()
            self._seen, self._moved = taken, now
        return now - self._moved > self._gate.listen.stall_s

    def cut_stuck(self, now: float) -> bool:
        """Abort the connection if the peer reads nothing. Return whether it was aborted."""
        if not self.is_stuck(now):
            return False
        self.cut("peer does not read", "bus.slow_closed", waiting=self.waiting())
        return True

    def cut(self, reason: str, counter: str, **facts: float) -> None:
        """Abort the connection and drop its pending output, which the peer would not read. Count and log it."""
        self.runtime.counts[counter] += 1
        log.warning("connection aborted", peer=self.id, address=self.address, reason=reason, **facts)
        self.runtime.emit("warn", f"connection {self.id} closed: {reason}", module="listen")
        self.stop(reason)
        self.transport.abort()

    def idle(self) -> bool:
        """Return whether all output was handed to the kernel."""
        return not self._outbox and self.transport.get_write_buffer_size() == 0

    # ---- input -------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop reading. Calls are counted: each needs its own `resume`."""
        self._pauses += 1
        if self._pauses == 1 and not self.transport.is_closing():
            self.transport.pause_reading()

    def yield_turn(self) -> None:
        """Pause this peer for one turn of the loop, so that others are read and all output is written first."""
        if not self.open:
            return
        self.pause()
        self._turn.call_soon(self.resume)

    def resume(self) -> None:
        self._pauses -= 1
        if self._pauses == 0 and not self.transport.is_closing():
            self.transport.resume_reading()
        # The time in which we did not read counts neither as a stalled message nor as silence.
        if self._began is not None:
            self._began = self._gate.time()
        if not self._pauses:
            self.hear()

    def take(self, events: Iterable[Any]) -> None:
        """Handle events of the codec in order, and update the state of an unfinished message."""
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
        """Return how many bytes of unfinished messages are buffered."""
        return self._pending()

    def note_held(self) -> None:
        """Report buffered input to the budget that all connections share. May close connections, this one included."""
        held = self.held()
        if held != self._counted and self.open:
            self._counted = held
            self.runtime.unfinished.hold(self, held)

    def give_way(self) -> None:
        """Refuse the unfinished message and close: the input budget is exceeded and this connection holds most."""
        log.warning("input budget exceeded", peer=self.id, address=self.address, reason=UNFINISHED, held=self._counted)
        self.runtime.emit("warn", f"connection {self.id} closed: {UNFINISHED}", module="listen")
        self.count_error()
        self.refuse_unfinished(BusyError(UNFINISHED))
        self.drop_input()

    def refuse_unfinished(self, error: BusyError) -> None:
        """Close the connection. Wires that can report an error do so first."""
        self.flush()
        self.close(UNFINISHED)

    def is_sign_of_life(self, event: Any) -> bool:
        """Return whether this event resets the idle timer."""
        return True

    def heard_us(self) -> int:
        """Return the wall-clock time of the last message, in microseconds."""
        # `_heard` is monotonic time; converted only here, not on every read.
        heard_us = self.runtime.clock_us() - round((self._gate.time() - self._heard) * 1_000_000)
        return max(heard_us, self.connected_us)

    def hear(self) -> None:
        """Reset the idle timer."""
        self._heard = self._gate.time()

    @abstractmethod
    def sweep(self, now: float) -> None:
        """Check idle and stall limits; called periodically by the gate."""

    def silence_ms(self, now: float) -> float:
        """Return milliseconds since the last message; 0 while input is paused, because messages may be waiting."""
        return 0.0 if self._pauses else (now - self._heard) * 1000

    def is_stalled(self, now: float) -> bool:
        """Return whether the rest of a message is overdue. False while input is paused, because it may be waiting."""
        if self._began is None or self._pauses:
            return False
        listen = self._gate.listen
        # A minimum rate besides a fixed time: large messages over slow links are legitimate, one byte a minute is not.
        return now - self._began > listen.head_s + self._pending() / listen.body_rate


S = TypeVar("S", bound=Connection)


class Gate(Generic[S]):
    """The open connections of one wire. `max_connections` of 0 means no limit."""

    # Name of the wire, for the log.
    wire: ClassVar[str] = ""

    def __init__(self, runtime: Runtime, listen: config.Listen, max_connections: int = 0) -> None:
        self.runtime = runtime
        self.listen = listen
        self.time = runtime.loop.time
        self._max_connections = max_connections
        self.sessions: set[S] = set()
        self.paused = False

    def has_room(self) -> bool:
        """Return whether one more connection is allowed. A rejected one is counted."""
        if self._max_connections and len(self.sessions) >= self._max_connections:
            self.runtime.counts["connection.rejected"] += 1
            return False
        return True

    def is_ours(self, host: bytes | None, origin: bytes | None, fetch_site: bytes | None) -> bool:
        """Return whether a request may come from here: False for pages of other sites and for foreign host names.

        Protects against cross-site requests and DNS rebinding. Programs that are not browsers send neither header.
        """
        # RFC 9110, 7.2: Host names the server the client wanted. A rebound DNS name shows up here as a foreign host.
        hosts = (self.listen.host, *self.listen.hosts)
        addresses = [f"//{host.decode('latin-1')}"] if host is not None else []
        # RFC 6454, 7: a browser names the site of the page that makes the request.
        addresses += [origin.decode("latin-1")] if origin is not None else []
        return fetch_site != b"cross-site" and all(config.names_us(address, hosts) for address in addresses)

    def pause(self, paused: bool) -> None:
        """Stop or restart reading from all sessions. The journal asks for it when its write queue is long."""
        self.paused = paused
        for session in list(self.sessions):
            if paused:
                session.pause()
            else:
                # A peer that could not be read from must not be closed as idle.
                session.hear()
                session.resume()

    def output_mark(self) -> int:
        """Return the output limit of one connection: its share of the limit for all, at least 1 MiB."""
        # Divided evenly, so that many slow connections together stay within the limit.
        share = self.listen.output_total_bytes // max(1, len(self.sessions))
        return min(self.listen.output_bytes, max(share, config.MIB))

    def drain(self) -> None:
        """Announce the shutdown to peers, on wires that have a message for it. A no-op here."""

    def sweep(self) -> None:
        """Call `sweep` of every session: close idle and stalled peers, send heartbeats."""
        if self.paused:  # input is paused, so silence is not the peers' fault
            return
        now = self.time()
        for session in list(self.sessions):
            session.sweep(now)


def _address(transport: asyncio.Transport) -> tuple[str, str]:
    """Return the peer's host, and its host with port."""
    name = transport.get_extra_info("peername")
    return (name[0], f"{name[0]}:{name[1]}") if name else ("unknown", "unknown")
