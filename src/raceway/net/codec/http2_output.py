"""The sending side of an HTTP/2 connection: messages, and flow control (RFC 9113, 5.2 and 6.9)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from raceway.net.codec import http2_frames as h2
from raceway.net.codec.http2_frames import FRAME, BrokenConnectionError, BrokenStreamError, frame
from raceway.net.codec.http2_streams import GONE, Http2Stream, StreamTable

# Streams with queued data take turns of this many bytes, so that a large response does not hold up the others. No frame
# is larger.
QUANTUM = 64 * 1024


class Output:
    """Messages that one side of a connection sends; on a server, responses.

    `write` takes the bytes. Data beyond the peer's windows is queued by stream; `waiting` counts its bytes.
    """

    write: Callable[[bytes], None]

    def __init__(self, streams: StreamTable) -> None:
        self._streams = streams
        self._window = self._initial = h2.DEFAULT_WINDOW
        self._ready: OrderedDict[int, Http2Stream] = OrderedDict()  # streams held up by the connection's window only
        self.frame_bytes = h2.DEFAULT_FRAME
        self.waiting = self._sent = 0
        self._moved: set[int] = set()

    # ---- answers -----------------------------------------------------------------------------------------------------

    def respond_many(self, head: bytes, bodies: Iterable[tuple[int, bytes]], trailers: bytes) -> None:
        """Send a complete response on each of these streams: the same head and trailers, its own body.

        `head` and `trailers` are header blocks. Streams that are closed by now are skipped.
        """
        streams, window, parts = self._streams, self._window, []
        # A stream without a `Http2Stream` object has had no window update: its window is the initial one.
        most, pack = min(self.frame_bytes, self._initial), h2.U32.pack
        # A frame header is length and type, flags, stream: the first five bytes are the same for all streams.
        opening = FRAME.pack(len(head) << 8 | h2.HEADERS, h2.END_HEADERS, 0)[:5]
        ending = FRAME.pack(len(trailers) << 8 | h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 0)[:5]
        slow = []
        for stream, body in bodies:
            size = len(body)
            # Fast path: a complete request whose response fits one DATA frame and both windows.
            if streams.get(stream, GONE) is None and size <= most and size <= window:
                del streams[stream]
                window -= size
                number = pack(stream)
                parts.append(
                    b"%b%b%b%b\0%b%b%b%b%b"
                    % (opening, number, head, pack(size << 8), number, body, ending, number, trailers)
                )
            elif stream in streams:
                slow.append((stream, body))
        self._window = window
        if parts:
            self.write(b"".join(parts))
        for stream, body in slow:
            self.open(stream, head)
            self.send(stream, body)
            self.end(stream, trailers)

    def respond(self, stream: int, block: bytes) -> None:
        """Send a response that consists of a head only."""
        if stream in self._streams:
            self.write(frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, stream, block))
            self._close(stream)

    def open(self, stream: int, head: bytes) -> None:
        """Send the head of a response; its body follows by `send`."""
        if stream in self._streams:
            self._streams.promoted(stream)
            self.write(frame(h2.HEADERS, h2.END_HEADERS, stream, head))

    def send(self, stream: int, data: bytes) -> None:
        """Send body bytes of an open response. Bytes beyond the peer's windows are queued."""
        found = self._streams.get(stream)
        if isinstance(found, Http2Stream) and found.trailers is None:
            found.push(data)
            self.waiting += len(data)
            self._list(found)
            self.pump()

    def end(self, stream: int, trailers: bytes) -> None:
        """End a response after all queued bytes. `trailers` is a header block, or empty."""
        found = self._streams.get(stream)
        if isinstance(found, Http2Stream) and found.trailers is None:
            found.trailers = trailers
            if not found.waiting:
                if not trailers:
                    # RFC 9113, 6.9.1: an empty DATA frame needs no window.
                    self.write(frame(h2.DATA, h2.END_STREAM, stream))
                self._finish(found)

    def send_whole(self, stream: int, head: bytes, body: bytes) -> None:
        """Send a message without trailers on a new stream. END_STREAM comes with its last byte."""
        self.open(stream, head)
        opened = self._streams.promoted(stream)
        opened.push(body)
        opened.trailers = b""
        self.waiting += len(body)
        self._list(opened)
        self.pump()

    def waits(self, stream: int) -> int:
        """Return the number of bytes queued on a stream."""
        found = self._streams.get(stream)
        return found.waiting if isinstance(found, Http2Stream) else 0

    def maybe_progress(self, stream: int) -> int | None:
        """Return a number that changes when the peer takes queued bytes of a stream; None if none are queued.

        While only the connection's window holds the stream up, bytes of any stream count.
        """
        found = self._streams.get(stream)
        if not isinstance(found, Http2Stream) or not found.waiting:
            return None
        return found.sent if self._initial + found.credit <= 0 else self._sent

    def take_moved(self) -> set[int]:
        """Return the streams that have sent queued bytes since the last call."""
        moved, self._moved = self._moved, set()
        return moved

    def reset(self, stream: int, error: int) -> None:
        """Send RST_STREAM and forget the stream; frames already on their way are ignored."""
        self.write(h2.reset(stream, error))
        self._streams.remember_reset(stream)
        if stream in self._streams:
            self.forget(stream)

    # ---- windows -----------------------------------------------------------------------------------------------------

    def widen(self, increment: int) -> None:
        """Enlarge the connection's window. Raises BrokenConnectionError."""
        self._window += increment
        # RFC 9113, 6.9.1: a window must not exceed 2^31-1, of a connection or of a stream.
        if self._window > h2.LARGEST_WINDOW:
            raise BrokenConnectionError(h2.FLOW_CONTROL_ERROR, "flow-control window of the connection exceeds 2^31-1")
        self.pump()

    def widen_stream(self, number: int, increment: int) -> None:
        """Enlarge the window of an open stream. Raises BrokenStreamError."""
        stream = self._streams.promoted(number)
        stream.credit += increment
        if self._initial + stream.credit > h2.LARGEST_WINDOW:
            raise BrokenStreamError(number, h2.FLOW_CONTROL_ERROR, "flow-control window of the stream exceeds 2^31-1")
        self._list(stream)
        self.pump()

    def change_initial_window(self, value: int) -> None:
        """Change the initial window, and with it the window of every stream. Call `pump` afterwards.

        Raises BrokenConnectionError.
        """
        # RFC 9113, 6.5.2: a value above 2^31-1 is a connection error.
        if value > h2.LARGEST_WINDOW:
            raise BrokenConnectionError(h2.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE exceeds 2^31-1")
        # RFC 9113, 6.9.2: every window changes by the difference. A smaller value needs no loop: windows are computed
        # from `_initial`, and may become negative.
        grown, self._initial = value > self._initial, value
        if not grown:
            return
        for stream in self._streams.values():
            if isinstance(stream, Http2Stream):
                if stream.credit + value > h2.LARGEST_WINDOW:
                    raise BrokenConnectionError(h2.FLOW_CONTROL_ERROR, "flow-control window of a stream exceeds 2^31-1")
                self._list(stream)

    def _list(self, stream: Http2Stream) -> None:
        """Add a stream to the ready list if it has queued bytes and an open window."""
        if stream.waiting and self._initial + stream.credit > 0:
            self._ready[stream.id] = stream

    def pump(self) -> None:
        """Send as many queued bytes as the windows allow, taking turns between streams."""
        ready, parts = self._ready, list[bytes | memoryview]()
        done = []
        while ready and self._window > 0:
            _, stream = ready.popitem(last=False)
            self._fill(stream, parts)
            self._list(stream)
            if not stream.waiting and stream.trailers is not None:
                done.append(stream)
        if parts:
            self.write(b"".join(parts))
        for stream in done:
            self._finish(stream)

    def _fill(self, stream: Http2Stream, parts: list[bytes | memoryview]) -> None:
        """Append the frames of one turn of a stream: QUANTUM bytes at most."""
        room = max(0, min(self._window, self._initial + stream.credit, QUANTUM, stream.waiting))
        self._window -= room
        self.waiting -= room
        self._sent += room
        stream.sent += room
        self._moved.add(stream.id)
        while room:
            piece = stream.pull(min(room, self.frame_bytes))
            room -= len(piece)
            is_last = stream.trailers == b"" and not stream.waiting
            parts.append(FRAME.pack(len(piece) << 8 | h2.DATA, h2.END_STREAM if is_last else 0, stream.id))
            parts.append(piece)

    def _finish(self, stream: Http2Stream) -> None:
        if stream.trailers:
            self.write(frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, stream.id, stream.trailers))
        self._close(stream.id)

    def _close(self, stream: int) -> None:
        """Forget a stream whose response is complete. Reset it if the request is not."""
        found = self._streams[stream]
        # RFC 9113, 8.1: after an early response, RST_STREAM with NO_ERROR asks the client to stop sending.
        if found is not None and not (isinstance(found, Http2Stream) and found.ended):
            self.write(h2.reset(stream, h2.NO_ERROR))
            self._streams.remember_reset(stream)
        self.forget(stream)

    def forget(self, stream: int) -> None:
        """Remove a stream and drop its queued bytes."""
        found = self._streams.pop(stream)
        if isinstance(found, Http2Stream):
            self.waiting -= found.waiting
            self._ready.pop(stream, None)
            found.chunks, found.waiting = None, 0
