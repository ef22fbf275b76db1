"""The tracker's table: which brokers there are, and which queues each of them has.

Brokers report themselves; clients subscribe and are told at once, on every report, and now and then unasked. A broker
that can no longer be reached is dropped by whoever probes it (`drop`).

Reports come from the network, so everything about them is bounded: how many brokers, how long an address, how many
bytes in all. And since every report makes a push of the whole table to everybody, reports that come close together
share one, and a follower that has not taken what it was told before is told again only when it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import structlog

from raceway import config
from raceway.broker.bus import Clock
from raceway.codec import zbus
from raceway.codec.zbus_admin import BrokerReport, TrackTable, encode_description, maybe_report

# Each broker also costs a connection: its probe.
MAX_BROKERS = 256
# Of all reports together, as they are pushed. A push has each queue twice, so it is at most about twice as long.
MAX_BYTES = 8 * config.MIB
# A host name has at most 253 characters.
MAX_ADDRESS = 300
# Reports within this time share a push.
GATHER_S = 0.02

log = structlog.get_logger("raceway.listen")


class Follower(Protocol):
    """A connection that wants to be told."""

    def has_room(self) -> bool:
        """May it be told now? If not, it calls `Tracker.relieve` when it may."""

    def write(self, data: bytes) -> None: ...


class Tracker:
    def __init__(self, loop: Clock) -> None:
        self._loop = loop
        self._reports: dict[str, BrokerReport] = {}
        self._sizes: dict[str, int] = {}
        self._heard: dict[str, float] = {}
        self._followers: dict[Follower, Callable[[], bool]] = {}
        # Followers that a push left out.
        self._behind: set[Follower] = set()
        self._is_push_due = False
        self._was_full = False

    @property
    def table(self) -> TrackTable:
        return TrackTable.of(self._reports)

    def silences(self) -> dict[str, float]:
        """Broker to seconds since its last report."""
        now = self._loop.time()
        return {broker: now - heard for broker, heard in self._heard.items()}

    def subscribe(self, follower: Follower, may_follow: Callable[[], bool] = lambda: True) -> bytes:
        """The table as it is; from now on the follower is told of changes, as long as it may be."""
        self._followers[follower] = may_follow
        return self.encode()

    def leave(self, follower: Follower) -> None:
        self._followers.pop(follower, None)
        self._behind.discard(follower)

    def relieve(self, follower: Follower) -> None:
        """The follower has room again: it is told what it missed, as it is now."""
        if follower in self._behind:
            self._behind.discard(follower)
            self._push_to([follower])

    def take_report(self, body: bytes) -> None:
        """A broker reports itself. What is no report is dropped: there is no answer to say so."""
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
        """The broker cannot be reached any more."""
        if self._reports.pop(broker, None) is not None:
            del self._sizes[broker], self._heard[broker]
            self._was_full = False
            self.tell()

    def tell(self) -> None:
        """Push the table to everybody who follows it, in a moment."""
        if self._followers and not self._is_push_due:
            self._is_push_due = True
            self._loop.call_later(GATHER_S, self._push)

    def _push(self) -> None:
        self._is_push_due = False
        ready = [follower for follower in self._followers if follower.has_room()]
        self._behind = self._followers.keys() - ready
        self._push_to(ready)

    def _push_to(self, followers: list[Follower]) -> None:
        allowed = [follower for follower in followers if self._followers[follower]()]
        for follower in set(followers).difference(allowed):
            self.leave(follower)
        if allowed:
            data = zbus.track_pub(self.encode())
            for follower in allowed:
                follower.write(data)

    def encode(self) -> bytes:
        """Brokers by address, and for each queue its entry on each broker; objects are written in full."""
        return encode_description(self.table)

    def _has_room(self, broker: str, size: int) -> bool:
        others = len(self._sizes) - (broker in self._sizes)
        return others < MAX_BROKERS and sum(self._sizes.values()) - self._sizes.get(broker, 0) + size <= MAX_BYTES

    def _note_full(self) -> None:
        """Once, not for each report that is turned away."""
        if not self._was_full:
            self._was_full = True
            log.warning("tracker is full", brokers=len(self._reports), bytes=sum(self._sizes.values()))
