"""What a stream is offered and what it reads, without sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.reading import Reading
from raceway.errors import BusyError, TrimmedError
from raceway.model.intents.batches import Publish
from raceway.web.app import build_app
from raceway.web.event_streams import EventStreams
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench, FaultyJournal, Message, RecordingPeer, batch_of
from tests.web.asgi import ask


class Rig:
    """A broker in the running loop, and its streams."""

    def __init__(self, **settings: Any) -> None:
        loop = asyncio.get_running_loop()
        self.journal = FaultyJournal(config.JournalSettings(durability="memory"), loop.call_soon, lambda: 1)
        self.broker = Broker(config.BrokerSettings(linger_ms=0), self.journal, loop, lambda: 1)
        self.streams = EventStreams(DOOR(self.broker), config.HttpDoorSettings(keepalive_ms=20, **settings))
        self.peer = RecordingPeer()
        self.broker.connect(self.peer)

    async def publish(self, *payloads: bytes, topic: bytes = b"t") -> None:
        stored = asyncio.Event()
        batch = batch_of(b"publish", *(Message(topic, payload=payload) for payload in payloads))
        self.broker.perform(self.peer, Publish(batch), lambda error: stored.set())
        await stored.wait()

    def open(self, begin: str = "end", topic: str = "t") -> Any:
        positions = Reading(self.broker).positions((self.broker.topics.own(topic),), begin)
        return self.streams.open((topic,), positions, "rows")


async def texts(chunks: AsyncIterator[bytes], wanted: int) -> list[str]:
    """Payloads, and gaps as their data, of so many events."""
    found: list[str] = []
    while len(found) < wanted:
        for event in (await asyncio.wait_for(anext(chunks), 5)).decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in event.splitlines() if ": " in line)
            if "data" in fields:
                data = json.loads(fields["data"])
                found.append(data["payload"] if "payload" in data else f"gap {data['from']} {data['next']}")
    return found


def test_live_events_need_no_reading_and_earlier_ones_do() -> None:
    async def run() -> None:
        rig = Rig()
        await rig.publish(b"0", b"1")
        stream = rig.open("1")
        chunks = rig.streams.chunks(stream)
        assert await texts(chunks, 1) == ["1"]
        await rig.publish(b"2")
        assert await texts(chunks, 1) == ["2"]

    asyncio.run(run())


def test_a_stream_without_room_reads_the_rest_from_the_journal() -> None:
    async def run() -> None:
        rig = Rig(stream_bytes=300)
        stream = rig.open()
        for number in range(20):
            await rig.publish(b"%d" % number * 50)
        assert stream._waiting_bytes < 1000
        assert await texts(rig.streams.chunks(stream), 20) == [f"{number}" * 50 for number in range(20)]

    asyncio.run(run())


def test_rows_that_retention_took_are_a_gap_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        rig = Rig()
        await rig.publish(b"0", b"1", b"2")
        read = rig.journal.read_topic

        def trimmed(topic: str, offset: int, *args: Any, **options: Any) -> Any:
            if offset < 2:
                raise TrimmedError(offset, 2, topic)
            return read(topic, offset, *args, **options)

        monkeypatch.setattr(rig.journal, "read_topic", trimmed)
        assert await texts(rig.streams.chunks(rig.open("first")), 2) == ["gap 0 2", "2"]

    asyncio.run(run())


def test_rows_that_could_not_be_stored_are_no_gap() -> None:
    async def run() -> None:
        rig = Rig()
        await rig.publish(b"a")
        rig.journal.fail_next_commit()
        rig.broker.perform(rig.peer, Publish(batch_of(b"publish", Message(b"t", payload=b"lost"))), lambda error: None)
        # Its end is behind the row that is under way.
        chunks = rig.streams.chunks(rig.open("1"))
        told = b""
        while not told.endswith(b":\n\n"):  # at rest
            told += await asyncio.wait_for(anext(chunks), 5)
        assert b"gap" not in told
        await rig.publish(b"b")
        assert await texts(chunks, 1) == ["b"]

    asyncio.run(run())


def test_a_place_beyond_the_end_is_the_end() -> None:
    async def run() -> None:
        rig = Rig()
        await rig.publish(b"0")
        stream = rig.open("99")
        await rig.publish(b"1")
        assert await texts(rig.streams.chunks(stream), 1) == ["1"]

    asyncio.run(run())


def test_streams_are_counted_and_leave_nothing_behind() -> None:
    async def run() -> None:
        rig = Rig(max_streams=2)
        topic = rig.broker.topics.own("t")
        first, second = rig.open(), rig.open()
        with pytest.raises(BusyError):
            rig.open()
        assert rig.broker.readers.holds(topic)
        rig.streams.remove(first)
        rig.streams.remove(second)
        assert not rig.broker.readers.holds(topic)
        rig.open()

    asyncio.run(run())


def test_a_closed_stream_ends() -> None:
    async def run() -> None:
        rig = Rig()
        chunks = rig.streams.chunks(rig.open())
        assert await anext(chunks) == b"retry: 1000\n\n"
        rig.streams.close()
        assert [chunk async for chunk in chunks] == []

    asyncio.run(run())


@pytest.mark.parametrize("path", ["/topics/t", "/requests/t"])
def test_a_journal_that_takes_nothing_is_503(path: str) -> None:
    """E5"""
    bench = Bench()
    bench.responder("t")
    bench.journal.refuse_writes()
    answer = ask(build_app(DOOR(bench.broker), ()), path, "POST", body=b"{}")
    assert (answer.status, answer.json()["error"]["code"]) == (503, "read_only")


def test_a_bus_that_stops_takes_no_more() -> None:
    """E5"""
    bench = Bench()
    bench.broker.draining = True
    assert ask(build_app(DOOR(bench.broker), ()), "/topics/t", "POST", body=b"{}").status == 503


def test_bodies_on_their_way_in_are_bounded_together() -> None:
    """E5"""
    listen = config.Listen(http=config.HttpDoorSettings(pending_bytes=10))
    answer = ask(build_app(DOOR(Bench().broker), (), listen=listen), "/topics/t", "POST", body=b"more than ten bytes")
    assert (answer.status, answer.headers["connection"]) == (503, "close")


# ---- streams that grow -----------------------------------------------------------------------------------------------


def test_a_growing_stream_has_topics_that_appear_later_before_what_came_after_them() -> None:
    async def run() -> None:
        rig = Rig()
        rig.broker.topics.own("t")
        new: list[tuple[str, int]] = []

        async def find() -> list[tuple[str, int]]:
            found = [*new]
            new.clear()
            return found

        chunks = rig.streams.chunks(rig.streams.open(("t",), (0,), "rows", find))
        await rig.publish(b"0")
        assert await texts(chunks, 1) == ["0"]
        await rig.publish(b"1", topic=b"later")
        new.append(("later", 0))
        await rig.publish(b"2")
        assert await texts(chunks, 2) == ["1", "2"]

    asyncio.run(run())


def test_a_growing_stream_has_no_ids_and_tells_when_everything_was_sent() -> None:
    async def run() -> None:
        rig = Rig()
        rig.broker.topics.own("t")

        async def find() -> list[tuple[str, int]]:
            return []

        await rig.publish(b"0")
        stream = rig.streams.open(("t",), (0,), "rows", find)
        stream._clock_us = lambda: 5_000_000  # type: ignore[attr-defined]
        chunks = rig.streams.chunks(stream)
        said = [await asyncio.wait_for(anext(chunks), 5) for _ in range(3)]
        assert said[1].startswith(b'data: {"topic":"t"')
        assert said[2] == b'event: caught-up\ndata: {"time_us":5000000}\n\n'

    asyncio.run(run())
