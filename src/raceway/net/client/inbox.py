"""A queue between a connection and its readers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from raceway.errors import RacewayError

Item = TypeVar("Item")


class Inbox(Generic[Item]):
    """Items in order of arrival for readers in order of asking; each item goes to one reader.

    Unlike asyncio.Queue it can end, with or without an error, and a cancelled reader passes its wake-up on.
    """

    def __init__(self) -> None:
        # No more items will come; those in `_items` can still be read.
        self.is_over = False
        self._items: deque[Item] = deque()
        # Futures are only wake-ups and carry no item: a reader that is cancelled after its wake-up loses nothing.
        self._readers: deque[asyncio.Future[None]] = deque()
        self._error: RacewayError | None = None

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_awaited(self) -> bool:
        """Whether a reader is waiting."""
        return bool(self._readers)

    def put(self, item: Item) -> None:
        """Add an item and wake one reader."""
        self._items.append(item)
        self._wake()

    def clear(self) -> None:
        """Drop the items nobody has read."""
        self._items.clear()

    def end(self, error: RacewayError | None) -> None:
        """Accept no more items. Items held can still be read; then `error` is raised, or the iteration ends."""
        # The first reason counts: a close after a loss does not hide the error.
        if not self.is_over:
            self.is_over, self._error = True, error
            self.wake_all()

    def wake_all(self) -> None:
        """Wake every reader, to look again at what has changed."""
        while self._readers:
            self._wake()

    async def take(self) -> Item:
        """Wait for the next item. At the end raises the error given to `end`, otherwise StopAsyncIteration."""
        # A loop: between wake-up and resumption another reader may have taken the item.
        while not self._items:
            self.raise_if_over()
            with self.place() as reader:
                await reader
        return self._items.popleft()

    def pop(self) -> Item:
        """The next item, without waiting. Raises IndexError if there is none."""
        return self._items.popleft()

    def raise_if_over(self) -> None:
        """Raise the error given to `end`, or StopAsyncIteration, if no more items will come."""
        # Not cleared: every later reader gets the same error.
        if self._error is not None:
            raise self._error
        if self.is_over:
            raise StopAsyncIteration

    @contextmanager
    def place(self) -> Iterator[asyncio.Future[None]]:
        """Queue a reader: its future is done when an item arrived, the inbox ended, or `wake_all` was called."""
        reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._readers.append(reader)
        try:
            yield reader
        # Only when cancelled: a reader that was woken has already been removed by `_wake`.
        except BaseException:
            self._leave(reader)
            raise

    def _leave(self, reader: asyncio.Future[None]) -> None:
        """Remove a cancelled reader; if it was already woken for an item, wake the next one instead."""
        if reader in self._readers:
            self._readers.remove(reader)
        elif self._items:
            self._wake()

    def _wake(self) -> None:
        while self._readers:
            reader = self._readers.popleft()
            # Done: cancelled, and about to leave.
            if not reader.done():
                reader.set_result(None)
                return
