"""One boot of the real bus in a world: what `raceway serve` runs, with the world's loop, disk, network and threads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raceway import config, wires
from raceway.journal import wall_clock_us
from raceway.journal.local import LocalJournal
from raceway.server.bus import LocalBus, local_bus
from raceway.server.doors import CONSOLE, Doors, ports
from raceway.server.process import Console, repeat
from tests.sim.loop import SimLoop
from tests.sim.machine import SimMachine
from tests.sim.network import Network

PORT_BASE = 21_000
# Of a simulated bus: what opens the console of one without security, and a token of one with it.
ADMIN_TOKEN = "the-administrators-token"
TOKEN_SECRET = "a secret of thirty-two bytes or more"
OPERATOR, GUEST = "operator", "guest"

# Small, so that a history of seconds sees segments closed, sealed and removed.
SETTINGS: dict[str, Any] = {
    "listen.host": "127.0.0.1",
    "listen.port_base": PORT_BASE,
    "broker.drain_s": 1.0,
    "journal.segment_bytes": 24_000,
    "journal.segment_age_s": 60.0,
    "journal.seal_keep_s": 5.0,
    "journal.row_group_rows": 64,
    "journal.upkeep_s": 2.0,
    "journal.watch_s": 1.0,
    "journal.retry_s": 0.5,
    "journal.reserve_bytes": 65_536,
    # Clients of the world refuse and vanish often; nothing is to end as a dead letter by that.
    "broker.subscriptions.failure.max_redelivery_count": 1000,
    # What failed comes again while the end of a history waits for it.
    "broker.subscriptions.failure.max_redelivery_delay_ms": 5000,
    "security.admin_token": ADMIN_TOKEN,
    "security.token_secret": TOKEN_SECRET,
    "security.super_admins": [OPERATOR],
}


def load_settings(folder: Path, changed: Mapping[str, Any]) -> config.Config:
    flags = {**SETTINGS, **changed, "journal.folder": str(folder)}
    return config.load(None, environment={}, flags=flags, sections=wires.sections()).config


class Bus:
    """The bus of one boot. `start` and `stop` are coroutines of its loop."""

    def __init__(self, settings: config.Config, loop: SimLoop, network: Network, machine: SimMachine) -> None:
        self._settings, self._loop, self._network, self._machine = settings, loop, network, machine
        # Recovery. Raises what prevents a start.
        self.journal = LocalJournal(
            settings.journal, loop.call_soon_threadsafe, wall_clock_us, machine.files, machine
        )  # fmt: skip
        self.local: LocalBus = local_bus(settings, self.journal, loop)
        self._tasks: list[asyncio.Task[None]] = []
        self._stop = asyncio.Event()
        self.is_ready = self.is_closing = self.is_stopped = False

    async def run(self) -> None:
        """As `raceway.server.process` does it: open, serve until told to stop, drain, close."""
        settings, loop, bus = self._settings, self._loop, self.local
        self.doors = doors = Doors(bus, settings, loop, bind=self._network.bind)
        port = ports(settings.listen)[CONSOLE]
        console = Console(bus.door, settings, port, doors.routes(), bind=self._network.bind)
        await doors.open()
        await console.open()
        tasks = [repeat(loop, settings.journal.upkeep_s, self.journal.upkeep), repeat(loop, 1.0, bus.tick)]
        async with doors.running():
            self.is_ready = True
            await self._stop.wait()
        await doors.drain()
        doors.close()
        await console.close()
        for task in tasks:
            task.cancel()
        await asyncio.sleep(0)
        # It waits for the writer and holds the loop meanwhile: the loop is not turned again.
        self.is_closing = True
        self._machine.thread(self._close, "owner").start()

    def _close(self) -> None:
        self.journal.close()
        self.is_stopped = True

    def stop(self) -> None:
        self._stop.set()
