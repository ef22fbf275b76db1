"""Programs as people write them from the manual's pages, in a folder of their own: `mypy --strict` accepts them, they
run, and mypy finds a misspelt method in each.

From `howto/typed-messages.md` a durable consumer and typed requests, from `howto/write-an-app.md` a router with
schemas.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rigs.server import Door, running_server

DURABLE = """
import asyncio
import sys

import msgspec

from raceway.client import DanubeMessage, connect


class Parcel(msgspec.Struct):
    id: int
    kg: float


async def send(url: str) -> None:
    async with connect(url, wire="danube") as bus:
        receipt = await bus.publish("parcels", Parcel(1, 0.5))
        print("stored", receipt.stored)
        await bus.publish_many("parcels", [Parcel(2, 1.5), Parcel(3, 2.0)])


async def weigh(url: str) -> None:
    weights: asyncio.Queue[float] = asyncio.Queue()

    async def take(message: DanubeMessage) -> None:
        await weights.put(message.decode(Parcel).kg)

    async with connect(url, wire="danube", name="scales") as bus:
        parcels = await bus.consume("parcels", start="first", in_flight=10)
        async with await parcels.handle(take, concurrency=2):
            print("weighed", sum([await weights.get() for _ in range(3)]))


async def main(url: str) -> None:
    await send(url)
    await weigh(url)


asyncio.run(main(sys.argv[1]))
"""
TYPED = """
import sys

import msgspec

from raceway.client import Message
from raceway.client.sync import connect
from raceway.errors import RemoteError


class Order(msgspec.Struct):
    pieces: int


class Price(msgspec.Struct):
    euros: int


def price(message: Message) -> Price:
    order = message.decode(Order)
    if order.pieces > 100:
        raise RemoteError("TOO_MANY", f"{order.pieces} pieces are not in stock")
    return Price(3 * order.pieces)


with connect(sys.argv[1], wire="mb", name="prices") as desk, desk.serve("shop.price", price):
    with connect(sys.argv[1], wire="mb") as shop:
        print(shop.request("shop.price", Order(7), reply=Price).euros)
        for wrong in (Order(101), {"pieces": "seven"}):
            try:
                shop.request("shop.price", wrong, reply=Price)
            except RemoteError as error:
                print(error.reported)
"""
ROUTER = """
import asyncio
import sys

import msgspec

from raceway.client.app import App, Router
from raceway.errors import RemoteError


class Order(msgspec.Struct):
    id: int
    fruit: str = "apple"


class State(msgspec.Struct):
    open: int


orders = Router()
opened: asyncio.Queue[Order] = asyncio.Queue()
orders.schema("shop.orders.created", Order)


@orders.consume("shop.orders.#", concurrency=4)
async def on_order(order: Order) -> None:
    await opened.put(order)


@orders.serve("shop.state")
async def state(ask: str) -> State:
    return State(opened.qsize())


async def main(url: str, console: str) -> None:
    app = App(url, name="shop", console=console)
    app.include(orders)
    async with app.running() as bus:
        await bus.publish("shop.orders.created", Order(7, "plum"))
        print((await opened.get()).fruit)
        print((await bus.request("shop.state", "how many?", reply=State)).open)
        try:
            await bus.publish("shop.orders.created", {"id": "seven"})
        except RemoteError as error:
            print(error.reported)


asyncio.run(main(sys.argv[1], sys.argv[2]))
"""
# Each program with a call in it, a misspelling of that call, and the ports that it is started with.
PROGRAMS: dict[str, tuple[str, str, str, tuple[Door, ...]]] = {
    "durable": (DURABLE, "bus.consume(", "bus.consum(", ("danube",)),
    "typed": (TYPED, "shop.request(", "shop.requst(", ("tcp",)),
    "router": (ROUTER, "bus.publish(", "bus.publsh(", ("tcp", "console")),
}
SCHEMES = {"danube": "danube", "tcp": "mb", "console": "http"}
PRINTED = {
    "durable": ["stored True", "weighed 4.0"],
    "typed": ["21", "TOO_MANY", "MALFORMED_MESSAGE"],
    "router": ["plum", "0", "INVALID_REQUEST"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    for name, (program, right, wrong, _) in PROGRAMS.items():
        (folder / f"{name}.py").write_text(program, "utf-8")
        (folder / f"{name}_misspelt.py").write_text(program.replace(right, wrong), "utf-8")
    return folder


@pytest.fixture(scope="module")
def reported(folder: Path) -> dict[str, list[str]]:
    """Errors of all programs, by their names. Checked together: mypy starts slowly."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *map(str, sorted(folder.glob("*.py")))]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.stderr == ""
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        match = re.fullmatch(r"(?:.*/)?(\w+)\.py:\d+: error: (.*)", line)
        assert match is not None, line
        found.setdefault(match[1], []).append(match[2])
    return found


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", PROGRAMS)
def test_mypy_accepts_it_and_finds_a_misspelt_method(reported: dict[str, list[str]], name: str) -> None:
    wrong = PROGRAMS[name][2].split(".")[1].rstrip("(")
    assert reported.get(name, []) == []
    assert [error for error in reported[f"{name}_misspelt"] if f'has no attribute "{wrong}"' in error]


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_runs(folder: Path, name: str) -> None:
    with running_server() as server:
        urls = [f"{SCHEMES[door]}://127.0.0.1:{server.port(door)}" for door in PROGRAMS[name][3]]
        command = [sys.executable, str(folder / f"{name}.py"), *urls]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.splitlines(), done.stderr) == (PRINTED[name], "")
