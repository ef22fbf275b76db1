"""HTTP calls of a client: what it adds to the pool that `tests/net/outgoing/test_http_pool.py` tests."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from raceway.errors import ConnectionLostError, RequestTimeoutError
from raceway.net.client.address import Address
from raceway.net.client.http_pool import ClientHttpPool
from raceway.net.client.options import Options
from raceway.net.codec.http_stream import HttpReply

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Listener:
    """Answers each request, which is one read, unless it is `silent`."""

    def __init__(self) -> None:
        self.connections = self.ended = 0
        self.silent = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await reader.read(65536):
                if not self.silent:
                    writer.write(OK)
        except ConnectionError:
            pass
        finally:
            self.ended += 1
            writer.close()


async def opened(listener: Listener) -> tuple[ClientHttpPool, asyncio.Server]:
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    address = Address("http", "127.0.0.1", server.sockets[0].getsockname()[1])
    return ClientHttpPool(address, Options(), 1000), server


def test_the_connection_of_the_check_serves_the_first_call() -> None:
    async def scene() -> None:
        listener = Listener()
        pool, server = await opened(listener)
        await pool.open()
        assert await pool.call(b"x", "a:1", 5) == HttpReply(200, {b"content-length": b"2"}, b"ok", True)
        assert await pool.call(b"x", "a:1", 5)
        assert listener.connections == 1
        await pool.close()
        server.close()

    asyncio.run(scene())


def test_a_timeout_names_the_call() -> None:
    async def scene() -> None:
        listener = Listener()
        listener.silent = True
        pool, server = await opened(listener)
        with pytest.raises(RequestTimeoutError) as caught:
            await pool.call(b"x", "a:1", 0.05)
        assert str(caught.value) == str(RequestTimeoutError("a:1", ""))
        await pool.close()
        server.close()

    asyncio.run(scene())


def test_a_cancelled_call_takes_its_connection_with_it() -> None:
    async def scene() -> None:
        listener = Listener()
        listener.silent = True
        pool, server = await opened(listener)
        call = asyncio.create_task(pool.call(b"x", "a:1", 5))
        while not listener.connections:  # noqa: ASYNC110 - until it is connected
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while not listener.ended:  # noqa: ASYNC110 - until it is closed
            await asyncio.sleep(0.01)
        assert pool.open_connections == 0
        await pool.close()
        server.close()

    asyncio.run(scene())


def test_a_closed_pool_fails_calls_in_flight_and_new_ones() -> None:
    async def scene() -> None:
        listener = Listener()
        listener.silent = True
        pool, server = await opened(listener)
        calls = [asyncio.create_task(pool.call(b"x", "a:1", 5)) for _ in range(3)]
        await asyncio.sleep(0)  # connecting
        await pool.close()
        await pool.close()
        for call in calls:
            with pytest.raises(ConnectionLostError, match="the client was closed"):
                await call
        with pytest.raises(ConnectionLostError, match="the client was closed"):
            await pool.call(b"x", "a:1", 5)
        with pytest.raises(ConnectionLostError, match="the client was closed"):
            await pool.open()
        server.close()

    asyncio.run(scene())


def test_an_address_where_nobody_listens_is_named_with_the_reason() -> None:
    async def scene() -> None:
        pool = ClientHttpPool(Address("http", "127.0.0.1", 1), Options(), 1000)
        with pytest.raises(
            ConnectionLostError, match=r"no connection to http://127\.0\.0\.1:1: nothing listens on this port"
        ):
            await pool.open()
        with pytest.raises(ConnectionLostError, match="nothing listens on this port"):
            await pool.call(b"x", "a:1", 5)

    asyncio.run(scene())


@pytest.mark.parametrize("once", [True, False])
def test_a_call_on_a_connection_that_was_closed_is_sent_again_unless_it_must_not(once: bool) -> None:
    async def scene() -> None:
        listener = Closing()
        server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
        pool = ClientHttpPool(Address("http", "127.0.0.1", server.sockets[0].getsockname()[1]), Options(), 1000)
        assert (await pool.call(b"x", "first", 5)).status == 200
        if once:
            with pytest.raises(ConnectionLostError, match="closed before an answer"):
                await pool.call(b"x", "second", 5, once=True)
        else:
            assert (await pool.call(b"x", "second", 5)).status == 200
        assert listener.requests == (2 if once else 3)
        await pool.close()
        server.close()
        await asyncio.gather(*listener.tasks)

    asyncio.run(scene())


class Closing:
    """Answers the first request of a connection and closes it when it has received the second, without an answer."""

    def __init__(self) -> None:
        self.requests = 0
        self.tasks: list[asyncio.Task[None]] = []

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.append(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            for answer in (OK, b""):
                if await reader.read(65536):
                    self.requests += 1
                    writer.write(answer)
            writer.close()
            await writer.wait_closed()
