"""Publish typed messages, and consume them with handlers that share a durable subscription.

Start a bus (`raceway serve`), then: python examples/durable_consumer.py [URL]
"""

import asyncio
import sys

import msgspec

from raceway.client import DanubeMessage, connect


class Bag(msgspec.Struct):
    number: int
    kg: float


async def main(url: str) -> None:
    weighed: list[Bag] = []
    done = asyncio.Event()

    async def weigh(message: DanubeMessage) -> None:
        # Acknowledged when this returns. If it raises, the message is delivered again.
        weighed.append(message.decode(Bag))
        if len(weighed) == 3:
            done.set()

    async with connect(url, wire="danube", name="scales") as bus:
        bags = await bus.consume("belt.bags", start="first", in_flight=100)
        async with await bags.handle(weigh, concurrency=8):
            receipt = await bus.publish("belt.bags", Bag(17, 23.5))
            print("stored:", receipt.stored)
            await bus.publish_many("belt.bags", [Bag(18, 9.0), Bag(19, 31.0)])
            await done.wait()
    print("weighed:", sorted(bag.number for bag in weighed))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "danube://127.0.0.1:6650"))
