"""A started server per test file, and services that connect to it over each transport.

A file that needs other settings defines its own `server` fixture; `join` uses that one.

Tests of the MB wire name the decisions D1 to D26 that they prove: the places where MB's text and its first
implementation differ, or both are silent, and this server had to choose. What the names in tests of the zbus wire mean
stands in `test_zbus_rules.py` and `test_zbus_decisions.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.rigs.mb_wire import Join, Peer, Transport, connect
from tests.rigs.node_peers import NodePeers, node_peers
from tests.rigs.server import Server, running_server
from tests.rigs.zbus_wire import Client, Dial, dial_server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture(params=["tcp", pytest.param("websocket", marks=pytest.mark.slow)])
def transport(request: pytest.FixtureRequest) -> Transport:
    """Both carry the same messages. `test_mb_transports.py` compares them in `make test`."""
    chosen: Transport = request.param
    return chosen


@pytest.fixture
def join(server: Server, transport: Transport) -> Iterator[Join]:
    """Each call connects one more service; all leave at the end of the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(connect(server, transport))


@pytest.fixture
def peer(join: Join) -> Peer:
    return join()


@pytest.fixture
def dial(server: Server) -> Iterator[Dial]:
    """Each call opens one more zbus connection; all leave at the end of the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(dial_server(server))


@pytest.fixture
def client(dial: Dial) -> Client:
    return dial()


@pytest.fixture
def mq(client: Client) -> str:
    """An ordinary queue of the test's own."""
    return client.create()


@pytest.fixture(scope="session")
def callers() -> Iterator[NodePeers]:
    """A Node process for clients of real npm Seneca; a start costs a second, so all tests share it."""
    with node_peers() as node:
        yield node


@pytest.fixture(scope="session")
def hosts() -> Iterator[NodePeers]:
    """A Node process for listeners of real npm Seneca."""
    with node_peers() as node:
        yield node
