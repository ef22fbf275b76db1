"""All connections of one wire: the set of sessions, pausing input, the periodic sweep for idle and stalled peers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from raceway import config
from raceway.broker.broker import Broker


class Guest(Protocol):
    """The methods of a session that a gate calls."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def hear(self) -> None: ...
    def sweep(self, now: float) -> None: ...


S = TypeVar("S", bound=Guest)


class Gate(Generic[S]):
    """The open connections of one wire. `max_connections` of 0 means no limit."""

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
        """Return whether one more connection is allowed. A rejected one is counted."""
        if self._max_connections and len(self.sessions) >= self._max_connections:
            self.broker.meter.counts["connection.rejected"] += 1
            return False
        return True

    def is_ours(self, host: bytes | None, origin: bytes | None, fetch_site: bytes | None) -> bool:
        """Return whether a request may come from here: False for pages of other sites and for foreign host names.

        Protects against cross-site requests and DNS rebinding. Programs that are not browsers send neither header.
        """
        # RFC 9110, 7.2: Host names the server the client wanted. A rebound DNS name shows up here as a foreign host.
        hosts = (self.listen.host, *self.listen.hosts)
        addresses = [f"//{host.decode('latin-1')}"] if host is not None else []
        # RFC 6454, 7: a browser names the site of the page that makes the request.
        addresses += [origin.decode("latin-1")] if origin is not None else []
        return fetch_site != b"cross-site" and all(config.names_us(address, hosts) for address in addresses)

    def pause(self, paused: bool) -> None:
        """Stop or restart reading from all sessions. The journal asks for it when its write queue is long."""
        self.paused = paused
        for session in list(self.sessions):
            if paused:
                session.pause()
            else:
                # A peer that could not be read from must not be closed as idle.
                session.hear()
                session.resume()

    def output_mark(self) -> int:
        """Return the output limit of one connection: its share of the limit for all, at least 1 MiB."""
        # Divided evenly, so that many slow connections together stay within the limit.
        share = self.listen.output_total_bytes // max(1, len(self.sessions))
        return min(self.listen.output_bytes, max(share, config.MIB))

    def drain(self) -> None:
        """Announce the shutdown to peers, on wires that have a message for it. A no-op here."""

    def sweep(self) -> None:
        """Call `sweep` of every session: close idle and stalled peers, send heartbeats."""
        if self.paused:  # input is paused, so silence is not the peers' fault
            return
        now = self.time()
        for session in list(self.sessions):
            session.sweep(now)
