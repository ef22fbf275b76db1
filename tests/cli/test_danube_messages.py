"""`raceway pub` and `raceway sub` over Danube."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.cli.output import ExitCode
from raceway.client import sync
from raceway.errors import RemoteError
from raceway.wires.danube.codec.pb.danube_admin_pb2 import SubscriptionListResponse, TopicRequest
from tests.rigs.danube_wire import danube_wire
from tests.rigs.server import Server, running_server, wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


def url(server: Server) -> str:
    return f"danube://127.0.0.1:{server.port('danube')}"


def run(server: Server, *arguments: str) -> Any:
    return CliRunner().invoke(app, [*arguments, "--url", url(server)], catch_exceptions=False)


def listening(server: Server, *arguments: str, log: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "raceway", "sub", *arguments, "--url", url(server)]
    with log.open("wb") as stderr:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    wait_until(lambda: "listening" in log.read_text() or child.poll() is not None, what="the subscription")
    return child


def subscriptions(server: Server, topic: str) -> list[str]:
    with danube_wire(server) as wire:
        request = TopicRequest(name=f"/default/{topic}")
        listed = wire.ask("danube_admin.TopicAdmin/ListSubscriptions", request, SubscriptionListResponse)
        return list(listed.subscriptions)


def test_what_is_published_is_printed(server: Server, tmp_path: Path) -> None:
    assert run(server, "pub", "cli.a", "before").exit_code == 0
    child = listening(server, "cli.a", "--count", "3", "--timeout", "20", log=tmp_path / "log")
    assert subscriptions(server, "cli.a") != []
    result = run(server, "pub", "cli.a", "hello", "--count", "3", "--key", "k", "--json")
    assert json.loads(result.stdout)["messages"] == 3
    printed, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    assert printed == "cli.a hello\n" * 3
    assert subscriptions(server, "cli.a") == []  # made for that command only


def test_a_named_subscription_goes_on_where_it_ended(server: Server, tmp_path: Path) -> None:
    with sync.connect(url(server), wire="danube") as bus:
        bus.publish("cli.b", b"before")
        bus.subscribe("cli.b", "kept", type="shared").close()
        bus.publish_many("cli.b", [b"1", b"2", b"3"])
    first = run(server, "sub", "cli.b", "--subscription", "kept", "--count", "2", "--raw")
    second = run(server, "sub", "cli.b", "--subscription", "kept", "--count", "1", "--json")
    assert first.stdout == "1\n2\n"
    told = json.loads(second.stdout)
    assert abs(told.pop("time_us") / 1e6 - time.time()) < 60
    assert told == {
        "topic": "cli.b", "version": "1.0.0", "id": "/default/cli.b@3", "payload": "3", "offset": 3,
        "sender": "raceway-client",
    }  # fmt: skip
    assert subscriptions(server, "cli.b") == ["kept"]


def test_a_topic_nobody_made_is_an_error(server: Server) -> None:
    with pytest.raises(RemoteError, match="NOT_FOUND"):
        run(server, "sub", "cli.nobody", "--count", "1")


@pytest.mark.parametrize(
    "arguments",
    [("pub", "t", "x", "--no-ack"), ("sub", "a", "b"), ("request", "t", "x"), ("topics",)],
)
def test_what_danube_cannot_do_is_said(server: Server, arguments: tuple[str, ...]) -> None:
    assert run(server, *arguments).exit_code == ExitCode.USAGE
