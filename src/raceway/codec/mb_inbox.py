"""What an MB client receives. The other side of `mb.MbReceiver`, and much more lenient.

A client must not apply the broker's limit of 16,751 bytes to what it reads: forwarded messages have longer headers, and
lists, metrics and audit records can be far longer. It ignores what it does not know: extra header fields, and messages
without a header it could read.
"""

from __future__ import annotations

from raceway.codec.frames import LENGTH, Unfinished
from raceway.codec.mb_header import Head
from raceway.errors import TooLargeError

# A list of a million topics is some 100 MB; beyond that something other than MB is speaking.
FRAME_LIMIT = 256 * 1024 * 1024

Received = tuple[Head, bytes]


class MbInbox:
    """One connection to a broker."""

    def __init__(self, frame_limit: int = FRAME_LIMIT) -> None:
        self._frame_limit = frame_limit
        self._unfinished = Unfinished()

    def receive_data(self, data: bytes) -> list[Received]:
        """Bytes as they came from a TCP socket. Raises TooLargeError; the connection is of no use then."""
        joined = self._unfinished.maybe_join(data)
        if joined is None:
            return []
        at, size = 0, len(joined)
        received: list[Received] = []
        while size - at >= 4:
            (length,) = LENGTH.unpack_from(joined, at)
            if length > self._frame_limit:
                raise TooLargeError("MB frame", length, self._frame_limit)
            start, at = at + 4, at + 4 + length
            if at > size:
                at = start - 4
                break
            if message := _maybe_read(joined, start, at):
                received.append(message)
        self._unfinished.keep(joined[at:])
        return received

    @staticmethod
    def receive_messages(messages: list[bytes]) -> list[Received]:
        """Whole messages, as a WebSocket has them."""
        found = (_maybe_read(message, 0, len(message)) for message in messages)
        return [message for message in found if message]


def _maybe_read(data: bytes, start: int, end: int) -> Received | None:
    newline = data.find(b"\n", start, end)
    fields = data[start:newline].split(b":") if newline >= 0 else []
    if len(fields) < 3:
        return None
    return Head(
        fields[0].lower(),
        fields[1],
        fields[2],
        fields[3] or None if len(fields) > 3 else None,
        fields[4] or None if len(fields) > 4 else None,
    ), data[newline + 1 : end]
