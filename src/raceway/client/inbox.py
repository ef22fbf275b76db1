"""What came from the bus and nobody has read yet, and those who wait to read it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from raceway.errors import RacewayError

Item = TypeVar("Item")


class Inbox(Generic[Item]):
    """Items in the order in which they came, readers in the order in which they asked; each item goes to one reader."""

    def __init__(self) -> None:
        self.is_over = False
        self._items: deque[Item] = deque()
        self._readers: deque[asyncio.Future[None]] = deque()
        self._error: RacewayError | None = None

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_awaited(self) -> bool:
        return bool(self._readers)

    def put(self, item: Item) -> None:
        self._items.append(item)
        self._wake()

    def clear(self) -> None:
        self._items.clear()

    def end(self, error: RacewayError | None) -> None:
        """Nothing more will come. What is held can still be read; then `error` is raised, or the iteration ends."""
        if not self.is_over:
            self.is_over, self._error = True, error
            self.wake_all()

    def wake_all(self) -> None:
        while self._readers:
            self._wake()

    async def take(self) -> Item:
        """The next item. Raises what `end` was told, StopAsyncIteration."""
        while not self._items:
            self.raise_if_over()
            with self.place() as reader:
                await reader
        return self._items.popleft()

    def pop(self) -> Item:
        return self._items.popleft()

    def raise_if_over(self) -> None:
        if self._error is not None:
            raise self._error
        if self.is_over:
            raise StopAsyncIteration

    @contextmanager
    def place(self) -> Iterator[asyncio.Future[None]]:
        """A place in line: the future is done when an item came, or when there is something to be said."""
        reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._readers.append(reader)
        try:
            yield reader
        except BaseException:
            self._leave(reader)
            raise

    def _leave(self, reader: asyncio.Future[None]) -> None:
        """A reader that goes away after it was woken must not keep the others from what it was woken for."""
        if reader in self._readers:
            self._readers.remove(reader)
        elif self._items:
            self._wake()

    def _wake(self) -> None:
        while self._readers:
            reader = self._readers.popleft()
            if not reader.done():
                reader.set_result(None)
                return
