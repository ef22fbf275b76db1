"""A response with server-sent events, from bytes: its status, then the events (HTML, 9.2.6).

Fields other than `event` and `data` are not needed, and comments only show that the other side is alive.
"""

from __future__ import annotations

from typing import NamedTuple

import httptools

from raceway.errors import MalformedError, TooLargeError

# Largest head, and largest body of a response that has no events.
HEAD_LIMIT, REFUSAL_LIMIT = 64 * 1024, 1024 * 1024


class ServerEvent(NamedTuple):
    """Name and data of an event."""

    name: str
    data: bytes


class EventReader:
    """Reader of one response. `event_limit` bounds an event. `status` is None until the head is complete; if it is not
    200 there are no events but a `body`, which is whole when the response `is_over`."""

    def __init__(self, event_limit: int) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._limit = event_limit
        self.status: int | None = None
        self.is_over = False
        self.body = b""
        self._head_size = self._held = 0
        self._pieces: list[bytes] = []
        self._has_line = False
        self._name, self._data = "message", list[bytes]()

    def receive_data(self, data: bytes) -> list[ServerEvent]:
        """Return the events that these bytes complete. Raises MalformedError, TooLargeError (over a limit)."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise MalformedError(f"malformed HTTP response: {error}") from error
        if self.status is None:
            self._head_size += len(data)
            self._check("a head", self._head_size, HEAD_LIMIT)
            return []
        if self.status != 200:
            self._check("an HTTP response", self._held, REFUSAL_LIMIT)
            self.body = b"".join(self._pieces)
            return []
        self._check("an event", self._held, self._limit)
        return self._events()

    def _check(self, what: str, size: int, limit: int) -> None:
        if size > limit:
            raise TooLargeError(what, size, limit)

    def _events(self) -> list[ServerEvent]:
        # Joined only when a line has ended: an event may come in many pieces.
        if not self._has_line:
            return []
        self._has_line = False
        *lines, rest = b"".join(self._pieces).split(b"\n")
        self._pieces = [rest] if rest else []
        found = [event for line in lines if (event := self._maybe_event(line.removesuffix(b"\r"))) is not None]
        self._held = len(rest) + sum(map(len, self._data))
        return found

    def _maybe_event(self, line: bytes) -> ServerEvent | None:
        """Take a line; return the event that it ends."""
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"data":
            self._data.append(value)
        if line:
            return None
        event = ServerEvent(self._name, b"\n".join(self._data)) if self._data else None
        self._name, self._data = "message", []
        return event

    # ---- callbacks of the parser ------------------------------------------------------------------------------------

    def on_headers_complete(self) -> None:
        # RFC 9110, 15.2: interim responses (1xx) precede the final one.
        status = self._parser.get_status_code()
        self.status = status if status >= 200 else None

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._held += len(piece)
        self._has_line = self._has_line or b"\n" in piece

    def on_message_complete(self) -> None:
        self.is_over = self.status is not None
