"""Test a program without a server: the real bus, in this process, with its journal in memory.

Run: python examples/testing_without_a_server.py (or with pytest)
"""

import asyncio

from raceway.client import connect
from raceway.client.app import App
from raceway.testing import memory_bus

app = App("danube://bus.example:6650", name="greeter")


@app.consume("visitors")
async def greet(name: str) -> None:
    await app.bus.publish("greetings", f"Hello, {name}!")


async def visit() -> str:
    with memory_bus() as bus:
        async with (
            app.running(bus.url("danube")),
            connect(bus.url("mb")) as client,
            await client.subscribe("greetings") as greetings,
        ):
            await client.publish("visitors", "Ada")
            greeting = await greetings.get(timeout_s=10)
            return greeting.text if greeting else ""


def test_visitors_are_greeted() -> None:
    assert asyncio.run(visit()) == "Hello, Ada!"


if __name__ == "__main__":
    test_visitors_are_greeted()
    print("passed")
