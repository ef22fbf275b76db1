"""Streams with types, and handlers at work on them, over a stream that a test fills."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from raceway.errors import ConfigError, ConnectionLostError, PayloadTypeError
from raceway.net.client.chain import handling
from raceway.net.client.inbox import Inbox
from raceway.net.client.messages import Message
from raceway.net.client.streams import MessageStream


class Order(msgspec.Struct):
    id: int


class Filled(MessageStream[Message]):
    """A stream of given messages, which notes what was settled."""

    def __init__(self, *payloads: bytes) -> None:
        self.inbox: Inbox[Message] = Inbox()
        for number, payload in enumerate(payloads):
            self.inbox.put(Message("orders", payload, id=str(number)))
        self.settled: list[tuple[bytes, str]] = []
        self.closed = 0

    async def __anext__(self) -> Message:
        return await self.inbox.take()

    async def settle(self, message: Any, error: Exception | None) -> None:
        self.settled.append((message.payload, "" if error is None else str(error)))
        if message.payload == b"unsettled":
            raise ConnectionLostError("mb://x", "gone")

    async def close(self) -> None:
        self.closed += 1


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scene(), 20))


def test_typed_stream_decodes_where_the_value_is_read() -> None:
    async def scene() -> None:
        stream = Filled(b'{"id":1}', b'{"id":"x"}', b'{"id":3}')
        stream.inbox.end(None)
        orders = [order async for order in stream.typed(Order)]
        assert [orders[0].value, orders[2].value] == [Order(1), Order(3)]
        assert (orders[1].message.payload, orders[1].id) == (b'{"id":"x"}', "1")
        with pytest.raises(PayloadTypeError, match=r"not of type Order: \$\.id: Expected `int`, got `str`"):
            assert orders[1].value
        await stream.typed(Order).close()
        assert stream.closed == 1

    run(scene)


def test_messages_are_settled_with_what_their_handler_said(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        parents: list[str | None] = []

        def handle(message: Message) -> None:
            parents.append(handling.get())
            if message.payload == b"bad":
                raise ValueError("not today")

        stream = Filled(b"good", b"bad", b"unsettled", b"last")
        stream.inbox.end(None)
        await (await stream.handle(handle)).wait()
        assert stream.settled == [(b"good", ""), (b"bad", "not today"), (b"unsettled", ""), (b"last", "")]
        assert parents == ["0", "1", "2", "3"]

    run(scene)
    assert [record.message for record in caplog.records] == [
        "message handler failed",
        "message not acknowledged: connection to mb://x lost: gone",
    ]


def test_typed_messages_are_handled_and_settled() -> None:
    async def scene() -> None:
        stream, seen = Filled(b'{"id":1}', b"{}"), list[int]()
        stream.inbox.end(None)
        await (await stream.typed(Order).handle(lambda order: seen.append(order.value.id))).wait()
        assert seen == [1]
        assert [error for _, error in stream.settled] == [
            "",
            "payload is not of type Order: $: Object missing required field `id`",
        ]

    run(scene)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_as_many_handlers_run_at_once_as_asked_for(concurrency: int) -> None:
    async def scene() -> None:
        running, most = 0, 0
        go = asyncio.Event()

        async def handle(message: Message) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            if running == concurrency:
                go.set()
            await go.wait()
            await asyncio.sleep(0)
            running -= 1

        stream = Filled(*[b"%d" % number for number in range(10)])
        stream.inbox.end(None)
        await (await stream.handle(handle, concurrency=concurrency)).wait()
        assert most == concurrency
        assert sorted(payload for payload, _ in stream.settled) == [b"%d" % number for number in range(10)]

    run(scene)


def test_close_waits_for_running_handlers_and_takes_no_more() -> None:
    async def scene() -> None:
        began, go = asyncio.Event(), asyncio.Event()

        async def handle(message: Message) -> None:
            began.set()
            await go.wait()

        stream = Filled(b"1", b"2")
        workers = await stream.handle(handle)
        await began.wait()
        closing = asyncio.create_task(workers.close())
        await asyncio.sleep(0)
        assert not closing.done()
        go.set()
        await closing
        await workers.close()
        assert (stream.settled, len(stream.inbox), stream.closed) == ([(b"1", "")], 1, 1)

    run(scene)


def test_close_cancels_handlers_that_take_too_long() -> None:
    async def scene() -> None:
        began = asyncio.Event()

        async def handle(message: Message) -> None:
            began.set()
            await asyncio.Event().wait()

        stream = Filled(b"1")
        workers = await stream.handle(handle, concurrency=2)
        await began.wait()
        await workers.close(drain_s=0.01)
        assert (stream.settled, stream.closed) == ([], 1)

    run(scene)


def test_error_of_the_stream_is_raised_to_who_waits() -> None:
    async def scene() -> None:
        stream = Filled(b"1")
        stream.inbox.end(ConnectionLostError("mb://x", "gone"))
        workers = await stream.handle(lambda message: None, concurrency=2)
        with pytest.raises(ConnectionLostError):
            await workers.wait()
        assert stream.settled == [(b"1", "")]

    run(scene)


def test_an_error_that_was_raised_to_who_waits_is_not_logged_by_asyncio() -> None:
    async def scene() -> None:
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        stream = Filled()
        stream.inbox.end(ConnectionLostError("mb://x", "gone"))
        workers = await stream.handle(lambda message: None, concurrency=3)
        with suppress(ConnectionLostError):
            await workers.wait()
        del workers, stream  # its error holds the frames in which it was raised
        gc.collect()
        assert not told

    run(scene)


def test_who_waits_may_be_cancelled_without_harm_to_handlers() -> None:
    async def scene() -> None:
        began, go = asyncio.Event(), asyncio.Event()

        async def handle(message: Message) -> None:
            began.set()
            await go.wait()

        stream = Filled(b"1")
        workers = await stream.handle(handle)
        await began.wait()
        waiting = asyncio.create_task(workers.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        go.set()
        await workers.close()
        assert stream.settled == [(b"1", "")]

    run(scene)


def test_concurrency_is_at_least_one() -> None:
    async def scene() -> None:
        with pytest.raises(ConfigError, match="concurrency: is 0 and must be at least 1"):
            await Filled().handle(print, concurrency=0)

    run(scene)
