"""A queue over zbus, with asyncio: each message to one consumer, none lost to a consumer that gave up waiting.

Start a bus (`raceway serve`), then: python examples/zbus_queue.py [URL]
"""

import asyncio
import sys

from raceway.client import connect


async def main(url: str) -> None:
    async with connect(url, wire="zbus") as scanner, connect(url, wire="zbus") as belt:
        await scanner.create_queue("bags")
        async with await belt.consume("bags") as bags:
            try:
                await bags.get(timeout_s=0.1)
            except TimeoutError:
                print("nothing yet")
            # `publish` returns when the message is on the bus's disk.
            await scanner.publish("bags", {"bag": 17}, headers={"x-belt": "3"})
            await scanner.publish_many("bags", [{"bag": 18}, {"bag": 19, "last": True}])
            async for bag in bags:
                print(bag.json(), bag.headers.get("x-belt"))
                if bag.json().get("last"):
                    break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "zbus://127.0.0.1:15555"))
