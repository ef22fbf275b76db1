"""Metrics in Prometheus format, collected on each scrape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from typing import TypeVar

import msgspec
from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from raceway.broker.view import View
from raceway.journal.contract import ArchiveHealth
from raceway.web.routing import Routes

Labelled = TypeVar("Labelled", CounterMetricFamily, GaugeMetricFamily)

# Name of a counter, without `raceway_` and `_total`, to the meter's name, which follows MB, and help text.
COUNTERS = {
    "delivered_messages": ("bus.delivered", "Copies of publishes delivered to subscribers."),
    "received_bytes": ("bus.bytes", "Payload bytes received."),
    "unrouted_publishes": ("router.publish.dropped", "Publishes without subscribers."),
    "request_timeouts": ("router.request.timeout", "Requests whose deadline passed."),
    "evicted_requests": ("router.request.dropped", "Requests evicted or failed by the bus."),
    "failed_answers": ("router.response.error", "Answers that report a failure of the service."),
    "late_answers": ("bus.answer.late", "Answers received after the deadline."),
    "duplicate_answers": ("bus.answer.duplicate", "Answers to requests that were answered before."),
    "unknown_answers": ("bus.answer.unknown", "Answers to unknown requests."),
    "message_errors": (
        "router.message.error",
        "Messages answered with an error, but for publishes without subscribers.",
    ),
    "slow_peers_closed": ("bus.slow_closed", "Peers closed because they did not read."),
    "stalled_peers_closed": ("bus.stalled_closed", "Peers closed because a message was not completed in time."),
    "unfinished_peers_closed": (
        "bus.unfinished_closed",
        "Connections closed because unfinished input exceeded its budget; those with most are closed first.",
    ),
    "refused_topics": ("bus.topics_refused", "New topics refused because one address created too many."),
    "silent_peers_closed": ("bus.silent_closed", "Peers closed because they were idle too long."),
    "detached_subscribers": ("bus.detached", "Times that a subscriber left the live path and read from the journal."),
    "rejoined_subscribers": ("bus.rejoined", "Times that a subscriber caught up and returned to the live path."),
    "live_gaps": (
        "bus.gaps",
        "Times that a subscriber that read from the journal missed rows: removed by retention, or lost.",
    ),
    "dropped_answers": (
        "bus.answers_dropped",
        "Unsolicited replies and system messages dropped because the peer was full.",
    ),
    "ack_timeouts": ("bus.ack_timeouts", "Messages not acknowledged in time; they are delivered again."),
    "redelivered_messages": ("bus.redelivered", "Messages delivered to a consumer again."),
    "dead_letters": ("bus.dead_letters", "Messages copied to a dead-letter topic."),
    "poison_dropped_messages": ("bus.poison_dropped", "Messages dropped after too many failures."),
    "live_dropped_messages": (
        "bus.live_dropped",
        "Messages of non-reliable topics dropped because no consumer accepts their key.",
    ),
    "unwanted_keys": ("bus.key_skipped", "Messages whose key no consumer of the subscription accepts."),
    "undeliverable_messages": (
        "bus.undeliverable",
        "Messages that a receiver did not accept, or that its wire cannot carry.",
    ),
    "skipped_messages": (
        "bus.subscription_skipped",
        "Messages lost or removed before a subscription or queue delivered them.",
    ),
    "repeated_messages": ("bus.deduplicated", "Messages not stored because their x-dedup-id was a repeat."),
    "unspelled_messages": (
        "bus.unspelled",
        "Copies not delivered because the subscriber's wire cannot express the topic's name.",
    ),
    "seneca_repeated_calls": ("bus.repeated", "Seneca calls answered as a repeat of a recent call with the same id."),
    "seneca_refused_returns": (
        "bus.return_refused",
        "Seneca return paths refused because the bus may not connect there.",
    ),
    "connections": ("connection.connected", "Connections accepted."),
    "rejected_connections": ("connection.rejected", "Connections rejected because of the limit."),
    "failed_connections": ("connection.failed", "Connections that ended in an error."),
}
# Gauges over all subscriptions.
STANDING = {
    "lag": "Publishes that are not acknowledged.",
    "in_flight": "Messages delivered and not acknowledged.",
    "waiting": "Messages that wait to be delivered again.",
    "poisoned": "Messages that block their subscription.",
}
FURTHEST = 100


class BusCollector:
    """Collector that reads all metrics on each scrape; nothing is kept between scrapes."""

    def __init__(self, view: View, more: Sequence[Routes] = ()) -> None:
        self._view, self._more = view, more

    def collect(self) -> Iterable[Metric]:
        for metric in self._collected():
            if self._view.labels:
                metric.samples = [each._replace(labels=each.labels | self._view.labels) for each in metric.samples]
            yield metric

    def _collected(self) -> Iterable[Metric]:
        view, counts, gauges = self._view, self._view.health.counts(), self._view.health.gauges()
        received = {(wire.decode(), kind): count for (wire, kind), count in counts.messages.items()}
        messages = CounterMetricFamily("raceway_messages", "Messages received.", labels=("wire", "kind"))
        yield _with_values(messages, received)
        yield from (_counter(name, text, counts.named[key]) for name, (key, text) in COUNTERS.items())
        violation = "Messages that violate the schema policy of their topic."
        violations = CounterMetricFamily("raceway_schema_violations", violation, labels=("policy", "rule"))
        yield _with_values(violations, counts.violations)
        yield _counter("token_failures", "Invalid tokens.", counts.failed_tokens)
        refused = "Tokens refused because of too many invalid ones before."
        yield _counter("token_failures_refused", refused, counts.refused_tokens)
        yield _gauge("peers", "Connected peers.", len(view.peers))
        yield _gauge("unfinished_bytes", "Buffered input of unfinished messages.", gauges.unfinished_bytes)
        behind = "Subscribers that are catching up from the journal."
        yield _gauge("subscribers_behind", behind, gauges.subscribers_behind)
        yield _gauge("topics", "Topics.", len(view.topics))
        yield _gauge("open_requests", "Requests that wait for an answer.", gauges.open_requests)
        handed = "Requests delivered to zbus consumers and not answered."
        yield _gauge("handed_requests", handed, gauges.handed_requests)
        yield from self._subscriptions(gauges.producers)
        for routes in self._more:
            yield from routes.collect()
        yield from self._journal()

    def _subscriptions(self, producers: int) -> Iterable[Metric]:
        """Yield totals, and the lag by name of the subscriptions that are furthest behind: there may be thousands."""
        rows = list(self._view.subscriptions)
        yield _gauge("subscriptions", "Subscriptions by name.", len(rows))
        yield _gauge("producers", "Producers.", producers)
        for name, text in STANDING.items():
            yield _gauge(f"subscriptions_{name}", text, sum(getattr(row, name) for row in rows))
        furthest = f"Lag of the {FURTHEST} subscriptions that are furthest behind."
        lag = GaugeMetricFamily("raceway_subscription_lag", furthest, labels=("topic", "subscription"))
        slowest = nlargest(FURTHEST, rows, key=lambda row: row.lag)
        yield _with_values(lag, {(row.topic, row.name): row.lag for row in slowest})

    def _journal(self) -> Iterable[Metric]:
        bus = self._view.health.now()
        yield _gauge("journal_writable", "1 while the journal accepts writes.", bus.journal.status == "ok")
        yield _counter("journal_committed_rows", "Rows committed, by position.", bus.committed + 1)
        for name, value in msgspec.structs.asdict(bus.journal).items():
            if isinstance(value, int) and name != "committed":
                yield _health_gauge(name, value)
        yield from self._archive(bus.journal.archive)

    def _archive(self, archive: ArchiveHealth | None) -> Iterable[Metric]:
        """Yield what the archive is doing; all of it is 0 without one."""
        facts = {
            "segments": ("Segments of the journal in its archive.", archive and archive.segments),
            "waiting_segments": ("Sealed segments that wait for the archive.", archive and archive.waiting_segments),
            "waiting_bytes": ("Bytes that wait for the archive.", archive and archive.waiting_bytes),
            "failing_seconds": ("How long the archive has been failing.", archive and archive.failing_s),
        }
        for name, (text, value) in facts.items():
            yield _gauge(f"journal_archive_{name}", text, value or 0)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"raceway_{name}", text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"raceway_{name}", text, value=value)


def _with_values(family: Labelled, values: Mapping[tuple[str, str], float]) -> Labelled:
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _health_gauge(name: str, value: float) -> Metric:
    """Return a gauge. Times are converted to seconds: Prometheus uses base units with their full names."""
    if name.endswith("_us"):
        name, value = f"{name.removesuffix('_us')}_seconds", value / 1_000_000
    return _gauge(f"journal_{name}", f"Journal: {name.replace('_', ' ')}.", value)


def exposition(view: View, more: Sequence[Routes] = ()) -> bytes:
    """Return all metrics, with those of the routes that wires add."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BusCollector(view, more))
    return generate_latest(registry)
