"""Writes the Grafana dashboards of `deploy/grafana` anew: `python -m tools.make_dashboards`. A test compares them.

A panel is its title, the unit of its values, and its queries with their legends. `$on` in a query stands for the
buses that were chosen.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent.parent / "deploy" / "grafana"
# Grafana's grid has 24 columns.
COLUMNS, WIDTH, HEIGHT = 24, 8, 8
STAT_WIDTH, STAT_HEIGHT = 4, 4
SOURCE = {"type": "prometheus", "uid": "${source}"}
ON = 'instance=~"$instance"'


class Panel(NamedTuple):
    """`red` is the value from which it is red; `is_stat`: one large number instead of a graph."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    says: str = ""
    is_stat: bool = False
    red: float | None = None
    is_red_below: bool = False


def stat(title: str, query: str, unit: str = "short", red: float | None = None, *, is_red_below: bool = False) -> Panel:
    return Panel(title, unit, ((query, ""),), is_stat=True, red=red, is_red_below=is_red_below)


def per_second(*counters: str) -> tuple[tuple[str, str], ...]:
    """The rate of counters without labels."""
    return tuple((f"sum(rate({name}{{$on}}[$__rate_interval]))", _words(name)) for name in counters)


def now(*gauges: str) -> tuple[tuple[str, str], ...]:
    """The values of gauges without labels, of all chosen buses together."""
    return tuple((f"sum({name}{{$on}})", _words(name)) for name in gauges)


def _words(name: str) -> str:
    return name.removeprefix("raceway_").removesuffix("_total").replace("_", " ")


BUS = (
    stat("Takes messages", "min(raceway_journal_writable{$on})", red=1, is_red_below=True),
    stat("Messages per second", "sum(rate(raceway_messages_total{$on}[$__rate_interval]))"),
    stat("Peers", "sum(raceway_peers{$on})"),
    stat("Not acknowledged", "sum(raceway_subscriptions_lag{$on})"),
    stat("Poisoned", "sum(raceway_subscriptions_poisoned{$on})", red=1),
    stat("Open requests", "sum(raceway_open_requests{$on})", red=8000),
    Panel(
        "Messages by wire",
        "cps",
        (("sum by (wire) (rate(raceway_messages_total{$on}[$__rate_interval]))", "{{wire}}"),),
        "Received, per second.",
    ),
    Panel(
        "Messages by kind",
        "cps",
        (("sum by (kind) (rate(raceway_messages_total{$on}[$__rate_interval]))", "{{kind}}"),),
        "Publishes, requests and answers received, per second.",
    ),
    Panel(
        "Delivered and unrouted",
        "cps",
        per_second("raceway_delivered_messages_total", "raceway_unrouted_publishes_total"),
        "Copies delivered to subscribers, and publishes that nobody listens to (they are stored).",
    ),
    Panel("Payload received", "Bps", per_second("raceway_received_bytes_total")),
    Panel("Peers, topics, producers", "short", now("raceway_peers", "raceway_topics", "raceway_producers")),
    Panel(
        "Connections",
        "cps",
        per_second(
            "raceway_connections_total", "raceway_rejected_connections_total", "raceway_failed_connections_total"
        ),
    ),
    Panel(
        "Open requests",
        "short",
        now("raceway_open_requests", "raceway_handed_requests"),
        "Rising: responders that do not answer.",
    ),
    Panel(
        "Requests that failed",
        "cps",
        per_second(
            "raceway_request_timeouts_total",
            "raceway_evicted_requests_total",
            "raceway_failed_answers_total",
            "raceway_late_answers_total",
        ),
    ),
    Panel(
        "Schema violations",
        "cps",
        (
            (
                "sum by (policy, rule) (rate(raceway_schema_violations_total{$on}[$__rate_interval]))",
                "{{policy}} {{rule}}",
            ),
        ),
        "Let pass (warn) or refused (enforce). Empty until there was one.",
    ),
    Panel(
        "Peers closed",
        "cps",
        per_second(
            "raceway_slow_peers_closed_total",
            "raceway_stalled_peers_closed_total",
            "raceway_unfinished_peers_closed_total",
            "raceway_silent_peers_closed_total",
        ),
    ),
    Panel(
        "Unfinished input",
        "bytes",
        now("raceway_unfinished_bytes"),
        "Messages that have begun and not ended. The limit is broker.unfinished_bytes.",
    ),
    Panel(
        "Refused",
        "cps",
        per_second("raceway_refused_topics_total", "raceway_message_errors_total", "raceway_token_failures_total"),
        "New topics beyond broker.topic_rate, messages answered with an error, invalid tokens.",
    ),
    Panel(
        "Seneca services",
        "short",
        (("sum by (state) (raceway_seneca_services{$on})", "{{state}}"),),
        "Attached services. Down: they cannot be reached; `raceway seneca list` says why.",
    ),
)

