"""Simulated network: connections between clients of the world and the bus, and from the bus to services of the world.

Bytes arrive later, split and merged as the seed chooses, in order. A reader that does not read fills the pipe, then the
sender's buffer. A connection ends with a FIN, half of it first, with a reset, or one side vanishes without a word.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sim.loop import SimLoop
    from tests.sim.world import World


class BoundSocket:
    """What `bind` returns: a port, no more."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def setsockopt(self, *_: Any) -> None:
        """Ignore options of the kernel."""

    def getsockopt(self, *_: Any) -> int:
        return 0

    def fileno(self) -> int:
        """No file of the kernel: what is sent past the transport fails, and then goes through it."""
        return -1

    def close(self) -> None:
        """The server that listens is closed by itself."""


class Party:
    """The world's end of a connection: subclasses read and answer."""

    link: Link

    def made(self, link: Link) -> None:
        self.link = link

    def received(self, data: bytes) -> None:
        raise NotImplementedError

    def ended(self, error: Exception | None) -> None:
        """The bus closed the connection, orderly or not, or its machine is gone."""


class Link(asyncio.Transport):
    """One connection. As a transport it is the end of the bus; the world uses `send`, `close_mine`, `reset`, …"""

    def __init__(self, network: Network, loop: SimLoop, protocol: Any, party: Party, port: int) -> None:
        super().__init__()
        self._network, self._loop, self._protocol, self._party = network, loop, protocol, party
        self.dice = random.Random(network.dice.random())
        network.made += 1
        self.number, self.port, self._boot = network.made, port, network.world.boots
        self._peername = ("127.0.0.1", 40_000 + self.number % 20_000)
        latency_s = self.dice.choice((0.0001, 0.0005, 0.002, 0.02))
        self.latency_s = latency_s if network.latency_s is None else network.latency_s
        # From the world to the bus.
        self._inbox = bytearray()
        self._is_reading, self._is_half_closed, self._eof_told = True, False, False
        self._feeding = False
        # From the bus to the world: the transport's buffer, and what is in the pipe.
        self._outbox = bytearray()
        self._pipe = bytearray()
        self.room = self.dice.choice((1 << 12, 1 << 16, 1 << 18))
        self._high, self._low = 65_536, 16_384
        self._is_crowded = False
        self._pumping = False
        self._is_closing = self._is_over = self._fin_told = False
        # How fast the world reads, in bytes a second; 0: not at all.
        self.rate = float("inf")
        self.is_vanished = False
        self.most_buffered = 0

    # ---- transport of the bus ----------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket" and isinstance(self._protocol, asyncio.BufferedProtocol):  # picows cannot do without
            return BoundSocket("127.0.0.1", self.port)
        return {"peername": self._peername, "sockname": ("127.0.0.1", self.port)}.get(name, default)

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._feed_later()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 65_536 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return len(self._outbox)

    def write(self, data: Any) -> None:
        if self._is_closing or not data:
            return
        self._outbox += data
        self.most_buffered = max(self.most_buffered, len(self._outbox))
        self._fill_pipe()
        if len(self._outbox) > self._high and not self._is_crowded:
            self._is_crowded = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.close()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            if not self._outbox:
                self._loop.call_soon(self._lost, None)

    def abort(self) -> None:
        if not self._is_over:
            self._is_closing = True
            self._outbox.clear()
            self._loop.call_soon(self._lost, None)

    # ---- the world's end ---------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send to the bus."""
        if not self._is_over and not self._is_half_closed and not self.is_vanished:
            self._inbox += data
            self._feed_later()

    @property
    def is_open(self) -> bool:
        return not self._is_over and not self._fin_told

    @property
    def unread(self) -> int:
        """Bytes that the bus has not taken and ought to."""
        return 0 if self._is_over else len(self._inbox)

    @property
    def is_current(self) -> bool:
        """Whether the bus at its other end still runs and is not being stopped."""
        return self.is_of_this_boot and not self._network.world.is_stopping

    @property
    def is_of_this_boot(self) -> bool:
        """Whether the bus at its other end has not ended since."""
        return self._boot == self._network.world.boots and self._network.world.bus is not None

    def half_close(self) -> None:
        """Send a FIN after everything sent so far; go on reading."""
        self._is_half_closed = True
        self._feed_later()

    def close_mine(self) -> None:
        """Close orderly: a FIN, and whatever still comes is refused."""
        self._party = _Nobody()
        self.rate = float("inf")
        self.half_close()
        self._pump_later()
        # What the bus still sends is answered with a reset, as by a kernel whose program is gone.
        self._network.world.soon(self.reset, 0.05 + self.latency_s)

    def reset(self) -> None:
        """Send a RST."""
        self._party = _Nobody()
        self._network.world.soon(
            lambda: self._lost(ConnectionResetError(104, "Connection reset by peer")), self.latency_s
        )

    def vanish(self) -> None:
        """Be silent for ever, as a machine without power."""
        self._party, self.is_vanished, self.rate = _Nobody(), True, 0.0

    def read_at(self, rate: float) -> None:
        """Read so many bytes a second from now on."""
        self.rate = rate
        self._pump_later()

    # ---- moving bytes ------------------------------------------------------------------------------------------------

    def _feed_later(self) -> None:
        if not self._feeding and (self._inbox or self._is_half_closed) and not self.is_vanished:
            self._feeding = True
            self._network.world.soon(self._feed, self.latency_s * (0.5 + self.dice.random()))

    def _feed(self) -> None:
        self._feeding = False
        if not self._loop.is_dead:
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        """Hand some of the bytes to the bus, unless it does not read."""
        if self._is_over or self._is_closing or not self._is_reading:
            return
        if self._inbox:
            size = min(len(self._inbox), 65_536)
            if self.dice.random() < self._network.splitting:
                size = self.dice.randint(1, min(size, 40))
            data = bytes(self._inbox[:size])
            del self._inbox[:size]
            self._give(data)
            self._feed_later()
        elif self._is_half_closed and not self._eof_told:
            self._eof_told = True
            self._take_eof()

    def _give(self, data: bytes) -> None:
        """Give bytes to the protocol, or into its buffer."""
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            self._protocol.data_received(data)
            return
        while data and not self._is_closing:
            buffer = memoryview(self._protocol.get_buffer(len(data)))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            data = data[size:]
            self._protocol.buffer_updated(size)

    def _take_eof(self) -> None:
        if not self._protocol.eof_received():
            self.close()

    def _fill_pipe(self) -> None:
        room = self.room - len(self._pipe)
        if room > 0 and self._outbox:
            self._pipe += self._outbox[:room]
            del self._outbox[:room]
            self._pump_later()
        if self._is_crowded and len(self._outbox) <= self._low:
            self._is_crowded = False
            self._loop.call_soon(self._relieve)
        if self._is_closing and not self._outbox and not self._is_over:
            self._loop.call_soon(self._lost, None)

    def _relieve(self) -> None:
        if not self._is_over:
            self._protocol.resume_writing()

    def _pump_later(self) -> None:
        if not self._pumping and self.rate > 0:
            self._pumping = True
            self._network.world.soon(self._pump, self.latency_s * (0.5 + self.dice.random()))

    def _pump(self) -> None:
        """Hand some of the bytes to the world's end."""
        self._pumping = False
        if self._pipe and self.rate > 0:
            size = len(self._pipe)
            if self.rate != float("inf"):
                size = min(size, max(1, round(self.rate * 0.05)))
            elif self.dice.random() < self._network.splitting:
                size = self.dice.randint(1, min(size, 40))
            data = bytes(self._pipe[:size])
            del self._pipe[:size]
            self._network.world.heard(self.number, data)
            self._party.received(data)
            if not self._loop.is_dead:
                self._fill_pipe()
            if self._pipe:
                self._pumping = True
                wait = 0.05 if self.rate != float("inf") else self.latency_s
                self._network.world.soon(self._pump, wait)
        if not self._pipe and self._is_over and not self._fin_told:
            self._fin_told = True
            self._party.ended(None)

    def _lost(self, error: Exception | None) -> None:
        """End the connection for the bus; the world's end hears of it after what is in the pipe."""
        if self._is_over:
            return
        self._is_over = self._is_closing = True
        self._network.links.pop(self.number, None)
        if not self._loop.is_dead and self._protocol is not None:
            self._loop.call_soon(self._protocol.connection_lost, error)
        if error is not None:
            self._pipe.clear()
        self._pump_later()

    def crash(self) -> None:
        """The machine of the bus is gone: the world's end gets a reset."""
        self._is_over = self._is_closing = self._fin_told = True
        self._pipe.clear()
        self._party.ended(ConnectionResetError(104, "the bus is gone"))


