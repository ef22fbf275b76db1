"""An HTTP/2 connection (RFC 9113), without sockets and without a clock.

`Http2Endpoint` has what both sides share: frames, header blocks, settings, windows. `Http2Connection` is the server
side: bytes from the peer become requests; responses become bytes. The client side is in `grpc_client`.

Most gRPC requests are two frames: HEADERS, then DATA with END_STREAM. Such a stream is only an entry in a table: first
its head, then None while the request waits for its response. Anything else (a body in several frames, a window update
for the stream, a response larger than the window) promotes the entry to a `Http2Stream`. A stream that is not in the
table is idle if its number is higher than any seen so far, and closed otherwise.

Limits against abuse (RFC 9113, 10.5):

- A peer may have `max_streams` streams open; further ones are refused.
- Frames that cost work and carry no request (resets, pings, settings, empty frames) are charged to a budget, which
  `relax` refills. When the budget is spent, the connection is closed.
- Resetting streams right after opening them costs most, so `may_reset` is asked for each reset. It may count over all
  connections of one address.
- One call of `receive_data` handles a limited number of frames outside the fast path and leaves the others for the next
  call (`halted`), so that other connections get their turn.

The receive window of a stream is small; the consumer of the body widens it with `grant` when it knows the size of the
message. The window of the connection is refilled as bytes are read: to slow the peer down, stop reading the socket.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from raceway.net.codec import http2_frames as h2
from raceway.net.codec.http2_frames import (
    FRAME,
    FRAME_HEAD,
    PREFACE,
    BrokenConnectionError,
    BrokenStreamError,
    frame,
    unpadded,
)
from raceway.net.codec.http2_heads import Fields, HeadReader, RequestHead, fault_of_trailers
from raceway.net.codec.http2_output import QUANTUM, Output
from raceway.net.codec.http2_streams import GONE, Http2Stream, StreamTable

# (stream, head, body, ended). The head is set on the first event of a request only. A body of None means that the
# stream was reset, by the peer or because of a stream error.
Http2Event = tuple[int, RequestHead | None, bytes | None, bool]
E = TypeVar("E")

# Ranges of stream numbers that the peer has skipped. Real clients count by two and skip none.
REMEMBERED_GAPS = 100
# Settings in one frame. RFC 9113, 6.5.2 defines six; extensions add a few.
MOST_SETTINGS = 64
# Frames outside the fast path per call: at up to 100 µs each, other connections wait at most about 25 ms.
UNUSUAL_FRAMES = 256
# The share of the budget that one SETTINGS frame costs: it may change the window of every open stream.
SETTINGS_COST = 10


class Http2Limits(msgspec.Struct, frozen=True):
    """Limits of one connection, partly announced to the peer in SETTINGS."""

    max_streams: int = 10_000
    header_bytes: int = 16_384
    flood_burst: int = 10_000
    # The protocol's default: a call of usual size needs no WINDOW_UPDATE, a larger one gets it when its size is known.
    stream_window: int = 65_535
    # Large, so that clients rarely wait a round trip: memory is bounded by the windows of the streams.
    connection_window: int = 16 * 1024 * 1024
    # RFC 9113, 6.5.2: the smallest SETTINGS_MAX_FRAME_SIZE allowed. Must not exceed `stream_window`.
    frame_bytes: int = 16_384


class Http2Endpoint(ABC, Generic[E]):
    """A side of a connection; E is the type of its events. `heads` decodes header blocks. Call `start` first.

    Once `fault` is set, all further input is ignored: flush the output, then close the connection.
    """

    _write: Callable[[bytes], None]
    push_fault: ClassVar[str]

    def __init__(self, limits: Http2Limits, heads: HeadReader[Any], output: type[Output] = Output) -> None:
        self._limits = limits
        self._heads = heads
        self.streams = StreamTable(limits.stream_window)
        self.out = output(self.streams)
        self._events: list[E] = []
        self.fault: BrokenConnectionError | None = None
        self.halted = False  # input is left over from the last call: call again with b""
        self.moves = False  # did the last call complete a frame, or a header block?
        # State of the receiving side.
        self._rest: list[bytes] = []  # pieces of an incomplete frame
        self.pending = 0  # bytes in `_rest` and in an incomplete header block
        self._missing = 1  # bytes to wait for before parsing is tried again
        self._stage = self._frames
        self._block: list[bytes] | None = None  # fragments of a header block before its END_HEADERS
        self._block_of = self._block_flags = self._block_size = 0
        self._last = -1  # highest stream of the peer so far; -1, so that the first one, 1, is `_last + 2`
        self._most = limits.max_streams  # that may be open at the same time
        self._received = 0  # bytes of DATA not yet returned to the peer by WINDOW_UPDATE
        # Indexed by frame type, 0 to 9 (RFC 9113, 6.1 to 6.10).
        self._kinds: tuple[Callable[[int, int, bytes], None], ...] = (
            self._data, self._headers, self._priority, self._reset, self._settings, self._push_promise, self._ping,
            self._go_away, self._window_update, self._continuation,
        )  # fmt: skip

    def start(self, write: Callable[[bytes], None]) -> None:
        """Send the preface (RFC 9113, 3.4); `write` takes all output."""
        self._write = self.out.write = write

    @abstractmethod
    def _data(self, flags: int, stream: int, body: bytes) -> None:
        """Handle a DATA frame."""

    @abstractmethod
    def _head_came(self, stream: int, flags: int, block: bytes) -> None:
        """Handle a complete header block; `flags` are those of its HEADERS frame."""

    @abstractmethod
    def _was_reset(self, stream: int, error: int) -> None:
        """Handle the RST_STREAM of an open stream."""

    @abstractmethod
    def _break_stream(self, fault: BrokenStreamError) -> None:
        """Reset a stream after a stream error (RFC 9113, 5.4.2)."""

    def _charge(self, cost: int, what: str) -> None:
        """Charge frames that cost work to the peer's budget, if it has one. Raises BrokenConnectionError."""

    def _check_not_idle(self, stream: int) -> None:
        """Check that a stream was opened, if the peer opens them. Raises BrokenConnectionError."""

    # ---- receiving ---------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> list[E]:
        """Return the events that these bytes complete. Never raises: a connection error sets `fault`."""
        self.moves = self.halted = False
        if self.fault is not None:
            return []
        data = self._joined(data)
        if not data:
            return []
        self._events = events = list[E]()
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
        """Return the kept bytes followed by `data`, or b"" while the frame is still incomplete.

        A frame that arrives byte by byte is joined once, not once per byte.
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
            self._missing = 0  # the next call comes with b"" and must parse what is kept
            self.halted = bool(rest)

    def drop_input(self) -> None:
        """Discard an incomplete frame or header block: the input has ended."""
        self._rest.clear()
        self._block = None
        self.pending = 0

    def _frames(self, data: bytes, at: int) -> int:
        """Handle all complete frames from `at` on; return where the incomplete rest begins.

        The two frames of a usual gRPC call are handled inline; everything else goes to `_frame`.
        """
        unpack, streams, known, events = FRAME.unpack_from, self.streams, self._heads.known, self._events
        size, largest, unusual = len(data), self._limits.frame_bytes, 0
        while size - at >= FRAME_HEAD:
            word, flags, stream = unpack(data, at)
            length = word >> 8
            start = at + FRAME_HEAD
            end = start + length
            # RFC 9113, 4.2. Checked before the frame is complete: it must not be collected first.
            if length > largest:
                raise BrokenConnectionError(h2.FRAME_SIZE_ERROR, f"frame larger than {largest} bytes")
            if end > size:
                break
            at = end
            kind = word & 255
            if self._block is None:
                # Fast path: a whole unpadded body in one frame. It fits the window, since no frame is larger than the
                # window of a new stream.
                if kind == h2.DATA and flags == h2.END_STREAM:
                    head = streams.get(stream)
                    if type(head) is RequestHead and (head.length < 0 or head.length == length):
                        streams[stream] = None
                        self._received += length
                        # Only a server has streams that are heads, so E is `Event`.
                        events.append((stream, head, data[start:end], True))  # type: ignore[arg-type]
                        continue
                # Fast path: the next stream, with a header block that was decoded before.
                elif kind == h2.HEADERS and flags == h2.END_HEADERS and stream == self._last + 2:
                    head = known.get(data[start:end])
                    if head is not None and head.whole and len(streams) < self._most:
                        streams[stream] = head
                        self._last = stream
                        continue
            # RFC 9113, 4.1: the reserved bit of the stream identifier must be ignored.
            self._frame(kind, flags, stream & h2.LARGEST_STREAM, data[start:end])
            unusual += 1
            if unusual == UNUSUAL_FRAMES:
                self.halted = True
                break
        return at

    def _frame(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        # RFC 9113, 4.3: no other frame may come between the fragments of a field block.
        if self._block is not None and (kind != h2.CONTINUATION or stream != self._block_of):
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "header block interrupted by another frame")
        # RFC 9113, 5.5: frames of unknown types are ignored.
        if kind >= len(self._kinds):
            self._charge(1, "frames of unknown type")
            return
        try:
            self._kinds[kind](flags, stream, body)
        except BrokenStreamError as fault:
            self._break_stream(fault)

    def _top_up(self) -> None:
        """Return the bytes read to the connection's window, a quarter of it at a time."""
        window = self._limits.connection_window
        # RFC 9113, 6.9.1: a sender must not exceed the window; doing so is a FLOW_CONTROL_ERROR.
        if self._received > window:
            raise BrokenConnectionError(h2.FLOW_CONTROL_ERROR, "flow-control window of the connection exceeded")
        if self._received > window // 4:
            self._write(h2.window_update(0, self._received))
            self._received = 0

    def _fail(self, fault: BrokenConnectionError) -> None:
        self.fault = fault
        self._write(h2.go_away(self._last, fault.error, fault.reason))
        for stream in list(self.streams):
            self.out.forget(stream)

    def allowance(self, stream: int) -> int:
        """Return how many more bytes the peer may send on a stream."""
        found = self.streams.get(stream)
        return found.allowed - found.used if isinstance(found, Http2Stream) else self._limits.stream_window

    # ---- header blocks -----------------------------------------------------------------------------------------------

    def _headers(self, flags: int, stream: int, body: bytes) -> None:
        # RFC 9113, 6.2: HEADERS must name a stream.
        if not stream:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "HEADERS on stream 0")
        block = unpadded(flags, body)
        if flags & h2.PRIORITISED:
            if len(block) < 5:
                raise BrokenConnectionError(h2.FRAME_SIZE_ERROR, "HEADERS too short for its priority fields")
            _check_priority(stream, block)
            block = block[5:]
        if flags & h2.END_HEADERS:
            self._head_came(stream, flags, block)
        else:
            self._block, self._block_of, self._block_flags, self._block_size = [block], stream, flags, len(block)

    def _continuation(self, flags: int, stream: int, body: bytes) -> None:
        # RFC 9113, 6.10: only a frame without END_HEADERS may precede CONTINUATION.
        if self._block is None:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "CONTINUATION without a preceding HEADERS")
        if not body:
            self._charge(1, "empty frames")
        self._block.append(body)
        self._block_size += len(body)
        # Up to twice the announced limit is still decoded, so that the request can be answered with a status.
        if self._block_size > 2 * self._limits.header_bytes:
            raise BrokenConnectionError(h2.ENHANCE_YOUR_CALM, "header block too large")
        if flags & h2.END_HEADERS:
            block, self._block = b"".join(self._block), None
            self._head_came(stream, self._block_flags, block)

    # ---- all other frames --------------------------------------------------------------------------------------------

    def _priority(self, flags: int, stream: int, body: bytes) -> None:
        self._charge(1, "PRIORITY frames")
        if not stream:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "PRIORITY on stream 0")
        # RFC 9113, 6.3 makes this a stream error; 5.4.1 lets us treat it as a connection error.
        if len(body) != 5:
            raise BrokenConnectionError(h2.FRAME_SIZE_ERROR, "PRIORITY must have 5 bytes")
        _check_priority(stream, body)

    def _reset(self, flags: int, stream: int, body: bytes) -> None:
        self._charge(1, "RST_STREAM frames")
        if not stream:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "RST_STREAM on stream 0")
        if len(body) != 4:
            raise BrokenConnectionError(h2.FRAME_SIZE_ERROR, "RST_STREAM must have 4 bytes")
        self._check_not_idle(stream)
        # A reset that crosses the end of the stream finds it gone, and is no sign of abuse.
        if stream in self.streams:
            self._was_reset(stream, int.from_bytes(body, "big"))

    def _settings(self, flags: int, stream: int, body: bytes) -> None:
        # RFC 9113, 6.5: settings are of the connection, six bytes each; an acknowledgement has none.
        if stream:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "SETTINGS on a non-zero stream")
        if len(body) % 6 or (flags & h2.ACK and body):
            raise BrokenConnectionError(h2.FRAME_SIZE_ERROR, "SETTINGS has an invalid length")
        if flags & h2.ACK:
            return
        self._charge(SETTINGS_COST, "SETTINGS frames")
        if len(body) > 6 * MOST_SETTINGS:
            raise BrokenConnectionError(h2.ENHANCE_YOUR_CALM, "too many settings in one frame")
        for key, value in h2.SETTING.iter_unpack(body):
            self._set(key, value)
        # RFC 9113, 6.5.3: the peer applies its new windows when it reads the acknowledgement, so output that needs them
        # must follow it.
        self._write(h2.SETTINGS_ACK)
        self.out.pump()

    def _set(self, key: int, value: int) -> None:
        # RFC 9113, 6.5.2: the bounds of each value; unknown identifiers are ignored.
        if key == h2.ENABLE_PUSH and value > 1:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "ENABLE_PUSH must be 0 or 1")
        if key == h2.INITIAL_WINDOW_SIZE:
            self.out.change_initial_window(value)
        elif key == h2.MAX_FRAME_SIZE:
            if not h2.DEFAULT_FRAME <= value <= h2.LARGEST_FRAME:
                raise BrokenConnectionError(h2.PROTOCOL_ERROR, "MAX_FRAME_SIZE out of range")
            self.out.frame_bytes = min(value, QUANTUM)

    def _push_promise(self, flags: int, stream: int, body: bytes) -> None:
        # RFC 9113, 8.4: a client cannot push. RFC 9113, 6.6: nor may a server, since our SETTINGS disable it.
        raise BrokenConnectionError(h2.PROTOCOL_ERROR, self.push_fault)

    def _ping(self, flags: int, stream: int, body: bytes) -> None:
        # RFC 9113, 6.7: eight bytes, on stream 0, echoed with ACK.
        if stream:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "PING on a non-zero stream")
        if len(body) != 8:
            raise BrokenConnectionError(h2.FRAME_SIZE_ERROR, "PING must have 8 bytes")
        if not flags & h2.ACK:
            self._charge(1, "PING frames")
            self._write(frame(h2.PING, h2.ACK, 0, body))

    def _go_away(self, flags: int, stream: int, body: bytes) -> None:
        """Check a GOAWAY. The peer opens no further streams; the open ones continue."""
        self._charge(1, "GOAWAY frames")
        if stream:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "GOAWAY on a non-zero stream")
        if len(body) < 8:
            raise BrokenConnectionError(h2.FRAME_SIZE_ERROR, "GOAWAY must have at least 8 bytes")

    def _window_update(self, flags: int, stream: int, body: bytes) -> None:
        if len(body) != 4:
            raise BrokenConnectionError(h2.FRAME_SIZE_ERROR, "WINDOW_UPDATE must have 4 bytes")
        # RFC 9113, 6.9: the highest bit is reserved; an increment of 0 is an error, of the connection on stream 0.
        increment = int.from_bytes(body, "big") & h2.LARGEST_WINDOW
        if not stream:
            if not increment:
                raise BrokenConnectionError(h2.PROTOCOL_ERROR, "WINDOW_UPDATE increment of 0")
            self.out.widen(increment)
            return
        self._check_not_idle(stream)
        # RFC 9113, 5.1: a WINDOW_UPDATE may still come shortly after a stream is closed, and is ignored then.
        if stream in self.streams:
            if not increment:
                raise BrokenStreamError(stream, h2.PROTOCOL_ERROR, "WINDOW_UPDATE increment of 0")
            self.out.widen_stream(stream, increment)

    # ---- frames about the connection that we send --------------------------------------------------------------------

    def ping(self, word: bytes) -> None:
        """Send a PING with these eight bytes."""
        self._write(frame(h2.PING, 0, 0, word))


