"""Programs of handlers, against a bus in memory."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from raceway.client import AnyMessage, Client, Message, connect
from raceway.client.app import App, Router, handler_of
from raceway.errors import ConfigError, ConnectionLostError, RemoteError, UnsupportedError
from raceway.testing import MemoryBus, memory_bus


class Order(msgspec.Struct):
    id: int


class Price(msgspec.Struct):
    euros: int


@pytest.fixture(scope="module")
def bus() -> Iterator[MemoryBus]:
    with memory_bus({"broker.subscriptions.failure.base_redelivery_delay_ms": 10}) as running:
        yield running


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scene(), 30))


class Seen(asyncio.Queue[Any]):
    """What handlers saw."""

    async def next(self) -> Any:
        return await asyncio.wait_for(self.get(), 10)


def test_handlers_get_values_of_their_type(bus: MemoryBus) -> None:
    async def scene() -> None:
        app, seen = App(bus.url("mb")), Seen()

        @app.consume("app.typed.#")
        async def by_type(order: Order) -> None:
            seen.put_nowait(order)

        @app.consume("app.typed.#")
        async def by_message(message: Message) -> None:
            seen.put_nowait(message.topic)

        async with app.running() as client:
            await client.publish("app.typed.x", Order(7))
            assert sorted([await seen.next(), await seen.next()], key=str) == [Order(7), "app.typed.x"]

    run(scene)


def test_services_answer_typed_requests_and_name_the_wrong_field(bus: MemoryBus) -> None:
    async def scene() -> None:
        app = App(bus.url("mb"))

        @app.serve("app.price")
        async def price(order: Order) -> Price:
            if order.id == 0:
                raise RemoteError("SOLD_OUT", "nothing left")
            return Price(order.id * 2)

        @app.serve("app.shout")
        def shout(text: str) -> str:
            assert threading.current_thread() is not threading.main_thread()
            return text.upper()

        async with app.running() as client:
            assert await client.request("app.price", Order(4), reply=Price) == Price(8)
            assert await client.request("app.shout", "loud", reply=str) == "LOUD"
            with pytest.raises(RemoteError, match="SOLD_OUT: nothing left"):
                await client.request("app.price", Order(0))
            with pytest.raises(RemoteError, match=r"MALFORMED_MESSAGE.*Order: \$\.id: Expected `int`, got `str`"):
                await client.request("app.price", {"id": "x"})

    run(scene)


def test_zbus_queue_is_consumed_and_served_too(bus: MemoryBus) -> None:
    async def scene() -> None:
        app, seen = App(bus.url("zbus")), Seen()

        @app.consume("app.jobs", start="first")
        async def work(order: Order) -> None:
            seen.put_nowait(order.id)

        @app.serve("app.answers")
        async def answer(order: Order) -> Price:
            return Price(order.id)

        async with connect(bus.url("zbus"), wire="zbus") as other:
            await other.create_queue("app.answers")
            async with app.running():
                await other.publish("app.jobs", Order(5))
                assert await seen.next() == 5
                assert await other.request("app.answers", Order(6), reply=Price) == Price(6)
                with pytest.raises(RemoteError, match="400: payload is not of type Order"):
                    await other.request("app.answers", b"[]")

    run(scene)


def test_failed_messages_come_again_and_others_are_acknowledged(bus: MemoryBus) -> None:
    async def scene() -> None:
        app, seen, failed = App(bus.url("danube"), name="billing"), Seen(), set[int]()

        @app.consume("app.durable", concurrency=4)
        async def bill(order: Order) -> None:
            seen.put_nowait(order.id)
            if order.id == 2 and order.id not in failed:
                failed.add(order.id)
                raise ValueError("not at the first time")

        async with app.running() as client:
            await client.publish_many("app.durable", [Order(number) for number in range(4)])
            assert sorted([await seen.next() for _ in range(5)]) == [0, 1, 2, 2, 3]
        # A second run finds nothing to do again: all is acknowledged.
        async with app.running() as client:
            await client.publish("app.durable", Order(9))
            assert await seen.next() == 9

    run(scene)


def test_messages_of_the_time_between_two_runs_are_not_missed(bus: MemoryBus) -> None:
    async def scene() -> None:
        app, seen = App(bus.url("danube")), Seen()

        @app.consume("app.between", name="reader", in_flight=1)
        async def read(order: Order) -> None:
            seen.put_nowait(order.id)

        async with app.running():
            pass
        async with connect(bus.url("danube")) as other:
            await other.publish_many("app.between", [Order(1), Order(2)])
        async with app.running():
            assert [await seen.next(), await seen.next()] == [1, 2]

    run(scene)


@pytest.mark.parametrize("origin", ["danube", "zbus"])
def test_what_a_handler_publishes_names_its_message_as_the_parent(bus: MemoryBus, origin: str) -> None:
    async def scene() -> None:
        topic = f"app.chain.{origin}"
        app, seen = App(bus.url("danube"), name="chained"), Seen()

        @app.consume(topic)
        async def forward(message: AnyMessage) -> None:
            await app.bus.publish(f"{topic}.out", b"2")
            seen.put_nowait(message)

        async with app.running(), connect(bus.url("zbus"), wire="zbus") as zbus:
            await zbus.create_queue(topic)
            await (zbus if origin == "zbus" else app.bus).publish(topic, b"1")
            await seen.next()
        first, second = row_of(bus, topic), row_of(bus, f"{topic}.out")
        assert second["parent_id"] == first["message_id"]

    run(scene)


def row_of(bus: MemoryBus, topic: str) -> dict[str, Any]:
    """The one message of a topic, as the console shows it."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{bus.console}/api/messages?topic={topic}", timeout=10) as response:
        (row,) = msgspec.json.decode(response.read(), type=dict[str, Any])["messages"]
    found: dict[str, Any] = row
    return found


