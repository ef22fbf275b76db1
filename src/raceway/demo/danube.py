"""The airport's Danube side: the sorter, on a durable subscription, and the gates, whose topic has a schema.

sorter  reads each tagged bag and publishes its flight, with the bag's message as parent
gates   announce who boards; the topic is bound to a schema, and messages that break it are refused
display reads the announcements, and asks for one of them again
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any

import msgspec

from raceway.cli import bus
from raceway.client import DanubeClient, DanubeConsumer, DanubeMessage, Producer
from raceway.demo.tally import PATIENCE_S, Enter, OnProgress, Tally

TAGGED, LOADED, BOARDING = "baggage.tagged", "flight.load", "gate.boarding"
SUBJECT = "boarding"
GATES = ("gate-A1", "gate-B2", "gate-C3")
# Acknowledgements in flight at once: each waits for the disk.
ACKS = 50

_BOARDS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "flight": {"type": "string", "pattern": "^RW[0-9]{3}$"},
        "seat": {"type": "string", "pattern": "^[0-9]{1,2}[A-F]$"},
        "kg": {"type": "number", "minimum": 0, "maximum": 32},
    },
    "required": ["flight", "seat"],
    "additionalProperties": False,
}
# The second version adds groups; its readers can read the first one, too.
VERSIONS = (_BOARDS, _BOARDS | {"properties": _BOARDS["properties"] | {"group": {"type": "integer"}}})


class Airside:
    gates: DanubeClient
    _sorted: DanubeConsumer
    _loads: Producer
    _announcers: list[Producer]

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self.at_work = asyncio.Lock()  # held while the sorter handles a bag

    async def open(self, enter: Enter, console: str) -> None:
        """Create the topics and subscribe. On this wire a topic is created by its first producer and cannot be read
        earlier."""
        self.gates = await enter("danube")
        await self.gates.producer(TAGGED, "sorter")
        self._loads = await self.gates.producer(LOADED, "sorter")
        self._sorted = await self.gates.subscribe(TAGGED, "sorter", type="shared", name="sorter-1")
        await asyncio.to_thread(_hold_to_schema, console)
        self._announcers = [await self.gates.producer(BOARDING, name, subject=SUBJECT) for name in GATES]

    async def reader(self, topic: str, subscription: str) -> DanubeConsumer:
        await self.gates.producer(topic, "sorter")
        return await self.gates.subscribe(
            topic, subscription, type="shared", name=f"{subscription}-1", in_flight=2 * ACKS
        )

    # ---- the sorter --------------------------------------------------------------------------------------------------

    async def sort(self) -> None:
        """Publish the flight of each tagged bag, until cancelled."""
        async for bag in self._sorted:
            async with self.at_work:
                cause = {"x-parent-id": bag.attributes["x-message-id"]}
                cause["x-correlation-id"] = bag.attributes["x-correlation-id"]
                tag = bag.json()
                load = {"flight": tag["flight"], "bag": tag["tag"]}
                await self._loads.send(load, key=tag["flight"], attributes=cause)
                self._tally.published[LOADED, "danube"] += 1
                await self._sorted.ack(bag)

    # ---- the gates ---------------------------------------------------------------------------------------------------

    async def announce_all(self, passengers: list[dict[str, Any]]) -> None:
        """Publish the announcements of all gates, one gate after the other."""
        for number, passenger in enumerate(passengers):
            await self.announce(number, passenger)

    async def announce(self, number: int, passenger: dict[str, Any]) -> None:
        await self._announcers[number % len(GATES)].send(passenger, key=passenger["flight"])
        self._tally.published[BOARDING, "danube"] += 1

    async def display(self, count: int, consumer: DanubeConsumer, advance: OnProgress) -> None:
        """Read so many announcements; reject the first one once, so that it is delivered again."""
        async with asyncio.timeout(PATIENCE_S):
            first = await anext(consumer)
            await consumer.nack(first, delay_ms=0, reason="not understood")
            await read_acknowledged(consumer, count, advance)


async def read_acknowledged(consumer: DanubeConsumer, count: int, advance: OnProgress) -> list[DanubeMessage]:
    """Read and acknowledge so many messages of a subscription."""
    read: list[DanubeMessage] = []
    while len(read) < count:
        some = [await anext(consumer) for _ in range(min(ACKS, count - len(read)))]
        await asyncio.gather(*(consumer.ack(message) for message in some))
        advance(len(some))
        read += some
    return read


def _hold_to_schema(console: str) -> None:
    for number, version in enumerate(VERSIONS, 1):
        definition = b64encode(msgspec.json.encode(version)).decode()
        document = {
            "type": "json_schema",
            "definition_base64": definition,
            "description": f"the airport's no. {number}",
        }
        bus.call_console(console, f"/api/schemas/{SUBJECT}/versions", "POST", document=document)
    held = {"subject": SUBJECT, "policy": "enforce", "validate_payload": True}
    bus.call_console(console, f"/api/topic-schemas/{BOARDING}", "PUT", document=held)
