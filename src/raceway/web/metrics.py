"""Figures in Prometheus form, read off the broker and the journal when they are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest

import msgspec
from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from raceway.broker.broker import Broker
from raceway.web.seneca import ServiceTable

# The meter's own names, which follow MB, and what Prometheus users expect to read. Labels are few and fixed.
COUNTERS = {
    "raceway_delivered_messages_total": ("bus.delivered", "Copies of publishes handed to subscribers."),
    "raceway_received_bytes_total": ("bus.bytes", "Payload bytes received."),
    "raceway_unrouted_publishes_total": ("router.publish.dropped", "Publishes that nobody had subscribed to."),
    "raceway_request_timeouts_total": ("router.request.timeout", "Requests whose deadline passed."),
    "raceway_evicted_requests_total": ("router.request.dropped", "Requests evicted or failed by the bus."),
    "raceway_failed_answers_total": ("router.response.error", "Answers that say the service failed."),
    "raceway_late_answers_total": ("bus.answer.late", "Answers after the deadline."),
    "raceway_duplicate_answers_total": ("bus.answer.duplicate", "Second answers."),
    "raceway_unknown_answers_total": ("bus.answer.unknown", "Answers to requests that never were."),
    "raceway_message_errors_total": ("router.message.error", "Messages answered with an error."),
    "raceway_slow_peers_closed_total": ("bus.slow_closed", "Peers closed because they did not read."),
    "raceway_stalled_peers_closed_total": ("bus.stalled_closed", "Peers closed because a begun message did not end."),
    "raceway_unfinished_peers_closed_total": (
        "bus.unfinished_closed",
        "Connections closed because they held most of too much unfinished input.",
    ),
    "raceway_refused_topics_total": ("bus.topics_refused", "New topics refused: too many from one address."),
    "raceway_silent_peers_closed_total": ("bus.silent_closed", "Peers closed because they were silent too long."),
    "raceway_detached_subscribers_total": ("bus.detached", "Subscribers that left the live path for the journal."),
    "raceway_rejoined_subscribers_total": ("bus.rejoined", "Subscribers that caught up and came back to it."),
    "raceway_live_gaps_total": ("bus.gaps", "Times that retention overtook a subscriber that read from the journal."),
    "raceway_dropped_answers_total": (
        "bus.answers_dropped",
        "Answers nobody asked for, and records of the bus, that a full peer missed.",
    ),
    "raceway_ack_timeouts_total": (
        "bus.ack_timeouts",
        "Messages that their consumers did not acknowledge in time; they come again.",
    ),
    "raceway_redelivered_messages_total": ("bus.redelivered", "Messages delivered to a consumer again."),
    "raceway_dead_letters_total": ("bus.dead_letters", "Messages copied to a dead-letter topic."),
    "raceway_poison_dropped_messages_total": ("bus.poison_dropped", "Messages given up after too many failures."),
    "raceway_live_dropped_messages_total": (
        "bus.live_dropped",
        "Messages of non-reliable topics that no stream had room for.",
    ),
    "raceway_unwanted_keys_total": ("bus.key_skipped", "Messages whose key no consumer of the subscription accepts."),
    "raceway_undeliverable_messages_total": (
        "bus.undeliverable",
        "Messages that a receiver did not take in the end, or whose wire cannot carry them.",
    ),
    "raceway_skipped_messages_total": (
        "bus.subscription_skipped",
        "Messages that were gone before a subscription or a queue came to them.",
    ),
    "raceway_repeated_messages_total": ("bus.deduplicated", "Messages not stored again: an x-dedup-id repeated."),
    "raceway_unspelled_messages_total": (
        "bus.unspelled",
        "Copies not made: the subscriber's wire cannot say the name.",
    ),
    "raceway_seneca_repeated_calls_total": ("bus.repeated", "Calls with an id that was there a moment before."),
    "raceway_seneca_refused_returns_total": ("bus.return_refused", "Return paths that the bus may not use."),
    "raceway_connections_total": ("connection.connected", "Connections accepted."),
    "raceway_rejected_connections_total": ("connection.rejected", "Connections over the limit."),
    "raceway_failed_connections_total": ("connection.failed", "Connections that ended in an error."),
}
# Of subscriptions, now.
STANDING = {
    "lag": "Publishes that are not acknowledged.",
    "in_flight": "Messages out without an acknowledgement.",
    "waiting": "Messages that wait to be delivered again.",
    "poisoned": "Messages that block their subscription.",
}
FURTHEST = 100


class BusCollector:
    """One scrape reads everything; nothing is kept between scrapes."""

    def __init__(self, broker: Broker, services: ServiceTable | None) -> None:
        self._broker, self._services = broker, services

    def collect(self) -> Iterable[Metric]:
        broker, counts = self._broker, self._broker.meter.counts
        messages = CounterMetricFamily("raceway_messages", "Messages received.", labels=("wire", "kind"))
        for (wire, kind), count in broker.meter.messages.items():
            messages.add_metric((wire.decode(), kind), count)
        yield messages
        for name, (key, help_text) in COUNTERS.items():
            yield CounterMetricFamily(name.removesuffix("_total"), help_text, value=counts[key])
        violations = CounterMetricFamily(
            "raceway_schema_violations", "Messages against the schema policy of their topic.", labels=("policy", "rule")
        )
        for (policy, rule), count in broker.schema_violations.items():
            violations.add_metric((policy, rule), count)
        yield violations
        guesses = broker.security.guesses
        yield CounterMetricFamily("raceway_token_failures", "Bad tokens.", value=guesses.failed)
        yield CounterMetricFamily(
            "raceway_token_failures_refused", "Tokens that came too soon after bad ones.", value=guesses.refused
        )
        yield GaugeMetricFamily("raceway_peers", "Connected peers.", value=len(broker.peers))
        yield GaugeMetricFamily(
            "raceway_unfinished_bytes", "Input of messages that are not whole.", value=broker.unfinished.total
        )
        yield GaugeMetricFamily(
            "raceway_subscribers_behind",
            "Subscribers that read from the journal now.",
            value=broker.catch_ups.count + len(broker.credits.behind),
        )
        yield GaugeMetricFamily("raceway_topics", "Topics.", value=len(broker.topics))
        yield GaugeMetricFamily(
            "raceway_open_requests", "Requests that wait for an answer.", value=len(broker.correlation)
        )
        yield GaugeMetricFamily(
            "raceway_handed_requests",
            "Requests that zbus consumers were handed and have not answered.",
            value=len(broker.replies),
        )
        yield from self._subscriptions()
        yield from self._seneca()
        yield from self._journal()

    def _subscriptions(self) -> Iterable[Metric]:
        """All together, and by name those that are the furthest behind: there may be thousands."""
        rows = [subscription.status() for subscription in self._broker.subscriptions]
        yield GaugeMetricFamily("raceway_subscriptions", "Subscriptions by name.", value=len(rows))
        yield GaugeMetricFamily("raceway_producers", "Producers.", value=len(self._broker.producers))
        for name, help_text in STANDING.items():
            total = sum(getattr(row, name) for row in rows)
            yield GaugeMetricFamily(f"raceway_subscriptions_{name}", help_text, value=total)
        lag = GaugeMetricFamily(
            "raceway_subscription_lag", f"Lag of the {FURTHEST} furthest behind.", labels=("topic", "subscription")
        )
        for row in nlargest(FURTHEST, rows, key=lambda row: row.lag):
            lag.add_metric((row.topic, row.name), row.lag)
        yield lag

    def _seneca(self) -> Iterable[Metric]:
        rows = self._services.rows() if self._services is not None else ()
        found = GaugeMetricFamily("raceway_seneca_services", "Attached Seneca services.", labels=("state",))
        for state in ("up", "down", "unknown"):
            found.add_metric((state,), sum(row.state == state for row in rows))
        yield found

    def _journal(self) -> Iterable[Metric]:
        journal = self._broker.journal
        health = journal.health()
        writable = GaugeMetricFamily("raceway_journal_writable", "1 while the journal takes writes.")
        writable.add_metric((), health.status == "ok")
        yield writable
        committed = CounterMetricFamily("raceway_journal_committed_rows", "Rows committed, by position.")
        committed.add_metric((), journal.committed + 1)
        yield committed
        for name, value in msgspec.structs.asdict(health).items():
            if isinstance(value, int) and name != "committed":
                yield _health_gauge(name, value)


def _health_gauge(name: str, value: int) -> Metric:
    """Times are in seconds here, whatever they are elsewhere: Prometheus wants base units, and their full names."""
    figure: float = value
    if name.endswith("_us"):
        name, figure = f"{name.removesuffix('_us')}_seconds", value / 1_000_000
    return GaugeMetricFamily(f"raceway_journal_{name}", f"Journal: {name.replace('_', ' ')}.", value=figure)


def exposition(broker: Broker, services: ServiceTable | None = None) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BusCollector(broker, services))
    return generate_latest(registry)
