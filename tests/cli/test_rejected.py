"""`raceway rejected` against a started server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from raceway.cli.app import app
from tests.rigs.http_door import call, get, post
from tests.rigs.server import Server, running_server, wait_until

SCHEMA = {"type": "json_schema", "definition": '{"type":"object","required":["bag"]}'}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def lines(result: Result) -> list[Any]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def orders(server: Server, request: pytest.FixtureRequest) -> str:
    """A topic that holds to a schema, with two messages against it."""
    topic = f"orders.{abs(hash(request.node.name)) % 10**8}a"
    assert post(server, f"/api/schemas/{topic}/versions", json.dumps(SCHEMA).encode()).status == 201
    hold(server, topic, "enforce")
    for number in range(2):
        refused = post(
            server, f"/topics/{topic}", b'{"no":%d}' % number, x_correlation_id=f"chain-{number}", x_shop="north"
        )
        assert refused.status == 422
    wait_until(lambda: len(get(server, f"/api/rejected?topic={topic}").json()["rejected"]) == 2, what="their commit")
    return topic


def hold(server: Server, topic: str, policy: str) -> None:
    settings = json.dumps({"subject": topic, "policy": policy, "validate_payload": True}).encode()
    assert call(server, "PUT", f"/api/topic-schemas/{topic}", settings).status == 200


def test_rejected_messages_are_listed_newest_first_and_shown(server: Server, orders: str) -> None:
    rows = lines(run("rejected", "list", "--topic", orders, "--data", str(server.data), "--json"))
    assert [row["correlation_id"] for row in rows] == ["chain-1", "chain-0"]
    assert {(row["source"], row["code"], row["subject"], row["redriven"]) for row in rows} == {
        ("rejected", "payload_invalid", orders, None)
    }
    shown = run("rejected", "show", str(rows[0]["position"]), "--data", str(server.data))
    assert '{"no":1}' in shown.stdout
    assert "chain-1" in shown.stdout
    page = get(server, f"/api/rejected?topic={orders}&limit=1").json()
    assert [row["position"] for row in page["rejected"]] == [rows[0]["position"]]
    older = get(server, f"/api/rejected?topic={orders}&limit=1&after={page['after']}").json()
    assert [row["position"] for row in older["rejected"]] == [rows[1]["position"]]


def test_a_redrive_passes_the_schema_anew_and_keeps_the_chain(server: Server, orders: str) -> None:
    again = run("rejected", "redrive", "--all", "--topic", orders, "--data", str(server.data))
    assert again.exit_code == 1
    assert "2 refused" in again.stderr
    rows = lines(run("rejected", "list", "--topic", orders, "--data", str(server.data), "--json"))
    assert len(rows) == 2  # refused again, and not kept twice
    hold(server, orders, "none")
    results = lines(run("rejected", "redrive", "--all", "--topic", orders, "--data", str(server.data), "--json"))
    assert [result["offset"] for result in results] == [0, 1]
    stored = get(server, f"/topics/{orders}").json()["messages"]
    assert [(row["payload"], row["correlation_id"], row["attributes"]["x-shop"]) for row in stored] == [
        ('{"no":0}', "chain-0", "north"), ('{"no":1}', "chain-1", "north"),
    ]  # fmt: skip
    rows = lines(run("rejected", "list", "--topic", orders, "--data", str(server.data), "--json"))
    assert [row["redriven"]["offset"] for row in rows] == [1, 0]
    assert (
        "0 published again" in run("rejected", "redrive", "--all", "--topic", orders, "--data", str(server.data)).stderr
    )


def test_a_redrive_may_go_to_another_topic(server: Server, orders: str) -> None:
    position = get(server, f"/api/rejected?topic={orders}").json()["rejected"][0]["position"]
    result = run("rejected", "redrive", str(position), "--to", f"{orders}.mended", "--data", str(server.data))
    assert result.exit_code == 0, result.output
    assert get(server, f"/topics/{orders}.mended").json()["messages"][0]["payload"] == '{"no":1}'


def test_positions_that_hold_no_rejected_message_are_404(server: Server) -> None:
    assert get(server, "/api/rejected/0").status == 404
    assert post(server, "/api/rejected/99999999/redrive").status == 404
    assert get(server, "/api/rejected?source=other").status == 400


def test_which_to_redrive_must_be_said(server: Server) -> None:
    for arguments in ([], ["--all"], ["5", "--all", "--topic", "x"]):
        assert run("rejected", "redrive", *arguments, "--data", str(server.data)).exit_code == 2
