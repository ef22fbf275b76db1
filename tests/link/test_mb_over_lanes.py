"""The wire MB in this process, a bus of four lanes in four others: as with one, but that a lane may die by itself."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from raceway import config
from raceway.client import MbClient, connect
from raceway.errors import RacewayError
from raceway.journal.read.reader import Reader
from raceway.model.lanes import LaneTable
from raceway.net.client.streams import MessageStream
from raceway.wires.mb.listen.session import MbGate
from raceway.wires.mb.listen.tcp import MbTcp
from tests.rigs.link_door import LinkDoor, served_over
from tests.rigs.link_process import DEADLINE_S, journal_of, lane, until

LANES = 4
TOPICS = [f"orders.n{number}" for number in range(12)]
Facts = dict[str, Any]


def served(folder: Path, lanes: int) -> contextlib.AbstractAsyncContextManager[tuple[str, LinkDoor]]:
    """The URL of MB, spoken in this process."""

    def made(door: LinkDoor) -> tuple[MbGate, Callable[[], asyncio.Protocol]]:
        gate = MbGate(door, config.Listen())  # type: ignore[arg-type]  # stands in for it
        return gate, partial(MbTcp, gate)

    return served_over(folder, "mb", made, lanes)


def stop(processes: list[subprocess.Popen[str]]) -> None:
    """End them in order, so that all is in their journals."""
    for process in processes:
        process.terminate()
    for process in processes:
        assert process.wait(DEADLINE_S) == 0


def rows_of(folder: Path, number: int) -> list[dict[str, Any]]:
    """What a lane has stored."""
    return [row for batch in Reader(journal_of(folder, number)).read(0) for row in batch.to_pylist()]


async def taken(stream: MessageStream[Any], count: int) -> dict[str, list[bytes]]:
    """The payloads of so many messages, by topic."""
    found = defaultdict[str, list[bytes]](list)
    for _ in range(count):
        message = await stream.get(DEADLINE_S)
        assert message is not None
        found[message.topic].append(message.payload)
    return dict(found)


async def talk(url: str) -> Facts:
    """What clients see. The publishes of a connection are read together, so that batches have many topics."""
    async with connect(url, wire="mb") as reader, connect(url, wire="mb") as sender:
        orders, evens = await reader.subscribe("Orders.#"), await reader.subscribe("orders.n2")
        sent = [(topic, b"%d" % number) for number in range(40) for topic in (*TOPICS, f"bills.n{number}")]
        receipts = await asyncio.gather(*(sender.publish(*each) for each in sent))
        await reader.serve("sum.#", lambda message: message.topic.encode() + b"=" + message.payload)
        names = [f"sum.n{number}" for number in range(20)]
        answers = await asyncio.gather(*(sender.request(name, name.encode()) for name in names))
        with pytest.raises(RacewayError) as refused:
            await sender.request("difference", b"2-3")
        return {
            "unrouted": [topic for (topic, _), receipt in zip(sent, receipts, strict=True) if receipt.no_route],
            "orders": await taken(orders, 40 * len(TOPICS)),
            "evens": await taken(evens, 40),
            "answers": answers,
            "refused": (type(refused.value), str(refused.value)),
        }


def stored(folder: Path, lanes: int) -> dict[str, list[Any]]:
    """What is stored of each topic, in order."""
    found = defaultdict[str, list[Any]](list)
    for number in range(lanes):
        for row in rows_of(folder, number):
            assert LaneTable(lanes).lane_of(row["topic"].encode()) == number
            found[row["topic"]].append((row["offset"], row["kind"], row["payload"], row["error"]))
    return dict(found)


def run(folder: Path, lanes: int) -> tuple[Facts, dict[str, list[Any]]]:
    async def session() -> Facts:
        async with served(folder, lanes) as (url, _):
            return await talk(url)

    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(lane(folder, number)) for number in range(lanes)]
        facts = asyncio.run(session())
        stop(processes)
    return facts, stored(folder, lanes)


def test_four_lanes_do_what_one_does(folder: Path) -> None:
    (folder / "one").mkdir()
    (folder / "four").mkdir()
    one, four = run(folder / "one", 1), run(folder / "four", LANES)
    assert one == four
    facts, rows = four
    assert len(facts["unrouted"]) == 40
    assert facts["orders"] == {topic: [b"%d" % number for number in range(40)] for topic in TOPICS}
    assert [offset for offset, *_ in rows["orders.n7"]] == list(range(40))
    assert all(rows_of(folder / "four", number) for number in range(LANES)), "a lane that had nothing to do"


def test_a_lane_that_is_killed_fails_its_topics_and_comes_back(folder: Path) -> None:
    table = LaneTable(LANES)
    dying = table.lane_of(b"orders.n0")
    of_it = [topic for topic in TOPICS if table.lane_of(topic.encode()) == dying]
    others = [topic for topic in TOPICS if topic not in of_it]
    assert others

    async def story(stack: contextlib.AsyncExitStack) -> None:
        processes = [stack.enter_context(lane(folder, number)) for number in range(LANES)]
        url, door = await stack.enter_async_context(served(folder, LANES))
        reader, sender = [await stack.enter_async_context(connect(url, wire="mb")) for _ in range(2)]
        orders = await reader.subscribe("orders.#")
        reached = asyncio.Event()

        async def never(message: Any) -> bytes:
            reached.set()
            await asyncio.sleep(DEADLINE_S)
            return b""

        await reader.serve(of_it[0], never)
        asking = asyncio.create_task(sender.request(of_it[0], b"?"))
        await asyncio.wait_for(reached.wait(), DEADLINE_S)
        await asyncio.gather(*(sender.publish(topic, b"before") for topic in TOPICS))
        assert set(await taken(orders, len(TOPICS))) == set(TOPICS)

        processes[dying].kill()
        await until(lambda: not door.callers[dying].is_open)
        with pytest.raises(RacewayError, match="whether this was done is not known"):
            await asyncio.wait_for(asking, DEADLINE_S)
        told = await asyncio.gather(*(sender.publish(topic, b"meanwhile") for topic in TOPICS), return_exceptions=True)
        for topic, outcome in zip(TOPICS, told, strict=True):
            if topic in of_it:
                assert isinstance(outcome, RacewayError)
                assert "nothing was done" in str(outcome)
            else:
                assert not isinstance(outcome, BaseException)
        assert set(await taken(orders, len(others))) == set(others)
        late = await reader.subscribe("late.#")

        processes[dying] = stack.enter_context(lane(folder, dying))
        await until(lambda: door.is_open)
        lates = [f"late.n{number}" for number in range(12)]
        await asyncio.gather(*(sender.publish(topic, b"after") for topic in (*TOPICS, *lates)))
        assert set(await taken(orders, len(TOPICS))) == set(TOPICS)
        assert set(await taken(late, len(lates))) == set(lates)
        stop(processes)

    async def run_story() -> None:
        async with contextlib.AsyncExitStack() as stack:
            await story(stack)

    asyncio.run(run_story())
    for topic, found in stored(folder, LANES).items():
        payloads = [payload for _, kind, payload, _ in found if kind == "publish"]
        if topic in TOPICS:
            assert payloads == [b"before", b"after"] if topic in of_it else [b"before", b"meanwhile", b"after"]
        assert [offset for offset, *_ in found] == list(range(len(found)))


class Sender:
    """Publishes numbers to a topic, one after the other, and repeats none. Knows what it was told of each."""

    def __init__(self, client: MbClient, topic: str) -> None:
        self._client, self.topic = client, topic
        self.acknowledged: list[int] = []
        self.not_done: list[int] = []
        self.is_stopped = False

    async def run(self) -> None:
        number = 0
        while not self.is_stopped:
            number += 1
            try:
                await self._client.publish(self.topic, b"%d" % number)
            except RacewayError as error:
                if "nothing was done" in str(error):
                    self.not_done.append(number)
                await asyncio.sleep(0.01)  # a lane that is away answers at once
            else:
                self.acknowledged.append(number)


def test_acknowledged_messages_are_there_once_and_in_order_while_lanes_are_killed(folder: Path) -> None:
    received: dict[str, list[int]] = defaultdict(list)

    async def receive(stream: MessageStream[Any]) -> None:
        while (message := await stream.get()) is not None:
            received[message.topic].append(int(message.payload))

    async def story(stack: contextlib.AsyncExitStack) -> list[Sender]:
        processes = [stack.enter_context(lane(folder, number)) for number in range(LANES)]
        url, door = await stack.enter_async_context(served(folder, LANES))
        reader, client = [await stack.enter_async_context(connect(url, wire="mb")) for _ in range(2)]
        receiving = asyncio.create_task(receive(await reader.subscribe("orders.#")))
        senders = [Sender(client, topic) for topic in TOPICS]
        tasks = [asyncio.create_task(sender.run()) for sender in senders]

        async def go_on() -> None:
            """Each topic has further messages acknowledged."""
            before = [len(sender.acknowledged) for sender in senders]
            pairs = list(zip(senders, before, strict=True))
            await until(lambda: all(len(sender.acknowledged) > count + 5 for sender, count in pairs))

        for dying in (1, 3, 1, 0, 2):
            await go_on()
            processes[dying].kill()
            await until(lambda dying=dying: not door.callers[dying].is_open)  # type: ignore[misc]
            processes[dying] = stack.enter_context(lane(folder, dying))
        await go_on()
        for sender in senders:
            sender.is_stopped = True
        await asyncio.gather(*tasks)
        stop(processes)
        receiving.cancel()
        return senders

    async def run_story() -> list[Sender]:
        async with contextlib.AsyncExitStack() as stack:
            return await story(stack)

    senders = asyncio.run(run_story())
    kept = stored(folder, LANES)
    for sender in senders:
        rows = kept[sender.topic]
        numbers = [int(payload) for _, _, payload, _ in rows]
        assert [offset for offset, *_ in rows] == list(range(len(rows)))
        assert numbers == sorted(set(numbers))
        assert set(sender.acknowledged) <= set(numbers)
        assert not set(sender.not_done) & set(numbers)
        copies = received[sender.topic]
        assert copies == sorted(set(copies))
    assert any(sender.not_done for sender in senders), "no lane was away while a message came"
