"""`raceway subscription …` against a started server."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.cli.output import ExitCode
from raceway.client import sync
from raceway.errors import RemoteError
from tests.rigs.server import Server, running_server, wait_until

numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="module")
def bus(server: Server) -> Iterator[sync.SyncDanubeClient]:
    with sync.connect(f"danube://127.0.0.1:{server.port('danube')}", wire="danube") as bus:
        yield bus


@pytest.fixture
def topic(bus: sync.SyncDanubeClient) -> str:
    name = f"cli.s{next(numbers)}"
    bus.publish_many(name, [b"0", b"1", b"2"])
    return name


def run(server: Server, *arguments: str) -> Any:
    return CliRunner().invoke(
        app, ["subscription", *arguments, "--data", str(server.data)], catch_exceptions=False, env={"COLUMNS": "200"}
    )


def asked(server: Server, *arguments: str) -> Any:
    result = run(server, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize(("start", "first"), [("first", b"0"), ("2", b"2"), ("2001-01-01T00:00:00Z", b"0")])
def test_a_subscription_is_made_and_begins_where_it_is_told_to(
    server: Server, bus: sync.SyncDanubeClient, topic: str, start: str, first: bytes
) -> None:
    made = asked(server, "create", topic, "s", "--start", start, "--type", "exclusive")
    assert made == {"topic": topic, "name": "s", "made": True}
    with bus.subscribe(topic, "s") as consumer:
        assert consumer.get(60).payload == first  # type: ignore[union-attr]


def test_a_subscription_is_made_before_its_topic_if_told_to(server: Server) -> None:
    topic = f"cli.s{next(numbers)}"
    with pytest.raises(RemoteError, match="not found"):
        run(server, "create", topic, "s")
    result = run(server, "create", topic, "s", "--create-topic", "--in-flight", "7")
    assert (result.exit_code, f"{topic} is created, from last" in result.stderr) == (0, True)
    assert "exists already" in run(server, "create", topic, "s").stderr
    assert asked(server, "policy", topic, "s")["in_flight"] == 7
    with pytest.raises(RemoteError, match="yesterday"):
        run(server, "create", topic, "t", "--start", "yesterday")


def test_a_policy_is_shown_set_and_taken_back(server: Server, topic: str) -> None:
    run(server, "create", topic, "s")
    shown = run(server, "policy", topic, "s").stdout
    assert "default of the bus" in shown
    assert "blocks the subscription" in shown
    found = asked(
        server, "policy", topic, "s", "--max-redeliveries", "2", "--ack-timeout", "1.5", "--delay", "0.01",
        "--max-delay", "3", "--backoff", "fixed", "--dead-letter-topic", f"{topic}.failed", "--in-flight", "9",
    )  # fmt: skip
    wanted = {
        "is_own": True, "max_redelivery_count": 2, "ack_timeout_ms": 1500, "base_redelivery_delay_ms": 10,
        "max_redelivery_delay_ms": 3000, "backoff": "fixed", "poison": "dead_letter",
        "dead_letter_topic": f"{topic}.failed", "in_flight": 9,
    }  # fmt: skip
    assert found | wanted == found
    assert f"is copied to the dead-letter topic: {topic}.failed" in run(server, "policy", topic, "s").stdout
    changed = asked(server, "policy", topic, "s", "--then", "drop", "--in-flight", "0")
    assert changed == found | {"poison": "drop", "in_flight": None}, "what is left out stays as it is"
    assert asked(server, "policy", topic, "s", "--remove") == {"topic": topic, "name": "s", "removed": True}
    assert not asked(server, "policy", topic, "s")["is_own"]
    assert "default of the bus already" in run(server, "policy", topic, "s", "--remove").stderr


def test_in_flight_alone_leaves_failures_to_the_bus(server: Server, topic: str) -> None:
    found = asked(server, "policy", topic, "to-come", "--in-flight", "3")
    assert (found["is_own"], found["in_flight"]) == (False, 3)
    run(server, "create", topic, "s", "--in-flight", "3")
    found = asked(server, "policy", topic, "s", "--in-flight", "0")
    assert (found["is_own"], found["in_flight"]) == (False, None)


def test_what_cannot_be_is_told(server: Server, topic: str) -> None:
    assert run(server, "policy", topic, "s", "--remove", "--then", "drop").exit_code == ExitCode.USAGE
    with pytest.raises(RemoteError, match="dead_letter_topic"):
        run(server, "policy", topic, "s", "--then", "dead-letter")
    with pytest.raises(RemoteError, match="not found"):
        run(server, "policy", topic, "nobody")


def test_a_blocked_subscription_is_listed_as_such_and_let_go(
    server: Server, bus: sync.SyncDanubeClient, topic: str
) -> None:
    run(server, "policy", topic, "s", "--max-redeliveries", "0")
    with bus.subscribe(topic, "s", start="first") as consumer:
        message = consumer.get(60)
        assert message is not None
        consumer.nack(message, delay_ms=0, reason="no such order")
        wait_until(lambda: [row["blocked_at"] for row in asked(server, "list", topic)] == [0])
        assert "blocked at offset 0" in run(server, "list").stdout
        run(server, "policy", topic, "s", "--then", "drop")
        wait_until(lambda: [row["blocked_at"] for row in asked(server, "list", topic)] == [None])


def test_a_subscription_is_described_moved_and_deleted(server: Server, bus: sync.SyncDanubeClient, topic: str) -> None:
    run(server, "create", topic, "s", "--start", "first")
    shown = run(server, "describe", topic, "s").stdout
    assert f"Subscription s of {topic}" in shown
    assert "blocks the subscription" in shown
    assert run(server, "seek", topic, "s", "2").stdout == f"subscription s of {topic} continues from 2\n"
    assert [part["lag"] for part in asked(server, "describe", topic, "s")["parts"]] == [1]
    assert asked(server, "seek", topic, "s", "2001-01-01T00:00:00Z")["from"] == "0"
    with pytest.raises(RemoteError, match="a time with a zone"):
        run(server, "seek", topic, "s", "yesterday")
    with bus.subscribe(topic, "s") as consumer:
        assert consumer.get(60) is not None
        with pytest.raises(RemoteError, match="1 live consumer"):
            run(server, "delete", topic, "s", "--yes")
    wait_until(lambda: run_or_refused(server, "delete", topic, "s", "--yes"))
    with pytest.raises(RemoteError, match="not found"):
        run(server, "describe", topic, "s")


def run_or_refused(server: Server, *arguments: str) -> bool:
    """Whether the command was done; consumers leave a moment after they are closed."""
    try:
        return bool(run(server, *arguments).exit_code == 0)
    except RemoteError:
        return False
