"""Calls over one connection of lines, against a listener that does what the test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from raceway.errors import BusyError, ConnectionLostError, RacewayError, RequestTimeoutError, UnreachableError
from raceway.model.document import raw_members
from raceway.net.outgoing.courier import NotTaken
from raceway.net.turn import Turn
from raceway.wires.seneca.codec.call import TCP
from raceway.wires.seneca.codec.outgoing import ListenerReply, Outgoing
from raceway.wires.seneca.dial.address import parse_address
from raceway.wires.seneca.dial.line_link import LineLink
from raceway.wires.seneca.settings import SenecaDial

SETTINGS = SenecaDial(waiting=10, waiting_bytes=10**7, answer_limit=10_000, connect_ms=1000)
Told = ListenerReply | RacewayError


class Listener:
    def __init__(self) -> None:
        self.lines: list[Any] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while line := await reader.readline():
                self.lines.append(json.loads(line))
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def heard(self, count: int) -> list[Any]:
        async with asyncio.timeout(10):
            while len(self.lines) < count:  # noqa: ASYNC110 - the lines are all there is to wait for
                await asyncio.sleep(0.002)
        return self.lines

    def say(self, *texts: str) -> None:
        self.writers[-1].write("".join(text + "\n" for text in texts).encode())


class Rig:
    def __init__(self, link: LineLink, listener: Listener) -> None:
        self.link, self.listener = link, listener

    def send(self, key: str, timeout_s: float = 5.0) -> asyncio.Future[Told]:
        told: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        mid, _, cid = key.partition("/")
        self.link.call(TCP, Outgoing(mid, cid, "A", {}), timeout_s, told.set_result)
        assert not told.done(), "never at once"
        return told

    def tell(self, content: Any, tried: Callable[[NotTaken | None], None]) -> None:
        self.link.tell(TCP, Outgoing("m", "c", "A", raw_members({"x": content})), 5.0, tried)


def link_to(port: int, settings: SenecaDial = SETTINGS) -> LineLink:
    loop = asyncio.get_running_loop()
    return LineLink(parse_address(f"tcp://127.0.0.1:{port}"), settings, loop, Turn(loop.call_soon))


@asynccontextmanager
async def rig(settings: SenecaDial = SETTINGS) -> AsyncIterator[Rig]:
    listener = Listener()
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    link = link_to(server.sockets[0].getsockname()[1], settings)
    try:
        yield Rig(link, listener)
    finally:
        link.close()
        server.close()
        await asyncio.sleep(0.02)


def answer(key: str, res: Any) -> str:
    return json.dumps({"id": key, "kind": "res", "res": res, "sync": True})


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 20))


def test_answers_find_their_calls_in_whatever_order_they_come() -> None:
    async def test() -> None:
        async with rig() as it:
            first, second = it.send("m1/c"), it.send("m2/c")
            await it.listener.heard(2)
            it.listener.say(answer("m2/c", {"n": 2}), "", answer("m1/c", {"n": 1}), answer("m9/c", {"n": 9}))
            for n, told in ((2, second), (1, first)):
                reply = await told
                assert isinstance(reply, ListenerReply)
                assert json.loads(reply.payload) == {"n": n}
            assert len(it.listener.writers) == 1

    run(test)


def test_a_connection_that_is_lost_is_told_to_all_and_the_next_call_has_a_new_one() -> None:
    async def test() -> None:
        async with rig() as it:
            calls = [it.send(f"m{n}/c") for n in range(3)]
            await it.listener.heard(3)
            it.listener.writers[0].transport.abort()
            assert {type(await call) for call in calls} == {ConnectionLostError}
            again = it.send("m9/c")
            await it.listener.heard(4)
            it.listener.say(answer("m9/c", None))
            assert isinstance(await again, ListenerReply)

    run(test)


def test_a_line_that_is_not_json_ends_the_connection() -> None:
    async def test() -> None:
        async with rig() as it:
            call = it.send("m1/c")
            await it.listener.heard(1)
            it.listener.say("hello")
            assert isinstance(await call, ConnectionLostError)

    run(test)


def test_a_line_that_is_too_long_ends_the_connection() -> None:
    async def test() -> None:
        async with rig() as it:
            call = it.send("m1/c")
            await it.listener.heard(1)
            it.listener.say(answer("m1/c", {"x": "y" * 20_000}))
            assert isinstance(await call, ConnectionLostError)

    run(test)


def test_a_call_without_an_answer_ends_in_time_and_the_others_go_on() -> None:
    async def test() -> None:
        async with rig() as it:
            late, good = it.send("m1/c", 0.1), it.send("m2/c")
            await it.listener.heard(2)
            assert isinstance(await late, RequestTimeoutError)
            it.listener.say(answer("m1/c", {}), answer("m2/c", {}))
            assert isinstance(await good, ListenerReply)

    run(test)


def test_where_nobody_listens_nothing_was_sent() -> None:
    async def test() -> None:
        it = Rig(link_to(1), Listener())
        calls = [it.send(f"m{n}/c") for n in range(3)]
        assert {type(await call) for call in calls} == {UnreachableError}
        told: asyncio.Future[NotTaken | None] = asyncio.get_running_loop().create_future()
        it.tell(None, told.set_result)
        failure = await told
        assert failure is not None
        assert not failure.reached
        it.link.close()

    run(test)


def test_one_call_too_many_is_refused_and_so_is_an_id_that_is_open() -> None:
    async def test() -> None:
        async with rig(replace(SETTINGS, waiting=2)) as it:
            first = it.send("m1/c", 0.3)
            await it.listener.heard(1)
            assert isinstance(await it.send("m1/c"), BusyError)
            second = it.send("m2/c", 0.3)
            assert isinstance(await it.send("m3/c"), BusyError)
            await asyncio.gather(first, second)

    run(test)


def test_what_wants_no_answer_counts_when_it_is_written() -> None:
    async def test() -> None:
        async with rig() as it:
            for n in range(3):
                told: asyncio.Future[NotTaken | None] = asyncio.get_running_loop().create_future()
                it.tell(n, told.set_result)
                assert await told is None
            assert [line["act"]["x"] for line in await it.listener.heard(3)] == [0, 1, 2]

    run(test)


def test_a_receiver_that_does_not_read_is_not_told_more_and_more() -> None:
    async def test() -> None:
        async with rig() as it:
            first = it.send("m1/c")
            await it.listener.heard(1)
            reader = it.listener.writers[0].transport
            reader.pause_reading()  # type: ignore[attr-defined]
            taken: list[NotTaken | None] = []
            for _ in range(40):
                it.tell("y" * 500_000, taken.append)
                await asyncio.sleep(0)
            await asyncio.sleep(0.05)
            assert len(taken) < 40, "those beyond the buffer of the connection are not taken yet"
            assert isinstance(await it.send("m2/c"), BusyError)
            it.listener.writers[0].transport.abort()
            assert isinstance(await first, ConnectionLostError)
            assert len(taken) == 40
            assert any(failure is not None and not failure.reached for failure in taken)

    run(test)


def test_a_deadline_that_is_over_does_not_concern_a_later_call_of_the_same_id() -> None:
    async def test() -> None:
        async with rig() as it:
            first = it.send("m1/c", 0.15)
            await it.listener.heard(1)
            it.listener.say(answer("m1/c", {"n": 1}))
            assert isinstance(await first, ListenerReply)
            second = it.send("m1/c", 5.0)
            await asyncio.sleep(0.3)
            assert not second.done()
            it.listener.say(answer("m1/c", {"n": 2}))
            assert isinstance(await second, ListenerReply)

    run(test)


def test_a_listener_that_closes_at_once_is_told_to_the_caller() -> None:
    async def slam(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async def test() -> None:
        server = await asyncio.start_server(slam, "127.0.0.1", 0)
        it = Rig(link_to(server.sockets[0].getsockname()[1]), Listener())
        for n in range(10):
            assert isinstance(await it.send(f"m{n}/c"), ConnectionLostError)
        it.link.close()
        server.close()

    run(test)
