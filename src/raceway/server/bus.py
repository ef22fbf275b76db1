"""The bus of this process: broker and door over a journal. No other module of the server knows the broker's parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.door import Door
from raceway.journal import wall_clock_us
from raceway.journal.contract import Journal
from raceway.link.door import EdgeDoor
from raceway.model.lanes import LaneTable
from raceway.net.ids import random_id


class LocalBus:
    """Start, upkeep and stop of a bus. Everything else goes through the `door`."""

    def __init__(self, broker: Broker, door: Door) -> None:
        self.broker, self.door = broker, door
        self.tick, self.set_state, self.drain = broker.tick, broker.set_state, broker.drain
        # Stores the cursors of queues, after everything that was delivered.
        self.store_cursors = broker.queues.flush

    def on_pressure(self, pause: Callable[[bool], None]) -> None:
        """Call `pause` when connections should not be read because the journal is behind, and when they may again."""
        self.broker.journal.pressure = pause

    @property
    def expiring(self) -> int:
        """Number of open requests that have a deadline."""
        return self.broker.correlation.expiring

    def is_settled(self) -> bool:
        """Return whether no request is open and everything is committed."""
        journal = self.broker.journal
        return not self.expiring and journal.committed + 1 >= journal.next_sequence


class EdgeBus(LocalBus):
    """The wires of a process with one lane of several. Its lane is a bus like any, which serves all processes."""

    door: EdgeDoor

    def __init__(self, lane: LocalBus, table: LaneTable) -> None:
        super().__init__(lane.broker, EdgeDoor(lane.broker, table, random_id()))

    def on_pressure(self, pause: Callable[[bool], None]) -> None:
        """See `LocalBus.on_pressure`. Any of the lanes may be behind."""
        self.door.on_pressure(pause)

    async def settled(self) -> None:
        """Wait until every lane that is there has stored what was asked of it so far."""
        settled = asyncio.Event()
        self.door.runtime.after_commit(lambda error: settled.set())
        await settled.wait()


def local_bus(settings: config.Config, journal: Journal, loop: asyncio.AbstractEventLoop) -> LocalBus:
    broker = Broker(settings.broker, journal, loop, wall_clock_us, settings.security)
    broker.offload = broker.catch_ups.offload = partial(_offload, loop)
    return LocalBus(broker, Door(broker))


def _offload(loop: asyncio.AbstractEventLoop, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
    """Run a function in another thread, then call back in the loop with its result or error."""

    def finished(future: asyncio.Future[Any]) -> None:
        if not future.cancelled():
            then(future.exception() or future.result())

    loop.run_in_executor(None, work).add_done_callback(finished)
