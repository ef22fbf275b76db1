"""`raceway lag` against a started server."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.client import sync
from tests.rigs.server import Server, running_server


def run(server: Server, *words: str) -> Any:
    return CliRunner().invoke(app, [*words, "--data", str(server.data)], catch_exceptions=False, env={"COLUMNS": "120"})


def test_subscriptions_and_queues_are_listed_the_largest_lag_first() -> None:
    with (
        running_server() as server,
        sync.connect(f"danube://127.0.0.1:{server.port('danube')}", wire="danube") as client,
    ):
        client.publish_many("orders", [b"x"] * 7)
        run(server, "subscription", "create", "orders", "billing", "--start", "2")
        with client.subscribe("orders", "watching", start="first") as consumer:
            assert consumer.get(60) is not None
            run(server, "queue", "create", "jobs")
            rows = json.loads(run(server, "lag", "--json").stdout)
            shown = run(server, "lag", "--limit", "1")
    assert [(row["name"], row["lag"], row["consumers"]) for row in rows] == [
        ("watching", 7, 1), ("billing", 5, 0), ("jobs", 0, 0),
    ]  # fmt: skip
    assert "watching" in shown.stdout
    assert "billing" not in shown.stdout
    assert shown.stderr == "the first 1 of 3; --limit shows more\n"
