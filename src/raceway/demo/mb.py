"""The airport's MB side: kiosk, board and desk.

kiosk    (WebSocket)  asks for passengers
board    (TCP)        shows what was loaded, and every bag that moves
desk     (TCP)        gives out seats, each once
archive  (TCP)        takes requests and does not answer; its printer answers after the timeout
"""

from __future__ import annotations

import asyncio

from raceway.client import MbClient, Message, Subscription
from raceway.demo.tally import Enter, Tally
from raceway.errors import RemoteError

SEAT, ARCHIVE, PRINTER = "checkin.seat", "checkin.archive", "checkin.printer"
# The printer takes four times as long as the kiosk's timeout.
PRINTER_S, HURRY_MS = 0.6, 150


class Terminal:
    kiosk: MbClient
    board: MbClient
    desk: MbClient
    archive: MbClient

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._taken: set[tuple[str, str]] = set()
        self.printed = asyncio.Event()

    async def open(self, enter: Enter) -> None:
        self.kiosk = await self._person(enter, "mb+ws", "kiosk", "asks for passengers")
        self.board = await self._person(enter, "mb", "board", "shows flights and bags")
        self.desk = await self._person(enter, "mb", "desk", "gives out seats")
        self.archive = await self._person(enter, "mb", "archive", "never answers in time")
        await self.desk.serve(SEAT, self._give_seat)
        await self.archive.serve(ARCHIVE, self._never)
        await self.archive.serve(PRINTER, self._print)

    async def _person(self, enter: Enter, door: str, name: str, description: str) -> MbClient:
        client: MbClient = await enter(door)
        await client.register(name, description)
        return client

    async def watch(self, topic: str) -> Subscription:
        return await self.board.subscribe(topic)

    def _give_seat(self, message: Message) -> dict[str, str]:
        wish = message.json()
        seat = (wish["flight"], wish["seat"])
        if seat in self._taken:
            raise RemoteError("SEAT_TAKEN", f"seat {seat[1]} on {seat[0]} is taken")
        self._taken.add(seat)
        return {"flight": seat[0], "seat": seat[1]}

    async def _never(self, message: Message) -> None:
        await asyncio.Event().wait()

    async def _print(self, message: Message) -> dict[str, int]:
        await asyncio.sleep(PRINTER_S)
        self.printed.set()
        return {"pages": 1}