CONSUMERS = (
    stat("Subscriptions", "sum(raceway_subscriptions{$on})"),
    stat("Not acknowledged", "sum(raceway_subscriptions_lag{$on})"),
    stat("In flight", "sum(raceway_subscriptions_in_flight{$on})"),
    stat("Waiting to come again", "sum(raceway_subscriptions_waiting{$on})"),
    stat("Poisoned", "sum(raceway_subscriptions_poisoned{$on})", red=1),
    stat("Live subscribers behind", "sum(raceway_subscribers_behind{$on})", red=1),
    Panel(
        "Furthest behind",
        "short",
        (("topk(10, raceway_subscription_lag{$on})", "{{topic}} {{subscription}}"),),
        "The ten subscriptions with most messages that are not acknowledged.",
    ),
    Panel(
        "Lag, in flight, waiting",
        "short",
        now("raceway_subscriptions_lag", "raceway_subscriptions_in_flight", "raceway_subscriptions_waiting"),
    ),
    Panel("Delivered", "cps", per_second("raceway_delivered_messages_total", "raceway_redelivered_messages_total")),
    Panel(
        "Not acknowledged in time",
        "cps",
        per_second("raceway_ack_timeouts_total"),
        "Consumers that take longer than ack_timeout_ms for one message; it comes again.",
    ),
    Panel(
        "Given up",
        "cps",
        per_second("raceway_dead_letters_total", "raceway_poison_dropped_messages_total"),
        "Messages that failed too often.",
    ),
    Panel(
        "Not delivered",
        "cps",
        per_second(
            "raceway_undeliverable_messages_total",
            "raceway_live_dropped_messages_total",
            "raceway_skipped_messages_total",
            "raceway_unspelled_messages_total",
        ),
    ),
    Panel(
        "Live subscribers that read from the journal",
        "short",
        (
            *now("raceway_subscribers_behind"),
            ("sum(increase(raceway_detached_subscribers_total{$on}[$__rate_interval]))", "left the live path"),
            ("sum(increase(raceway_rejoined_subscribers_total{$on}[$__rate_interval]))", "caught up"),
        ),
        "They do not keep up with what is published.",
    ),
    Panel(
        "Gaps of live subscribers",
        "short",
        now("raceway_live_gaps_total"),
        "Retention removed what such a subscriber had not come to.",
        red=1,
    ),
)

