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
from raceway.link.sockets import keep_linked
from raceway.net.runtime import Runtime
from tests.rigs.link_process import SOCKET, until


class LinkDoor:
    """Stands in for `Door`. Its view has permissions alone, those of a bus without security. Log records and audit
    records of sessions go nowhere."""

    def __init__(self, lane: int = 0) -> None:
        loop = asyncio.get_running_loop()
        self.counts: Counter[str] = Counter()
        self.runtime = Runtime(
            config.BrokerSettings(), loop, wall_clock_us, self.counts, lambda *told, **facts: None,
            lambda done: self.caller.after_commit(done),
        )  # fmt: skip
        self.caller = LinkCaller(lane, b"wires", self.runtime.turn, loop)
        self.connect, self.disconnect = self.caller.connect, self.caller.disconnect
        self.perform: Any = self.caller.perform
        state = MemoryJournal(
            config.JournalSettings(durability="memory"), loop.call_soon_threadsafe, wall_clock_us
        ).state
        security = Security(NO_SECURITY, state, lambda section, key, value: None)
        self.view = SimpleNamespace(permissions=PermissionView(security))

    def count_error(self, peer: Peer) -> None:
        peer.errors += 1


@contextlib.asynccontextmanager
async def served_over(
    folder: Path, scheme: str, made: Callable[[LinkDoor], tuple[Any, Callable[[], asyncio.Protocol]]]
) -> AsyncIterator[tuple[str, LinkDoor]]:
    """The URL of a wire that this process speaks, over a link to the lane of the folder. `made` makes its gate."""
    door = LinkDoor()
    task = asyncio.create_task(keep_linked(door.caller, folder / SOCKET))
    gate, protocol = made(door)
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    await until(lambda: door.caller.is_open)
    try:
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}", door
    finally:
        server.close()
        for session in list(gate.sessions):
            session.close("over")
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
