"""Messages over HTTP, against a started server that is lost, restarted and refuses."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from raceway.client import HttpClient, StoredMessage, connect, sync
from raceway.client.http_stream import EventConnection
from raceway.errors import ConfigError, ConnectionLostError, NoAnswerError, NotConnectedError, RemoteError
from raceway.net.client.address import Address
from raceway.net.client.options import Options
from tests.rigs.ports import free_port_base
from tests.rigs.server import Server, running_server

WAIT_S = 30


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


def url_of(server: Server) -> str:
    return f"raceway://127.0.0.1:{server.port('console')}"


@asynccontextmanager
async def client_of(server: Server) -> AsyncIterator[HttpClient]:
    async with connect(url_of(server), wire="http", backoff_s=0.05) as client:
        yield client


def test_a_stream_has_what_was_and_what_comes_with_all_that_is_known(server: Server) -> None:
    async def scene() -> None:
        async with client_of(server) as client:
            await client.publish_batch("stream.b", [b"0"], key="k", version="2.0.0", headers={"tenant": "acme"})
            async with await client.subscribe("stream.b", start="first") as messages:
                first = await messages.get(WAIT_S)
                assert isinstance(first, StoredMessage)
                assert (first.topic, first.offset, first.payload, first.headers) == (
                    "stream.b", 0, b"0", {"tenant": "acme"},
                )  # fmt: skip
                assert (first.key, first.version, first.wire, first.sender) == ("k", "2.0.0", "http", "127.0.0.1")
                assert first.time_us > 1_700_000_000_000_000
                await client.publish("stream.b", b"\x00\xff")
                second = await messages.get(WAIT_S)
                assert second is not None
                assert (second.offset, second.payload) == (1, b"\x00\xff")
            assert await messages.get(WAIT_S) is None, "closed"

    asyncio.run(scene())


@pytest.mark.parametrize(("start", "offsets"), [("first", [0, 1, 2]), (1, [1, 2]), ("last", [])])
def test_a_stream_begins_where_it_is_told(server: Server, start: str | int, offsets: list[int]) -> None:
    topic = f"stream.start.{start}"

    async def scene() -> None:
        async with client_of(server) as client:
            await client.publish_many(topic, [b"0", b"1", b"2"])
            async with await client.consume(topic, start=start) as messages:
                await client.publish(topic, b"3")
                came = [(await anext(messages)).offset for _ in range(len(offsets) + 1)]
        assert came == [*offsets, 3]

    asyncio.run(scene())


def test_several_patterns_and_topics_that_appear_later(server: Server) -> None:
    async def scene() -> None:
        async with client_of(server) as client, await client.subscribe("later.+", "other.#") as messages:
            for topic in ("later.0", "other.a.b", "later.1", "neither"):
                await client.publish(topic, topic)
            assert {(await anext(messages)).text for _ in range(3)} == {"later.0", "other.a.b", "later.1"}

    asyncio.run(scene())


def test_handlers_take_messages_at_the_same_time(server: Server) -> None:
    async def scene() -> None:
        came: list[int] = []
        all_came = asyncio.Event()
        together = asyncio.Barrier(3)

        async def handle(message: StoredMessage) -> None:
            await together.wait()
            came.append(message.offset)
            if len(came) == 6:
                all_came.set()

        async with client_of(server) as client:
            messages = await client.subscribe("stream.handled", start="first")
            async with await messages.handle(handle, concurrency=3):
                await client.publish_many("stream.handled", [b""] * 6)
                await asyncio.wait_for(all_came.wait(), WAIT_S)
        assert sorted(came) == list(range(6))

    asyncio.run(scene())


def test_a_cancelled_wait_loses_nothing(server: Server) -> None:
    async def scene() -> None:
        async with client_of(server) as client, await client.subscribe("stream.slow") as messages:
            with pytest.raises(TimeoutError):
                await messages.get(0.05)
            await client.publish_many("stream.slow", [b"0", b"1"])
            assert [(await anext(messages)).payload for _ in range(2)] == [b"0", b"1"]

    asyncio.run(scene())


def test_a_closed_client_ends_its_streams_and_wakes_their_readers(server: Server) -> None:
    async def scene() -> None:
        client = await connect(url_of(server), wire="http").open()
        messages = await client.subscribe("stream.closed")
        reader = asyncio.create_task(messages.get(WAIT_S))
        await asyncio.sleep(0)
        await client.close()
        assert await reader is None

    asyncio.run(scene())


def test_without_asyncio(server: Server) -> None:
    with sync.connect(url_of(server), wire="http") as client, client.subscribe("stream.blocking") as messages:
        assert [receipt.offset for receipt in client.publish_batch("stream.blocking", ["a", "b"])] == [0, 1]
        assert [message.text for _, message in zip(range(2), messages, strict=False)] == ["a", "b"]


# ---- losses ----------------------------------------------------------------------------------------------------------


class Relay:
    """A port that leads to the bus until its connections are cut; while it is shut nothing listens there."""

    def __init__(self, server: Server, context: ssl.SSLContext | None = None) -> None:
        self._target, self._context = server.port("console"), context
        self.port = free_port_base()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._context)

    async def shut(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers.add(there_writer)
        for one, other in ((reader, there_writer), (there_reader, writer)):
            task = asyncio.create_task(self._carry(one, other))
            self._tasks.add(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.transport.abort()


def test_a_lost_connection_costs_no_message_and_repeats_none(server: Server) -> None:
    async def scene() -> None:
        relay, told = Relay(server), list[str]()
        await relay.open()
        async with (
            client_of(server) as near,
            connect(f"raceway://127.0.0.1:{relay.port}", wire="http", backoff_s=0.05) as far,
        ):
            messages = await far.subscribe("stream.lost", start="first", notify=told.append)
            for number in range(3):
                await near.publish_batch("stream.lost", [f"{number} before"])
                assert (await anext(messages)).text == f"{number} before"
                await relay.shut()
                reading = asyncio.create_task(messages.get(WAIT_S))
                await near.publish_batch("stream.lost", [f"{number} away", f"{number} more"])
                await relay.open()
                message = await reading
                assert message is not None
                assert (message.text, (await anext(messages)).text) == (f"{number} away", f"{number} more")
        await relay.shut()
        assert told.count("reconnected") == 3
        assert sum(text.endswith("; reconnecting") for text in told) >= 3

    asyncio.run(scene())


def test_without_reconnecting_the_loss_is_raised(server: Server) -> None:
    async def scene() -> None:
        relay = Relay(server)
        await relay.open()
        async with connect(f"raceway://127.0.0.1:{relay.port}", wire="http", reconnect=False) as client:
            messages = await client.subscribe("stream.raised")
            await relay.shut()
            with pytest.raises(ConnectionLostError):
                await messages.get(WAIT_S)

    asyncio.run(scene())


def test_the_same_over_tls(server: Server, tmp_path: Path) -> None:
    """The console port has no TLS; a proxy before it may."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))

    async def scene() -> None:
        relay = Relay(server, context)
        await relay.open()
        url = f"https://127.0.0.1:{relay.port}"
        async with connect(url, wire="http", ca_file=str(tmp_path / "ca.pem")) as client:
            messages = await client.subscribe("stream.tls")
            assert (await client.publish("stream.tls", b"0")).offset == 0
            assert (await anext(messages)).payload == b"0"
            assert (await client.schemas.register("stream.tls", '{"type": "object"}')).version == 1
        with pytest.raises(NotConnectedError, match="the certificate is not trusted"):
            await connect(url).open()
        await relay.shut()

    asyncio.run(scene())


