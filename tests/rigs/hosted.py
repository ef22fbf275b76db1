"""The real doors, opened in a loop that runs in a thread of its own, for tests that come with real sockets."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import uvloop

from raceway import config
from raceway.broker.broker import Broker
from raceway.journal import wall_clock_us
from raceway.server.bus import LocalBus
from raceway.server.doors import Doors
from raceway.wires.mb.listen.session import MbSession
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import FaultyJournal
from tests.rigs.ports import free_port_base

T = TypeVar("T")
DEADLINE_S = 10.0


class Hosted:
    """A bus with open doors. Everything inside it is touched through `call` and `run` only."""

    def __init__(self, listen: config.Listen, broker: config.BrokerSettings) -> None:
        self.loop = uvloop.new_event_loop()
        self.tcp_port, self.websocket_port = listen.port_base, listen.port_base + 1
        self.journal = FaultyJournal(
            config.JournalSettings(durability="memory"), self.loop.call_soon_threadsafe, wall_clock_us
        )
        self.broker = Broker(broker, self.journal, self.loop, wall_clock_us)
        settings = config.Config(listen=listen)
        self.doors = Doors(LocalBus(self.broker, DOOR(self.broker)), settings, self.loop)

    def call(self, function: Callable[[], T]) -> T:
        """What `function` gives when the loop runs it."""

        async def called() -> T:
            return function()

        return self.run(called)

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        async def awaited() -> T:
            return await function()

        return asyncio.run_coroutine_threadsafe(awaited(), self.loop).result(DEADLINE_S)

    def counted(self, name: str) -> int:
        return self.call(lambda: self.broker.meter.counts[name])

    def newest(self) -> MbSession:
        """The session of whoever connected last."""
        return self.call(lambda: max(self._mb_sessions(), key=lambda session: session.connected_us))

    def sessions(self) -> int:
        return self.call(lambda: len(self._mb_sessions()))

    def _mb_sessions(self) -> set[MbSession]:
        return self.doors.wires["mb"].gate.sessions


@contextmanager
def hosted(broker: config.BrokerSettings | None = None, **listen: Any) -> Iterator[Hosted]:
    """Doors open on free ports; closed, and the thread ended, when the test is over."""
    settings = config.Listen(port_base=free_port_base(), **listen)
    bus = Hosted(settings, broker or config.BrokerSettings(drain_s=0.1))
    thread = threading.Thread(target=bus.loop.run_forever, daemon=True)
    thread.start()
    try:
        bus.run(bus.doors.open)
        yield bus
    finally:
        bus.run(bus.doors.drain)
        bus.call(bus.doors.close)
        bus.run(lambda: asyncio.sleep(0.01))  # the transports' own ends
        bus.loop.call_soon_threadsafe(bus.loop.stop)
        thread.join(DEADLINE_S)
        bus.loop.close()


def send_until_it_stays(connection: socket.socket, data: bytes) -> int:
    """Bytes that were taken before nothing was for a while."""
    connection.settimeout(0.3)
    sent = 0
    try:
        while sent < 200 * config.MIB:
            sent += connection.send(data)
    except TimeoutError:
        pass
    return sent
