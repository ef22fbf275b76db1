"""`raceway seneca …` against a started bus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.cli.output import ExitCode, exit_code_of
from raceway.errors import RemoteError
from tests.rigs.seneca_bus import raw_service, web
from tests.rigs.server import Server, running_server

GONE = "http://127.0.0.1:1/act"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


def run(server: Server, *arguments: str) -> Any:
    command = ["seneca", *arguments, "--data", str(server.data)]
    return CliRunner().invoke(app, command, catch_exceptions=False)


def listed(server: Server) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(run(server, "list", "--json").stdout)
    return rows


def test_a_service_is_attached_listed_and_detached(server: Server) -> None:
    with raw_service(web(lambda document: {})) as service:
        attached = run(server, "attach", "role:cli,cmd:*", service.url)
        assert attached.exit_code == 0
        assert f"cmd:*,role:cli is attached as cli.+; {service.url} is up" in attached.stderr
        (row,) = listed(server)
        assert (row["pin"], row["topic"], row["dialect"], row["state"]) == ("cmd:*,role:cli", "cli.+", "W", "up")
        assert "cli.+" in run(server, "list").stdout
        detached = run(server, "detach", "cmd:*,role:cli", service.url)
        assert (detached.exit_code, "is detached" in detached.stderr) == (0, True)
        assert listed(server) == []


def test_one_that_is_not_there_is_attached_and_the_reason_shown(server: Server) -> None:
    attached = run(server, "attach", "role:away", GONE, "--dialect", "L")
    assert "is down" in attached.stderr
    assert GONE in run(server, "list").stderr, "with why"
    rows = json.loads(run(server, "attach", "role:away", GONE, "--json").stdout)
    assert [(row["dialect"], row["state"]) for row in rows] == [("L", "down")]
    assert json.loads(run(server, "detach", "role:away", GONE, "--json").stdout) == {"detached": 1}


def test_what_is_not_attached_cannot_be_detached(server: Server) -> None:
    refused = run(server, "detach", "role:nobody", GONE)
    assert (refused.exit_code, "is not attached" in refused.stderr) == (ExitCode.FAILED, True)


@pytest.mark.parametrize(
    ("pin", "url"), [("role:seneca", GONE), ("role:a", "http://10.0.0.5:1"), ("a b c", GONE), ("role:a", "ftp://x")]
)
def test_a_refusal_of_the_bus_is_an_error_of_the_command(server: Server, pin: str, url: str) -> None:
    with pytest.raises(RemoteError) as refused:
        run(server, "attach", pin, url)
    assert exit_code_of(refused.value) == ExitCode.FAILED
    assert listed(server) == []


def test_without_a_bus_there_is_nothing_to_attach_to(tmp_path: Any) -> None:
    command = ["seneca", "attach", "role:a", GONE, "--data", str(tmp_path)]
    assert CliRunner().invoke(app, command).exit_code == ExitCode.UNREACHABLE
