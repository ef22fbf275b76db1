"""Messages on their way from the connection to whoever reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from raceway.client.inbox import Inbox
from raceway.client.messages import Message
from raceway.errors import RacewayError

# What a held message costs beside its payload, roughly: so that empty messages are bounded too.
OVERHEAD_BYTES = 400


class Subscription:
    """An endless iterator of messages. It ends when it or the client is closed, and raises when the connection is lost
    for good.

        async with await bus.subscribe("orders.#") as orders:
            async for message in orders:
                …

    Holds up to `buffer_bytes` for a reader that is behind. Beyond that the newest are dropped and counted in `dropped`:
    not reading from the connection instead would also keep back the answers that the reader may be waiting for.
    A lost connection that comes back (`MbClient.reconnects`) leaves a gap: a bus keeps nothing for live subscriptions.
    """

    def __init__(self, pattern: str, buffer_bytes: int, unsubscribe: Callable[[Subscription], Awaitable[None]]) -> None:
        self.pattern = pattern
        self.dropped = 0
        self._inbox: Inbox[Message] = Inbox()
        self._held = 0
        self._buffer_bytes = buffer_bytes
        self._unsubscribe = unsubscribe

    def put(self, message: Message) -> None:
        size = len(message.payload) + OVERHEAD_BYTES
        if self._inbox.is_over or (self._held + size > self._buffer_bytes and self._inbox):
            self.dropped += not self._inbox.is_over
            return
        self._held += size
        self._inbox.put(message)

    def end(self, error: RacewayError | None) -> None:
        """Nothing more will come. What is held can still be read, then `error` is raised, or the iteration ends."""
        self._inbox.end(error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        message = await self._inbox.take()
        self._held -= len(message.payload) + OVERHEAD_BYTES
        return message

    async def get(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None when there will be none. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            return await anext(self, None)

    async def close(self) -> None:
        """Unsubscribe. May be repeated."""
        if not self._inbox.is_over:
            self.end(None)
            self._inbox.clear()
            await self._unsubscribe(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