def test_handlers_that_run_may_finish(bus: MemoryBus) -> None:
    async def scene() -> None:
        app, began, finished = App(bus.url("mb")), asyncio.Event(), asyncio.Event()

        @app.consume("app.slow")
        async def slow(message: AnyMessage) -> None:
            began.set()
            await asyncio.sleep(0.05)
            await app.bus.publish("app.finished")
            finished.set()

        async with app.running() as client:
            await client.publish("app.slow")
            await began.wait()
        assert finished.is_set()

    run(scene)


def test_routers_are_included(bus: MemoryBus) -> None:
    async def scene() -> None:
        app, router = App(bus.url("mb")), Router()

        @router.serve("app.included")
        async def answer(payload: bytes) -> bytes:
            return payload * 2

        app.include(router)
        async with app.running() as client:
            assert await client.request("app.included", b"ab") == b"abab"

    run(scene)


@pytest.mark.parametrize("wire", ["mb", "danube", "http"])
def test_schemas_are_registered_and_bound_at_the_start(bus: MemoryBus, wire: str) -> None:
    topic = f"app.strict.{wire}"

    async def scene() -> None:
        app = App(bus.console if wire == "http" else bus.url(wire), console=bus.console)
        app.schema(topic, Order)
        async with app.running() as client:
            await client.publish(topic, Order(1))
            await client.publish_many(topic, [Order(2), Order(3)])
            with pytest.raises(RemoteError, match="id"):
                await client.publish(topic, {"id": "x"})
            assert (await client.schemas.fetch(topic)).version == 1

    run(scene)


def test_wire_without_services_is_refused_at_the_start(bus: MemoryBus) -> None:
    async def scene() -> None:
        app = App(bus.url("danube"))
        app.serve("app.t")(print)
        with pytest.raises(UnsupportedError, match="DanubeClient has no serve"):
            async with app.running():
                raise AssertionError("it must not start")

    run(scene)


@pytest.mark.parametrize("options", [{"name": "n"}, {"start": "first"}, {"in_flight": 3}])
def test_what_a_live_subscription_cannot_do_is_refused(bus: MemoryBus, options: dict[str, Any]) -> None:
    async def scene() -> None:
        async with connect(bus.url("mb")) as client:
            with pytest.raises(ConfigError, match="MB subscriptions are live: use danube://"):
                await client.consume("t", **options)

    run(scene)


def test_bus_of_an_app_that_does_not_run_is_refused() -> None:
    with pytest.raises(ConfigError, match="the app is not running"):
        assert App("mb://127.0.0.1:1").bus


def test_handler_without_an_argument_is_refused() -> None:
    def nothing() -> None: ...

    with pytest.raises(ConfigError, match="nothing takes no argument"):
        handler_of(nothing)


def test_stop_ends_run(bus: MemoryBus) -> None:
    async def scene() -> None:
        app = App(bus.url("mb"))

        @app.consume("app.end")
        async def end(message: AnyMessage) -> None:
            app.stop()

        async def publish() -> None:
            async with connect(bus.url("mb")) as other:
                while (await other.publish("app.end")).no_route:  # noqa: ASYNC110 - it is still starting
                    await asyncio.sleep(0.01)

        await asyncio.gather(app.run(), publish())

    run(scene)


def test_loss_of_the_bus_ends_run_with_its_error() -> None:
    async def scene() -> None:
        with contextlib.ExitStack() as stack:
            own = stack.enter_context(memory_bus())
            app = App(own.url("mb"), reconnect=False)

            @app.consume("app.lost")
            async def read(message: AnyMessage) -> None: ...

            async def lose() -> None:
                async with connect(own.url("mb")) as other:
                    while (await other.publish("app.lost")).no_route:  # noqa: ASYNC110 - it is still starting
                        await asyncio.sleep(0.01)
                await asyncio.to_thread(stack.close)

            losing = asyncio.create_task(lose())
            with pytest.raises(ConnectionLostError):
                await app.run()
            await losing

    run(scene)


PROGRAM = """
import asyncio, sys
from raceway.client.app import App

app = App(sys.argv[1], name="child")

@app.serve("app.child")
async def answer(text: str) -> str:
    return text.upper()

asyncio.run(app.run())
print("ended")
"""


def test_signal_ends_a_program_gracefully(bus: MemoryBus, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, "utf-8")
    command = [sys.executable, str(tmp_path / "program.py"), bus.url("mb")]

    async def asked(client: Client) -> str:
        while True:
            try:
                return await client.request("app.child", "x", reply=str)
            except RemoteError:  # it is still starting
                await asyncio.sleep(0.02)

    async def scene() -> None:
        async with connect(bus.url("mb"), wire="mb") as client:
            assert await asked(client) == "X"
            assert "child" in [service.name for service in await client.services()]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            run(scene)
            child.send_signal(signal.SIGTERM)
            output, errors = child.communicate(timeout=20)
        finally:
            child.kill()
    assert (child.returncode, output, errors) == (0, "ended\n", "")
