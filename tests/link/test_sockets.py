"""A caller in this process and a broker in another one, which is killed and started again."""

from __future__ import annotations

import asyncio
import contextlib
import stat
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from raceway.broker.peers import Peer
from raceway.errors import UnavailableError
from raceway.link.caller import LinkCaller
from raceway.link.sockets import keep_linked
from raceway.model.intents.batches import Intent, Publish, Request, Respond, Taken
from raceway.model.intents.kinds import Done
from raceway.model.intents.peers import Heartbeat, Subscribe
from raceway.model.intents.reading import ReadTopic
from raceway.net.turn import Turn
from tests.rigs.doubles import Message, RecordingPeer, batch_of
from tests.rigs.link_process import DEADLINE_S, lane, socket_of, until


@contextlib.asynccontextmanager
async def linked(folder: Path) -> AsyncIterator[LinkCaller]:
    loop = asyncio.get_running_loop()
    caller = LinkCaller(0, b"edge", Turn(loop.call_soon), loop)
    task = asyncio.create_task(keep_linked(caller, socket_of(folder, 0)))
    try:
        yield caller
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def performed(caller: LinkCaller, peer: Peer, intent: Intent) -> Any:
    future = asyncio.get_running_loop().create_future()
    caller.perform(peer, intent, future.set_result)
    async with asyncio.timeout(DEADLINE_S):
        return await future


def test_a_broker_in_another_process_serves_peers_of_this_one(folder: Path) -> None:
    async def talk() -> None:
        async with linked(folder) as caller:
            await until(lambda: caller.is_open)
            sender, reader = RecordingPeer(), RecordingPeer()
            for peer in (sender, reader):
                caller.connect(peer)
            assert await performed(caller, reader, Subscribe("all", "orders")) == Done()
            payloads = [b"%d" % at for at in range(1000)]
            publish = Publish(batch_of(b"publish", *(Message(payload=each) for each in payloads)))
            assert await performed(caller, sender, publish) == Taken()
            await until(lambda: len(reader.copies) == 1000)
            assert [copy.payload for copy in reader.copies] == payloads
            assert await performed(caller, sender, Request(batch_of(b"request", Message(id=b"q")))) == Taken()
            await until(lambda: reader.requests)
            answer = Respond(batch_of(b"response", Message(payload=b"yes", id=reader.masked)))
            assert await performed(caller, reader, answer) == Taken()
            await until(lambda: sender.answers)
            assert sender.answers[0][1] == b"yes"

    with lane(folder):
        assert stat.S_IMODE((socket_of(folder, 0)).stat().st_mode) == 0o600
        asyncio.run(talk())


def test_a_broker_that_is_killed_loses_nothing_acknowledged_and_is_found_again(folder: Path) -> None:
    acknowledged: list[bytes] = []
    unknown: list[bytes] = []

    async def publishing(caller: LinkCaller, peer: Peer, first: int, count: int) -> None:
        for at in range(first, first + count):
            payload = b"%05d" % at

            def committed(error: Any, payload: bytes = payload) -> None:
                (acknowledged if error is None else unknown).append(payload)

            def done(outcome: Any, payload: bytes = payload) -> None:
                if isinstance(outcome, UnavailableError) and "not known" in str(outcome):
                    unknown.append(payload)

            message = Message(payload=payload, id=b"m%05d" % at)
            caller.perform(peer, Publish(batch_of(b"publish", message)), done, committed)
            if at % 50 == 0:
                await asyncio.sleep(0.001)

    async def before(caller: LinkCaller, process: subprocess.Popen[str], peers: list[RecordingPeer]) -> None:
        await until(lambda: caller.is_open)
        for peer in peers:
            caller.connect(peer)
        assert await performed(caller, peers[1], Subscribe("publish", "orders")) == Done()
        await publishing(caller, peers[0], 0, 2000)
        await until(lambda: len(acknowledged) > 200)
        task = asyncio.create_task(publishing(caller, peers[0], 2000, 2000))
        await asyncio.sleep(0.005)
        process.kill()
        await task
        await until(lambda: not caller.is_open)
        refused = await performed(caller, peers[0], Heartbeat())
        assert str(refused).endswith("nothing was done")

    async def after(caller: LinkCaller, peers: list[RecordingPeer]) -> None:
        await until(lambda: caller.is_open)
        peers[1].copies.clear()
        again = Publish(batch_of(b"publish", Message(payload=b"again", id=b"again")))
        assert await performed(caller, peers[0], again) == Taken()
        await until(lambda: peers[1].copies)
        assert [copy.payload for copy in peers[1].copies] == [b"again"]
        read = await performed(caller, peers[0], ReadTopic("orders", "first", 10_000, 10_000_000))
        stored = [row["payload"] for row in read.rows if row["payload"] != b"again"]
        assert len(set(stored)) == len(stored)
        assert set(acknowledged) <= set(stored) <= set(acknowledged) | set(unknown)
        assert stored == sorted(stored)
        assert unknown, "killed while it was busy"

    async def story() -> None:
        peers = [RecordingPeer(), RecordingPeer()]
        async with linked(folder) as caller:
            with lane(folder) as process:
                await before(caller, process, peers)
            with lane(folder):
                await after(caller, peers)
        assert caller.links == 2

    asyncio.run(story())


def test_a_stop_ends_the_connection_and_the_caller_looks_for_the_next_one(folder: Path) -> None:
    async def story() -> None:
        async with linked(folder) as caller:
            for count in (1, 2):
                with lane(folder) as process:
                    await until(lambda: caller.is_open)
                    assert caller.links == count
                    process.terminate()
                    assert await asyncio.to_thread(process.wait, DEADLINE_S) == 0
                await until(lambda: not caller.is_open)

    asyncio.run(story())
