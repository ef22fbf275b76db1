"""The airport's zbus side: workers on queues.

belts   weigh and tag bags, refuse heavy ones, and publish what they tagged
loader  takes each bag that moves from its queue
clerk   sends requests to services of other wires
"""

from __future__ import annotations

from typing import Any

from raceway.client import Consumer, Delivery, ZbusClient
from raceway.demo.danube import TAGGED
from raceway.demo.tally import Enter, Tally
from raceway.errors import RemoteError

TAG = "baggage.tag"
HEAVY_KG = 30.0


class Belts:
    clerk: ZbusClient
    _belts: ZbusClient

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self.tagged = 0

    async def open(self, enter: Enter) -> None:
        self.clerk, self._belts = await enter("zbus"), await enter("zbus")
        await self._belts.create_queue(TAG)
        await self._belts.serve(TAG, self._tag)

    async def reader(self, topic: str) -> Consumer:
        await self.clerk.create_queue(topic)
        return await self.clerk.consume(topic)

    async def _tag(self, delivery: Delivery) -> dict[str, Any]:
        """Tag a bag. The publish names the request as its parent."""
        bag = delivery.json()
        if bag["kg"] > HEAVY_KG:
            raise RemoteError("409", f"{bag['kg']} kg: nobody can lift that")
        self.tagged += 1
        tag = {"flight": bag["flight"], "tag": f"{bag['flight']}-{bag['bag']:05d}", "kg": bag["kg"]}
        await self._belts.publish(TAGGED, tag, headers={"msgid-raw": delivery.id})
        self._tally.published[TAGGED, "zbus"] += 1
        return {"tag": tag["tag"]}
