from __future__ import annotations

import asyncio
import socket

import pytest

from raceway.net.outgoing.allowed import Target
from raceway.net.outgoing.link import open_link
from tests.rigs.dialled_peer import listening_peer, until
from tests.rigs.ports import free_port_base


def test_what_is_sent_arrives_and_what_comes_back_is_ignored() -> None:
    async def scenario() -> None:
        async with listening_peer() as peer:
            link = await open_link(peer.target, 5)
            await until(lambda: peer.connections, "the connection")
            peer.connections[0].write(b"x" * 300_000)
            assert link.send(b"GET / HTTP/1.1\r\ncmd: heartbeat\r\n\r\n")
            await until(lambda: peer.received, "the message")
            await peer.connections[0].drain()
            assert link.open
            link.abort()
            await link.closed.wait()
            assert not link.open

    asyncio.run(scenario())


def test_nothing_piles_up_for_a_peer_that_does_not_read() -> None:
    async def scenario(listening: socket.socket) -> None:
        link = await open_link(Target(*listening.getsockname()), 5)
        taken = sum(link.send(b"x" * 8_000_000) for _ in range(50))
        assert 1 <= taken < 5
        link.abort()
        assert not link.send(b"late")
        await link.closed.wait()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        asyncio.run(scenario(listening))


def test_a_connection_that_the_peer_ends_is_closed() -> None:
    async def scenario() -> None:
        async with listening_peer() as peer:
            link = await open_link(peer.target, 5)
            await until(lambda: peer.connections, "the connection")
            peer.connections[0].close()
            await asyncio.wait_for(link.closed.wait(), 10)

    asyncio.run(scenario())


def test_nobody_there_is_an_os_error() -> None:
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        asyncio.run(open_link(Target("127.0.0.1", free_port_base()), 5))
