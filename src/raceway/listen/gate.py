"""All connections of one wire: who is there, when nobody is read from, and the sweep for silent and stalled ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from raceway import config
from raceway.broker.broker import Broker


class Guest(Protocol):
    """What a gate needs of a session."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def hear(self) -> None: ...
    def sweep(self, now: float) -> None: ...


S = TypeVar("S", bound=Guest)


class Gate(Generic[S]):
    """`max_connections`: 0 is no limit."""

    def __init__(
        self, broker: Broker, listen: config.Listen, time: Callable[[], float], max_connections: int = 0
    ) -> None:
        self.broker = broker
        self.listen = listen
        self.time = time
        self._max_connections = max_connections
        self.sessions: set[S] = set()
        self.paused = False

    def has_room(self) -> bool:
        """May one more peer come in? One that may not is counted."""
        if self._max_connections and len(self.sessions) >= self._max_connections:
            self.broker.meter.counts["connection.rejected"] += 1
            return False
        return True

    def is_ours(self, host: bytes | None, origin: bytes | None, fetch_site: bytes | None) -> bool:
        """Pages of other sites, and names that are not ours, are refused; programs say nothing of either."""
        hosts = (self.listen.host, *self.listen.hosts)
        addresses = [f"//{host.decode('latin-1')}"] if host is not None else []
        addresses += [origin.decode("latin-1")] if origin is not None else []
        return fetch_site != b"cross-site" and all(config.names_us(address, hosts) for address in addresses)

    def pause(self, paused: bool) -> None:
        """The journal is behind, or has caught up: nobody is read from meanwhile."""
        self.paused = paused
        for session in list(self.sessions):
            if paused:
                session.pause()
            else:
                session.hear()
                session.resume()

    def output_mark(self) -> int:
        """How much may wait for one connection: its share of what may wait for all."""
        share = self.listen.output_total_bytes // max(1, len(self.sessions))
        return min(self.listen.output_bytes, max(share, config.MIB))

    def drain(self) -> None:
        """The bus is about to stop. Wires that can say so, do."""

    def sweep(self) -> None:
        """An end for peers silent too long and for messages that never end; what else a wire does now and then."""
        if self.paused:  # nobody is read from, so nobody can be blamed for silence
            return
        now = self.time()
        for session in list(self.sessions):
            session.sweep(now)
