"""The Grafana dashboards: every query of every panel is answered by a Prometheus that scraped a bus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from raceway.client.sync import connect
from tests.deploy.files import DASHBOARDS, METRIC, RULES, metrics_of_the_reference, metrics_to_watch
from tests.rigs.prometheus import Prometheus, running_prometheus
from tests.rigs.server import Server, running_server, wait_until
from tools.make_dashboards import BOARDS, FOLDER, text

# Metrics without a series until there is something to count: their panels are empty on a bus where it never happened.
EMPTY_AT_FIRST = {"raceway_schema_violations_total"}
# What Grafana puts in place of its variables.
VARIABLES = {"$__rate_interval": "10s", "$instance": ".+"}


def panels(board: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FOLDER / f"{board}.json").read_text("utf-8"))["panels"]
    return found


def queries(board: str) -> list[str]:
    return [target["expr"] for panel in panels(board) for target in panel["targets"]]


@pytest.fixture(scope="module")
def bus() -> Iterator[Server]:
    """A bus with messages of two wires and a subscription that is behind."""
    with running_server() as server:
        with connect(f"danube://127.0.0.1:{server.port('danube')}", wire="danube") as client:
            client.subscribe("/default/watched", "behind", create_topic=True)
            client.publish("/default/watched", b"one")
        with connect(f"mb://127.0.0.1:{server.port('tcp')}", wire="mb") as client:
            client.subscribe("watched.live")
            client.publish("watched.live", {"n": 1})
        yield server


@pytest.fixture(scope="module")
def prometheus(bus: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """One that has scraped the bus often enough for rates."""
    folder = tmp_path_factory.mktemp("prometheus")
    with running_prometheus(folder, f"127.0.0.1:{bus.port('console')}", RULES) as prometheus:
        scraped = 'count_over_time(up{job="raceway"}[1m]) >= 3 and up == 1'
        wait_until(lambda: prometheus.query(scraped), 60, "three scrapes of the bus")
        yield prometheus


@pytest.mark.parametrize("board", sorted(BOARDS))
def test_every_query_of_a_dashboard_has_data(board: str, prometheus: Prometheus) -> None:
    for query in queries(board):
        asked = query
        for name, value in VARIABLES.items():
            asked = asked.replace(name, value)
        is_empty_at_first = set(METRIC.findall(query)) <= EMPTY_AT_FIRST
        assert bool(prometheus.query(asked)) != is_empty_at_first, asked


def test_the_buses_to_choose_from_are_those_that_were_scraped(prometheus: Prometheus, bus: Server) -> None:
    names = [sample["metric"]["instance"] for sample in prometheus.query("raceway_journal_writable")]
    assert names == [f"127.0.0.1:{bus.port('console')}"]


def test_the_alert_rules_are_evaluated_and_none_fires_on_a_healthy_bus(prometheus: Prometheus) -> None:
    def rules() -> list[dict[str, Any]]:
        return [rule for group in prometheus.get("/api/v1/rules")["groups"] for rule in group["rules"]]

    wait_until(lambda: all(rule["health"] != "unknown" for rule in rules()), 60, "every rule evaluated")
    assert [rule["name"] for rule in rules() if rule["health"] != "ok"] == []
    assert [rule["name"] for rule in rules() if rule["state"] == "firing"] == []


@pytest.mark.parametrize("board", sorted(BOARDS))
def test_the_file_of_a_dashboard_is_what_the_tool_writes(board: str) -> None:
    assert (FOLDER / f"{board}.json").read_text("utf-8") == text(board), "run: python -m tools.make_dashboards"


def test_there_is_no_other_file() -> None:
    assert [file.stem for file in DASHBOARDS] == sorted(BOARDS)


@pytest.mark.parametrize("board", sorted(BOARDS))
def test_panels_do_not_overlap_and_have_numbers_of_their_own(board: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels(board):
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
    numbers = [panel["id"] for panel in panels(board)]
    assert len(numbers) == len(set(numbers))


def test_dashboards_ask_for_metrics_that_exist_and_show_all_that_are_to_be_watched() -> None:
    asked = {name for board in BOARDS for query in queries(board) for name in METRIC.findall(query)}
    assert asked - metrics_of_the_reference() == set()
    assert metrics_to_watch() - asked == set()
