"""The alert rules, as Prometheus's own tool judges and evaluates them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.deploy.files import DEPLOY, METRIC, RULES, alerts, metrics_of_the_reference, metrics_to_watch
from tests.rigs.tools import installed

# What "what to watch" names and no alert does: nothing is wrong when these rise.
NO_ALERT = {
    "raceway_messages_total": "the traffic itself",
    "raceway_delivered_messages_total": "the traffic itself",
    "raceway_unrouted_publishes_total": "a publish that nobody listens to is stored",
    "raceway_detached_subscribers_total": "`raceway_subscribers_behind` says who is still behind",
    "raceway_subscriptions_lag": "`raceway_subscription_lag` says whose lag it is",
}


class Case(NamedTuple):
    """Series of a value each minute with which an alert fires, and with which it just does not."""

    series: str
    fires: str
    calm: str
    minutes: int
    beside: tuple[str, str] | None = None


def rising(name: str, minutes: int = 5) -> Case:
    """A counter that must not rise."""
    return Case(name, "0 0 1 1 1 1", "3x6", minutes)


CASES: dict[str, list[Case]] = {
    "RacewayDown": [Case('up{job="raceway"}', "0x3", "1x3", 2)],
    "RacewayUnfinishedInput": [
        Case("raceway_unfinished_bytes", "214748365x3", "214748364x3", 2),
        rising("raceway_unfinished_peers_closed_total"),
    ],
    "RacewayTopicsRefused": [rising("raceway_refused_topics_total")],
    "RacewaySlowPeersClosed": [rising("raceway_slow_peers_closed_total")],
    "RacewayRequestsTimeOut": [Case("raceway_request_timeouts_total", "0+2x20", "0+0.5x20", 20)],
    "RacewayManyOpenRequests": [Case("raceway_open_requests", "8001x3", "8000x3", 3)],
    "RacewaySenecaServiceDown": [Case('raceway_seneca_services{state="down"}', "1x3", "0x3", 2)],
    "RacewaySchemaViolations": [
        Case('raceway_schema_violations_total{policy="warn",rule="type"}', "1x12 2x10", "2x30", 20),
        Case('raceway_schema_violations_total{policy="enforce",rule="type"}', "_x15 1x5", "1x30", 18),
    ],
    "RacewaySubscribersBehind": [Case("raceway_subscribers_behind", "1x15", "0x15", 12)],
    "RacewayLiveGaps": [rising("raceway_live_gaps_total")],
    "RacewaySubscriptionLagGrows": [
        Case('raceway_subscription_lag{topic="a",subscription="b"}', "1000+10x40", "1001x40", 40),
        Case('raceway_subscription_lag{topic="a",subscription="c"}', "1000+10x40", "0+20x40", 40),
    ],
    "RacewaySubscriptionPoisoned": [Case("raceway_subscriptions_poisoned", "1x3", "0x3", 2)],
    "RacewayAckTimeouts": [Case("raceway_ack_timeouts_total", "0+1x20", "0 1x20", 18)],
    "RacewayMessagesGivenUp": [
        rising("raceway_dead_letters_total"),
        rising("raceway_poison_dropped_messages_total"),
    ],
    "RacewayUndeliverable": [rising("raceway_undeliverable_messages_total")],
    "RacewayLiveDropped": [rising("raceway_live_dropped_messages_total")],
    "RacewayMessagesSkipped": [rising("raceway_skipped_messages_total")],
    "RacewayJournalNotWritable": [Case("raceway_journal_writable", "0x2", "1x2", 1)],
    "RacewayDiskLow": [
        Case("raceway_journal_free_bytes", "9x10", "10x10", 8, ("raceway_journal_disk_bytes", "100x10"))
    ],
    "RacewayDiskFullInADay": [
        Case("raceway_journal_free_bytes", "490-1x60", "490-0.1x60", 60, ("raceway_journal_disk_bytes", "1000x60")),
        Case("raceway_journal_free_bytes", "490-1x60", "1000-1x60", 60, ("raceway_journal_disk_bytes", "1000x60")),
    ],
    "RacewayDiskSlow": [Case("raceway_journal_unsynced_bytes", "214748365x3", "214748364x3", 2)],
    "RacewayRowsLost": [
        Case("raceway_journal_quarantined_rows", "1x2", "0x2", 1),
        Case("raceway_journal_missing_rows", "1x2", "0x2", 1),
    ],
    "RacewayBitsRepaired": [Case("raceway_journal_repairs", "1x2", "0x2", 1)],
}


def promtool(*arguments: str, folder: Path = RULES.parent) -> subprocess.CompletedProcess[str]:
    command = [installed("promtool", "prometheus"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def evaluation(alert: str, case: Case, values: str, expected: int) -> dict[str, Any]:
    """One test of promtool: how many alerts of this name fire, after so many minutes."""
    beside = [] if case.beside is None else [case.beside]
    firing = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'
    return {
        "name": f"{alert}, {case.series} {values}",
        "interval": "1m",
        "input_series": [{"series": name, "values": given} for name, given in ((case.series, values), *beside)],
        "promql_expr_test": [
            {"expr": firing, "eval_time": f"{case.minutes}m", "exp_samples": [{"labels": "{}", "value": expected}]}
        ],
    }


def test_the_rules_and_the_configuration_are_valid() -> None:
    for arguments in (("check", "rules", "raceway.rules.yml"), ("check", "config", "prometheus.yml")):
        done = promtool(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    tests = [
        evaluation(alert, case, values, expected)
        for alert, cases in CASES.items()
        for case in cases
        for values, expected in ((case.fires, 1), (case.calm, 0))
    ]
    asked = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(asked), "utf-8")
    done = promtool("test", "rules", "tests.yml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    assert sorted(CASES) == sorted(alerts())


@pytest.mark.parametrize("name", sorted(alerts()))
def test_an_alert_says_how_bad_it_is_and_what_to_do(name: str) -> None:
    rule = alerts()[name]
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert "{{ $labels.instance }}" in rule["annotations"]["summary"]
    assert rule["annotations"]["description"].endswith((".", "?"))


def test_alerts_ask_for_metrics_that_exist() -> None:
    asked = {name for rule in alerts().values() for name in METRIC.findall(rule["expr"])}
    assert asked - metrics_of_the_reference() == set()


def test_every_metric_to_watch_has_an_alert_or_a_reason_for_none() -> None:
    # The size of a disk is beside what is free of it.
    asked = {name for rule in alerts().values() for name in METRIC.findall(rule["expr"])}
    assert metrics_to_watch() - asked == set(NO_ALERT)


def test_limits_of_alerts_are_those_of_the_defaults() -> None:
    reference = (DEPLOY.parent / "docs" / "reference" / "config.md").read_text("utf-8")
    for alert, key in (
        ("RacewayUnfinishedInput", "unfinished_bytes"),
        ("RacewayManyOpenRequests", "max_outstanding"),
        ("RacewayDiskSlow", "unsynced_bytes"),
    ):
        limit = alerts()[alert]["expr"].partition("0.8 * ")[2].split()[0]
        rows = [line for line in reference.splitlines() if line.startswith(f"| `{key}`")]
        assert f"| `{limit}` |" in rows[0]
