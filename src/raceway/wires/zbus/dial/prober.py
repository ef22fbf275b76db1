"""Removal of dead brokers from a tracker's table.

A broker is alive as long as a connection to it stands: one is opened to each reported address and checked periodically.
Addresses the bus must not connect to are listed too, since clients may reach them; for these the broker's own reports
are the sign of life, and three missed ones end it.
"""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from raceway.net.outgoing.allowed import AllowList, Target
from raceway.net.outgoing.link import OneWayLink, open_link
from raceway.wires.zbus.codec import client as zbus_client
from raceway.wires.zbus.listen.tracker import Tracker

# One lost report is no outage; the real tracker relies on its probe connection alone.
MISSED_REPORTS = 3
CONNECT_S = 5.0

log = structlog.get_logger("raceway.dial")


class Prober:
    """Probe the brokers of a tracker's table. `run` goes on until it is cancelled."""

    def __init__(self, table: Tracker, allowed: AllowList, every_s: float, report_s: float) -> None:
        self._table = table
        self._allowed = allowed
        self._every_s = every_s
        self._longest_silence_s = MISSED_REPORTS * max(every_s, report_s)
        self._probes: dict[str, _Probe] = {}

    async def run(self) -> None:
        """Check all brokers every `every_s` seconds."""
        try:
            while True:
                self.look()
                await asyncio.sleep(self._every_s)
        finally:
            for probe in self._probes.values():
                probe.end()

    def look(self) -> None:
        """Drop dead brokers and begin to probe new ones."""
        silences = self._table.silences()
        for address in self._probes.keys() - silences.keys():
            self._probes.pop(address).end()
        for address, silence_s in silences.items():
            if self._is_gone(address, silence_s):
                log.info("broker dropped", broker=address)
                self._table.drop(address)

    def _is_gone(self, address: str, silence_s: float) -> bool:
        """Report whether a broker is dead; begin to probe one that is new."""
        target = self._allowed.maybe_allowed(address)
        if target is None:
            return silence_s > self._longest_silence_s
        probe = self._probes.get(address)
        if probe is None:
            # Given until the next check to connect.
            self._probes[address] = _Probe(target)
            return False
        if probe.is_down():
            self._probes.pop(address).end()
            return True
        probe.beat()
        return False


class _Probe:
    """A connection to one broker, opened immediately."""

    def __init__(self, target: Target) -> None:
        self._link: OneWayLink | None = None
        self._opening = asyncio.create_task(self._open(target))

    async def _open(self, target: Target) -> None:
        with contextlib.suppress(OSError):
            self._link = await open_link(target, CONNECT_S)

    def is_down(self) -> bool:
        """Report whether the connection failed or was lost."""
        return self._opening.done() and (self._link is None or not self._link.open)

    def beat(self) -> None:
        """Send a heartbeat: a broker may close silent connections, which must not look like an outage."""
        if self._link is not None:
            self._link.send(zbus_client.heartbeat())

    def end(self) -> None:
        """Close the connection."""
        self._opening.cancel()
        if self._link is not None:
            self._link.abort()