def test_a_refusal_is_raised_with_its_code(server: Server) -> None:
    async def scene() -> None:
        async with client_of(server) as client:
            with pytest.raises(RemoteError, match="name_invalid"):
                await client.subscribe("not a topic")
            with pytest.raises(RemoteError, match="an offset is possible for a single topic only"):
                await client.subscribe("a", "b", start=7)
            with pytest.raises(ConfigError, match="nothing is acknowledged: use a wire"):
                await client.consume("a", name="billing")

    asyncio.run(scene())


def test_a_port_of_something_else_or_of_nothing_is_said(server: Server) -> None:
    async def ask(port: int, patience_s: float = WAIT_S) -> None:
        address = Address("raceway", "127.0.0.1", port)
        await EventConnection.open(address, Options(patience_s=patience_s), None, b"GET / HTTP/1.1\r\n\r\n")

    with pytest.raises(NotConnectedError, match="nothing listens on this port"):
        asyncio.run(ask(free_port_base()))
    with pytest.raises(ConnectionLostError):
        asyncio.run(ask(server.port("tcp")))
    with socket.create_server(("127.0.0.1", free_port_base())) as silent, pytest.raises(NoAnswerError, match=r"0\.1 s"):
        asyncio.run(ask(silent.getsockname()[1], 0.1))
