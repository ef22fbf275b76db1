"""The bus's HTTP client against listeners that behave in every way a listener may."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from raceway.errors import (
    BusyError,
    ConnectionLostError,
    MalformedError,
    RacewayError,
    RequestTimeoutError,
    TooLargeError,
    UnreachableError,
)
from raceway.net.codec.http_stream import HttpReply
from raceway.net.outgoing.allowed import Target
from raceway.net.outgoing.http_pool import HttpPool, PoolLimits
from raceway.net.turn import Turn
from tests.rigs.dialled_peer import until

LIMITS = PoolLimits(connections=4, waiting=10, waiting_bytes=10_000, answer_bytes=1000, connect_s=1.0, idle_s=4.0)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Listener:
    """`talk` is called for each request, which is one read."""

    def __init__(self, talk: Talk) -> None:
        self.requests: list[tuple[int, bytes]] = []
        self.connections = 0
        self._talk = talk

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        try:
            while data := await reader.read(65536):
                self.requests.append((number, data))
                await self._talk(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()


class Rig:
    def __init__(self, pool: HttpPool, listener: Listener) -> None:
        self.pool, self.listener = pool, listener

    async def send(self, data: bytes = b"x", timeout_s: float = 5.0) -> HttpReply | RacewayError:
        told: asyncio.Future[HttpReply | RacewayError] = asyncio.get_running_loop().create_future()
        self.pool.send(data, timeout_s, told.set_result)
        assert not told.done(), "never at once"
        return await asyncio.wait_for(told, 10)


@asynccontextmanager
async def rig(talk: Talk, limits: PoolLimits = LIMITS) -> AsyncIterator[Rig]:
    listener = Listener(talk)
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    target = Target("127.0.0.1", server.sockets[0].getsockname()[1])
    loop = asyncio.get_running_loop()
    pool = HttpPool(target, loop, Turn(loop.call_soon), limits)
    try:
        yield Rig(pool, listener)
    finally:
        pool.close()
        server.close()
        await asyncio.sleep(0.02)


def saying(*answers: bytes, close: bool = False) -> Talk:
    """Each request gets the next answer, the last one for ever."""
    left = list(answers)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0) if len(left) > 1 else left[0])
        await writer.drain()
        if close:
            writer.close()

    return talk


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads and says nothing."""


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def test_a_connection_is_used_again() -> None:
    async def test() -> None:
        async with rig(saying(OK)) as it:
            for _ in range(3):
                response = await it.send()
                assert isinstance(response, HttpReply)
                assert (response.status, response.body) == (200, b"ok")
            assert (it.listener.connections, it.pool.open_connections) == (1, 1)

    run(test)


@pytest.mark.parametrize(
    "answer", [OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"), OK.replace(b"1.1", b"1.0")]
)
def test_one_that_the_listener_closes_is_not(answer: bytes) -> None:
    async def test() -> None:
        async with rig(saying(answer)) as it:
            for _ in range(3):
                assert isinstance(await it.send(), HttpReply)
            assert it.listener.connections == 3

    run(test)


def test_one_that_was_idle_too_long_is_not() -> None:
    async def test() -> None:
        async with rig(saying(OK), LIMITS._replace(idle_s=0.05)) as it:
            await it.send()
            await until(lambda: not it.pool.open_connections, "the connection to go")
            await it.send()
            assert it.listener.connections == 2

    run(test)


def test_concurrent_calls_have_connections_of_their_own_up_to_the_limit() -> None:
    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.02)
        writer.write(OK)

    async def test() -> None:
        async with rig(slowly) as it:
            answers = await asyncio.gather(*(it.send() for _ in range(12)))
            assert all(isinstance(answer, HttpReply) for answer in answers)
            assert it.listener.connections == 4

    run(test)


def test_one_call_too_many_is_refused() -> None:
    async def test() -> None:
        async with rig(silent, LIMITS._replace(connections=1, waiting=1)) as it:
            answers = await asyncio.gather(*(it.send(timeout_s=0.2) for _ in range(3)))
            assert sorted(type(answer).__name__ for answer in answers) == [
                "BusyError", "RequestTimeoutError", "RequestTimeoutError",
            ]  # fmt: skip

    run(test)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"hello\r\n\r\n", MalformedError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n", TooLargeError),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n7d0\r\n" + b"x" * 2000, TooLargeError),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000, TooLargeError),
        (OK + OK, MalformedError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok", MalformedError),
    ],
)
def test_an_answer_that_breaks_the_rules_is_an_error_and_ends_the_connection(
    answer: bytes, error: type[RacewayError]
) -> None:
    async def test() -> None:
        async with rig(saying(answer)) as it:
            assert isinstance(await it.send(), error)
            assert isinstance(await it.send(), error)
            assert it.listener.connections == 2

    run(test)


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    async def test() -> None:
        async with rig(saying(b"HTTP/1.1 200 OK\r\n\r\nall of it", close=True)) as it:
            response = await it.send()
            assert isinstance(response, HttpReply)
            assert response.body == b"all of it"

    run(test)


