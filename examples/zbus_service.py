"""Ask and answer over zbus, without asyncio. Any number of services may consume from one queue and share the work.

Start a bus (`raceway serve`), then: python examples/zbus_service.py [URL]
"""

import sys

from raceway.client import Delivery
from raceway.client.sync import connect
from raceway.errors import RemoteError

TAKEN = {"12A"}


def give_seat(request: Delivery) -> dict[str, str]:
    """Return the answer, or raise RemoteError to answer with an error and its status."""
    seat = request.json()["seat"]
    if seat in TAKEN:
        raise RemoteError("409", f"seat {seat} is taken")
    TAKEN.add(seat)
    return {"seat": seat}


def main(url: str) -> None:
    with connect(url, wire="zbus") as desk, connect(url, wire="zbus") as kiosk:
        desk.create_queue("seats")
        with desk.serve("seats", give_seat):
            for seat in ("7C", "12A"):
                try:
                    print("answer:", kiosk.request("seats", {"seat": seat}, timeout_ms=2000).decode())
                except RemoteError as error:
                    print("refused:", error)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "zbus://127.0.0.1:15555")
