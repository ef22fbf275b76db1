"""Messages on their way to a reader."""

from __future__ import annotations

import asyncio

import pytest

from raceway.errors import ConnectionLostError
from raceway.net.client.messages import Message
from raceway.wires.mb.client.subscription import OVERHEAD_BYTES, Subscription


class Closed:
    """Remembers which subscriptions were ended."""

    def __init__(self) -> None:
        self.subscriptions: list[Subscription] = []

    async def __call__(self, subscription: Subscription) -> None:
        self.subscriptions.append(subscription)


def subscription(buffer_bytes: int = 1_000_000) -> Subscription:
    return Subscription("a", buffer_bytes, Closed())


def test_messages_come_in_order_whether_the_reader_is_there_or_not() -> None:
    async def scene() -> None:
        reader = subscription()
        reader.put(Message("a", b"1"))
        assert await anext(reader) == Message("a", b"1")
        waiting = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        reader.put(Message("a", b"2"))
        reader.put(Message("a", b"3"))
        assert (await waiting, await anext(reader)) == (Message("a", b"2"), Message("a", b"3"))

    asyncio.run(scene())


def test_two_readers_share_the_messages() -> None:
    async def scene() -> None:
        reader = subscription()
        waiting = [asyncio.ensure_future(anext(reader)) for _ in range(2)]
        await asyncio.sleep(0)
        reader.put(Message("a", b"1"))
        reader.put(Message("a", b"2"))
        assert {message.payload for message in await asyncio.gather(*waiting)} == {b"1", b"2"}

    asyncio.run(scene())


def test_reader_that_gave_up_takes_no_message_from_the_next() -> None:
    async def scene() -> None:
        reader = subscription()
        with pytest.raises(TimeoutError):
            await reader.get(timeout_s=0)
        waiting = asyncio.ensure_future(reader.get())
        await asyncio.sleep(0)
        reader.put(Message("a", b"1"))
        assert await waiting == Message("a", b"1")

    asyncio.run(scene())


def test_reader_that_goes_away_after_it_was_woken_wakes_the_next() -> None:
    async def scene() -> None:
        reader = subscription()
        leaving, staying = (asyncio.ensure_future(anext(reader)) for _ in range(2))
        await asyncio.sleep(0)
        reader.put(Message("a", b"1"))
        leaving.cancel()
        assert await asyncio.wait_for(staying, 5) == Message("a", b"1")

    asyncio.run(scene())


def test_what_a_slow_reader_cannot_hold_is_dropped_and_counted() -> None:
    async def scene() -> None:
        reader = subscription(buffer_bytes=2 * (OVERHEAD_BYTES + 10))
        for _ in range(5):
            reader.put(Message("a", b"x" * 10))
        assert reader.dropped == 3
        await anext(reader)
        reader.put(Message("a", b"next"))
        assert reader.dropped == 3

    asyncio.run(scene())


def test_one_message_larger_than_the_buffer_is_held() -> None:
    reader = subscription(buffer_bytes=10)
    reader.put(Message("a", b"x" * 1000))
    assert reader.dropped == 0


def test_end_lets_the_reader_finish_what_is_held() -> None:
    async def scene() -> None:
        reader = subscription()
        reader.put(Message("a", b"1"))
        reader.end(None)
        reader.put(Message("a", b"2"))
        assert [message.payload async for message in reader] == [b"1"]
        assert await reader.get() is None

    asyncio.run(scene())


def test_loss_for_good_is_raised_to_everybody_who_waits() -> None:
    async def scene() -> None:
        reader = subscription()
        waiting = [asyncio.ensure_future(anext(reader)) for _ in range(2)]
        await asyncio.sleep(0)
        reader.end(ConnectionLostError("mb://x", "gone"))
        for each in waiting:
            with pytest.raises(ConnectionLostError):
                await each

    asyncio.run(scene())


def test_close_unsubscribes_once() -> None:
    async def scene() -> None:
        closed = Closed()
        async with Subscription("a", 100, closed) as reader:
            await reader.close()
        assert closed.subscriptions == [reader]

    asyncio.run(scene())
