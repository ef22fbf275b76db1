"""The tracker's table of brokers and their queues.

Brokers report themselves. Clients subscribe and get the table immediately, after every report, and periodically. A
broker that can no longer be reached is removed by the prober (`drop`).

Reports come from the network, so they are bounded: number of brokers, length of an address, bytes in total. Every
report causes a push of the whole table to all followers, so reports in quick succession share one push, and a follower
that has not read the previous push gets the next one when it has.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from raceway import config
from raceway.net.connection import Connection
from raceway.net.timers import Clock
from raceway.wires.zbus.codec import encode
from raceway.wires.zbus.codec.admin import BrokerReport, TrackTable, encode_description, maybe_report

# Each broker also costs a probe connection.
MAX_BROKERS = 256
# Of all reports together. A push contains each queue twice, so it is about twice as long.
MAX_BYTES = 8 * config.MIB
# A host name has at most 253 characters.
MAX_ADDRESS = 300
# Reports within this time share a push.
GATHER_S = 0.02

log = structlog.get_logger("raceway.listen")


class Tracker:
    """A full follower calls `relieve` when it has room again."""

    def __init__(self, loop: Clock) -> None:
        self._loop = loop
        self._reports: dict[str, BrokerReport] = {}
        self._sizes: dict[str, int] = {}
        self._heard: dict[str, float] = {}
        self._followers: dict[Connection, Callable[[], bool]] = {}
        # Followers that missed a push because they were full.
        self._behind: set[Connection] = set()
        self._is_push_due = False
        self._was_full = False

    @property
    def table(self) -> TrackTable:
        return TrackTable.of(self._reports)

    def silences(self) -> dict[str, float]:
        """Return the seconds since the last report, by broker."""
        now = self._loop.time()
        return {broker: now - heard for broker, heard in self._heard.items()}

    def subscribe(self, follower: Connection, may_follow: Callable[[], bool] = lambda: True) -> bytes:
        """Return the current table, and push changes to the follower from now on while `may_follow` returns True."""
        self._followers[follower] = may_follow
        return self.encode()

    def leave(self, follower: Connection) -> None:
        self._followers.pop(follower, None)
        self._behind.discard(follower)

    def relieve(self, follower: Connection) -> None:
        """Push the current table to a follower that missed a push and has room again."""
        if follower in self._behind:
            self._behind.discard(follower)
            self._push_to([follower])

    def take_report(self, body: bytes) -> None:
        """Store a broker's report. Malformed reports are ignored: the command has no reply."""
        report = maybe_report(body) if len(body) <= MAX_BYTES else None
        if report is None or not 0 < len(report.broker) <= MAX_ADDRESS:
            return
        size = len(encode_description(report))
        if not self._has_room(report.broker, size):
            self._note_full()
            return
        self._reports[report.broker] = report
        self._sizes[report.broker] = size
        self._heard[report.broker] = self._loop.time()
        self.tell()

    def drop(self, broker: str) -> None:
        """Remove a broker that cannot be reached."""
        if self._reports.pop(broker, None) is not None:
            del self._sizes[broker], self._heard[broker]
            self._was_full = False
            self.tell()

    def tell(self) -> None:
        """Schedule a push of the table to all followers."""
        if self._followers and not self._is_push_due:
            self._is_push_due = True
            self._loop.call_later(GATHER_S, self._push)

    def _push(self) -> None:
        self._is_push_due = False
        ready = [follower for follower in self._followers if not follower.is_full]
        self._behind = self._followers.keys() - ready
        self._push_to(ready)

    def _push_to(self, followers: list[Connection]) -> None:
        allowed = [follower for follower in followers if self._followers[follower]()]
        for follower in set(followers).difference(allowed):
            self.leave(follower)
        if allowed:
            data = encode.track_pub(self.encode())
            for follower in allowed:
                follower.write(data)

    def encode(self) -> bytes:
        """Encode the table: brokers by address, and for each queue its entry on each broker."""
        return encode_description(self.table)

    def _has_room(self, broker: str, size: int) -> bool:
        others = len(self._sizes) - (broker in self._sizes)
        return others < MAX_BROKERS and sum(self._sizes.values()) - self._sizes.get(broker, 0) + size <= MAX_BYTES

    def _note_full(self) -> None:
        """Log that the table is full: once, not for each rejected report."""
        if not self._was_full:
            self._was_full = True
            log.warning("tracker is full", brokers=len(self._reports), bytes=sum(self._sizes.values()))
