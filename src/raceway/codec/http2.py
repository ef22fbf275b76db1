"""HTTP/2, the server's side (RFC 9113): bytes in, requests out; answers in, bytes out. No socket, no clock.

Most requests of gRPC are two frames: HEADERS, then DATA that ends the stream. Such a stream is never more than an entry
in a table: first its head, then None while it waits for its answer. Whatever else happens to a stream (its body comes
in parts, the peer changes its window, its answer does not fit) makes it a `Stream`. What is not in the table is idle if
its number is higher than any seen, closed otherwise.

Limits. A peer may open `max_streams`; more are refused. Frames that cost us something and bring us nothing (resets,
pings, settings, empty frames) are paid from a budget that `relax` refills; when it is spent the connection ends.
Streams that are given up soon after they were opened cost most: `may_reset` is asked for each, and may count them over
all connections of an address. One call of `receive_data` deals with so many unusual frames and leaves the rest for the
next (`halted`), so that others get their turn.
A stream's receive window is small; `grant` widens it, when whoever takes the body knows how much it wants to keep.
The connection's window is topped up as bytes are read: whoever wants the peer to stop stops reading.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from raceway.codec import http2_frames as h2
from raceway.codec.http2_frames import (
    FRAME,
    FRAME_HEAD,
    PREFACE,
    BrokenConnectionError,
    BrokenStreamError,
    frame,
    unpadded,
)
from raceway.codec.http2_heads import Head, HeadReader, fault_of_trailers
from raceway.codec.http2_output import QUANTUM, Output
from raceway.codec.http2_streams import GONE, Stream, StreamTable

# (stream, head, body, ended): the head when the request is first heard of; a body of None says that the peer, or a
# fault of its own, has ended the stream.
Event = tuple[int, Head | None, bytes | None, bool]

# Numbers that a peer has left out, as ranges. Clients count by two, so there are none.
REMEMBERED_GAPS = 100
# Settings in one frame. There are six, and a few more in extensions.
MOST_SETTINGS = 64
# Unusual frames that are dealt with in one go: at up to 100 µs each others wait for some 25 ms.
UNUSUAL_FRAMES = 256
# What one SETTINGS frame costs of the budget: it may move every window.
SETTINGS_COST = 10


class Http2Limits(msgspec.Struct, frozen=True):
    max_streams: int = 10_000
    header_bytes: int = 16_384
    flood_burst: int = 10_000
    # A call of usual size needs no window update; a larger one asks for it when its size is known.
    stream_window: int = 65_535
    connection_window: int = 16 * 1024 * 1024
    frame_bytes: int = 16_384  # the least that may be asked for; not more than a stream's window


class Http2Connection:
    """One connection. `write` takes what is to be sent; `admit` is shown each new head once.

    After `fault` is set everything received is disregarded: flush, and close.
    """

    def __init__(self, limits: Http2Limits, write: Callable[[bytes], None], admit: Callable[[Head], None]) -> None:
        self._limits = limits
        self._write = write
        self._heads = HeadReader(limits.header_bytes, admit)
        self.streams = StreamTable(limits.stream_window)
        self.out = Output(self.streams, write)
        self._events: list[Event] = []
        self.fault: BrokenConnectionError | None = None
        self.may_reset: Callable[[], bool] = _always
        self.halted = False  # did the last read bring more than is dealt with at once? Then call again, with nothing
        self.moves = False  # has the last read brought a whole frame, or a whole head?
        # Receiving.
        self._rest: list[bytes] = []  # of a frame that has not come whole
        self.pending = 0  # its bytes, and those of an unfinished header block
        self._missing = 1  # how many bytes make it worth looking again
        self._stage = self._greet
        self._block: list[bytes] | None = None  # of an unfinished header block
        self._block_of = self._block_flags = self._block_size = 0
        self._last = -1
        self._most = limits.max_streams
        self._received = 0  # not yet given back to the peer's window
        self._budget = limits.flood_burst
        self._gaps: list[tuple[int, int]] = []
        self._kinds: tuple[Callable[[int, int, bytes], None], ...] = (
            self._data, self._headers, self._priority, self._reset, self._settings, self._push_promise, self._ping,
            self._go_away, self._window_update, self._continuation,
        )  # fmt: skip

    def start(self) -> None:
        """Our settings; they are sent without waiting for the peer's."""
        limits = self._limits
        self._write(
            h2.settings((
                (h2.MAX_CONCURRENT_STREAMS, limits.max_streams), (h2.INITIAL_WINDOW_SIZE, limits.stream_window),
                (h2.MAX_FRAME_SIZE, limits.frame_bytes), (h2.MAX_HEADER_LIST_SIZE, limits.header_bytes),
            ))
            + h2.window_update(0, limits.connection_window - h2.DEFAULT_WINDOW)
        )  # fmt: skip

    # ---- receiving ---------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> list[Event]:
        """What these bytes complete. Never raises: a broken connection has a `fault`."""
        self.moves = self.halted = False
        if self.fault is not None:
            return []
        data = self._joined(data)
        if not data:
            return []
        self._events = events = list[Event]()
        at = 0
        try:
            at = self._stage(data, 0)
            self.moves = at > 0 and self._block is None
            self._top_up()
        except BrokenConnectionError as fault:
            self._fail(fault)
        self._keep(data[at:] if at else data)
        return events

    def _joined(self, data: bytes) -> bytes:
        """These bytes with what was kept; nothing while too little is there to go on.

        A frame that comes byte by byte is joined once, not once for each byte.
        """
        if not self._rest:
            return data
        self._rest.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            self.pending += len(data)
            return b""
        data = b"".join(self._rest)
        self._rest.clear()
        return data

    def _keep(self, rest: bytes) -> None:
        if self.fault is not None:
            self._block, rest = None, b""
        if rest:
            self._rest.append(rest)
        self.pending = len(rest) + (self._block_size if self._block is not None else 0)
        if self._stage == self._frames and len(rest) >= FRAME_HEAD:
            self._missing = FRAME_HEAD + (FRAME.unpack_from(rest)[0] >> 8) - len(rest)
        else:
            self._missing = 1
        if self.halted:
            self._missing = 0
            self.halted = bool(rest)

    def drop_input(self) -> None:
        """Keep nothing of a frame or head that has not come whole: nothing more is received."""
        self._rest.clear()
        self._block = None
        self.pending = 0

    def _greet(self, data: bytes, at: int) -> int:
        if not data.startswith(PREFACE):
            if PREFACE.startswith(data):
                return 0
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "this is no HTTP/2")
        self._stage = self._first_frame
        return self._first_frame(data, len(PREFACE))

    def _first_frame(self, data: bytes, at: int) -> int:
        """The preface ends with settings."""
        if len(data) - at >= FRAME_HEAD:
            word, flags, _ = FRAME.unpack_from(data, at)
            if word & 255 != h2.SETTINGS or flags & h2.ACK:
                raise BrokenConnectionError(h2.PROTOCOL_ERROR, "settings come first")
            self._stage = self._frames
            return self._frames(data, at)
        return at

    def _frames(self, data: bytes, at: int) -> int:
        """All whole frames from `at` on; returns where the rest begins. The two usual kinds are dealt with here."""
        unpack, streams, known, events = FRAME.unpack_from, self.streams, self._heads.known, self._events
        size, largest, unusual = len(data), self._limits.frame_bytes, 0
        while size - at >= FRAME_HEAD:
            word, flags, stream = unpack(data, at)
            length = word >> 8
            start = at + FRAME_HEAD
            end = start + length
            if length > largest:
                raise BrokenConnectionError(h2.FRAME_SIZE_ERROR, "frame too large")
            if end > size:
                break
            at = end
            kind = word & 255
            if self._block is None:
                if kind == h2.DATA and flags == h2.END_STREAM:
                    head = streams.get(stream)
                    if type(head) is Head and (head.length < 0 or head.length == length):
                        streams[stream] = None
                        self._received += length
                        events.append((stream, head, data[start:end], True))
                        continue
                elif kind == h2.HEADERS and flags == h2.END_HEADERS and stream == self._last + 2:
                    head = known.get(data[start:end])
                    if head is not None and head.whole and len(streams) < self._most:
                        streams[stream] = head
                        self._last = stream
                        continue
            self._frame(kind, flags, stream & h2.LARGEST_STREAM, data[start:end])
            unusual += 1
            if unusual == UNUSUAL_FRAMES:
                self.halted = True
                break
        return at

    def _frame(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if self._block is not None and (kind != h2.CONTINUATION or stream != self._block_of):
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "a header block is interrupted")
        if kind >= len(self._kinds):  # frames of extensions we do not know are ignored
            self._charge(1, "unknown frames")
            return
        try:
            self._kinds[kind](flags, stream, body)
        except BrokenStreamError as fault:
            self._charge(1, "faulty streams")
            if fault.error != h2.REFUSED_STREAM:  # of those a client may have sent many before it knew our limit
                self._charge_reset()
            self.out.reset(fault.stream, fault.error)
            self._events.append((fault.stream, None, None, True))

    def _top_up(self) -> None:
        """Give back to the connection's window what was read, a quarter at a time."""
        window = self._limits.connection_window
        if self._received > window:
            raise BrokenConnectionError(h2.FLOW_CONTROL_ERROR, "more than the connection's window")
        if self._received > window // 4:
            self._write(h2.window_update(0, self._received))
            self._received = 0

    def _fail(self, fault: BrokenConnectionError) -> None:
        self.fault = fault
        self._write(h2.go_away(self._last, fault.error, fault.reason))
        for stream in list(self.streams):
            self.out.forget(stream)

    def _charge(self, cost: int, what: str) -> None:
        self._budget -= cost
        if self._budget < 0:
            raise BrokenConnectionError(h2.ENHANCE_YOUR_CALM, f"too many {what}")

    def _charge_reset(self) -> None:
        if not self.may_reset():
            raise BrokenConnectionError(h2.ENHANCE_YOUR_CALM, "too many resets from this address")

    def relax(self, amount: int) -> None:
        """Time has passed: that many frames more are forgiven."""
        self._budget = min(self._budget + amount, self._limits.flood_burst)

    # ---- header blocks -----------------------------------------------------------------------------------------------

    def _headers(self, flags: int, stream: int, body: bytes) -> None:
        if not stream:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "headers of no stream")
        block = unpadded(flags, body)
        if flags & h2.PRIORITISED:
            if len(block) < 5:
                raise BrokenConnectionError(h2.FRAME_SIZE_ERROR, "priority too short")
            _check_priority(stream, block)
            block = block[5:]
        if flags & h2.END_HEADERS:
            self._head_came(stream, flags, block)
        else:
            self._block, self._block_of, self._block_flags, self._block_size = [block], stream, flags, len(block)

    def _continuation(self, flags: int, stream: int, body: bytes) -> None:
        if self._block is None:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "nothing to continue")
        if not body:
            self._charge(1, "empty frames")
        self._block.append(body)
        self._block_size += len(body)
        if self._block_size > 2 * self._limits.header_bytes:
            raise BrokenConnectionError(h2.ENHANCE_YOUR_CALM, "header block too large")
        if flags & h2.END_HEADERS:
            block, self._block = b"".join(self._block), None
            self._head_came(stream, self._block_flags, block)

    def _head_came(self, stream: int, flags: int, block: bytes) -> None:
        if stream <= self._last:
            self._trailers_came(stream, flags, block)
            return
        head = self._heads.head(block)
        if not stream & 1:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "clients open odd streams")
        if stream != self._last + 2 and len(self._gaps) < REMEMBERED_GAPS:
            self._gaps.append((self._last + 2, stream - 2))
        self._last = stream
        ended = bool(flags & h2.END_STREAM)
        if len(self.streams) >= self._most:
            raise BrokenStreamError(stream, h2.REFUSED_STREAM, "too many streams")
        if head.fault or (ended and head.length > 0):
            raise BrokenStreamError(stream, h2.PROTOCOL_ERROR, head.fault or "less than the content-length")
        if head.whole and not ended:
            self.streams[stream] = head
        else:
            opened = Stream(stream, head, self._limits.stream_window, ended=ended)
            self.streams[stream] = None if ended else opened
            self._events.append((stream, opened.hand_over(), b"", ended))

    def _trailers_came(self, stream: int, flags: int, block: bytes) -> None:
        fields = self._heads.trailers(block)
        found = self.streams.get(stream, GONE)
        if found is GONE:
            if stream in self.streams.resets:
                return
            skipped = not stream & 1 or any(first <= stream <= last for first, last in self._gaps)
            raise BrokenConnectionError(
                h2.PROTOCOL_ERROR if skipped else h2.STREAM_CLOSED, "headers of a closed stream"
            )
        if found is None or (isinstance(found, Stream) and found.ended):
            raise BrokenStreamError(stream, h2.STREAM_CLOSED, "headers after the end")
        if not flags & h2.END_STREAM or fault_of_trailers(fields):
            raise BrokenStreamError(stream, h2.PROTOCOL_ERROR, "faulty trailers")
        self._body_came(self.streams.promoted(stream), b"", ended=True)

    # ---- bodies ------------------------------------------------------------------------------------------------------

    def _data(self, flags: int, stream: int, body: bytes) -> None:
        if not stream:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "data of no stream")
        size = len(body)
        self._received += size
        body = unpadded(flags, body)
        ended = bool(flags & h2.END_STREAM)
        if not body and not ended:
            self._charge(1, "empty frames")
        found = self.streams.get(stream, GONE)
        if found is GONE:
            self._check_not_idle(stream)
            if stream not in self.streams.resets:
                raise BrokenStreamError(stream, h2.STREAM_CLOSED, "data of a closed stream")
            return
        if found is None or (isinstance(found, Stream) and found.ended):
            raise BrokenStreamError(stream, h2.STREAM_CLOSED, "data after the end")
        open_stream = self.streams.promoted(stream)
        open_stream.used += size
        if open_stream.used > open_stream.allowed:
            raise BrokenStreamError(stream, h2.FLOW_CONTROL_ERROR, "more than the stream's window")
        self._body_came(open_stream, body, ended=ended)

    def _body_came(self, stream: Stream, body: bytes, *, ended: bool) -> None:
        stream.received += len(body)
        if 0 <= stream.length < stream.received or (ended and 0 <= stream.length != stream.received):
            raise BrokenStreamError(stream.id, h2.PROTOCOL_ERROR, "another length than content-length says")
        stream.ended = ended
        self._events.append((stream.id, stream.hand_over(), body, ended))

    def allowance(self, stream: int) -> int:
        """How much more the peer may send on it."""
        found = self.streams.get(stream)
        return found.allowed - found.used if isinstance(found, Stream) else self._limits.stream_window

    def grant(self, stream: int, more: int) -> None:
        """Let the peer send that much more on it."""
        found = self.streams.get(stream)
        if isinstance(found, Stream) and not found.ended:
            found.allowed += more
            self._write(h2.window_update(stream, more))

    # ---- everything else a peer may say ------------------------------------------------------------------------------

    def _check_not_idle(self, stream: int) -> None:
        if stream > self._last or not stream & 1:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "a stream that was never opened")

    def _priority(self, flags: int, stream: int, body: bytes) -> None:
        self._charge(1, "priorities")
        if not stream:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "priority of no stream")
        if len(body) != 5:
            raise BrokenConnectionError(h2.FRAME_SIZE_ERROR, "priority of another length than five")
        _check_priority(stream, body)

    def _reset(self, flags: int, stream: int, body: bytes) -> None:
        self._charge(1, "resets")
        if not stream:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "reset of no stream")
        if len(body) != 4:
            raise BrokenConnectionError(h2.FRAME_SIZE_ERROR, "reset of another length than four")
        self._check_not_idle(stream)
        if stream in self.streams:
            self._charge_reset()
            self.out.forget(stream)
            self._events.append((stream, None, None, True))

    def _settings(self, flags: int, stream: int, body: bytes) -> None:
        if stream:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "settings of a stream")
        if len(body) % 6 or (flags & h2.ACK and body):
            raise BrokenConnectionError(h2.FRAME_SIZE_ERROR, "settings of an impossible length")
        if flags & h2.ACK:
            return
        self._charge(SETTINGS_COST, "settings")
        if len(body) > 6 * MOST_SETTINGS:
            raise BrokenConnectionError(h2.ENHANCE_YOUR_CALM, "too many settings")
        for key, value in h2.SETTING.iter_unpack(body):
            if key == h2.ENABLE_PUSH and value > 1:
                raise BrokenConnectionError(h2.PROTOCOL_ERROR, "push is on or off")
            if key == h2.INITIAL_WINDOW_SIZE:
                self.out.change_initial_window(value)
            elif key == h2.MAX_FRAME_SIZE:
                if not h2.DEFAULT_FRAME <= value <= h2.LARGEST_FRAME:
                    raise BrokenConnectionError(h2.PROTOCOL_ERROR, "impossible frame size")
                self.out.frame_bytes = min(value, QUANTUM)
        # The peer counts by its new windows from here on, so nothing that needs them may leave before this.
        self._write(h2.SETTINGS_ACK)
        self.out.pump()

    def _push_promise(self, flags: int, stream: int, body: bytes) -> None:
        raise BrokenConnectionError(h2.PROTOCOL_ERROR, "clients do not push")

    def _ping(self, flags: int, stream: int, body: bytes) -> None:
        if stream:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "ping of a stream")
        if len(body) != 8:
            raise BrokenConnectionError(h2.FRAME_SIZE_ERROR, "ping of another length than eight")
        if not flags & h2.ACK:
            self._charge(1, "pings")
            self._write(frame(h2.PING, h2.ACK, 0, body))

    def _go_away(self, flags: int, stream: int, body: bytes) -> None:
        """The peer opens nothing more; what is open goes on."""
        self._charge(1, "farewells")
        if stream:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "farewell of a stream")
        if len(body) < 8:
            raise BrokenConnectionError(h2.FRAME_SIZE_ERROR, "farewell too short")

    def _window_update(self, flags: int, stream: int, body: bytes) -> None:
        if len(body) != 4:
            raise BrokenConnectionError(h2.FRAME_SIZE_ERROR, "window update of another length than four")
        increment = int.from_bytes(body, "big") & h2.LARGEST_WINDOW
        if not stream:
            if not increment:
                raise BrokenConnectionError(h2.PROTOCOL_ERROR, "window update of nothing")
            self.out.widen(increment)
            return
        self._check_not_idle(stream)
        if stream in self.streams:
            if not increment:
                raise BrokenStreamError(stream, h2.PROTOCOL_ERROR, "window update of nothing")
            self.out.widen_stream(stream, increment)

    # ---- what we say of the connection -------------------------------------------------------------------------------

    def ping(self, word: bytes) -> None:
        self._write(frame(h2.PING, 0, 0, word))

    def go_away(self, reason: str) -> None:
        """Take no new streams; those that are open go on. May be repeated."""
        self._most = 0
        self._write(h2.go_away(self._last, h2.NO_ERROR, reason))


def _always() -> bool:
    return True


def _check_priority(stream: int, priority: bytes) -> None:
    """We let nobody go first, but what is said must make sense."""
    if int.from_bytes(priority[:4], "big") & h2.LARGEST_STREAM == stream:
        raise BrokenConnectionError(h2.PROTOCOL_ERROR, "a stream depends on itself")
