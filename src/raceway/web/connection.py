"""One connection of the console port, with the bounds that every door of the bus has.

uvicorn's own protocol waits for a head for ever and takes one of any size. Here a head must be complete in time, and
within so many bytes; both are refused in HTTP's own words, and the connection ends.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from raceway import config
from raceway.web.answers import ABORT, UNSENT


class BoundedConnection(HttpToolsProtocol):
    head_limit: ClassVar[int]
    head_s: ClassVar[float]
    _in_head = False
    _head_bytes = 0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._in_head:
            self._head_bytes = 0
        super().data_received(data)
        if self._in_head and self.transport is not None:
            self._head_bytes += len(data)
            if self._head_bytes > self.head_limit:
                self._refuse(431)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[ABORT] = self.transport.abort  # type: ignore[literal-required]  # a key of our own
        self.scope[UNSENT] = self.transport.get_write_buffer_size  # type: ignore[literal-required]  # the same
        self._await_head()
        self._in_head = True

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._end_head()
        super().on_headers_complete()

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


def bounded_connection(listen: config.Listen) -> type[BoundedConnection]:
    """The class of connections with these bounds: uvicorn makes one itself for each."""
    bounds: dict[str, Any] = {"head_limit": listen.http.head_limit, "head_s": listen.head_s}
    return type("BoundedConnection", (BoundedConnection,), bounds)
