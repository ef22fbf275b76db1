"""Status of the bus and of its journal, counters and gauges."""

from __future__ import annotations

from collections import Counter

import msgspec

from raceway.broker.broker import Broker
from raceway.journal.contract import Health


class BusHealth(msgspec.Struct, frozen=True):
    """`status` is that of the journal, or `draining` while the bus stops."""

    status: str
    committed: int
    journal: Health


class Counts(msgspec.Struct, frozen=True):
    """Counters since the start: `named` by their names, `messages` by wire and kind, `violations` by policy and rule,
    tokens that were invalid and tokens refused because of earlier ones."""

    named: Counter[str]
    messages: dict[tuple[bytes, str], int]
    violations: dict[tuple[str, str], int]
    failed_tokens: int
    refused_tokens: int


class Gauges(msgspec.Struct, frozen=True):
    """Current numbers. `handed_requests` are with consumers of queues, `subscribers_behind` read from the journal."""

    open_requests: int
    handed_requests: int
    producers: int
    unfinished_bytes: int
    subscribers_behind: int


class HealthView:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def now(self) -> BusHealth:
        """Return the current health. Safe in any thread."""
        journal = self._broker.journal
        health = journal.health()
        return BusHealth("draining" if self._broker.draining else health.status, journal.committed, health)

    def counts(self) -> Counts:
        meter, guesses = self._broker.meter, self._broker.security.guesses
        return Counts(
            Counter(meter.counts), dict(meter.messages), dict(self._broker.schema_violations),
            guesses.failed, guesses.refused,
        )  # fmt: skip

    def gauges(self) -> Gauges:
        broker = self._broker
        return Gauges(
            len(broker.correlation), broker.correlation.delivered, len(broker.producers), broker.unfinished.total,
            broker.catch_ups.count + len(broker.credits.behind),
        )  # fmt: skip
