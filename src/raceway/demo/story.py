"""A morning at a small airport, played over real sockets: the roles, their wires, and the order of events.

    MB       kiosk, board, desk       passenger services              `mb`
    Danube   sorter, gates, display   durable subscriptions           `danube`
    zbus     belts, loader, clerk     workers on queues               `zbus`
    Seneca   check-in, loyalty, app   services found by pattern       `seneca`

No role knows the wire of its partners. A check-in uses all four wires:

    kiosk ─request→ check-in ─request→ desk
                        └─────request→ belts ─publish→ sorter ─publish→ board

The same seed gives the same messages and counts: all random choices are made before the first message is sent, and no
count depends on timing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple

from raceway.client import Client, Subscription, connect
from raceway.demo.danube import BOARDING, LOADED, Airside, read_acknowledged
from raceway.demo.mb import SEAT, Terminal
from raceway.demo.mishaps import Mishaps
from raceway.demo.seneca import MILES, OPEN, POINTS, Counter, pattern
from raceway.demo.tally import ASKING, PATIENCE_MS, PATIENCE_S, WIRES, Enter, OnProgress, ShowProgress, Tally
from raceway.demo.zbus import TAG, Belts
from raceway.errors import RemoteError

MOVED = "baggage.moved"
AT_ONCE = 4  # passengers
# Each wire requests seats of its own flight, so that the result does not depend on timing.
FLIGHTS = {"mb": "RW101", "zbus": "RW202", "seneca": "RW303", "kiosk": "RW404"}
# For each wire with services, the topic of one.
SERVICES = {SEAT: "mb", TAG: "zbus", POINTS: "seneca"}


class Size(NamedTuple):
    """Number of messages of each kind."""

    check_ins: int = 120
    bags: int = 1000  # on each wire
    boardings: int = 100  # on each wire
    questions: int = 80  # from each wire to each


async def play(urls: Mapping[str, str], dice: random.Random, progress: ShowProgress, size: Size = Size()) -> Tally:  # noqa: B008
    """Play the whole morning and return what the clients counted."""
    async with AsyncExitStack() as stack:

        async def enter(door: str, **options: Any) -> Any:
            return await stack.enter_async_context(connect(urls[door], reconnect=False, **options))

        airport = Airport(enter, urls, dice, size)
        acts: tuple[tuple[str, int, Callable[[OnProgress], Awaitable[None]]], ...] = (
            ("the airport opens", len(WIRES), airport.open),
            ("passengers check in, over four wires", size.check_ins, airport.check_in),
            ("bags move, from every wire to every wire", len(WIRES) ** 2 * size.bags, airport.move_bags),
            ("flights board, validated by a schema", len(WIRES) * size.boardings, airport.board),
            ("requests, from every wire to every wire", len(ASKING) * len(SERVICES) * size.questions, airport.ask),
            ("deliberate errors", Mishaps.count, airport.go_wrong),
        )
        for title, steps, act in acts:
            with progress(title, steps) as advance:
                await act(advance)
        return airport.tally


class Airport:
    _loads: Subscription

    def __init__(self, enter: Enter, urls: Mapping[str, str], dice: random.Random, size: Size) -> None:
        self._enter, self._urls, self._dice, self._size = enter, urls, dice, size
        self.tally = Tally()
        self._terminal, self._airside = Terminal(self.tally), Airside(self.tally)
        self._belts, self._counter = Belts(self.tally), Counter(self.tally)
        self._bag = self._shown = 0

    async def open(self, advance: OnProgress) -> None:
        console = self._urls["console"]
        await self._terminal.open(self._enter)
        self._loads = await self._terminal.watch(LOADED)
        advance(1)
        await self._airside.open(self._enter, console)
        advance(1)
        await self._belts.open(self._enter)
        advance(1)
        await self._counter.open(self._enter, console)
        advance(1)

    # ---- check-in ----------------------------------------------------------------------------------------------------

    async def check_in(self, advance: OnProgress) -> None:
        """Check in passengers: each is a chain of messages over four wires that ends when the board shows the bag."""
        passengers = [
            {"flight": FLIGHTS["kiosk"], "seat": f"{number // 6 + 1}{'ABCDEF'[number % 6]}", **self._luggage()}
            for number in range(self._size.check_ins)
        ]
        calls = [partial(self._ask, "mb", OPEN, "seneca", passenger) for passenger in passengers]
        await self._all_loaded(_some_at_once(calls, advance))

    def _luggage(self) -> dict[str, Any]:
        self._bag += 1
        return {"bag": self._bag, "kg": round(self._dice.uniform(3, 34), 1)}

    async def _all_loaded(self, work: Awaitable[None]) -> None:
        """Run `work` and the sorter until the board has shown every bag."""
        sorting = asyncio.create_task(self._airside.sort())
        try:
            await work
            async with asyncio.timeout(PATIENCE_S):
                while self._shown < self._belts.tagged:
                    await anext(self._loads)
                    self._shown += 1
            async with self._airside.at_work:  # the last bag is shown earlier than it is acknowledged
                pass
        finally:
            sorting.cancel()
            await asyncio.wait([sorting])

    # ---- publishing --------------------------------------------------------------------------------------------------

    async def move_bags(self, advance: OnProgress) -> None:
        """Publish on every wire, and read everything on every wire."""
        count = len(WIRES) * self._size.bags
        shown = await self._terminal.watch(MOVED)
        sorted_ = await self._airside.reader(MOVED, "sorter")
        queued = await self._belts.reader(MOVED)
        observed = await self._counter.reader(self._enter, MOVED, self._urls["console"])
        loads = {wire: [self._move(wire) for _ in range(self._size.bags)] for wire in WIRES}
        publishing = asyncio.gather(*(self._publish(wire, MOVED, loads[wire]) for wire in WIRES))
        reading = asyncio.gather(
            _read(partial(anext, shown), count, advance),
            read_acknowledged(sorted_, count, advance),
            _read(partial(anext, queued), count, advance),
        )
        async with asyncio.timeout(PATIENCE_S):
            _, read, seen = await asyncio.gather(publishing, reading, _read(observed.get, count, advance))
        for wire, bags in zip(("mb", "danube", "zbus"), read, strict=True):
            self.tally.delivered.update((bag.json()["by"], wire) for bag in bags)
        self.tally.delivered.update((bag["by"], "seneca") for bag in seen)

    def _move(self, wire: str) -> dict[str, Any]:
        return self._luggage() | {"belt": self._dice.randint(1, 6), "by": wire}

    async def _publish(self, wire: str, topic: str, payloads: list[dict[str, Any]]) -> None:
        client, name = self._sender(wire, topic)
        self.tally.published[topic, wire] += await client.publish_many(name, payloads)

    def _sender(self, wire: str, topic: str) -> tuple[Client, str]:
        """The client of a wire that publishes and asks, and what it calls the topic."""
        senders: dict[str, Client] = {
            "mb": self._terminal.kiosk,
            "danube": self._airside.gates,
            "zbus": self._belts.clerk,
            "seneca": self._counter.app,
        }
        return senders[wire], pattern(topic) if wire == "seneca" else topic

    async def board(self, advance: OnProgress) -> None:
        """Publish announcements on all wires, validated by the schema; the display reads all of them."""
        count = len(WIRES) * self._size.boardings
        display = await self._airside.reader(BOARDING, "display")
        passengers = {wire: [self._passenger() for _ in range(self._size.boardings)] for wire in WIRES}
        await asyncio.gather(
            self._airside.announce_all(passengers["danube"]),
            *(self._publish(wire, BOARDING, passengers[wire]) for wire in WIRES if wire != "danube"),
            self._airside.display(count, display, advance),
        )

    def _passenger(self) -> dict[str, Any]:
        seat = f"{self._dice.randint(1, 30)}{self._dice.choice('ABCDEF')}"
        return {"flight": self._dice.choice(list(FLIGHTS.values())), "seat": seat, "group": self._dice.randint(1, 4)}

    # ---- asking ------------------------------------------------------------------------------------------------------

    async def ask(self, advance: OnProgress) -> None:
        """Send requests from MB, zbus and Seneca to services on MB, zbus and Seneca."""
        calls = [
            partial(self._ask, wire, topic, answering, self._question(wire, topic))
            for topic, answering in SERVICES.items()
            for _ in range(self._size.questions)
            for wire in ASKING
        ]
        await self._all_loaded(_some_at_once(calls, advance))

    def _question(self, wire: str, topic: str) -> dict[str, Any]:
        flight = {"flight": FLIGHTS[wire]}
        if topic == SEAT:
            return flight | {"seat": f"{self._dice.randint(1, 12)}{self._dice.choice('ABCDEF')}"}
        return flight | self._luggage() if topic == TAG else {"card": self._dice.choice([*MILES, "library"])}

    async def _ask(self, wire: str, topic: str, answering: str, document: dict[str, Any]) -> None:
        client, name = self._sender(wire, topic)
        await self.tally.ask(wire, answering, client.request(name, document, timeout_ms=PATIENCE_MS))

    async def go_wrong(self, advance: OnProgress) -> None:
        mishaps = Mishaps(self.tally, self._terminal, self._airside, self._belts, self._counter)
        await mishaps.happen(self._urls, advance)


async def _some_at_once(calls: Sequence[Callable[[], Awaitable[None]]], advance: OnProgress) -> None:
    """Await the calls, a few at a time. A RemoteError is part of the story; any other exception is raised."""
    for start in range(0, len(calls), AT_ONCE):
        some = [call() for call in calls[start : start + AT_ONCE]]
        for result in await asyncio.gather(*some, return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, RemoteError):
                raise result
        advance(len(some))


async def _read(one: Callable[[], Awaitable[Any]], count: int, advance: OnProgress) -> list[Any]:
    read = []
    for _ in range(count):
        read.append(await one())
        advance(1)
    return read