def test_an_answer_that_stops_short_is_lost() -> None:
    async def test() -> None:
        async with rig(saying(OK[:-1], close=True)) as it:
            assert isinstance(await it.send(), ConnectionLostError)
            assert len(it.listener.requests) == 1

    run(test)


def test_a_fresh_connection_that_breaks_is_told_and_nothing_is_repeated() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async def test() -> None:
        async with rig(hang_up) as it:
            assert isinstance(await it.send(), ConnectionLostError)
            assert len(it.listener.requests) == 1

    run(test)


def test_a_kept_connection_that_breaks_before_its_answer_is_repeated_once() -> None:
    calls = 0

    async def breaking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            writer.write(OK)
        else:
            writer.transport.abort()

    async def test() -> None:
        async with rig(breaking) as it:
            assert isinstance(await it.send(b"a"), HttpReply)
            assert isinstance(await it.send(b"b"), ConnectionLostError)
            assert it.listener.requests == [(1, b"a"), (1, b"b"), (2, b"b")]

    run(test)


def test_a_kept_connection_that_breaks_within_its_answer_is_not_repeated() -> None:
    calls = 0

    async def breaking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        writer.write(OK if calls == 1 else OK[:10])
        await writer.drain()
        if calls > 1:
            await asyncio.sleep(0.05)
            writer.transport.abort()

    async def test() -> None:
        async with rig(breaking) as it:
            assert isinstance(await it.send(b"a"), HttpReply)
            assert isinstance(await it.send(b"b"), ConnectionLostError)
            assert len(it.listener.requests) == 2

    run(test)


def test_a_call_without_an_answer_ends_in_time_and_its_connection_is_not_used_again() -> None:
    async def test() -> None:
        async with rig(silent) as it:
            began = asyncio.get_running_loop().time()
            assert isinstance(await it.send(timeout_s=0.1), RequestTimeoutError)
            assert 0.1 <= asyncio.get_running_loop().time() - began < 1
            assert isinstance(await it.send(timeout_s=0.1), RequestTimeoutError)
            assert it.listener.connections == 2

    run(test)


def test_where_nobody_listens_the_call_is_told_that_nothing_was_sent() -> None:
    async def test() -> None:
        async with rig(silent) as it:
            gone = HttpPool(Target("127.0.0.1", 1), asyncio.get_running_loop(), it.pool.turn, LIMITS)
            assert isinstance(await Rig(gone, it.listener).send(), UnreachableError)
            gone.close()

    run(test)


def test_those_who_wait_for_a_connection_learn_that_there_is_none() -> None:
    async def test() -> None:
        limits = LIMITS._replace(connections=1)
        loop = asyncio.get_running_loop()
        gone = HttpPool(Target("127.0.0.1", 1), loop, Turn(loop.call_soon), limits)
        answers = await asyncio.gather(*(Rig(gone, Listener(silent)).send() for _ in range(5)))
        assert {type(answer) for answer in answers} == {UnreachableError}
        gone.close()

    run(test)


def test_bytes_that_nobody_asked_for_end_an_idle_connection() -> None:
    async def chatty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.write(OK)

    async def test() -> None:
        async with rig(chatty) as it:
            assert isinstance(await it.send(), HttpReply)
            await until(lambda: not it.pool.open_connections, "the connection to go")
            assert isinstance(await it.send(), HttpReply)
            assert it.listener.connections == 2

    run(test)


def test_a_busy_error_is_what_one_too_many_gets() -> None:
    async def test() -> None:
        async with rig(silent, LIMITS._replace(connections=1, waiting=1)) as it:
            first, second = (asyncio.ensure_future(it.send(timeout_s=0.5)) for _ in range(2))
            await asyncio.sleep(0)
            assert isinstance(await it.send(), BusyError)
            await asyncio.gather(first, second)

    run(test)


def test_more_bytes_than_may_be_held_are_refused_but_one_call_always_fits() -> None:
    async def test() -> None:
        async with rig(silent, LIMITS._replace(waiting_bytes=1000)) as it:
            first = asyncio.ensure_future(it.send(b"x" * 5000, timeout_s=0.2))
            await asyncio.sleep(0)
            assert isinstance(await it.send(b"y"), BusyError)
            await first
            assert it.pool.held_bytes == 0
            assert isinstance(await it.send(b"z", timeout_s=0.05), RequestTimeoutError), "there is room again"

    run(test)


def test_a_listener_that_closes_at_once_is_told_to_the_caller_and_leaves_nothing_behind() -> None:
    async def slam(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async def test() -> None:
        loop = asyncio.get_running_loop()
        server = await asyncio.start_server(slam, "127.0.0.1", 0)
        target = Target("127.0.0.1", server.sockets[0].getsockname()[1])
        it = Rig(HttpPool(target, loop, Turn(loop.call_soon), LIMITS), Listener(silent))
        for _ in range(10):
            assert isinstance(await it.send(), ConnectionLostError)
        await until(lambda: not it.pool.open_connections, "the connections to go")
        assert it.pool.held_bytes == 0
        it.pool.close()
        server.close()

    run(test)
