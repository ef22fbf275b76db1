"""A program of handlers: consumes one topic, serves another, and binds both to the schemas of its classes.

Start a bus (`raceway serve`), then: python examples/app_with_schemas.py [URL] [CONSOLE]
"""

import asyncio
import sys

import msgspec

from raceway.client.app import App, Router
from raceway.errors import RemoteError

checkin = Router()
checked_in: asyncio.Queue[str] = asyncio.Queue()


class Passenger(msgspec.Struct):
    name: str
    bags: int = 0


class Fee(msgspec.Struct):
    euros: int


@checkin.serve("checkin.fee")
async def fee(passenger: Passenger) -> Fee:
    return Fee(30 * max(0, passenger.bags - 1))


@checkin.consume("checkin.done", concurrency=4)
async def done(passenger: Passenger) -> None:
    await checked_in.put(passenger.name)


checkin.schema("checkin.done", Passenger)


async def main(url: str, console: str) -> None:
    app = App(url, name="checkin", console=console)
    app.include(checkin)
    # A program that only handles would say: await app.run()
    async with app.running() as bus:
        print("fee:", (await bus.request("checkin.fee", Passenger("Ada", bags=3), reply=Fee)).euros)
        await bus.publish("checkin.done", Passenger("Ada", bags=3))
        print("checked in:", await checked_in.get())
        try:
            await bus.publish("checkin.done", {"name": "Bob", "bags": "two"})
        except RemoteError as error:
            print("refused:", error.reported)


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    asyncio.run(main(given.get(1, "mb://127.0.0.1:3001"), given.get(2, "http://127.0.0.1:8600")))
