"""One connection of the console port, with the limits that every port of the bus has.

uvicorn's own protocol waits for a head for ever and accepts one of any size, and any number of lines after a chunked
body. Here a head must be complete in time (408) and within a size (431); otherwise the connection is closed. So it is
after an overlong line between chunks, and after trailers: nothing here reads them, and code that merged them into the
headers would trust fields that no check has seen (RFC 9110, 6.5.1).

Buffered requests count towards the input budget that all connections of the bus share. A question whose asker has
disconnected is cancelled: nobody reads its answer, and others wait for their turn behind it. Answers that nobody reads
are bounded by `unread`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from raceway import config
from raceway.errors import MalformedError
from raceway.net.runtime import Runtime
from raceway.net.unsent import unsent
from raceway.web.answers import ABORT, ASKING, UNSENT
from raceway.web.unread import UnreadAnswers


class BoundedConnection(HttpToolsProtocol):
    runtime: ClassVar[Runtime]
    unread: ClassVar[UnreadAnswers]
    head_limit: ClassVar[int]
    head_s: ClassVar[float]
    max_connections: ClassVar[int]
    _in_head = _in_body = False
    # Whether the last read completed more than a part of a line.
    _moves = False
    _line_bytes = 0
    _body_bytes = 0
    _held = 0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._asking: set[asyncio.Task[Any]] = set()
        if self.max_connections and len(self.connections) > self.max_connections:
            self.runtime.counts["connection.rejected"] += 1
            self._refuse(503)
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        self.unread.forget(self.transport)
        super().connection_lost(exc)
        while self._asking:
            self._asking.pop().cancel()
        self.runtime.unfinished.release(self)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._moves = False
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._moves:
            # A head that began in this read, behind the end of another message: where in it is not known.
            self._line_bytes = self._parsed_bytes() if self._in_head else 0
        else:
            self._line_bytes += len(data)
        if self._line_bytes > self.head_limit:
            self._refuse(431)
        else:
            self._hold(self._line_bytes + self._body_bytes)

    def _parsed_bytes(self) -> int:
        """Size of the complete parts of an unfinished head."""
        # Besides name and value a line has a colon, mostly a space, CR and LF.
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _hold(self, size: int) -> None:
        if size != self._held:
            self._held = size
            self.runtime.unfinished.hold(self, size)

    def give_way(self) -> None:
        """Refuse the unfinished request and close: the input budget is exceeded and this connection holds most."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self._refuse(503)
        else:
            self.transport.abort()
        self.runtime.unfinished.release(self)

    # ---- called by the transport -------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        # Without a length an answer is a stream, and sent in pieces.
        self.unread.watch(self.transport, is_stream=bool(self.cycle and self.cycle.chunked_encoding))

    def resume_writing(self) -> None:
        super().resume_writing()
        self.unread.forget(self.transport)

    # ---- called by the parser ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[ABORT] = self.transport.abort  # type: ignore[literal-required]  # a key of our own
        self.scope[UNSENT] = partial(unsent, self.transport)  # type: ignore[literal-required]  # the same
        self.scope[ASKING] = self._asking  # type: ignore[literal-required]  # the same
        self._await_head()
        self._in_head, self._line_bytes = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            raise MalformedError("trailers are not supported")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body, self._moves = False, True, True
        self._end_head()
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        self._moves = True

    def on_body(self, body: bytes) -> None:
        self._moves = True
        super().on_body(body)
        if not self.cycle.response_complete:
            self._body_bytes += len(body)

    def on_message_complete(self) -> None:
        self._in_body, self._moves = False, True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._body_bytes = 0
        self._hold(0)
        super().on_response_complete()

    # ---- the head ----------------------------------------------------------------------------------------------------

    def _await_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.head_s, self._refuse, 408)

    def _end_head(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: int) -> None:
        self._end_head()
        if not self.transport.is_closing():
            self.transport.write(STATUS_LINE[status] + b"content-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()


def bounded_connection(runtime: Runtime, listen: config.Listen) -> type[BoundedConnection]:
    """Return a connection class with these limits, for uvicorn to instantiate."""
    bounds: dict[str, Any] = {
        "runtime": runtime, "unread": UnreadAnswers(runtime, listen), "head_limit": listen.http.head_limit,
        "head_s": listen.head_s, "max_connections": listen.http.max_connections,
    }  # fmt: skip
    return type("BoundedConnection", (BoundedConnection,), bounds)
