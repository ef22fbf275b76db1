"""Connections of a client: one write per turn, pressure, and a foreign WebSocket implementation at the other end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from raceway.client import MbClient, connect
from raceway.errors import ConnectionLostError
from raceway.net.client.link import Link
from raceway.wires.mb.codec.encode import SUCCESS
from tests.rigs.ports import free_port_base


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.aborted = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def close(self) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True


class Owner:
    """Remembers why its link was lost."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def received(self, messages: Any) -> None:
        raise AssertionError("nothing is received here")

    def lost(self, link: Link, reason: str) -> None:
        self.reasons.append(reason)


def linked(scene: Callable[[Link, Transport, Owner], Awaitable[None]]) -> None:
    async def run() -> None:
        transport, owner = Transport(), Owner()
        await scene(Link(owner, transport, b"|".join), transport, owner)

    asyncio.run(run())


def test_what_is_sent_in_one_turn_is_one_write() -> None:
    async def scene(link: Link, transport: Transport, owner: Owner) -> None:
        link.send(b"1")
        link.send(b"2")
        assert transport.written == []
        await asyncio.sleep(0)
        assert transport.written == [b"1|2"]

    linked(scene)


def test_sender_waits_while_the_bus_takes_nothing_and_goes_on_when_the_link_is_lost() -> None:
    async def scene(link: Link, transport: Transport, owner: Owner) -> None:
        link.pause_writing()
        waiting = asyncio.ensure_future(link.drain())
        await asyncio.sleep(0)
        assert not waiting.done()
        link.resume_writing()
        await waiting
        link.pause_writing()
        link.ended(OSError("reset"))
        await link.drain()
        assert owner.reasons == ["reset"]

    linked(scene)


def test_loss_is_told_once_and_with_the_reason_of_who_aborted() -> None:
    async def scene(link: Link, transport: Transport, owner: Owner) -> None:
        link.abort("silent")
        link.ended(None)
        link.ended(None)
        assert owner.reasons == ["silent"]
        link.send(b"lost")
        await asyncio.sleep(0)
        assert transport.written == []

    linked(scene)


def test_closing_writes_what_was_sent_and_is_no_loss() -> None:
    async def scene(link: Link, transport: Transport, owner: Owner) -> None:
        link.send(b"last")
        closing = asyncio.ensure_future(link.close())
        await asyncio.sleep(0)
        assert transport.written == [b"last"]
        link.ended(None)
        await closing
        assert owner.reasons == []
        assert not transport.aborted

    linked(scene)


def test_connection_that_does_not_end_is_cut() -> None:
    async def scene(link: Link, transport: Transport, owner: Owner) -> None:
        await link.close(goodbye_s=0)
        assert transport.aborted

    linked(scene)


# ---- a WebSocket server of another make -----------------------------------------------------------------------------


def with_foreign_server(
    serve_one: Callable[[ServerConnection], Awaitable[None]],
    scene: Callable[[MbClient], Awaitable[None]],
    **options: Any,
) -> None:
    async def run() -> None:
        port = free_port_base()
        client = connect(f"mb+ws://127.0.0.1:{port}/any?path=1", backoff_s=0.01, **options)
        async with asyncio.timeout(20), serve(serve_one, "127.0.0.1", port), client:
            await scene(client)

    asyncio.run(run())


async def say_yes(connection: ServerConnection) -> None:
    """Agrees to everything, in fragments, text and binary."""
    async for message in connection:
        assert isinstance(message, str)
        header, _, _ = message.partition("\n")
        _, topic, version, message_id = header.split(":")
        await connection.send([f"response:{topic}:", f"{version}:{message_id}", "\n" + SUCCESS.decode()])
        await connection.send(b"publish:news:1.0.0\nfrom binary")


def test_fragments_and_binary_messages_are_read_and_long_ones_are_written() -> None:
    async def scene(client: MbClient) -> None:
        news = await client.subscribe("news")
        await client.publish("a", "x" * 70_000)
        message = await news.get(5)
        assert message is not None
        assert message.text == "from binary"

    with_foreign_server(say_yes, scene)


def test_websocket_is_closed_with_code_1000() -> None:
    codes: list[int | None] = []

    async def note_the_end(connection: ServerConnection) -> None:
        await connection.wait_closed()
        codes.append(connection.close_code)

    async def scene(client: MbClient) -> None:
        await client.close()

    with_foreign_server(note_the_end, scene)
    assert codes == [1000]


def test_close_of_the_server_is_a_loss() -> None:
    async def leave(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.close(1001)

    async def scene(client: MbClient) -> None:
        with pytest.raises(ConnectionLostError):
            await client.publish("a")

    with_foreign_server(leave, scene, reconnect=False)


def test_message_of_many_fragments_beyond_the_limit_ends_the_connection() -> None:
    async def flood(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send("x" * 400 for _ in range(5))

    async def scene(client: MbClient) -> None:
        with pytest.raises(ConnectionLostError, match="over the limit of 1000"):
            await client.publish("a")

    with_foreign_server(flood, scene, reconnect=False, frame_limit=1000)


def refused_by(answer: bytes, **options: Any) -> str:
    """Why a client did not connect to a server that answers a request with these bytes."""

    async def scene() -> str:
        done = asyncio.Event()

        async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await reader.read()
            writer.close()
            await writer.wait_closed()
            done.set()

        port = free_port_base()
        async with asyncio.timeout(20), await asyncio.start_server(reply, "127.0.0.1", port):
            with pytest.raises(ConnectionLostError) as caught:
                await connect(f"mb+ws://127.0.0.1:{port}", **options).open()
            await done.wait()
        return str(caught.value)

    return asyncio.run(scene())


def test_server_that_is_no_websocket_is_no_bus() -> None:
    assert "404" in refused_by(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")


def test_server_that_says_nothing_is_given_up() -> None:
    assert refused_by(b"", connect_s=0.1).endswith("no answer within 0.1 s")
