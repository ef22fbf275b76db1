"""A door whose bus is in another process, and a wire that is served behind it: as far as the link carries it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from raceway import config
from raceway.broker.bus import NO_SECURITY
from raceway.broker.peers import Peer
from raceway.broker.security.security import Security
from raceway.broker.view.permissions import PermissionView
from raceway.journal import wall_clock_us
from raceway.journal.memory import MemoryJournal
from raceway.link.caller import LinkCaller
from raceway.link.edge import Edge
from raceway.link.sockets import keep_linked
from raceway.model.lanes import LaneTable
from raceway.net.runtime import Runtime
from tests.rigs.link_process import socket_of, until


class LinkDoor:
    """Stands in for `Door`: over a link to lane 0, or over so many lanes.

    Its view has permissions alone, those of a bus without security. Log records and audit records of sessions go
    nowhere.
    """

    def __init__(self, lanes: int | None) -> None:
        loop = asyncio.get_running_loop()
        self.counts: Counter[str] = Counter()
        self.runtime = Runtime(
            config.BrokerSettings(), loop, wall_clock_us, self.counts, lambda *told, **facts: None,
            lambda done: end.after_commit(done),
        )  # fmt: skip
        end: LinkCaller | Edge
        if lanes is None:
            end = LinkCaller(0, b"wires", self.runtime.turn, loop)
            self.callers: tuple[LinkCaller, ...] = (end,)
        else:
            end = Edge(LaneTable(lanes), b"wires", self.runtime.turn, loop)
            self.callers = end.callers
        self.connect, self.disconnect = end.connect, end.disconnect
        self.perform: Any = end.perform
        state = MemoryJournal(
            config.JournalSettings(durability="memory"), loop.call_soon_threadsafe, wall_clock_us
        ).state
        security = Security(NO_SECURITY, state, lambda section, key, value: None)
        self.view = SimpleNamespace(permissions=PermissionView(security))

    @property
    def is_open(self) -> bool:
        """Can all lanes be reached?"""
        return all(caller.is_open for caller in self.callers)

    def count_error(self, peer: Peer) -> None:
        peer.errors += 1


@contextlib.asynccontextmanager
async def served_over(
    folder: Path,
    scheme: str,
    made: Callable[[LinkDoor], tuple[Any, Callable[[], asyncio.Protocol]]],
    lanes: int | None = None,
) -> AsyncIterator[tuple[str, LinkDoor]]:
    """The URL of a wire that this process speaks, over links to the lanes of the folder. `made` makes its gate."""
    door = LinkDoor(lanes)
    tasks = [asyncio.create_task(keep_linked(caller, socket_of(folder, caller.lane))) for caller in door.callers]
    gate, protocol = made(door)
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    await until(lambda: door.is_open)
    try:
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}", door
    finally:
        server.close()
        for session in list(gate.sessions):
            session.close("over")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
