"""Counters: totals, rates of the last full second, and the metrics that peers read (`ReadMetrics`) and Prometheus.

Counters are entries of one dictionary, raised once per batch. Those that only Prometheus shows start with `bus.`.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable

import psutil

from raceway.broker.peers import Peer
from raceway.model.intents.peers import Metric

# Events that peers see as total and rate: prefix, and the suffixes that are counted separately.
ROUTED = {
    "router.message": ("", ".error"),
    "router.publish": ("", ".dropped", ".error"),
    "router.request": ("", ".dropped", ".error", ".timeout"),
    "router.response": ("", ".error"),
}
ROUTED_KINDS = {kind: f"router.{kind}" for kind in ("publish", "request", "response")}
CONNECTIONS = ("connected", "disconnected", "failed", "rejected")
REGISTRY = ("discovery", "registration", "unregistration")


class Meter:
    def __init__(self) -> None:
        self.counts: defaultdict[str, int] = defaultdict(int)
        self.messages: defaultdict[tuple[bytes, str], int] = defaultdict(int)
        self.largest = 0
        self._before: dict[str, int] = {}
        self._rates: dict[str, int] = {}
        self._process = psutil.Process(os.getpid())

    def count_batch(self, kind: str, wire: bytes, payloads: list[bytes]) -> None:
        """Count received messages of one kind."""
        counts, count = self.counts, len(payloads)
        counts[ROUTED_KINDS[kind]] += count
        counts["router.message"] += count
        self.messages[wire, kind] += count
        if count == 1:
            size = largest = len(payloads[0])
        else:
            sizes = list(map(len, payloads))
            size, largest = sum(sizes), max(sizes)
        counts["bus.bytes"] += size
        if largest > self.largest:
            self.largest = largest

    def tick(self) -> None:
        """Compute the rates since the last tick; called once a second."""
        self._rates = {name: count - self._before.get(name, 0) for name, count in self.counts.items()}
        self._before = dict(self.counts)

    def rate(self, name: str) -> int:
        return self._rates.get(name, 0)

    def rows(self, peers: Iterable[Peer], time_us: int) -> Iterable[Metric]:
        """Yield the metrics that peers read."""
        yield from self._process_rows()
        yield from self._router_rows()
        yield from self._registry_rows(list(peers), time_us)

    def _process_rows(self) -> Iterable[Metric]:
        memory, system = self._process.memory_info().rss, psutil.virtual_memory()
        # cpu_percent compares with its previous call; the first one returns 0.
        share = self._process.cpu_percent() / 100 / (psutil.cpu_count() or 1)
        yield Metric("process.cpu.percent", "percent", min(share, 1))
        yield Metric("process.memory.bytes", "gauge", memory)
        yield Metric("process.memory.percent", "percent", memory / system.total)
        yield Metric("process.uptime", "uptime", int(time.time() - self._process.create_time()))
        yield Metric("system.cpu.percent", "percent", psutil.cpu_percent() / 100)
        yield Metric("system.memory.bytes", "gauge", system.used)
        yield Metric("system.memory.percent", "percent", system.percent / 100)
        yield Metric("system.uptime", "uptime", int(time.time() - psutil.boot_time()))
        for core, percent in enumerate(psutil.cpu_percent(percpu=True)):
            yield Metric(f"system.cpu.{{core:{core}}}.percent", "percent", percent / 100, {"core": str(core)})

    def _router_rows(self) -> Iterable[Metric]:
        for prefix, parts in ROUTED.items():
            for part in parts:
                yield Metric(f"{prefix}.count{part}", "gauge", self.counts[prefix + part])
                yield Metric(f"{prefix}.rate{part}", "rate", self.rate(prefix + part))
        messages = self.counts["router.message"]
        average = self.counts["bus.bytes"] / messages if messages else 0
        yield Metric("router.message.size.avg", "average", average)
        yield Metric("router.message.size.max", "maximum", self.largest)

    def _registry_rows(self, peers: list[Peer], time_us: int) -> Iterable[Metric]:
        yield Metric("registry.count", "gauge", len(peers))
        for event in REGISTRY:
            yield Metric(f"registry.{event}.rate", "rate", self.rate(f"registry.{event}"))
        for peer in peers:
            name, parameters = f"registry.service.{{serviceid:{peer.id}}}", {"serviceid": peer.id}
            yield Metric(f"{name}.error.rate", "rate", peer.error_rate, parameters)
            yield Metric(f"{name}.uptime", "uptime", (time_us - peer.registered_us) // 1_000_000, parameters)
        yield Metric("connection.active", "gauge", len(peers))
        for event in CONNECTIONS:
            yield Metric(f"connection.{event}.rate", "rate", self.rate(f"connection.{event}"))
            yield Metric(f"connection.{event}.total", "gauge", self.counts[f"connection.{event}"])
