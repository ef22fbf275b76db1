"""The wire MB in this process, its bus in another: sessions work over the link as they do through the door."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from raceway import config
from raceway.client import connect
from raceway.errors import RacewayError
from raceway.net.client.streams import MessageStream
from raceway.wires.mb.listen.session import MbGate
from raceway.wires.mb.listen.tcp import MbTcp
from tests.rigs.link_door import LinkDoor, served_over
from tests.rigs.link_process import DEADLINE_S, lane, until


def served(folder: Path) -> contextlib.AbstractAsyncContextManager[tuple[str, LinkDoor]]:
    """The URL of MB, spoken in this process."""

    def made(door: LinkDoor) -> tuple[MbGate, Callable[[], asyncio.Protocol]]:
        gate = MbGate(door, config.Listen())  # type: ignore[arg-type]  # stands in for it
        return gate, partial(MbTcp, gate)

    return served_over(folder, "mb", made)


async def payload_of(stream: MessageStream[Any]) -> bytes:
    message = await stream.get(DEADLINE_S)
    assert message is not None
    payload: bytes = message.payload
    return payload


def test_publish_subscribe_and_request_of_mb_go_over_the_link(folder: Path) -> None:
    async def talk() -> None:
        async with served(folder) as (url, _), connect(url, wire="mb") as reader, connect(url, wire="mb") as sender:
            orders = await reader.subscribe("orders.#")
            for at in range(100):
                await sender.publish("orders.new", b"%d" % at)  # acknowledged: on the disk of the other process
            got = [await payload_of(orders) for _ in range(100)]
            assert got == [b"%d" % at for at in range(100)]
            assert (await sender.publish("nobody.reads", b"x")).no_route
            await reader.serve("sum", lambda message: b"%d" % sum(map(int, message.payload.split(b"+"))))
            assert await sender.request("sum", b"2+3") == b"5"
            with pytest.raises(RacewayError, match="No subscribers"):
                await sender.request("difference", b"2-3")

    with lane(folder):
        asyncio.run(talk())


def test_clients_of_mb_stay_connected_while_the_broker_starts_again(folder: Path) -> None:
    async def story() -> None:
        with lane(folder) as first:
            stack = contextlib.AsyncExitStack()
            url, door = await stack.enter_async_context(served(folder))
            reader, sender = [await stack.enter_async_context(connect(url, wire="mb")) for _ in range(2)]
            orders = await reader.subscribe("orders")
            await sender.publish("orders", b"before")
            first.kill()
            await until(lambda: not door.is_open)
            with pytest.raises(RacewayError, match="nothing was done"):
                await sender.publish("orders", b"meanwhile")
        async with stack:
            with lane(folder):
                await until(lambda: door.is_open)
                await sender.publish("orders", b"after")
                assert [await payload_of(orders) for _ in range(2)] == [b"before", b"after"]

    asyncio.run(story())
