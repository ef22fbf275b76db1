"""Removal of dead brokers from a tracker's table.

A broker is alive as long as a connection to it stands: one is opened to each reported address and checked periodically.
Addresses the bus must not connect to are listed too, since clients may reach them; for these the broker's own reports
are the sign of life, and three missed ones end it.
"""

from __future__ import annotations

import asyncio

import structlog

from raceway.net.outgoing.allowed import AllowList
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
        self._probes: dict[str, asyncio.Task[OneWayLink]] = {}

    async def run(self) -> None:
        """Check all brokers every `every_s` seconds."""
        try:
            while True:
                self.look()
                await asyncio.sleep(self._every_s)
        finally:
            for address in list(self._probes):
                self._end(address)

    def look(self) -> None:
        """Drop dead brokers and begin to probe new ones."""
        silences = self._table.silences()
        for address in self._probes.keys() - silences.keys():
            self._end(address)
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
            self._probes[address] = asyncio.create_task(open_link(target, CONNECT_S))
        elif probe.done():
            if probe.exception() is not None or not probe.result().open:
                self._end(address)
                return True
            # A broker may close silent connections, which must not look like an outage.
            probe.result().send(zbus_client.heartbeat())
        return False

    def _end(self, address: str) -> None:
        """Stop probing a broker, and close the connection to it."""
        probe = self._probes.pop(address)
        if not probe.done():
            probe.cancel()
        elif not probe.cancelled() and probe.exception() is None:
            probe.result().abort()
