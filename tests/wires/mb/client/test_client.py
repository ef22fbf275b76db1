"""The client against the started server, over all four transports."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from raceway.client import MbClient, Message, Receipt, connect
from raceway.errors import ConfigError, ConnectionLostError, RemoteError
from tests.rigs.mb_wire import fresh_topic
from tests.rigs.server import Server, running_server

Scene = Callable[[MbClient, MbClient], Awaitable[None]]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("authority") / "ca.pem"
    authority.cert_pem.write_to_path(file)
    return file


@pytest.fixture(scope="module")
def server(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("tls")
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    with running_server(
        RACEWAY_LISTEN__TLS_CERTIFICATE=folder / "cert.pem", RACEWAY_LISTEN__TLS_KEY=folder / "key.pem"
    ) as running:
        yield running


@pytest.fixture(params=["mb", "mb+ws", "mb+tls", "mb+wss"])
def url(request: pytest.FixtureRequest, server: Server) -> str:
    scheme: str = request.param
    doors: dict[str, Any] = {"mb": "tcp", "mb+ws": "websocket", "mb+tls": "tls", "mb+wss": "wss"}
    return f"{scheme}://127.0.0.1:{server.port(doors[scheme])}"


@pytest.fixture
def play(url: str, ca_file: Path) -> Callable[[Scene], None]:
    """Runs a scene between two clients of the server."""

    def run(scene: Scene) -> None:
        async def main() -> None:
            async with (
                connect(url, wire="mb", ca_file=str(ca_file)) as one,
                connect(url, wire="mb", ca_file=str(ca_file)) as two,
            ):
                async with asyncio.timeout(30):
                    await scene(one, two)

        asyncio.run(main())

    return run


def test_publish_reaches_the_subscriber_and_is_confirmed(play: Callable[[Scene], None]) -> None:
    async def scene(one: MbClient, two: MbClient) -> None:
        async with await one.subscribe("Orders.#") as orders:
            await two.publish("orders.Created", {"id": 7}, version="2.1.0")
            message = await orders.get(5)
            assert message is not None
            assert (message.topic, message.json(), message.version) == ("orders.Created", {"id": 7}, "2.1.0")
            await two.publish("orders", "später", confirm=False)
            message = await orders.get(5)
            assert message is not None
            assert message.text == "später"

    play(scene)


def test_many_publishes_arrive_all_and_in_order(play: Callable[[Scene], None]) -> None:
    async def scene(one: MbClient, two: MbClient) -> None:
        numbers = await one.subscribe("numbers")
        assert await two.publish_many("numbers", (b"%d" % n for n in range(10_000))) == 10_000
        assert await two.publish_many("numbers", [b"last"], confirm=False) == 1
        received = [(await anext(numbers)).payload for _ in range(10_001)]
        assert received == [*(b"%d" % n for n in range(10_000)), b"last"]
        assert numbers.dropped == 0

    play(scene)


def test_publish_nobody_wants_says_so_in_its_receipt(play: Callable[[Scene], None]) -> None:
    async def scene(one: MbClient, two: MbClient) -> None:
        topic = fresh_topic()
        assert await one.publish(topic) == Receipt(topic=topic, stored=False, no_route=True)
        assert await one.publish(topic, confirm=False) == Receipt(topic=topic, stored=False, no_route=None)
        published = await one.publish_many(topic, [b"1", b"2", b"3"])
        assert (published, published.no_route) == (3, 3)
        async with await two.subscribe(topic):
            assert await one.publish(topic) == Receipt(topic=topic, stored=True, no_route=False)
            published = await one.publish_many(topic, [b"4", b"5"])
            assert (published, published.no_route) == (2, 0)

    play(scene)


def test_publish_that_is_refused_still_raises(play: Callable[[Scene], None]) -> None:
    async def scene(one: MbClient, two: MbClient) -> None:
        with pytest.raises(RemoteError, match="system"):
            await one.publish("system.nothing")
        with pytest.raises(RemoteError, match="system"):
            await one.publish_many("system.nothing", [b"1", b"2"])

    play(scene)


def test_two_subscriptions_of_one_client_each_get_the_message_once(play: Callable[[Scene], None]) -> None:
    async def scene(one: MbClient, two: MbClient) -> None:
        exact, wild, other = [await one.subscribe(pattern) for pattern in ("pair.a", "pair.#", "pair.b")]
        await two.publish_many("pair.a", [b"1", b"2"])
        for reader in (exact, wild):
            assert [(await anext(reader)).payload for _ in range(2)] == [b"1", b"2"]
        await exact.close()
        await two.publish("pair.b", b"3")
        assert (await anext(wild)).payload == (await anext(other)).payload == b"3"

    play(scene)


def test_request_is_answered_by_a_service(play: Callable[[Scene], None]) -> None:
    async def scene(one: MbClient, two: MbClient) -> None:
        topic = fresh_topic()
        async with await one.serve(topic, lambda message: {"price": len(message.payload)}, priority=2):
            assert await two.request(topic.upper(), b"apple", timeout_ms=5000) == b'{"price":5}'
        with pytest.raises(RemoteError, match="NO_ROUTE_FOUND"):
            await two.request(topic)

    play(scene)


def test_failure_of_a_service_reaches_the_requester_typed(play: Callable[[Scene], None]) -> None:
    async def scene(one: MbClient, two: MbClient) -> None:
        def refuse(message: Message) -> None:
            raise RemoteError("NOT_FOR_SALE", "no apples", {"fruit": "apple"})

        topic = fresh_topic()
        await one.serve(topic, refuse)
        with pytest.raises(RemoteError) as caught:
            await two.request(topic)
        assert caught.value.args == ("NOT_FOR_SALE", "no apples", {"fruit": "apple"})

    play(scene)


def test_request_nobody_answers_in_time_ends_with_the_brokers_timeout(play: Callable[[Scene], None]) -> None:
    async def scene(one: MbClient, two: MbClient) -> None:
        topic = fresh_topic()
        await one.register(topic[:36], "answers too late")
        await one.serve(topic, lambda message: asyncio.sleep(5))
        sleeper = next(service for service in await two.services() if service.name == topic[:36])
        with pytest.raises(RemoteError) as caught:
            await two.request(topic, timeout_ms=50)
        assert (caught.value.reported, caught.value.details) == ("TIMEOUT", {"targetServiceId": sleeper.id})

    play(scene)


def test_thousand_requests_in_flight_get_each_its_own_answer(play: Callable[[Scene], None]) -> None:
    async def scene(one: MbClient, two: MbClient) -> None:
        topic = fresh_topic()
        await one.serve(topic, lambda message: message.payload)
        answers = await asyncio.gather(*(two.request(topic, b"%d" % n) for n in range(1000)))
        assert answers == [b"%d" % n for n in range(1000)]

    play(scene)


def test_the_bus_tells_about_itself(play: Callable[[Scene], None]) -> None:
    async def scene(one: MbClient, two: MbClient) -> None:
        topic = fresh_topic()
        await one.register(topic[:36], "tells")
        await one.subscribe("told.#")
        await one.serve(topic, lambda message: None, priority=1.5)
        own = {(row.action, row.topic, row.priority) for row in await one.subscriptions()}
        assert own == {("publish", "told.#", None), ("request", topic, 1.5)}
        teller = next(service for service in await two.services() if service.name == topic[:36])
        assert len(await two.subscriptions(teller.id)) == 2
        row = next(row for row in await two.topics() if row.topic == topic)
        assert [(each.service_id, each.priority) for each in row.subscribers] == [(teller.id, 1.5)]
        metrics = await two.metrics()
        assert metrics["connection.active"] >= 2
        full = await two.metrics(show_all=True, filter_by={"serviceid": teller.id})
        assert {metric["type"] for metric in full.values()} == {"rate", "uptime"}
        await two.heartbeat()

    play(scene)


def test_log_and_audit_can_be_watched(play: Callable[[Scene], None]) -> None:
    async def scene(one: MbClient, two: MbClient) -> None:
        log, audit = await one.watch_log(["error"], "NO_ROUTE"), await one.audit()
        with pytest.raises(RemoteError):
            await two.request("nobody.there", b"watched")
        record = await log.get(5)
        assert record is not None
        assert record.json()["message"] == "[NO_ROUTE_FOUND] No subscribers for topic nobody.there"
        payloads = [(await anext(audit)).json()["message"]["payload"] for _ in range(2)]
        assert "watched" in payloads
        await log.close()
        await audit.close()

    play(scene)


def test_restart_of_the_bus_is_survived(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        async with connect(f"mb+ws://127.0.0.1:{server.port('websocket')}", wire="mb", backoff_s=0.02) as client:
            news = await client.subscribe("news")
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await client.publish("news", b"we are back")
            message = await news.get(10)
            assert message is not None
            assert message.payload == b"we are back"
            assert client.reconnects == 1

    with running_server(tmp_path / "data") as server:
        asyncio.run(scene(server))


def test_certificate_of_a_stranger_is_refused(server: Server) -> None:
    async def scene(url: str) -> None:
        with pytest.raises(ConnectionLostError, match=r"(?i)certificate"):
            await connect(url).open()

    asyncio.run(scene(f"mb+tls://127.0.0.1:{server.port('tls')}"))
    asyncio.run(scene(f"mb+wss://127.0.0.1:{server.port('wss')}"))


def test_certificate_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ca_file"):
        asyncio.run(connect("mb+tls://127.0.0.1:1", ca_file=str(tmp_path / "absent.pem")).open())
