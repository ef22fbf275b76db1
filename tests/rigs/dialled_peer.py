"""Somebody on loopback whom the bus connects to: takes connections, writes down what it is told, may vanish."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from raceway.net.outgoing.allowed import Target
from raceway.wires.zbus.codec.head import ZbusLimits
from raceway.wires.zbus.codec.receiver import ZbusReceiver

DEADLINE_S = 10.0


class Peer:
    def __init__(self) -> None:
        self.received: list[Any] = []
        self.connections: list[asyncio.StreamWriter] = []
        self.opened = 0
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def target(self) -> Target:
        return Target("127.0.0.1", self.port)

    async def listen(self) -> None:
        """On the same port as before, if there was one."""
        self._server = await asyncio.start_server(self._take, "127.0.0.1", self.port, reuse_address=True)
        self.port = self._server.sockets[0].getsockname()[1]

    async def vanish(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self.connections:
            writer.transport.abort()
        await until(lambda: not self.connections, "the connections to end")

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        self.opened += 1
        receiver = ZbusReceiver(ZbusLimits())
        try:
            while data := await reader.read(65536):
                self.received += receiver.receive_data(data)
        except ConnectionError:
            pass
        finally:
            self.connections.remove(writer)
            writer.close()


@asynccontextmanager
async def listening_peer() -> AsyncIterator[Peer]:
    peer = Peer()
    await peer.listen()
    try:
        yield peer
    finally:
        await peer.vanish()


@asynccontextmanager
async def running(work: Any) -> AsyncIterator[None]:
    """While `work` goes on; it is cancelled at the end and must not have failed."""
    task = asyncio.create_task(work)
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], object], what: str) -> None:
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110 - the condition is all there is to wait for
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"not within {DEADLINE_S} s: {what}") from None
