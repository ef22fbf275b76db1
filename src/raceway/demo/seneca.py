"""The airport's Seneca side: services attached to the bus, and a phone.

check-in   opens a check-in: requests a seat from the desk and a tag from the belts, on any wire
loyalty    counts miles
tracker    observes every bag that moves
app        a passenger's phone: sends requests
"""

from __future__ import annotations

import asyncio
from typing import Any

from raceway.client import ActionMessage, SenecaClient, SenecaService
from raceway.demo.mb import SEAT
from raceway.demo.tally import PATIENCE_MS, Enter, Tally
from raceway.demo.zbus import TAG
from raceway.errors import RemoteError

OPEN, POINTS = "checkin.open", "loyalty.points"
MILES = {"gold": 2000, "silver": 1000, "blue": 500}


def pattern(topic: str) -> str:
    """The Seneca pattern of a topic: `checkin.seat` is role:checkin,cmd:seat."""
    role, _, cmd = topic.partition(".")
    return f"role:{role},cmd:{cmd}"


class Counter:
    app: SenecaClient
    _services: SenecaClient

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    async def open(self, enter: Enter, console: str) -> None:
        self.app = await enter("seneca", name="app")
        self._services = await enter("seneca", name="check-in", console=console)
        loyalty = await enter("seneca", name="loyalty", console=console)
        opening, counting = SenecaService(), SenecaService()
        opening.add(pattern(OPEN), self._open)
        counting.add(pattern(POINTS), _points)
        await self._services.host(opening)
        await loyalty.host(counting)

    async def reader(self, enter: Enter, topic: str, console: str) -> asyncio.Queue[dict[str, Any]]:
        """Messages that the bus delivers to an observer of the topic."""
        seen: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        watching = SenecaService()
        watching.add(pattern(topic), lambda message: seen.put_nowait(message.data))
        await (await enter("seneca", name="tracker", console=console)).host(watching)
        return seen

    async def _open(self, message: ActionMessage) -> dict[str, Any]:
        """Handle a check-in. Requests made here belong to its conversation: Seneca's messages carry their history."""
        wish = {"flight": message["flight"], "seat": message["seat"]}
        bag = {"flight": message["flight"], "bag": message["bag"], "kg": message["kg"]}
        given = await self._tally.ask("seneca", "mb", self._act(SEAT, wish))
        try:
            tagged = await self._tally.ask("seneca", "zbus", self._act(TAG, bag))
        except RemoteError as error:
            raise RemoteError(
                "bag_refused", f"seat {given['seat']} is yours; your bag is not going: {error.text}"
            ) from None
        return {"seat": given["seat"], "tag": tagged["tag"]}

    async def _act(self, topic: str, document: dict[str, Any]) -> Any:
        return await self._services.act(pattern(topic), document, timeout_ms=PATIENCE_MS)


def _points(message: ActionMessage) -> dict[str, Any]:
    if message["card"] not in MILES:
        raise RemoteError("no_card", f"nobody has a card of {message['card']}")
    return {"miles": MILES[message["card"]]}
