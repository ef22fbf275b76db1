"""`raceway topic …` against a started server."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.client import sync
from raceway.errors import RemoteError
from tests.rigs.server import Server, running_server

numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


def run(server: Server, *words: str, answer: str = "") -> Any:
    words = (*words, "--data", str(server.data))
    return CliRunner().invoke(app, words, catch_exceptions=False, env={"COLUMNS": "120"}, input=answer)


def asked(server: Server, *words: str) -> Any:
    result = run(server, *words, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_a_topic_is_created_listed_described_and_deleted(server: Server) -> None:
    name = f"cli.t{next(numbers)}"
    result = run(server, "topic", "create", name, "--partitions", "2")
    assert result.stderr == f"the topic {name} is created with 2 partitions\n"
    with pytest.raises(RemoteError, match="exists"):
        run(server, "topic", "create", name)
    part, _ = asked(server, "topic", "list", "--contains", f"{name}-part-")
    assert part == {"topic": f"{name}-part-0", "first": 0, "next": 0, "rate": 0.0, "backlog": 0, "subscriptions": 0}
    assert f"{name}-part-0, {name}-part-1" in run(server, "topic", "describe", name).stdout
    assert run(server, "topic", "delete", name, answer="n\n").exit_code == 1
    assert asked(server, "topic", "describe", name)["partitions"]
    assert asked(server, "topic", "delete", name, "--yes") == {"topic": name}
    with pytest.raises(RemoteError, match="not found"):
        run(server, "topic", "describe", name)


def test_a_description_has_subscriptions_and_who_listens(server: Server) -> None:
    name = f"cli.t{next(numbers)}"
    with sync.connect(f"mb://127.0.0.1:{server.port('tcp')}", name="clerk") as client:
        client.subscribe(name)
        client.publish_many(name, [b"x"] * 3)
        run(server, "subscription", "create", name, "billing", "--start", "first")
        shown = run(server, "topic", "describe", name).stdout
        (row,) = asked(server, "topic", "list", "--contains", name)
    assert "0 to 2" in shown
    assert "billing" in shown
    assert "listens" in shown
    assert (row["next"], row["backlog"], row["subscriptions"]) == (3, 3, 1)


def test_more_topics_than_a_page_are_all_listed(server: Server) -> None:
    name = f"cli.t{next(numbers)}"
    run(server, "topic", "create", name, "--partitions", "1001")
    assert len(asked(server, "topic", "list", "--contains", f"{name}-part-")) == 1001
