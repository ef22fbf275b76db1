"""Connections that cannot be made, against real sockets: what a user of `connect` reads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from raceway.client import connect
from raceway.errors import ConnectionLostError, NotConnectedError, RacewayError
from tests.rigs.ports import free_port_base
from tests.rigs.server import Server, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


def failure(url: str) -> RacewayError:
    async def scene() -> None:
        async with asyncio.timeout(20), connect(url, reconnect=False) as client:
            await client.publish("a.b", b"x")

    with pytest.raises(ConnectionLostError) as caught:
        asyncio.run(scene())
    return caught.value


@pytest.mark.parametrize("scheme", ["mb", "mb+ws", "danube", "zbus", "seneca", "seneca+tcp"])
def test_a_port_where_nothing_listens_is_said_in_words(scheme: str) -> None:
    error = failure(f"{scheme}://127.0.0.1:{free_port_base()}")
    assert isinstance(error, NotConnectedError)
    assert error.reason == "nothing listens on this port"


def test_an_unknown_host_is_said_in_words() -> None:
    assert "the name of the host is unknown" in str(failure("mb://no-such-host.invalid:3001"))


@pytest.mark.parametrize("scheme", ["mb", "danube"])
def test_the_console_port_is_recognised_by_its_answer(server: Server, scheme: str) -> None:
    text = str(failure(f"{scheme}://127.0.0.1:{server.port('console')}"))
    assert "the other side speaks HTTP, so this is the port of another wire or of the console" in text


def test_a_port_without_tls_is_named_as_the_cause(server: Server) -> None:
    assert "the TLS handshake failed, perhaps because the port has none" in str(
        failure(f"mb+tls://127.0.0.1:{server.port('tcp')}")
    )
