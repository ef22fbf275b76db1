"""Ask and answer over Seneca, without asyncio: messages are routed by their content.

The service listens on a port of its own and attaches itself to the bus. npm Seneca clients may call it through the bus,
or directly.

Start a bus (`raceway serve`), then: python examples/seneca_service.py [URL [CONSOLE]]
"""

import sys
from typing import Any

from raceway.client import ActionMessage, SenecaService
from raceway.client.sync import connect
from raceway.errors import RemoteError

TAKEN = {"12A"}
service = SenecaService()


@service.action("role:seats,cmd:take")
def take(message: ActionMessage) -> dict[str, Any]:
    """Return an object, a list or None, or raise RemoteError to answer with an error and its code."""
    seat = message["seat"]
    if seat in TAKEN:
        raise RemoteError("seat_taken", f"seat {seat} is taken", {"seat": seat})
    TAKEN.add(seat)
    return {"seat": seat, "by": message.custom.get("passenger")}


def main(url: str, console: str) -> None:
    with connect(url, wire="seneca", console=console) as desk, desk.host(service), connect(url, wire="seneca") as kiosk:
        for seat in ("7C", "12A"):
            try:
                print("answer:", kiosk.act("role:seats,cmd:take", {"seat": seat}, custom={"passenger": "Ada"}))
            except RemoteError as error:
                print("refused:", error, error.details)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(*(given + ["seneca://127.0.0.1:10101", "http://127.0.0.1:8600"][len(given) :]))
