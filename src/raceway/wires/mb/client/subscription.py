"""Live subscriptions: messages between the connection and their reader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from raceway.errors import RacewayError
from raceway.net.client.inbox import Inbox
from raceway.net.client.messages import Message
from raceway.net.client.streams import MessageStream

# Approximate memory of a held message besides its payload, so that empty messages are bounded, too.
OVERHEAD_BYTES = 400


class Subscription(MessageStream[Message]):
    """An asynchronous iterator of messages, made by `MbClient.subscribe`.

    It ends when it or the client is closed, and raises ConnectionLostError when the connection is lost and not
    reestablished.

        async with await bus.subscribe("orders.#") as orders:
            async for message in orders:
                …

    Holds up to `buffer_bytes` for a slow reader. Beyond that the newest messages are dropped and counted in `dropped`:
    to stop reading from the connection instead would also delay answers that the reader may be waiting for. Each
    reconnect (`MbClient.reconnects`) may leave a gap: the bus keeps no messages for live subscriptions.
    """

    def __init__(self, pattern: str, buffer_bytes: int, unsubscribe: Callable[[Subscription], Awaitable[None]]) -> None:
        self.pattern = pattern
        self.dropped = 0
        self._inbox: Inbox[Message] = Inbox()
        self._held = 0
        self._buffer_bytes = buffer_bytes
        self._unsubscribe = unsubscribe

    def put(self, message: Message) -> None:
        """Add a message, or drop it if the buffer is full or the subscription has ended."""
        size = len(message.payload) + OVERHEAD_BYTES
        if self._inbox.is_over or (self._held + size > self._buffer_bytes and self._inbox):
            self.dropped += not self._inbox.is_over
            return
        self._held += size
        self._inbox.put(message)

    def end(self, error: RacewayError | None) -> None:
        """Accept no more messages. Those held can still be read; then `error` is raised, or the iteration ends."""
        self._inbox.end(error)

    async def __anext__(self) -> Message:
        message = await self._inbox.take()
        self._held -= len(message.payload) + OVERHEAD_BYTES
        return message

    async def close(self) -> None:
        """Unsubscribe and drop unread messages. Idempotent."""
        if not self._inbox.is_over:
            self.end(None)
            self._inbox.clear()
            await self._unsubscribe(self)
