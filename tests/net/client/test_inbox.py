from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from raceway.errors import ConnectionLostError
from raceway.net.client.inbox import Inbox


def played(scene: Callable[[Inbox[int]], Awaitable[None]]) -> None:
    async def play() -> None:
        await scene(Inbox())

    asyncio.run(play())


def test_items_go_to_readers_in_order() -> None:
    async def scene(inbox: Inbox[int]) -> None:
        readers = [asyncio.create_task(inbox.take()) for _ in range(2)]
        await asyncio.sleep(0)
        assert inbox.is_awaited
        for item in (1, 2, 3):
            inbox.put(item)
        assert await asyncio.gather(*readers) == [1, 2]
        assert (len(inbox), inbox.pop()) == (1, 3)

    played(scene)


def test_a_reader_cancelled_after_its_wake_up_passes_it_on() -> None:
    async def scene(inbox: Inbox[int]) -> None:
        first, second = (asyncio.create_task(inbox.take()) for _ in range(2))
        await asyncio.sleep(0)
        inbox.put(1)
        first.cancel()
        assert await second == 1

    played(scene)


def test_items_held_are_read_before_the_first_reason_of_the_end() -> None:
    async def scene(inbox: Inbox[int]) -> None:
        inbox.put(1)
        inbox.end(ConnectionLostError("mb://x", "reset"))
        inbox.end(None)
        assert await inbox.take() == 1
        for _ in range(2):
            with pytest.raises(ConnectionLostError, match="reset"):
                await inbox.take()

    played(scene)


def test_an_end_without_an_error_ends_the_iteration_of_waiting_readers() -> None:
    async def scene(inbox: Inbox[int]) -> None:
        reader = asyncio.ensure_future(anext_of(inbox))
        await asyncio.sleep(0)
        inbox.end(None)
        assert await reader is None

    async def anext_of(inbox: Inbox[int]) -> int | None:
        try:
            return await inbox.take()
        except StopAsyncIteration:
            return None

    played(scene)
