"""`raceway peer …` against a started server."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.client import sync
from raceway.errors import RemoteError
from tests.rigs.server import Server, running_server, wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


def run(server: Server, *words: str) -> Any:
    words = ("peer", *words, "--data", str(server.data))
    return CliRunner().invoke(app, words, catch_exceptions=False, env={"COLUMNS": "160"})


def listed(server: Server, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(server, "list", *words, "--json").stdout)
    return found


def connection(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port("zbus")), 60)


def test_a_peer_is_listed_and_disconnected_by_its_address(server: Server) -> None:
    with connection(server) as stream:
        address = "{}:{}".format(*stream.getsockname())
        (row,) = wait_until(lambda: listed(server, "--contains", address))
        assert row["wire"] == "zbus"
        assert address in run(server, "list").stdout
        assert run(server, "disconnect", address).stderr == f"peer {row['id']} (zbus) is disconnected\n"
        assert stream.recv(1) == b""
    result = run(server, "disconnect", address)
    assert (result.exit_code, "see `raceway peer list`" in result.stderr) == (1, True)


def test_a_peer_is_called_by_the_name_of_its_consumer(server: Server) -> None:
    with sync.connect(f"danube://127.0.0.1:{server.port('danube')}", wire="danube") as bus:
        bus.publish("gate.boarding", b"1")
        with bus.subscribe("gate.boarding", "board", name="display-1"):
            (row,) = wait_until(lambda: listed(server, "--contains", "display-1"))
            assert "display-1" in run(server, "list").stdout
            assert run(server, "disconnect", "display-1").stderr == f"peer {row['id']} (danube) is disconnected\n"


def test_a_peer_is_disconnected_by_its_id_for_programs(server: Server) -> None:
    with connection(server) as stream:
        (row,) = wait_until(lambda: listed(server, "--contains", "{}:{}".format(*stream.getsockname())))
        assert json.loads(run(server, "disconnect", row["id"], "--json").stdout) == {"peer": row["id"]}
        assert stream.recv(1) == b""


def test_a_name_of_several_peers_disconnects_none(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with connection(server) as one, connection(server) as other:
        wait_until(lambda: len(listed(server)) == 2)
        result = run(server, "disconnect", "")
        assert (result.exit_code, "2 peers are called ''" in result.stderr) == (1, True)
        for stream in (one, other):
            stream.setblocking(False)
            with pytest.raises(BlockingIOError):
                stream.recv(1)


def test_with_an_administrators_token_it_is_needed_to_disconnect() -> None:
    with running_server(RACEWAY_SECURITY__ADMIN_TOKEN="s3cret") as server, connection(server) as stream:
        address = "{}:{}".format(*stream.getsockname())
        wait_until(lambda: listed(server, "--contains", address))
        with pytest.raises(RemoteError, match="token"):
            run(server, "disconnect", address)
        assert run(server, "disconnect", address, "--token", "s3cret").exit_code == 0