class _Nobody(Party):
    """The end of a program that is gone."""

    def received(self, data: bytes) -> None:
        """Nobody reads."""


class Network:
    """All connections, who listens on which port of the bus, and which services of the world listen for it."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self.world, self.dice = world, dice
        self.made = 0
        self.splitting = 0.1
        # That of all connections; None: each has its own.
        self.latency_s: float | None = None
        self.links: dict[int, Link] = {}
        self._listeners: dict[int, Callable[[], Any]] = {}
        # Services of the world, by their port.
        self.services: dict[int, Callable[[], Party]] = {}

    def bind(self, host: str, port: int) -> Any:
        return BoundSocket(host, port)

    def latency(self) -> float:
        return self.dice.random() * 0.002

    def listen(self, port: int, factory: Callable[[], Any]) -> None:
        self._listeners[port] = factory

    def unlisten(self, port: int) -> None:
        self._listeners.pop(port, None)

    def is_listening(self, port: int) -> bool:
        return port in self._listeners

    def connect(self, port: int, party: Party) -> Link | None:
        """Connect the world to a port of the bus; None if nobody listens."""
        factory = self._listeners.get(port)
        if factory is None:
            return None
        link = Link(self, self.world.loop, None, party, port)
        self.links[link.number] = link
        party.made(link)

        def accept() -> None:
            if self.world.loop is link._loop and not link._is_over:
                protocol = factory()
                link.set_protocol(protocol)
                protocol.connection_made(link)

        link._loop.call_soon(accept)
        return link

    def dial(self, loop: SimLoop, factory: Callable[[], Any], host: str, port: int) -> tuple[Link, Any]:
        """Connect the bus to a service of the world. Raises ConnectionRefusedError."""
        service = self.services.get(int(port))
        if service is None:
            raise ConnectionRefusedError(111, f"Connect call failed ('{host}', {port})")
        party, protocol = service(), factory()
        link = Link(self, loop, protocol, party, int(port))
        self.links[link.number] = link
        party.made(link)
        protocol.connection_made(link)
        return link, protocol

    def crash(self) -> None:
        """The machine of the bus is gone."""
        self._listeners.clear()
        links, self.links = self.links, {}
        for link in links.values():
            link.crash()
