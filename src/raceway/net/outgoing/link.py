"""A send-only connection: received data is ignored."""

from __future__ import annotations

import asyncio
from typing import cast

from raceway.net.outgoing.allowed import Target


class OneWayLink(asyncio.Protocol):
    """A connection made by `open_link`. It does not reconnect: open a new one instead."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    @property
    def open(self) -> bool:
        """Whether the connection is open."""
        return not self.closed.is_set()

    def send(self, data: bytes) -> bool:
        """Send `data`; False, without sending, if an earlier message is still buffered: a slow peer must not grow the
        buffer."""
        if self._transport.is_closing() or self._transport.get_write_buffer_size():
            return False
        self._transport.write(data)
        return True

    def abort(self) -> None:
        """Close without flushing."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit asyncio's

    def connection_lost(self, error: Exception | None) -> None:
        """Mark the link closed."""
        self.closed.set()


async def open_link(target: Target, timeout_s: float) -> OneWayLink:
    """Connect. Raises OSError (TimeoutError is one)."""
    async with asyncio.timeout(timeout_s):
        _, link = await asyncio.get_running_loop().create_connection(OneWayLink, target.host, target.port)
    return link
