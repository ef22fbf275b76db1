"""uvicorn in a loop that is not its own: without signal handlers, and with little to do while nothing happens."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn


class QuietServer(uvicorn.Server):
    """Server whose `opened` is set when it accepts connections; `end` stops it."""

    def __init__(self, settings: uvicorn.Config) -> None:
        super().__init__(settings)
        self.opened, self._ending = asyncio.Event(), asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.opened.set()

    async def main_loop(self) -> None:
        """Tick once a second, for the Date header; uvicorn polls for its end ten times as often."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), 1.0)

    def end(self) -> None:
        self.should_exit = True
        self._ending.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the bus handles signals."""
        yield
