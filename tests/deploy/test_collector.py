"""The example for the OpenTelemetry Collector fits the bus. No collector runs here: see docs/howto/deploy.md."""

from __future__ import annotations

import urllib.parse
from typing import Any

from raceway.config import Config
from tests.deploy.files import DEPLOY, OPEN_PORTS, read_yaml

CONFIG = Config()


def collector() -> dict[str, Any]:
    found: dict[str, Any] = read_yaml(DEPLOY / "otel" / "collector.yaml")
    return found


def test_the_bus_sends_its_traces_where_the_collector_listens() -> None:
    listens = collector()["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    endpoint = urllib.parse.urlsplit(CONFIG.telemetry.endpoint)
    assert (endpoint.netloc, endpoint.path) == (listens, "/v1/traces")


def test_the_collector_scrapes_the_console_port() -> None:
    (scrape,) = collector()["receivers"]["prometheus"]["config"]["scrape_configs"]
    (target,) = scrape["static_configs"][0]["targets"]
    assert target == f"127.0.0.1:{CONFIG.listen.console_port}"
    assert CONFIG.listen.console_port in OPEN_PORTS


def test_pipelines_name_parts_that_are_there_and_use_all() -> None:
    used: dict[str, set[str]] = {"receivers": set(), "processors": set(), "exporters": set()}
    for pipeline in collector()["service"]["pipelines"].values():
        for kind, names in used.items():
            names |= set(pipeline[kind])
    assert used == {kind: set(collector()[kind]) for kind in used}
