"""The sending half of an HTTP/2 connection: answers, and what of them must wait for the peer's windows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from raceway.codec import http2_frames as h2
from raceway.codec.http2_frames import FRAME, BrokenConnectionError, BrokenStreamError, frame
from raceway.codec.http2_streams import GONE, Stream, StreamTable

# What waits on several streams leaves in turns of this size, and no frame is larger.
QUANTUM = 64 * 1024


class Output:
    def __init__(self, streams: StreamTable, write: Callable[[bytes], None]) -> None:
        self._streams = streams
        self._write = write
        self._window = self._initial = h2.DEFAULT_WINDOW
        self._ready: OrderedDict[int, Stream] = OrderedDict()  # only the connection's window keeps these waiting
        self.frame_bytes = h2.DEFAULT_FRAME
        self.waiting = 0
        self._moved: set[int] = set()

    # ---- answers -----------------------------------------------------------------------------------------------------

    def respond_many(self, head: bytes, bodies: Iterable[tuple[int, bytes]], trailers: bytes) -> None:
        """Answer each of these streams with the same head and trailers and its own body. Those that are gone, are gone.

        `head` and `trailers` are header blocks.
        """
        streams, window, parts = self._streams, self._window, []
        most, pack = min(self.frame_bytes, self._initial), h2.U32.pack
        opening = FRAME.pack(len(head) << 8 | h2.HEADERS, h2.END_HEADERS, 0)[:5]
        ending = FRAME.pack(len(trailers) << 8 | h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 0)[:5]
        slow = []
        for stream, body in bodies:
            size = len(body)
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
            self._write(b"".join(parts))
        for stream, body in slow:
            self.open(stream, head)
            self.send(stream, body)
            self.end(stream, trailers)

    def respond(self, stream: int, block: bytes) -> None:
        """A head that is the whole answer."""
        if stream in self._streams:
            self._write(frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, stream, block))
            self._close(stream)

    def open(self, stream: int, head: bytes) -> None:
        """The head of an answer whose body follows by `send`."""
        if stream in self._streams:
            self._streams.promoted(stream)
            self._write(frame(h2.HEADERS, h2.END_HEADERS, stream, head))

    def send(self, stream: int, data: bytes) -> None:
        """Body of an answer that is open. What the peer's windows do not allow waits."""
        found = self._streams.get(stream)
        if isinstance(found, Stream) and found.trailers is None:
            found.push(data)
            self.waiting += len(data)
            self._list(found)
            self.pump()

    def end(self, stream: int, trailers: bytes) -> None:
        """The end of an answer, after everything that waits. `trailers` is a header block, or empty."""
        found = self._streams.get(stream)
        if isinstance(found, Stream) and found.trailers is None:
            found.trailers = trailers
            if not found.waiting:
                self._finish(found)

    def waits(self, stream: int) -> int:
        """How many bytes wait on it."""
        found = self._streams.get(stream)
        return found.waiting if isinstance(found, Stream) else 0

    def take_moved(self) -> set[int]:
        """Streams of which waiting bytes have left since the last time."""
        moved, self._moved = self._moved, set()
        return moved

    def reset(self, stream: int, error: int) -> None:
        """End it at once; the peer may have sent more by now, which is disregarded."""
        self._write(h2.reset(stream, error))
        self._streams.remember_reset(stream)
        if stream in self._streams:
            self.forget(stream)

    # ---- windows -----------------------------------------------------------------------------------------------------

    def widen(self, increment: int) -> None:
        """The connection's window grows. Raises BrokenConnectionError."""
        self._window += increment
        if self._window > h2.LARGEST_WINDOW:
            raise BrokenConnectionError(h2.FLOW_CONTROL_ERROR, "the connection's window grows too large")
        self.pump()

    def widen_stream(self, number: int, increment: int) -> None:
        """The window of an open stream grows. Raises BrokenStreamError."""
        stream = self._streams.promoted(number)
        stream.credit += increment
        if self._initial + stream.credit > h2.LARGEST_WINDOW:
            raise BrokenStreamError(number, h2.FLOW_CONTROL_ERROR, "the stream's window grows too large")
        self._list(stream)
        self.pump()

    def change_initial_window(self, value: int) -> None:
        """Every stream's window changes by the difference; `pump` then sends more. Raises BrokenConnectionError."""
        if value > h2.LARGEST_WINDOW:
            raise BrokenConnectionError(h2.FLOW_CONTROL_ERROR, "initial window too large")
        grown, self._initial = value > self._initial, value
        if not grown:
            return
        for stream in self._streams.values():
            if isinstance(stream, Stream):
                if stream.credit + value > h2.LARGEST_WINDOW:
                    raise BrokenConnectionError(h2.FLOW_CONTROL_ERROR, "a stream's window grows too large")
                self._list(stream)

    def _list(self, stream: Stream) -> None:
        """Let it take part in `pump` if it could send something."""
        if stream.waiting and self._initial + stream.credit > 0:
            self._ready[stream.id] = stream

    def pump(self) -> None:
        """Send what the windows allow, stream after stream."""
        ready, parts = self._ready, list[bytes | memoryview]()
        done = []
        while ready and self._window > 0:
            _, stream = ready.popitem(last=False)
            self._fill(stream, parts)
            self._list(stream)
            if not stream.waiting and stream.trailers is not None:
                done.append(stream)
        if parts:
            self._write(b"".join(parts))
        for stream in done:
            self._finish(stream)

    def _fill(self, stream: Stream, parts: list[bytes | memoryview]) -> None:
        """One turn of a stream: frames of up to QUANTUM bytes."""
        room = max(0, min(self._window, self._initial + stream.credit, QUANTUM, stream.waiting))
        self._window -= room
        self.waiting -= room
        self._moved.add(stream.id)
        while room:
            piece = stream.pull(min(room, self.frame_bytes))
            room -= len(piece)
            parts.append(FRAME.pack(len(piece) << 8 | h2.DATA, 0, stream.id))
            parts.append(piece)

    def _finish(self, stream: Stream) -> None:
        if stream.trailers:
            self._write(frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, stream.id, stream.trailers))
        else:
            self._write(frame(h2.DATA, h2.END_STREAM, stream.id))
        self._close(stream.id)

    def _close(self, stream: int) -> None:
        """Our side is done. If the peer's is not, it is told that we want no more (RFC 9113, section 8.1)."""
        found = self._streams[stream]
        if found is not None and not (isinstance(found, Stream) and found.ended):
            self._write(h2.reset(stream, h2.NO_ERROR))
            self._streams.remember_reset(stream)
        self.forget(stream)

    def forget(self, stream: int) -> None:
        found = self._streams.pop(stream)
        if isinstance(found, Stream):
            self.waiting -= found.waiting
            self._ready.pop(stream, None)
            found.chunks, found.waiting = None, 0
