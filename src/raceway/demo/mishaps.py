"""Deliberate errors at the airport: refused, unanswered, late and malformed messages on each wire."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from raceway.client import Receipt
from raceway.demo.danube import BOARDING, Airside
from raceway.demo.mb import ARCHIVE, HURRY_MS, PRINTER, Terminal
from raceway.demo.seneca import Counter, pattern
from raceway.demo.tally import NOBODY, PATIENCE_S, OnProgress, Tally
from raceway.demo.zbus import Belts
from raceway.errors import RacewayError, RemoteError

# A topic without a service, and one without a subscriber, on any wire.
LOUNGE, LIGHTS = "checkin.lounge", "airport.lights"
# Announcements that break the topic's schema, each in another way.
BAD_ANNOUNCEMENTS: tuple[dict[str, Any], ...] = (
    {"flight": "RW101"},
    {"flight": "RW101", "seat": "99Z"},
    {"flight": "LH400", "seat": "12A"},
    {"flight": "RW101", "seat": "12A", "kg": 75},
    {"flight": "RW101", "seat": "12A", "dog": True},
)
_HEADER = b"publish:baggage..events:1.0.0\n{}"
# Malformed bytes for each wire, sent over a bare socket: the clients would not send them.
BROKEN: tuple[tuple[str, str, bytes], ...] = (
    ("mb", "an empty level in a topic", len(_HEADER).to_bytes(4, "big") + _HEADER),
    (
        "zbus",
        "two lengths for one body",
        b"POST / HTTP/1.1\r\ncmd: produce\r\nmq: baggage.moved\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    ),
    ("seneca", "half a document", b'POST /act HTTP/1.1\r\ncontent-length: 9\r\n\r\n{"role":"'),
)


class Mishaps:
    """All deliberate errors. `count` is their number, for the progress bar."""

    count = 4 * len(BAD_ANNOUNCEMENTS) + len(BROKEN) + 7

    _advance: OnProgress

    def __init__(self, tally: Tally, terminal: Terminal, airside: Airside, belts: Belts, counter: Counter) -> None:
        self._tally = tally
        self._terminal, self._airside, self._belts, self._counter = terminal, airside, belts, counter

    async def happen(self, urls: Mapping[str, str], advance: OnProgress) -> None:
        self._advance = advance
        await self._announce_badly()
        await self._ask_nobody()
        await self._ask_too_late()
        forged = self._airside.gates.publish("raceway.rejected", {"forged": True})
        await self._told("danube", "a publish on a topic of the bus itself", forged)
        for wire, what, said in BROKEN:
            self._tally.mishaps.append((wire, what, await _answer_to(wire, urls[wire], said)))
            advance(1)
        await self._turn_lights_out()

    async def _announce_badly(self) -> None:
        """Publish invalid announcements on every wire; each refusal is also a row of `raceway.rejected`."""
        ways: dict[str, Callable[[dict[str, Any]], Awaitable[object]]] = {
            "mb": lambda bad: self._terminal.kiosk.publish(BOARDING, bad),
            "danube": lambda bad: self._airside.announce(0, bad),
            "zbus": lambda bad: self._belts.clerk.publish(BOARDING, bad),
            "seneca": lambda bad: self._counter.app.send(pattern(BOARDING), bad),
        }
        for wire, announce in ways.items():
            for bad in BAD_ANNOUNCEMENTS:
                try:
                    await announce(bad)
                except RemoteError as error:
                    self._tally.refused[wire, error.reported] += 1
                self._advance(1)

    async def _ask_nobody(self) -> None:
        """Send a request that no service serves: refused at once, and stored with that answer."""
        for wire, call in (
            ("mb", self._terminal.kiosk.request(LOUNGE, "please", timeout_ms=HURRY_MS)),
            ("zbus", self._belts.clerk.request(LOUNGE, "please")),
            ("seneca", self._counter.app.act(pattern(LOUNGE), {"please": True})),
        ):
            await self._told(wire, "a request without a service", call)
            self._tally.asked[wire, NOBODY, "error"] += 1

    async def _ask_too_late(self) -> None:
        """Send a request that is never answered, and one that is answered after its timeout."""
        tally, kiosk = self._tally, self._terminal.kiosk
        asked = tally.ask("mb", "mb", kiosk.request(ARCHIVE, {"year": 1974}, timeout_ms=HURRY_MS))
        await self._told("mb", "a request without an answer", asked)
        late = kiosk.request(PRINTER, {"pages": 1}, timeout_ms=HURRY_MS)
        await self._told("mb", "a request with a late answer", late)
        async with asyncio.timeout(PATIENCE_S):
            await self._terminal.printed.wait()
            await self._terminal.archive.heartbeat()  # the bus has read the late answer by then
        tally.asked["mb", "mb", "late"] += 1

    async def _turn_lights_out(self) -> None:
        """Publish the last message, after all timeouts. It is stored although the topic has no subscriber."""
        call = self._terminal.kiosk.publish(LIGHTS, {"lights": "out"})
        await self._told("mb", "a publish without a subscriber, stored nevertheless", call)
        self._tally.published[LIGHTS, "mb"] += 1

    async def _told(self, wire: str, what: str, call: Awaitable[Any]) -> None:
        try:
            result = await call
        except RacewayError as error:
            said = str(error)
        else:
            said = "accepted, no route" if isinstance(result, Receipt) and result.no_route else "accepted"
        self._tally.mishaps.append((wire, what, said))
        self._advance(1)


async def _answer_to(wire: str, url: str, said: bytes) -> str:
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        writer.write(said)
        async with asyncio.timeout(PATIENCE_S):
            return await (_mb_error(reader) if wire == "mb" else _http_error(reader))
    finally:
        writer.close()
        await writer.wait_closed()


async def _mb_error(reader: asyncio.StreamReader) -> str:
    while True:
        length = int.from_bytes(await reader.readexactly(4), "big")
        header, _, payload = (await reader.readexactly(length)).partition(b"\n")
        if header.startswith(b"response:error:"):
            error = msgspec.json.decode(payload)["error"]
            return f"{error['code']}: {error['message']}"


async def _http_error(reader: asyncio.StreamReader) -> str:
    """Read an HTTP response: its status, and the error in its body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    found = re.search(r"content-length: *(\d+)", head)
    body = await reader.readexactly(int(found[1])) if found else b""
    return f"{head.split()[1]}: {body.decode('utf-8', 'replace')}"
