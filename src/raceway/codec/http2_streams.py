"""One stream of HTTP/2 that needs more than an entry in a table, and the bytes that wait to leave on it.

A peer's windows are exact: one byte too many and it drops the stream. The peer may change its initial window at any
time, which moves the window of every open stream by the difference; so a stream keeps only how far it is from the
initial window (`credit`), and that change costs nothing here.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from raceway.codec.http2_heads import Head

# Streams that we have ended early and remember; what the peer had already sent there is no fault.
REMEMBERED_RESETS = 1000


class Stream:
    """`ended`: the peer has said all. `trailers`: what follows once nothing waits."""

    __slots__ = (
        "allowed", "chunks", "credit", "ended", "head", "id", "length", "received", "trailers", "used", "waiting"
    )  # fmt: skip

    def __init__(self, number: int, head: Head | None, allowed: int, *, ended: bool) -> None:
        self.id = number
        self.head = head  # until it has been handed over
        self.length = head.length if head is not None else -1
        self.ended = ended
        # What the peer may send in all, what it has sent of it, and how much of that was body.
        self.allowed, self.used, self.received = allowed, 0, 0
        self.credit = 0
        self.chunks: deque[bytes | memoryview] | None = None  # an empty one is larger than all the rest
        self.waiting = 0
        self.trailers: bytes | None = None

    def push(self, data: bytes) -> None:
        if data:
            if self.chunks is None:
                self.chunks = deque()
            self.chunks.append(data)
            self.waiting += len(data)

    def pull(self, most: int) -> bytes | memoryview:
        """The next bytes, `most` at most, all from one chunk. There must be some."""
        assert self.chunks is not None
        chunk = self.chunks[0]
        if len(chunk) <= most:
            self.chunks.popleft()
        else:
            # A view: cutting a large message into a small window's pieces must not copy its rest each time.
            view = memoryview(chunk)
            chunk, self.chunks[0] = view[:most], view[most:]
        self.waiting -= len(chunk)
        self.credit -= len(chunk)
        return chunk

    def hand_over(self) -> Head | None:
        """Its head, the first time."""
        head, self.head = self.head, None
        return head


class _Gone:
    pass


GONE: Final = _Gone()  # what `StreamTable.get` gives for a stream that is not there, since None says something


class StreamTable(dict[int, Head | Stream | None]):
    """Open streams by number: a head whose body has not come, None for a request that waits for its answer, or a
    `Stream`. `resets` are those that we have ended while the peer had not.
    """

    def __init__(self, window: int) -> None:
        super().__init__()
        self._window = window
        self.resets: dict[int, None] = {}

    def remember_reset(self, number: int) -> None:
        self.resets[number] = None
        if len(self.resets) > REMEMBERED_RESETS:
            del self.resets[next(iter(self.resets))]

    def promoted(self, number: int) -> Stream:
        """The stream, which must be there, as an object."""
        found = self[number]
        if not isinstance(found, Stream):
            found = self[number] = Stream(number, found, self._window, ended=found is None)
        return found
