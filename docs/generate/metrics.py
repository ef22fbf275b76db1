"""The page of metrics, from what a bus without any traffic shows."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing

from prometheus_client.core import Metric

from docs.generate.http_api import NoServices
from docs.generate.markdown import cell, page, table
from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.view import View
from raceway.journal.memory import MemoryJournal
from raceway.web.metrics import BusCollector
from raceway.wires.seneca.listen.routes import SenecaRoutes


def metrics_page() -> str:
    return page(
        "Metrics",
        "What `GET /metrics` on the console port shows, in Prometheus text. Which of them to watch is told in",
        "[health and what to watch](../operate/metrics.md).",
        "",
        *table(["metric", "type", "labels", ""], [_row(family) for family in families()]),
    )


def families() -> list[Metric]:
    with closing(asyncio.new_event_loop()) as loop:
        journal = MemoryJournal(config.JournalSettings(durability="memory"), loop.call_soon, _clock_us)
        with closing(journal):
            broker = Broker(config.BrokerSettings(), journal, loop, _clock_us)
            return list(BusCollector(View(broker), [SenecaRoutes(NoServices())]).collect())


def _clock_us() -> int:
    return time.time_ns() // 1000


def _row(family: Metric) -> tuple[str, ...]:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels: tuple[str, ...] = getattr(family, "_labelnames", ())
    return f"`{name}`", family.type, ", ".join(f"`{label}`" for label in labels), cell(family.documentation)