class Http2Connection(Http2Endpoint[Http2Event]):
    """The server side of a connection. `admit` is called once for each new head."""

    push_fault: ClassVar[str] = "PUSH_PROMISE from a client"

    def __init__(self, limits: Http2Limits, admit: Callable[[RequestHead], None]) -> None:
        super().__init__(limits, HeadReader(limits.header_bytes, self._read_head))
        self._admit = admit
        self.may_reset: Callable[[], bool] = lambda: True
        self._stage = self._greet
        self._budget = limits.flood_burst
        self._gaps: list[tuple[int, int]] = []

    def start(self, write: Callable[[bytes], None]) -> None:
        """Send the server preface: SETTINGS, and a WINDOW_UPDATE for the connection."""
        super().start(write)
        limits = self._limits
        # RFC 9113, 3.4: the server need not wait for the client's preface. RFC 9113, 6.9.2: SETTINGS cannot change the
        # window of the connection, only WINDOW_UPDATE can.
        write(
            h2.settings((
                (h2.MAX_CONCURRENT_STREAMS, limits.max_streams), (h2.INITIAL_WINDOW_SIZE, limits.stream_window),
                (h2.MAX_FRAME_SIZE, limits.frame_bytes), (h2.MAX_HEADER_LIST_SIZE, limits.header_bytes),
            ))
            + h2.window_update(0, limits.connection_window - h2.DEFAULT_WINDOW)
        )  # fmt: skip

    # ---- receiving ---------------------------------------------------------------------------------------------------

    def _greet(self, data: bytes, at: int) -> int:
        # RFC 9113, 3.4: every client begins with these 24 bytes; anything else is a connection error.
        if not data.startswith(PREFACE):
            if PREFACE.startswith(data):
                return 0
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "invalid HTTP/2 connection preface")
        self._stage = self._first_frame
        return self._first_frame(data, len(PREFACE))

    def _first_frame(self, data: bytes, at: int) -> int:
        """Check that the preface ends with SETTINGS (RFC 9113, 3.4), then parse frames."""
        if len(data) - at >= FRAME_HEAD:
            word, flags, _ = FRAME.unpack_from(data, at)
            if word & 255 != h2.SETTINGS or flags & h2.ACK:
                raise BrokenConnectionError(h2.PROTOCOL_ERROR, "the first frame must be SETTINGS")
            self._stage = self._frames
            return self._frames(data, at)
        return at

    def _read_head(self, fields: Fields) -> RequestHead:
        head = RequestHead(fields)
        if not head.fault:
            self._admit(head)
        return head

    def _head_came(self, stream: int, flags: int, block: bytes) -> None:
        if stream <= self._last:
            self._trailers_came(stream, flags, block)
            return
        # RFC 9113, 4.3: every block must be decoded, even of a refused stream: it may change the compression state.
        head = self._heads.head(block)
        # RFC 9113, 5.1.1: clients use odd stream identifiers.
        if not stream & 1:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "client opened an even-numbered stream")
        # RFC 9113, 5.1.1: the streams skipped are closed implicitly, but were never used (see `_trailers_came`).
        if stream != self._last + 2 and len(self._gaps) < REMEMBERED_GAPS:
            self._gaps.append((self._last + 2, stream - 2))
        self._last = stream
        ended = bool(flags & h2.END_STREAM)
        # RFC 9113, 5.1.2 and 8.7: REFUSED_STREAM tells the client that a retry is safe.
        if len(self.streams) >= self._most:
            raise BrokenStreamError(stream, h2.REFUSED_STREAM, "too many concurrent streams")
        # RFC 9113, 8.1.1: a malformed request is a stream error.
        if head.fault or (ended and head.length > 0):
            raise BrokenStreamError(stream, h2.PROTOCOL_ERROR, head.fault or "body shorter than content-length")
        if head.whole and not ended:
            self.streams[stream] = head
        else:
            opened = Http2Stream(stream, head, self._limits.stream_window, ended=ended)
            self.streams[stream] = None if ended else opened
            self._events.append((stream, opened.hand_over(), b"", ended))

    def _trailers_came(self, stream: int, flags: int, block: bytes) -> None:
        fields = self._heads.trailers(block)
        found = self.streams.get(stream, GONE)
        if found is GONE:
            # RFC 9113, 5.1: frames that the peer sent before it saw our RST_STREAM are ignored.
            if stream in self.streams.resets:
                return
            # RFC 9113, 5.1.1: a new stream must have a higher number than all before; 5.1: a used one stays closed.
            skipped = not stream & 1 or any(first <= stream <= last for first, last in self._gaps)
            raise BrokenConnectionError(
                h2.PROTOCOL_ERROR if skipped else h2.STREAM_CLOSED, "HEADERS on a closed stream"
            )
        # RFC 9113, 5.1: half-closed (remote) allows WINDOW_UPDATE, PRIORITY and RST_STREAM only.
        if found is None or (isinstance(found, Http2Stream) and found.ended):
            raise BrokenStreamError(stream, h2.STREAM_CLOSED, "HEADERS after END_STREAM")
        # RFC 9113, 8.1: a second field section is the trailers, and must end the stream.
        if not flags & h2.END_STREAM or fault_of_trailers(fields):
            raise BrokenStreamError(stream, h2.PROTOCOL_ERROR, "malformed trailers")
        self._body_came(self.streams.promoted(stream), b"", ended=True)

    # ---- bodies ------------------------------------------------------------------------------------------------------

    def _data(self, flags: int, stream: int, body: bytes) -> None:
        # RFC 9113, 6.1: DATA must name a stream; its padding counts for flow control.
        if not stream:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "DATA on stream 0")
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
                raise BrokenStreamError(stream, h2.STREAM_CLOSED, "DATA on a closed stream")
            return
        if found is None or (isinstance(found, Http2Stream) and found.ended):
            raise BrokenStreamError(stream, h2.STREAM_CLOSED, "DATA after END_STREAM")
        open_stream = self.streams.promoted(stream)
        open_stream.used += size
        if open_stream.used > open_stream.allowed:
            raise BrokenStreamError(stream, h2.FLOW_CONTROL_ERROR, "flow-control window of the stream exceeded")
        self._body_came(open_stream, body, ended=ended)

    def _body_came(self, stream: Http2Stream, body: bytes, *, ended: bool) -> None:
        stream.received += len(body)
        # RFC 9113, 8.1.1: content-length must equal the sum of the DATA payloads, padding left out.
        if 0 <= stream.length < stream.received or (ended and 0 <= stream.length != stream.received):
            raise BrokenStreamError(stream.id, h2.PROTOCOL_ERROR, "body length differs from content-length")
        stream.ended = ended
        self._events.append((stream.id, stream.hand_over(), body, ended))

    def grant(self, stream: int, more: int) -> None:
        """Let the peer send `more` further bytes on a stream that it has not ended."""
        found = self.streams.get(stream)
        if isinstance(found, Http2Stream) and not found.ended:
            found.allowed += more
            self._write(h2.window_update(stream, more))

    # ---- all other frames --------------------------------------------------------------------------------------------

    def _charge(self, cost: int, what: str) -> None:
        self._budget -= cost
        if self._budget < 0:
            raise BrokenConnectionError(h2.ENHANCE_YOUR_CALM, f"too many {what}")

    def _was_reset(self, stream: int, error: int) -> None:
        self._charge_reset()
        self.out.forget(stream)
        self._events.append((stream, None, None, True))

    def _break_stream(self, fault: BrokenStreamError) -> None:
        self._charge(1, "stream errors")
        # A client may open many streams before it has read the limit: a refused one is not counted as a reset.
        if fault.error != h2.REFUSED_STREAM:
            self._charge_reset()
        self.out.reset(fault.stream, fault.error)
        self._events.append((fault.stream, None, None, True))

    def _charge_reset(self) -> None:
        # RFC 9113, 10.5: opening and resetting streams in a loop ("rapid reset") costs the client almost nothing.
        if not self.may_reset():
            raise BrokenConnectionError(h2.ENHANCE_YOUR_CALM, "too many stream resets from this address")

    def relax(self, amount: int) -> None:
        """Refill the budget by `amount` frames, up to the burst. Called as time passes."""
        self._budget = min(self._budget + amount, self._limits.flood_burst)

    def _check_not_idle(self, stream: int) -> None:
        # RFC 9113, 5.1: only HEADERS and PRIORITY may come on an idle stream. Even ones are ours, and we open none.
        if stream > self._last or not stream & 1:
            raise BrokenConnectionError(h2.PROTOCOL_ERROR, "frame on an idle stream")

    def go_away(self, reason: str) -> None:
        """Send GOAWAY and refuse new streams; the open ones continue. May be called more than once."""
        self._most = 0
        self._write(h2.go_away(self._last, h2.NO_ERROR, reason))


def _check_priority(stream: int, priority: bytes) -> None:
    """Check the dependency of a priority, which is otherwise ignored (deprecated by RFC 9113, 5.3.2)."""
    # RFC 7540, 5.3.1: a stream cannot depend on itself. h2spec still tests for this.
    if int.from_bytes(priority[:4], "big") & h2.LARGEST_STREAM == stream:
        raise BrokenConnectionError(h2.PROTOCOL_ERROR, "stream depends on itself")
