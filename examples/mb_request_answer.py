"""Ask and answer over MB, without asyncio, one side on TCP and the other on WebSocket.

Start a bus (`raceway serve`), then: python examples/mb_request_answer.py [TCP_URL WEBSOCKET_URL]
"""

import sys

from raceway.client import Message
from raceway.client.sync import connect
from raceway.errors import RemoteError

TAKEN = {"12A"}


def give_seat(message: Message) -> dict[str, str]:
    """Return the answer, or raise RemoteError to answer with an error."""
    seat = message.json()["seat"]
    if seat in TAKEN:
        raise RemoteError("SEAT_TAKEN", f"seat {seat} is taken")
    TAKEN.add(seat)
    return {"seat": seat}


def main(tcp: str, websocket: str) -> None:
    with connect(tcp, wire="mb") as desk, connect(websocket, wire="mb") as kiosk:
        desk.serve("checkin.seat", give_seat)
        for seat in ("7C", "12A"):
            try:
                print("answer:", kiosk.request("checkin.seat", {"seat": seat}, timeout_ms=2000).decode())
            except RemoteError as error:
                print("refused:", error)


if __name__ == "__main__":
    main(*(sys.argv[1:3] if len(sys.argv) > 2 else ("mb://127.0.0.1:3001", "mb+ws://127.0.0.1:3000")))
