"""An older npm Seneca, 3.8, through the bus: as client of services that run 3.8 and 3.38, and as service of both. It
speaks all three dialects of npm: L and W over HTTP, T over TCP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from tests.rigs.node_peers import DIALECTS, OLD_PACKAGES, Dialect, NodePeers, installed, node_peers
from tests.rigs.ports import free_port_base
from tests.rigs.seneca_wire import attached, fresh_word
from tests.rigs.server import Server, running_server, wait_until


class Peers(NamedTuple):
    """A Node process with one Seneca version in it; its clients and listeners are called by their dialects."""

    version: str
    node: NodePeers

    def role(self, dialect: Dialect) -> str:
        return f"math{dialect}{self.version.replace('.', '')}"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(RACEWAY_SENECA__RETRY_MS=100, RACEWAY_SENECA__RETRY_MAX_MS=200) as server:
        yield server


@pytest.fixture(scope="module")
def peers(server: Server, hosts: NodePeers) -> Iterator[dict[str, Peers]]:
    """Of both versions a client and an attached listener for each dialect."""
    with ExitStack() as stack:
        old = stack.enter_context(node_peers(OLD_PACKAGES))
        both = {"3.8": Peers("3.8", old), "3.38": Peers("3.38", hosts)}
        for each in both.values():
            base = free_port_base()
            for offset, dialect in enumerate(DIALECTS):
                each.node.client(f"asks-{dialect}", dialect, server.port("seneca_tcp" if dialect == "T" else "seneca"))
                each.node.listen(f"does-{dialect}", dialect, base + offset, role=each.role(dialect))
                port = base + offset
                url = f"tcp://127.0.0.1:{port}" if dialect == "T" else f"http://127.0.0.1:{port}/act"
                stack.enter_context(attached(server, f"role:{each.role(dialect)},cmd:*", url, dialect))
        yield both
        for each in both.values():
            for dialect in DIALECTS:
                each.node.close_instance(f"asks-{dialect}")
                each.node.close_instance(f"does-{dialect}")


VERSIONS = [("3.8", "3.8"), ("3.8", "3.38"), ("3.38", "3.8")]
PAIRS = [(*versions, asking, doing) for versions in VERSIONS for asking in DIALECTS for doing in DIALECTS]


@pytest.mark.parametrize(("client", "service", "asking", "doing"), PAIRS)
def test_each_version_calls_each_other_in_each_dialect(
    peers: dict[str, Peers], client: str, service: str, asking: Dialect, doing: Dialect
) -> None:
    caller, role = peers[client].node, peers[service].role(doing)
    name = f"asks-{asking}"
    assert caller.act(name, role=role, cmd="sum", a=1, b=2).result == {"sum": 3}
    assert caller.act(name, role=role, cmd="range", count=3).result == [0, 1, 2]
    assert caller.act(name, role=role, cmd="nothing").result is None
    assert caller.act(name, role=role, cmd="echo", data={"ключ": [None, 1.5]}).result == {"data": {"ключ": [None, 1.5]}}
    custom = caller.act(name, role=role, cmd="custom", **{"custom$": {"tenant": "t1"}})
    assert custom.result == {"got": {"tenant": "t1"}}
    error = caller.act(name, role=role, cmd="div", a=1, b=0).error
    assert error is not None
    assert "division by zero" in json.dumps(error)
    assert error["code"] == ("div_zero" if asking == "W" else "act_execute")
    calls = [{"role": role, "cmd": "echo", "data": number} for number in range(50)]
    assert [outcome.result for outcome in caller.together(name, calls)] == [{"data": number} for number in range(50)]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_message_without_callback_reaches_the_service(peers: dict[str, Peers], dialect: Dialect) -> None:
    old, data = peers["3.8"], fresh_word()
    old.node.post(f"asks-{dialect}", role=old.role(dialect), cmd="echo", data=data)

    def seen() -> list[dict[str, object]]:
        return [kept.message for kept in old.node.kept(f"does-{dialect}") if kept.message.get("data") == data]

    assert wait_until(seen, 10, "the message") == [{"role": old.role(dialect), "cmd": "echo", "data": data}]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_nobody_serves_is_refused_as_seneca_does(peers: dict[str, Peers], dialect: Dialect) -> None:
    error = peers["3.8"].node.act(f"asks-{dialect}", role="nobody", cmd="x").error
    assert error is not None
    told = error["payload"] if dialect == "L" else error
    assert told["code"] == "act_not_found"


def test_the_lock_file_has_exact_versions_and_hashes_and_no_addresses() -> None:
    lock = json.loads((OLD_PACKAGES / "package-lock.json").read_text("utf-8"))
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert packages["node_modules/seneca"]["version"] == "3.8.4"
    assert [name for name, package in packages.items() if not package.get("integrity", "").startswith("sha512-")] == []
    assert [name for name, package in packages.items() if "resolved" in package] == []
    assert json.loads((installed(OLD_PACKAGES) / "node_modules/seneca/package.json").read_text())["version"] == "3.8.4"
