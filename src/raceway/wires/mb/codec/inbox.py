"""The decoder of an MB client, the counterpart of `receiver.MbReceiver` and much more lenient.

A client must not apply the broker's limit of 16,751 bytes to messages that it receives: forwarded messages have longer
headers, and lists, metrics and audit records can be far longer. Unknown header fields, and messages without a readable
header, are ignored.
"""

from __future__ import annotations

from raceway.errors import TooLargeError
from raceway.net.codec.frames import LENGTH, Unfinished
from raceway.wires.mb.codec.header import MbHeader

# A list of a million topics is about 100 MB; a larger frame is a sign that the peer does not speak MB.
FRAME_LIMIT = 256 * 1024 * 1024

ReceivedFrame = tuple[MbHeader, bytes]


class MbInbox:
    """The decoder of a connection to a broker."""

    def __init__(self, frame_limit: int = FRAME_LIMIT) -> None:
        self._frame_limit = frame_limit
        self._unfinished = Unfinished()

    def receive_data(self, data: bytes) -> list[ReceivedFrame]:
        """Return the messages that bytes from a TCP socket complete. Raises TooLargeError: close the connection."""
        joined = self._unfinished.maybe_join(data)
        if joined is None:
            return []
        at, size = 0, len(joined)
        received: list[ReceivedFrame] = []
        while size - at >= 4:
            (length,) = LENGTH.unpack_from(joined, at)
            # Before the frame is complete: it must not be buffered first.
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
    def receive_messages(messages: list[bytes]) -> list[ReceivedFrame]:
        """Return the messages in whole WebSocket messages."""
        found = (_maybe_read(message, 0, len(message)) for message in messages)
        return [message for message in found if message]


def _maybe_read(data: bytes, start: int, end: int) -> ReceivedFrame | None:
    newline = data.find(b"\n", start, end)
    # Fields after the fifth are the timeout and those of later versions; a client needs none of them.
    fields = data[start:newline].split(b":") if newline >= 0 else []
    if len(fields) < 3:
        return None
    # Ids are not validated: a client only compares them with those it has sent.
    return MbHeader(
        fields[0].lower(),
        fields[1],
        fields[2],
        fields[3] or None if len(fields) > 3 else None,
        fields[4] or None if len(fields) > 4 else None,
    ), data[newline + 1 : end]
