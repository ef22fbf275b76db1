"""Ask and answer with types over MB, without asyncio. A payload of another type is an error that names the field.

Start a bus (`raceway serve`), then: python examples/typed_requests.py [URL]
"""

import sys

import msgspec

from raceway.client import Message
from raceway.client.sync import connect
from raceway.errors import RemoteError


class Wish(msgspec.Struct):
    passenger: str
    window: bool = False


class Seat(msgspec.Struct):
    row: int
    letter: str


def assign(message: Message) -> Seat:
    wish = message.decode(Wish)
    return Seat(7, "A" if wish.window else "C")


def main(url: str) -> None:
    with connect(url, wire="mb", name="desk") as desk, desk.serve("seats.assign", assign):
        seat = desk.request("seats.assign", Wish("Ada", window=True), reply=Seat)
        print(f"seat: {seat.row}{seat.letter}")
        try:
            desk.request("seats.assign", {"passenger": "Bob", "window": "please"}, reply=Seat)
        except RemoteError as error:
            print("refused:", error)
        print("nobody listens:", desk.publish("seats.assigned", seat).no_route)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "mb://127.0.0.1:3001")