JOURNAL = (
    stat("Writable", "min(raceway_journal_writable{$on})", red=1, is_red_below=True),
    stat(
        "Disk free",
        "min(raceway_journal_free_bytes{$on} / raceway_journal_disk_bytes{$on})",
        "percentunit",
        0.1,
        is_red_below=True,
    ),
    stat("Journal", "sum(raceway_journal_bytes{$on})", "bytes"),
    stat("Slowest sync", "max(raceway_journal_slowest_sync_seconds{$on})", "s"),
    stat(
        "Rows lost",
        "sum(raceway_journal_quarantined_rows{$on}) + sum(raceway_journal_missing_rows{$on})",
        red=1,
    ),
    stat("Repairs", "sum(raceway_journal_repairs{$on})", red=1),
    Panel(
        "Rows committed", "cps", (("sum(rate(raceway_journal_committed_rows_total{$on}[$__rate_interval]))", "rows"),)
    ),
    Panel(
        "Last sync",
        "s",
        (("max by (instance) (raceway_journal_last_sync_seconds{$on})", "{{instance}}"),),
        "How long the last fdatasync took.",
    ),
    Panel(
        "Waiting for the disk",
        "bytes",
        now("raceway_journal_unsynced_bytes"),
        "Near journal.unsynced_bytes the disk is the bottleneck, and senders are slowed.",
    ),
    Panel("Disk", "bytes", now("raceway_journal_free_bytes", "raceway_journal_bytes", "raceway_journal_disk_bytes")),
    Panel("Segments and blocks", "short", now("raceway_journal_segments", "raceway_journal_blocks")),
    Panel("Rows kept", "short", now("raceway_journal_rows")),
    Panel(
        "Damage",
        "short",
        now(
            "raceway_journal_quarantined_rows",
            "raceway_journal_missing_rows",
            "raceway_journal_repairs",
            "raceway_journal_bytes_cut",
            "raceway_journal_moved_cursors",
        ),
        "`raceway journal verify` and the log say more.",
    ),
    Panel("Refused writes", "short", now("raceway_journal_refusals")),
)

BOARDS = {
    "raceway-bus": ("Raceway: bus", BUS),
    "raceway-consumers": ("Raceway: consumers", CONSUMERS),
    "raceway-journal": ("Raceway: journal", JOURNAL),
}


def dashboard(uid: str, title: str, panels: tuple[Panel, ...]) -> dict[str, Any]:
    return {
        "uid": uid,
        "title": title,
        "tags": ["raceway"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_source_variable(), _instance_variable()]},
        "links": [
            {"type": "dashboards", "title": "Raceway", "tags": ["raceway"], "asDropdown": True, "keepTime": True}
        ],
        "panels": _placed(panels),
    }


def _source_variable() -> dict[str, Any]:
    return {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _instance_variable() -> dict[str, Any]:
    query = "label_values(raceway_journal_writable, instance)"
    return {
        "name": "instance",
        "label": "Bus",
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "buses"},
        "includeAll": True,
        "multi": True,
        "allValue": ".+",
        "current": {"text": ["All"], "value": ["$__all"]},
        "refresh": 2,
        "sort": 1,
    }


def _placed(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    """Panels from left to right, then down."""
    placed, x, y, row_height = [], 0, 0, 0
    for number, panel in enumerate(panels, 1):
        width, height = (STAT_WIDTH, STAT_HEIGHT) if panel.is_stat else (WIDTH, HEIGHT)
        if x + width > COLUMNS:
            x, y, row_height = 0, y + row_height, 0
        placed.append(_panel(number, panel) | {"gridPos": {"x": x, "y": y, "w": width, "h": height}})
        x, row_height = x + width, max(row_height, height)
    return placed


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.red is not None:
        below, above = ("red", "green") if panel.is_red_below else ("green", "red")
        steps = [{"color": below, "value": None}, {"color": above, "value": panel.red}]
        defaults |= {"thresholds": {"mode": "absolute", "steps": steps}, "color": {"mode": "thresholds"}}
    return {
        "id": number,
        "type": "stat" if panel.is_stat else "timeseries",
        "title": panel.title,
        "description": panel.says,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {} if panel.is_stat else {"tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": SOURCE,
                "expr": query.replace("$on", ON),
                "legendFormat": legend,
            }
            for place, (query, legend) in enumerate(panel.queries)
        ],
    }


def text(uid: str) -> str:
    """Return what stands in the file of a dashboard."""
    title, panels = BOARDS[uid]
    return json.dumps(dashboard(uid, title, panels), indent=2) + "\n"


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for uid in BOARDS:
        (FOLDER / f"{uid}.json").write_text(text(uid), "utf-8")


if __name__ == "__main__":
    main()
