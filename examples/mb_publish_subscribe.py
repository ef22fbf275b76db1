"""Publish and subscribe over MB, with asyncio.

Start a bus (`raceway serve`), then: python examples/mb_publish_subscribe.py [URL]
"""

import asyncio
import sys

from raceway.client import connect


async def main(url: str) -> None:
    async with connect(url, wire="mb") as belt, connect(url, wire="mb") as scanner:
        bags = await belt.subscribe("baggage.#")
        # `publish` returns when the message is on the bus's disk.
        await scanner.publish("baggage.events", {"bag": 17, "belt": 3})
        await scanner.publish_many("baggage.events", [{"bag": 18}, {"bag": 19, "last": True}])
        async for message in bags:
            print(message.topic, message.json())
            if message.json().get("last"):
                break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "mb://127.0.0.1:3001"))
