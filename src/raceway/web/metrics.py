"""Metrics in Prometheus format, collected on each scrape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nlargest

import msgspec
from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from raceway.broker.view import View
from raceway.web.routing import Routes

# Prometheus name to the meter's name, which follows MB, and help text. Labels are few and fixed.
COUNTERS = {
    "raceway_delivered_messages_total": ("bus.delivered", "Copies of publishes delivered to subscribers."),
    "raceway_received_bytes_total": ("bus.bytes", "Payload bytes received."),
    "raceway_unrouted_publishes_total": ("router.publish.dropped", "Publishes without subscribers."),
    "raceway_request_timeouts_total": ("router.request.timeout", "Requests whose deadline passed."),
    "raceway_evicted_requests_total": ("router.request.dropped", "Requests evicted or failed by the bus."),
    "raceway_failed_answers_total": ("router.response.error", "Answers that report a failure of the service."),
    "raceway_late_answers_total": ("bus.answer.late", "Answers received after the deadline."),
    "raceway_duplicate_answers_total": ("bus.answer.duplicate", "Answers to requests that were answered before."),
    "raceway_unknown_answers_total": ("bus.answer.unknown", "Answers to unknown requests."),
    "raceway_message_errors_total": ("router.message.error", "Messages answered with an error."),
    "raceway_slow_peers_closed_total": ("bus.slow_closed", "Peers closed because they did not read."),
    "raceway_stalled_peers_closed_total": (
        "bus.stalled_closed",
        "Peers closed because a message was not completed in time.",
    ),
    "raceway_unfinished_peers_closed_total": (
        "bus.unfinished_closed",
        "Connections closed because unfinished input exceeded its budget; those with most are closed first.",
    ),
    "raceway_refused_topics_total": ("bus.topics_refused", "New topics refused because one address created too many."),
    "raceway_silent_peers_closed_total": ("bus.silent_closed", "Peers closed because they were idle too long."),
    "raceway_detached_subscribers_total": (
        "bus.detached",
        "Times that a subscriber left the live path and read from the journal.",
    ),
    "raceway_rejoined_subscribers_total": (
        "bus.rejoined",
        "Times that a subscriber caught up and returned to the live path.",
    ),
    "raceway_live_gaps_total": ("bus.gaps", "Times that retention overtook a subscriber that read from the journal."),
    "raceway_dropped_answers_total": (
        "bus.answers_dropped",
        "Unsolicited replies and system messages dropped because the peer was full.",
    ),
    "raceway_ack_timeouts_total": (
        "bus.ack_timeouts",
        "Messages not acknowledged in time; they are delivered again.",
    ),
    "raceway_redelivered_messages_total": ("bus.redelivered", "Messages delivered to a consumer again."),
    "raceway_dead_letters_total": ("bus.dead_letters", "Messages copied to a dead-letter topic."),
    "raceway_poison_dropped_messages_total": ("bus.poison_dropped", "Messages dropped after too many failures."),
    "raceway_live_dropped_messages_total": (
        "bus.live_dropped",
        "Messages of non-reliable topics dropped because no stream had room.",
    ),
    "raceway_unwanted_keys_total": ("bus.key_skipped", "Messages whose key no consumer of the subscription accepts."),
    "raceway_undeliverable_messages_total": (
        "bus.undeliverable",
        "Messages that a receiver did not accept, or that its wire cannot carry.",
    ),
    "raceway_skipped_messages_total": (
        "bus.subscription_skipped",
        "Messages lost or removed before a subscription or queue delivered them.",
    ),
    "raceway_repeated_messages_total": (
        "bus.deduplicated",
        "Messages not stored because their x-dedup-id was a repeat.",
    ),
    "raceway_unspelled_messages_total": (
        "bus.unspelled",
        "Copies not delivered because the subscriber's wire cannot express the topic's name.",
    ),
    "raceway_seneca_repeated_calls_total": (
        "bus.repeated",
        "Seneca calls answered as a repeat of a recent call with the same id.",
    ),
    "raceway_seneca_refused_returns_total": (
        "bus.return_refused",
        "Seneca return paths refused because the bus may not connect there.",
    ),
    "raceway_connections_total": ("connection.connected", "Connections accepted."),
    "raceway_rejected_connections_total": ("connection.rejected", "Connections rejected because of the limit."),
    "raceway_failed_connections_total": ("connection.failed", "Connections that ended in an error."),
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
        view, counts, gauges = self._view, self._view.health.counts(), self._view.health.gauges()
        messages = CounterMetricFamily("raceway_messages", "Messages received.", labels=("wire", "kind"))
        for (wire, kind), count in counts.messages.items():
            messages.add_metric((wire.decode(), kind), count)
        yield messages
        for name, (key, help_text) in COUNTERS.items():
            yield CounterMetricFamily(name.removesuffix("_total"), help_text, value=counts.named[key])
        violations = CounterMetricFamily(
            "raceway_schema_violations",
            "Messages that violate the schema policy of their topic.",
            labels=("policy", "rule"),
        )
        for (policy, rule), count in counts.violations.items():
            violations.add_metric((policy, rule), count)
        yield violations
        yield CounterMetricFamily("raceway_token_failures", "Invalid tokens.", value=counts.failed_tokens)
        yield CounterMetricFamily(
            "raceway_token_failures_refused",
            "Tokens refused because of too many invalid ones before.",
            value=counts.refused_tokens,
        )
        yield GaugeMetricFamily("raceway_peers", "Connected peers.", value=len(view.peers))
        yield GaugeMetricFamily(
            "raceway_unfinished_bytes", "Buffered input of unfinished messages.", value=gauges.unfinished_bytes
        )
        yield GaugeMetricFamily(
            "raceway_subscribers_behind",
            "Subscribers that are catching up from the journal.",
            value=gauges.subscribers_behind,
        )
        yield GaugeMetricFamily("raceway_topics", "Topics.", value=len(view.topics))
        yield GaugeMetricFamily(
            "raceway_open_requests", "Requests that wait for an answer.", value=gauges.open_requests
        )
        yield GaugeMetricFamily(
            "raceway_handed_requests",
            "Requests delivered to zbus consumers and not answered.",
            value=gauges.handed_requests,
        )
        yield from self._subscriptions(gauges.producers)
        for routes in self._more:
            yield from routes.collect()
        yield from self._journal()

    def _subscriptions(self, producers: int) -> Iterable[Metric]:
        """Yield totals, and the lag by name of the subscriptions that are furthest behind: there may be thousands."""
        rows = list(self._view.subscriptions)
        yield GaugeMetricFamily("raceway_subscriptions", "Subscriptions by name.", value=len(rows))
        yield GaugeMetricFamily("raceway_producers", "Producers.", value=producers)
        for name, help_text in STANDING.items():
            total = sum(getattr(row, name) for row in rows)
            yield GaugeMetricFamily(f"raceway_subscriptions_{name}", help_text, value=total)
        lag = GaugeMetricFamily(
            "raceway_subscription_lag",
            f"Lag of the {FURTHEST} subscriptions that are furthest behind.",
            labels=("topic", "subscription"),
        )
        for row in nlargest(FURTHEST, rows, key=lambda row: row.lag):
            lag.add_metric((row.topic, row.name), row.lag)
        yield lag

    def _journal(self) -> Iterable[Metric]:
        bus = self._view.health.now()
        health = bus.journal
        writable = GaugeMetricFamily("raceway_journal_writable", "1 while the journal accepts writes.")
        writable.add_metric((), health.status == "ok")
        yield writable
        committed = CounterMetricFamily("raceway_journal_committed_rows", "Rows committed, by position.")
        committed.add_metric((), bus.committed + 1)
        yield committed
        for name, value in msgspec.structs.asdict(health).items():
            if isinstance(value, int) and name != "committed":
                yield _health_gauge(name, value)


def _health_gauge(name: str, value: int) -> Metric:
    """Return a gauge. Times are converted to seconds: Prometheus uses base units with their full names."""
    figure: float = value
    if name.endswith("_us"):
        name, figure = f"{name.removesuffix('_us')}_seconds", value / 1_000_000
    return GaugeMetricFamily(f"raceway_journal_{name}", f"Journal: {name.replace('_', ' ')}.", value=figure)


def exposition(view: View, more: Sequence[Routes] = ()) -> bytes:
    """Return all metrics, with those of the routes that wires add."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BusCollector(view, more))
    return generate_latest(registry)
