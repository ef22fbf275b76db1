"""The wire zbus in this process, its bus in another or in four: queues, services through queues, lanes that die."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from raceway import config
from raceway.client import Delivery, connect
from raceway.errors import RacewayError
from raceway.model.lanes import LaneTable
from raceway.wires.zbus.listen.session import ZbusGate, ZbusTcp
from tests.rigs.link_door import LinkDoor, served_over
from tests.rigs.link_process import DEADLINE_S, lane, until

# Over a link, and over an edge with so many.
LANES = pytest.mark.parametrize("lanes", [None, 4])


def served(folder: Path, lanes: int | None) -> contextlib.AbstractAsyncContextManager[tuple[str, LinkDoor]]:
    """The URL of zbus, spoken in this process."""

    def made(door: LinkDoor) -> tuple[ZbusGate, Callable[[], asyncio.Protocol]]:
        gate = ZbusGate(door, config.Listen(), 1, "")  # type: ignore[arg-type]  # stands in for it
        return gate, partial(ZbusTcp, gate)

    return served_over(folder, "zbus", made, lanes)


async def text_of(consumer: Any) -> str:
    delivery = await consumer.get(DEADLINE_S)
    assert isinstance(delivery, Delivery)
    return delivery.text


async def taken(door: LinkDoor) -> None:
    """Wait until what was written to consumers is off their queues, on the disk too."""
    peers = [known.peer for known in door.callers[0]._by_number.values()]
    await until(lambda: not any(peer._unsent for peer in peers))  # type: ignore[attr-defined]
    committed = asyncio.get_running_loop().create_future()
    door.runtime.after_commit(committed.set_result)
    assert await committed is None


@contextlib.contextmanager
def started(folder: Path, lanes: int | None) -> Iterator[list[subprocess.Popen[str]]]:
    """The processes of all lanes."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(lane(folder, number)) for number in range(lanes or 1)]


@LANES
def test_queues_and_services_of_zbus_go_over_the_link(folder: Path, lanes: int | None) -> None:
    names = [f"sum{number}" for number in range(8)]

    async def talk() -> None:
        async with (
            served(folder, lanes) as (url, _),
            connect(url, wire="zbus") as one,
            connect(url, wire="zbus") as two,
        ):
            await one.create_queue("orders")
            assert await one.publish_many("orders", map(str, range(3000))) == 3000
            async with await two.consume("orders") as orders:
                assert [await text_of(orders) for _ in range(1000)] == [str(at) for at in range(1000)]
            async with await one.consume("orders") as orders:
                assert await text_of(orders) == "1000"
            for name in names:
                await one.create_queue(name)
                await one.serve(name, lambda message: str(sum(map(int, message.text.split("+")))))
            calls = [(name, at) for at in range(10) for name in names]
            answers = await asyncio.gather(*(two.request(name, f"{at}+1", timeout_ms=60_000) for name, at in calls))
            assert answers == [b"%d" % (at + 1) for _, at in calls]
            with pytest.raises(RacewayError, match="Not Found"):
                await one.publish("nobody", "x")

    with started(folder, lanes):
        asyncio.run(talk())


@LANES
def test_a_consumer_of_zbus_waits_on_while_the_broker_starts_again(folder: Path, lanes: int | None) -> None:
    of_orders = LaneTable(lanes or 1).lane_of(b"orders")

    async def story() -> None:
        with started(folder, lanes) as processes:
            stack = contextlib.AsyncExitStack()
            url, door = await stack.enter_async_context(served(folder, lanes))
            one, two = [await stack.enter_async_context(connect(url, wire="zbus")) for _ in range(2)]
            await one.create_queue("orders")
            orders = await stack.enter_async_context(await two.consume("orders"))
            await one.publish("orders", "before")
            assert await text_of(orders) == "before"
            waiting = asyncio.create_task(text_of(orders))
            await until(lambda: orders.armed)
            await taken(door)
            processes[of_orders].kill()
            await until(lambda: not door.is_open)
            with pytest.raises(RacewayError, match="nothing was done"):
                await one.publish("orders", "meanwhile")
        async with stack:
            with started(folder, lanes):
                await until(lambda: door.is_open)
                await one.publish("orders", "after")
                assert await waiting == "after"
                assert (one.reconnects, orders.reconnects) == (0, 0)

    asyncio.run(story())
