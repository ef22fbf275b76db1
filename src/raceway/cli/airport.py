"""The traffic of `raceway demo`: a morning at a small airport, over TCP and WebSocket.

    belt      (WebSocket)  listens to all baggage
    board     (TCP)        listens to flight updates
    desk      (TCP)        answers check-in requests; some seats are taken. Each boarding publishes a flight update
    archive   (TCP)        takes requests and never answers
    kiosk     (WebSocket)  asks for seats, publishes baggage and flights

Beside what works it shows what does not: an error answer, a deadline, a topic without a subscriber, a bad header.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

from raceway.client import MbClient, Message, Subscription, connect
from raceway.errors import RemoteError

BAGS, FLIGHTS, CHECK_INS = 3000, 200, 300
AT_ONCE = 4  # passengers at the kiosk
FLIGHT_NUMBERS = ("RW101", "RW202", "RW303", "RW404")
STATES = ("boarding", "delayed", "departed", "landed")
# Patience for what should take milliseconds; a demo that waits longer than this has found a fault.
DEADLINE_S = 20.0

Story = list[tuple[str, str]]


async def play(urls: Mapping[str, str], dice: random.Random) -> Story:
    """Run the whole morning; what the clients saw, as (what, how it went)."""
    async with AsyncExitStack() as stack:

        async def enter(door: str, name: str, description: str) -> MbClient:
            client: MbClient = await stack.enter_async_context(connect(urls[door], reconnect=False))
            await client.register(name, description)
            return client

        belt = await enter("mb+ws", "belt", "moves bags")
        board = await enter("mb", "board", "shows flights")
        desk = await enter("mb", "desk", "gives out seats")
        archive = await enter("mb", "archive", "never answers")
        kiosk = await enter("mb+ws", "kiosk", "asks and tells")
        bags, updates = await belt.subscribe("baggage.#"), await board.subscribe("flight.updates.+")
        await desk.serve("checkin.seat", _seats(desk))
        await archive.serve("checkin.archive", _never)
        story = [("services", ", ".join(sorted(service.name for service in await kiosk.services())))]
        story += await _publish(kiosk, bags, updates, dice)
        story += await _check_in(kiosk, updates, dice)
        story += await _what_fails(kiosk)
        story.append(await _malformed(urls["mb"]))
        return story


async def _publish(kiosk: MbClient, bags: Subscription, updates: Subscription, dice: random.Random) -> Story:
    began = asyncio.get_running_loop().time()
    loads = [{"bag": n, "belt": dice.randint(1, 6), "kg": round(dice.uniform(3, 30), 1)} for n in range(BAGS)]
    await kiosk.publish_many("baggage.events", loads)
    seconds = asyncio.get_running_loop().time() - began
    for _ in range(FLIGHTS):
        flight, state = dice.choice(FLIGHT_NUMBERS), dice.choice(STATES)
        await kiosk.publish("flight.updates.europe", {"flight": flight, "state": state}, confirm=False)
    seen = await _take(bags, BAGS), await _take(updates, FLIGHTS)
    return [
        ("publishes acknowledged after the sync", f"{BAGS:,} in {seconds:.2f} s over WebSocket"),
        ("copies that arrived", f"{seen[0]:,} at the belt, {seen[1]:,} at the board"),
    ]


async def _check_in(kiosk: MbClient, updates: Subscription, dice: random.Random) -> Story:
    wishes = [
        {"seat": f"{dice.randint(1, 30)}{dice.choice('ABCDEF')}", "flight": dice.choice(FLIGHT_NUMBERS)}
        for _ in range(CHECK_INS)
    ]
    results: list[bytes | BaseException] = []
    for start in range(0, CHECK_INS, AT_ONCE):
        calls = (kiosk.request("checkin.seat", wish) for wish in wishes[start : start + AT_ONCE])
        results += await asyncio.gather(*calls, return_exceptions=True)
    refused = Counter(result.reported for result in results if isinstance(result, RemoteError))
    given = sum(isinstance(result, bytes) for result in results)
    await _take(updates, given)
    failures = ", ".join(f"{count} × {code}" for code, count in sorted(refused.items()))
    return [
        ("check-in requests answered", f"{given} with a seat, {failures}"),
        ("flight updates caused by them", f"{given}, each naming its request as parent"),
    ]


async def _what_fails(kiosk: MbClient) -> Story:
    story = []
    for what, call in (
        ("a request nobody answers in 300 ms", kiosk.request("checkin.archive", "1974", timeout_ms=300)),
        ("a request nobody serves", kiosk.request("checkin.lounge", "please")),
        ("a publish nobody reads, stored even so", kiosk.publish("lost.property", {"umbrella": 1})),
    ):
        try:
            await call
        except RemoteError as error:
            story.append((what, str(error)))
        else:
            story.append((what, "went through"))
    return story


async def _malformed(url: str) -> tuple[str, str]:
    """A header that breaks the rules, with nothing but a socket: our own client would not send it."""
    host, _, port = url.removeprefix("mb://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        message = b"publish:baggage..events:1.0.0\n{}"
        writer.write(len(message).to_bytes(4, "big") + message)
        async with asyncio.timeout(DEADLINE_S):
            while True:
                length = int.from_bytes(await reader.readexactly(4), "big")
                header, _, payload = (await reader.readexactly(length)).partition(b"\n")
                if header.startswith(b"response:error:"):
                    error = json.loads(payload)["error"]
                    return "a malformed header", f"{error['code']}: {error['message']}"
    finally:
        writer.close()
        await writer.wait_closed()


async def _take(subscription: Subscription, count: int) -> int:
    """Wait for that many messages."""
    async with asyncio.timeout(DEADLINE_S):
        for _ in range(count):
            await anext(subscription)
    return count


def _seats(desk: MbClient) -> Callable[[Message], Awaitable[dict[str, str]]]:
    """A desk that gives each seat once."""
    taken: set[tuple[str, str]] = set()

    async def give(message: Message) -> dict[str, str]:
        wish = message.json()
        key = (wish["flight"], wish["seat"])
        if key in taken:
            raise RemoteError("SEAT_TAKEN", f"seat {key[1]} on {key[0]} is taken")
        taken.add(key)
        await desk.publish(f"flight.updates.{wish['flight'].lower()}", {"seat": wish["seat"]})
        return {"flight": key[0], "seat": key[1]}

    return give


async def _never(message: Message) -> None:
    await asyncio.Event().wait()
