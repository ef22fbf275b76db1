"""The table of open HTTP/2 streams, and streams that need more than an entry in it.

The peer may change its initial window at any time, which changes the window of every open stream by the difference
(RFC 9113, 6.9.2). So a stream stores only the difference between its window and the initial one (`credit`), and such a
change costs nothing here.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from raceway.net.codec.http2_heads import RequestHead

# Streams that we have reset and remember: frames that the peer had already sent on them are no error (RFC 9113, 5.1).
REMEMBERED_RESETS = 1000


class Http2Stream:
    """An open stream with its receive window, its send window and its queued output.

    `ended`: END_STREAM was received. `trailers`: the header block to send once the queue is empty.
    """

    __slots__ = (
        "allowed", "chunks", "credit", "ended", "head", "id", "length", "received", "sent", "trailers", "used",
        "waiting",
    )  # fmt: skip

    def __init__(self, number: int, head: RequestHead | None, allowed: int, *, ended: bool) -> None:
        self.id = number
        self.head = head  # until `hand_over`
        self.length = head.length if head is not None else -1
        self.ended = ended
        # Bytes the peer may send in total, bytes it has sent with padding, and bytes of body among them.
        self.allowed, self.used, self.received = allowed, 0, 0
        self.credit = 0
        # None until used: an empty deque takes more memory than the rest of the object.
        self.chunks: deque[bytes | memoryview] | None = None
        self.waiting = self.sent = 0
        self.trailers: bytes | None = None

    def push(self, data: bytes) -> None:
        """Queue bytes to send."""
        if data:
            if self.chunks is None:
                self.chunks = deque()
            self.chunks.append(data)
            self.waiting += len(data)

    def pull(self, most: int) -> bytes | memoryview:
        """Take the next bytes, `most` at most, from the first chunk of a queue that is not empty."""
        assert self.chunks is not None
        chunk = self.chunks[0]
        if len(chunk) <= most:
            self.chunks.popleft()
        else:
            # A view: sending a large message through a small window must not copy the remainder each time.
            view = memoryview(chunk)
            chunk, self.chunks[0] = view[:most], view[most:]
        self.waiting -= len(chunk)
        self.credit -= len(chunk)
        return chunk

    def hand_over(self) -> RequestHead | None:
        """Return the head on the first call, None afterwards."""
        head, self.head = self.head, None
        return head


class _Gone:
    pass


GONE: Final = _Gone()  # default for `StreamTable.get`, in which None is a value


class StreamTable(dict[int, RequestHead | Http2Stream | None]):
    """Open streams by number. `resets` has those that we have reset before the peer ended them.

    A value is a `RequestHead` while the body is awaited, None while a complete request waits for its response, or a
    `Http2Stream`.
    """

    def __init__(self, window: int) -> None:
        super().__init__()
        self._window = window
        self.resets: dict[int, None] = {}

    def remember_reset(self, number: int) -> None:
        """Note that we have reset a stream; the oldest note is dropped when there are too many."""
        self.resets[number] = None
        if len(self.resets) > REMEMBERED_RESETS:
            del self.resets[next(iter(self.resets))]

    def promoted(self, number: int) -> Http2Stream:
        """Return an open stream as a `Http2Stream`, replacing its table entry if needed."""
        found = self[number]
        if not isinstance(found, Http2Stream):
            found = self[number] = Http2Stream(number, found, self._window, ended=found is None)
        return found
