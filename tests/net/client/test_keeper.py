"""Staying connected: losses, returns, what is repeated and what is not, silence. Against a bus that can misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raceway.client import MbClient, connect
from raceway.errors import ConnectionLostError, RequestTimeoutError
from raceway.wires.mb.codec.encode import answer, deliveries, forwarded, heartbeat, tcp_frame
from tests.rigs.fake_bus import FakeBus
from tests.rigs.ports import free_port_base
from tests.rigs.vectors.mb import I

ID = I.encode()


def play(scene: Callable[[FakeBus, MbClient], Awaitable[None]], **options: Any) -> None:
    """Run a scene with a bus and a client connected to it."""

    async def run() -> None:
        async with FakeBus() as bus, connect(bus.url, backoff_s=0.01, **options) as client:
            async with asyncio.timeout(20):
                await scene(bus, client)

    asyncio.run(run())


def test_no_bus_is_told_at_once() -> None:
    async def scene() -> None:
        with pytest.raises(
            ConnectionLostError, match=r"no connection to mb://127\.0\.0\.1:\d+: nothing listens on this port"
        ):
            await connect(f"mb://127.0.0.1:{free_port_base()}").open()

    asyncio.run(scene())


def test_after_a_loss_registration_subscriptions_services_and_log_are_restored() -> None:
    async def scene(bus: FakeBus, client: MbClient) -> None:
        await client.register("me", "a test")
        news = await client.subscribe("News.#")
        await client.serve("price.of", lambda message: b"5", priority=3)
        await client.watch_log(["warn"])
        before = bus.heard.copy()
        bus.heard.clear()
        bus.hang_up()
        await bus.until(lambda: client.reconnects == 1)
        assert sorted(bus.heard) == sorted(before)
        bus.send(deliveries(b"news.today", b"1.0.0", [ID], [b"again"], tcp_frame))
        message = await news.get(5)
        assert message is not None
        assert (message.topic, message.payload, message.id) == ("news.today", b"again", I)

    play(scene)


def test_what_was_closed_is_not_restored() -> None:
    async def scene(bus: FakeBus, client: MbClient) -> None:
        news, more = await client.subscribe("news"), await client.subscribe("NEWS")
        service = await client.serve("price.of", lambda message: b"5")
        await news.close()
        assert ("call", "system.topic.unsubscribe", b'{"action":"publish","topic":"news"}') not in bus.heard
        await more.close()
        await service.close()
        unsubscribed = [entry[2] for entry in bus.heard if entry[1] == "system.topic.unsubscribe"]
        assert unsubscribed == [b'{"action":"publish","topic":"NEWS"}', b'{"action":"request","topic":"price.of"}']
        bus.heard.clear()
        bus.hang_up()
        await bus.until(lambda: client.reconnects == 1)
        assert bus.heard == []

    play(scene)


def test_publishes_and_requests_in_flight_fail_and_calls_that_may_be_repeated_do_not() -> None:
    async def scene(bus: FakeBus, client: MbClient) -> None:
        bus.silent = True
        publish = asyncio.ensure_future(client.publish("a", b"1"))
        request = asyncio.ensure_future(client.request("a", b"2"))
        many = asyncio.ensure_future(client.publish_many("a", [b"3"] * 10))
        repeated = asyncio.ensure_future(client.heartbeat())
        await bus.until(lambda: len(bus.heard) == 13)
        bus.silent = False
        bus.hang_up()
        for lost in (publish, request, many):
            with pytest.raises(ConnectionLostError):
                await lost
        await repeated
        assert [entry for entry in bus.heard if entry[0] == "call"] == [("call", "system.heartbeat", b"{}")] * 2

    play(scene)


def test_calls_made_while_the_bus_is_away_wait_for_it() -> None:
    async def scene(bus: FakeBus, client: MbClient) -> None:
        await bus.stop()
        await bus.until(lambda: client._keeper.maybe_link() is None)
        publish = asyncio.ensure_future(client.publish("a", b"1"))
        await asyncio.sleep(0)
        assert not publish.done()
        await bus.start()
        await publish
        assert client.reconnects == 1

    play(scene)


def test_patience_with_a_bus_that_stays_away_ends() -> None:
    async def scene(bus: FakeBus, client: MbClient) -> None:
        await bus.stop()
        await bus.until(lambda: client._keeper.maybe_link() is None)
        with pytest.raises(ConnectionLostError, match="no reconnect within"):
            await client.publish("a")
        await bus.start()

    play(scene, patience_s=0.05)


def test_loss_while_restoring_is_followed_by_another_attempt() -> None:
    async def scene(bus: FakeBus, client: MbClient) -> None:
        await client.subscribe("news")
        bus.silent = True
        bus.hang_up()
        await bus.until(lambda: bus.connections == 2 and len(bus.heard) == 2)
        bus.hang_up()
        await bus.until(lambda: bus.connections == 3)
        bus.silent = False
        bus.hang_up()
        await bus.until(lambda: client.reconnects == 1)
        await client.publish("a")

    play(scene)


def test_without_reconnect_a_loss_ends_calls_and_subscriptions() -> None:
    async def scene(bus: FakeBus, client: MbClient) -> None:
        news = await client.subscribe("news")
        bus.silent = True
        call = asyncio.ensure_future(client.heartbeat())
        await bus.until(lambda: len(bus.heard) == 2)
        bus.hang_up()
        with pytest.raises(ConnectionLostError):
            await call
        with pytest.raises(ConnectionLostError):
            await anext(news)
        with pytest.raises(ConnectionLostError):
            await client.publish("a")

    play(scene, reconnect=False)


def test_closing_ends_subscriptions_and_fails_open_calls() -> None:
    async def scene(bus: FakeBus, client: MbClient) -> None:
        news, log = await client.subscribe("news"), await client.watch_log()
        bus.silent = True
        call = asyncio.ensure_future(client.publish("a"))
        await bus.until(lambda: len(bus.heard) == 3)
        await client.close()
        assert [message async for message in news] == []
        assert [message async for message in log] == []
        with pytest.raises(ConnectionLostError, match="the client was closed"):
            await call
        with pytest.raises(ConnectionLostError, match="the client was closed"):
            await client.publish("a")

    play(scene)


def test_idle_client_asks_once_whether_the_bus_is_there_and_drops_a_connection_that_stays_silent() -> None:
    async def scene(bus: FakeBus, client: MbClient) -> None:
        await bus.until(lambda: ("call", "system.heartbeat", b"{}") in bus.heard)
        assert client.unmatched == 0
        bus.silent = True
        await bus.until(lambda: bus.connections == 2)
        assert client.unmatched == 0

    play(scene, heartbeat_s=0.1)


def test_heartbeat_of_the_bus_is_answered_with_the_same_id() -> None:
    async def scene(bus: FakeBus, client: MbClient) -> None:
        bus.send(heartbeat(ID, tcp_frame))
        await bus.until(lambda: bus.heard != [])
        assert bus.heard == [("HeartbeatAnswer", ID)]

    play(scene)


def test_call_that_is_never_answered_ends_with_patience() -> None:
    async def scene(bus: FakeBus, client: MbClient) -> None:
        bus.silent = True
        with pytest.raises(RequestTimeoutError):
            await client.request("a", timeout_ms=0)
        assert bus.heard[-1][4] == 0

    play(scene, patience_s=0.1)


def test_answers_of_unknown_ids_are_counted_and_ignored() -> None:
    async def scene(bus: FakeBus, client: MbClient) -> None:
        bus.send(answer(b"a", b"1.0.0", ID, b"late", tcp_frame))
        await bus.until(lambda: client.unmatched == 1)

    play(scene)


def test_calls_made_by_a_handler_name_its_request_as_their_parent() -> None:
    async def scene(bus: FakeBus, client: MbClient) -> None:
        async def handle(message: Any) -> bytes:
            await client.publish("chained", b"1")
            await client.publish_many("chained", [b"2"])
            await client.publish("chained", b"3", confirm=False)
            return b"done"

        await client.serve("ask", handle)
        bus.heard.clear()
        bus.send(forwarded(b"Ask", b"1.0.0", ID, b"", tcp_frame))
        await bus.until(lambda: len(bus.heard) == 4)
        assert [entry[3] for entry in bus.heard[:3]] == [ID] * 3
        assert bus.heard[3] == (b"response", b"Ask", ID, None, None, b"done")
        await client.publish("alone")
        assert bus.heard[4][3] is None

    play(scene)


def test_frame_beyond_the_clients_limit_ends_the_connection() -> None:
    async def scene(bus: FakeBus, client: MbClient) -> None:
        bus.send(b"\x7f\xff\xff\xff")
        await bus.until(lambda: bus.connections == 2)

    play(scene, frame_limit=1000)
