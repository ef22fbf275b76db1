"""A connection on which the bus only speaks: what comes back has no meaning and is not kept."""

from __future__ import annotations

import asyncio
from typing import cast

from raceway.dial.allowed import Target


class Link(asyncio.Protocol):
    """Made by `open_link`. It never comes back: a new one is opened instead."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self.closed = asyncio.Event()

    @property
    def open(self) -> bool:
        return not self.closed.is_set()

    def send(self, data: bytes) -> bool:
        """False if an earlier message has not left yet: what waits for a slow peer does not grow."""
        assert self._transport is not None
        if self._transport.is_closing() or self._transport.get_write_buffer_size():
            return False
        self._transport.write(data)
        return True

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are none of asyncio's classes

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set()


async def open_link(target: Target, timeout_s: float) -> Link:
    """Raises OSError, of which TimeoutError is one."""
    async with asyncio.timeout(timeout_s):
        _, link = await asyncio.get_running_loop().create_connection(Link, target.host, target.port)
    return link
