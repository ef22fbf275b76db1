"""A process of a bus of several lanes: one lane, with its journal and console, and the ports of all wires.

    clients ── ports of all wires ── edge ─┬─ lane of this process ── journal in `lane-N`
                                           └─ lanes of the other processes, over Unix sockets

It tells the parent process when it is ready, and when its clients are gone; then it waits until those of all processes
are, because until then they may use its lane. If the parent ends, it stops by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog
import uvloop
from msgspec.structs import replace

from raceway import config, wires
from raceway.errors import RacewayError, UnavailableError
from raceway.journal import open_journal
from raceway.journal.contract import Journal
from raceway.journal.lanes import lane_folder
from raceway.link.lane import LinkLane
from raceway.link.peers import Spells
from raceway.link.sockets import keep_linked, listen
from raceway.model.lanes import LaneTable
from raceway.net.outgoing.allowed import AllowList
from raceway.net.sockets import bind
from raceway.server.bus import EdgeBus, LocalBus, local_bus
from raceway.server.doors import CONSOLE, Doors, ports
from raceway.server.events import either
from raceway.server.exporting import exporting
from raceway.server.lane_door import LaneDoor
from raceway.server.lifeline import Lifeline
from raceway.server.process import STOP_S, Console, announced, renewing, repeat, urls_of
from raceway.wires.wire import load

log = structlog.get_logger("raceway")

# What a process tells its parent, a line each; `FAILED` is followed by the reason.
READY, DRAINED, FAILED = b"ready", b"drained", b"failed "
# Interval of looks whether the other lanes are there, at start.
LOOK_S = 0.01


class ServedLane(NamedTuple):
    """A lane of a bus with these settings. The sockets of all lanes are in the folder `sockets`."""

    number: int
    settings: config.Config
    sockets: Path

    @property
    def table(self) -> LaneTable:
        settings = self.settings
        return LaneTable(settings.lanes.count, settings.broker.subscriptions.aliases)

    @property
    def own_settings(self) -> config.Config:
        """The settings of the lane itself: journal and console."""
        folder = str(lane_folder(Path(self.settings.journal.folder), self.number))
        return replace(self.settings, journal=replace(self.settings.journal, folder=folder))

    def console_port(self, number: int) -> int:
        return console_port(self.settings.listen, number)

    def console_url(self, number: int) -> str:
        """Return the URL of a lane's console."""
        return urls_of(self.settings.listen, {CONSOLE: self.console_port(number)})[CONSOLE]

    def socket(self, number: int) -> Path:
        return self.sockets / f"{number}.sock"


def console_port(listen: config.Listen, number: int) -> int:
    """Return the port of a lane's console. Lane 0 has the usual one; the others' are in a row above all ports."""
    if number == 0:
        return ports(listen)[CONSOLE]
    return listen.port_base + config.PORTS_IN_A_ROW + number - 1 if listen.port_base else listen.console_port + number


def run_lane(place: ServedLane, parent: socket.socket) -> int:
    """Run a lane until it is told to stop. Return the exit status of the process."""
    structlog.contextvars.bind_contextvars(lane=place.number)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(place, parent))
    except RacewayError as error:
        log.error("lane failed", reason=str(error))
        with contextlib.suppress(OSError):
            parent.sendall(FAILED + " ".join(str(error).split()).encode() + b"\n")
        return 1
    return 0


class _Parent:
    """The parent process. `ended`: it has closed its end, or has ended."""

    def __init__(self, end: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self.ended = asyncio.Event()
        self._end, self._loop = end, loop
        end.setblocking(False)
        loop.add_reader(end, self._look)

    def _look(self) -> None:
        with contextlib.suppress(BlockingIOError):
            if not self._end.recv(1024):
                self._loop.remove_reader(self._end)
                self.ended.set()

    def tell(self, word: bytes) -> None:
        with contextlib.suppress(OSError):  # it has ended
            self._end.send(word + b"\n")


async def _run(place: ServedLane, end: socket.socket) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    parent = _Parent(end, loop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    settings = place.own_settings
    journal = open_journal(settings.journal, loop.call_soon_threadsafe, storage=settings.storage)
    with Lifeline(settings.broker.drain_s + STOP_S) as lifeline:
        try:
            bus = local_bus(settings, journal, loop)
            lifeline.relief = bus.door.runtime.unfinished.relieve_half
            async with _lane(place, bus), _edge(place, bus) as edge, _upkeep(place, bus, journal):
                await _serve(place, edge, parent, stop, lifeline)
        finally:
            journal.close()


@contextlib.asynccontextmanager
async def _lane(place: ServedLane, bus: LocalBus) -> AsyncIterator[None]:
    """Serve the lane to all processes during the context."""
    spells: dict[str, Spells] = {wire.name: load(wire.spells) for wire in wires.WIRES if wire.spells}
    lane = LinkLane(bus.door, place.number, spells)
    bus.on_pressure(lane.pause)
    server = await listen(lane, place.socket(place.number))
    try:
        yield
    finally:
        server.close()
        lane.close()
        with contextlib.suppress(UnavailableError):  # of a journal that takes nothing: they are as they were stored
            bus.store_cursors()


@contextlib.asynccontextmanager
async def _edge(place: ServedLane, bus: LocalBus) -> AsyncIterator[EdgeBus]:
    """Keep links to all lanes during the context."""
    edge = EdgeBus(bus, place.table)
    tasks = [asyncio.create_task(keep_linked(caller, place.socket(caller.lane))) for caller in edge.door.edge.callers]
    try:
        yield edge
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def _upkeep(place: ServedLane, bus: LocalBus, journal: Journal) -> AsyncIterator[None]:
    """Run the lane's console, and what is done again and again, during the context."""
    loop, settings = asyncio.get_running_loop(), place.own_settings
    door = LaneDoor(bus.door, place.number, place.table, place.console_url)
    port = place.console_port(place.number)
    doors = ports(settings.listen, over_lanes=True) | {CONSOLE: port}
    console = Console(door, settings, port, data=Path(settings.journal.folder), doors=doors)
    await console.open()
    tasks = [
        repeat(loop, settings.journal.upkeep_s, journal.upkeep),
        repeat(loop, 1.0, bus.tick),
        repeat(loop, settings.listen.http.live_ms / 1000, console.live.sample),
    ]
    if settings.history.interval_s:
        tasks.append(repeat(loop, settings.history.interval_s, console.recorder.record))
    allowed = AllowList(settings.listen, settings.dial.allow)
    traces = exporting(settings.telemetry, journal, bus.set_state, bus.door.runtime.clock_us, allowed)
    urls = urls_of(settings.listen, doors)
    try:
        async with traces:
            with announced(settings.journal, urls):
                yield
    finally:
        await console.close()
        for task in tasks:
            task.cancel()


async def _serve(place: ServedLane, edge: EdgeBus, parent: _Parent, stop: asyncio.Event, lifeline: Lifeline) -> None:
    """Open the ports of all wires, serve until `stop` is set or the parent ends, and let the others finish."""
    loop, settings = asyncio.get_running_loop(), place.settings
    doors = Doors(edge, settings, loop, bind=partial(bind, shared=True), over_lanes=True)
    await _linked(edge, settings.lanes.link_s)
    await doors.open()
    renewal = renewing(loop, settings.listen, doors)
    async with doors.running():
        parent.tell(READY)
        log.info("lane ready", pid=os.getpid(), console=place.console_port(place.number))
        await either(stop, parent.ended)
    lifeline.notice()
    log.info("lane stopping")
    await doors.drain()
    doors.close()
    for task in renewal:
        task.cancel()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_S):
            await edge.settled()
    parent.tell(DRAINED)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(settings.broker.drain_s + STOP_S):
            await parent.ended.wait()


async def _linked(edge: EdgeBus, limit_s: float) -> None:
    """Wait until all lanes can be reached, at most so long: one may have failed."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            while not edge.door.is_open:  # noqa: ASYNC110 - links have no common event
                await asyncio.sleep(LOOK_S)
