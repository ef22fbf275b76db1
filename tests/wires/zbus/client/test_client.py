"""The zbus client against the started server."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

from raceway.client import PUBSUB, Delivery, ZbusClient, connect
from raceway.client import sync as blocking
from raceway.errors import ConfigError, ConnectionLostError, MalformedError, RemoteError, RequestTimeoutError
from tests.rigs.server import Server, running_server
from tests.rigs.zbus_wire import dial_server, zbus_port

Scene = Callable[[ZbusClient, ZbusClient], Awaitable[None]]
numbers = itertools.count()


def fresh_queue() -> str:
    return f"client{next(numbers)}"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as running:
        yield running


@pytest.fixture
def url(server: Server) -> str:
    return f"zbus://127.0.0.1:{zbus_port(server)}"


@pytest.fixture
def play(url: str) -> Callable[[Scene], None]:
    """Runs a scene between two clients of the server."""

    def run(scene: Scene) -> None:
        async def main() -> None:
            async with connect(url, wire="zbus") as one, connect(url, wire="zbus") as two, asyncio.timeout(20):
                await scene(one, two)

        asyncio.run(main())

    return run


async def refused(call: Coroutine[Any, Any, Any]) -> tuple[str, str]:
    with pytest.raises(RemoteError) as raised:
        await call
    return raised.value.reported, raised.value.text


async def got(consumer: Any, timeout_s: float = 10) -> Delivery:
    delivery = await consumer.get(timeout_s)
    assert isinstance(delivery, Delivery)
    return delivery


# ---- queues ----------------------------------------------------------------------------------------------------------


def test_what_is_published_is_consumed_in_order_with_its_headers(play: Callable[[Scene], None]) -> None:
    async def scene(one: ZbusClient, two: ZbusClient) -> None:
        queue = fresh_queue()
        await one.create_queue(queue)
        await one.publish(queue, {"id": 7}, headers={"x-shop": "Nörd"})
        await one.publish(queue, b"\x00\xff", confirm=False)
        assert await one.publish_many(queue, ["quiet"], topic="any", confirm=False) == 1
        async with await two.consume(queue) as orders:
            first, second, third = await got(orders), await got(orders), await got(orders)
        assert (first.queue, first.json(), first.headers["x-shop"], first.status) == (queue, {"id": 7}, "Nörd", 200)
        assert len(first.id) == 36
        assert not first.is_request
        assert second.payload == b"\x00\xff"
        assert (third.text, third.topic) == ("quiet", "any")

    play(scene)


def test_many_are_published_together(play: Callable[[Scene], None]) -> None:
    async def scene(one: ZbusClient, two: ZbusClient) -> None:
        queue = fresh_queue()
        await one.create_queue(queue)
        assert await one.publish_many(queue, (f"{number}" for number in range(9000))) == 9000
        (row,) = [row for row in await two.queues() if row.name == queue]
        assert (row.unconsumed_msg_count, row.mode, row.is_pubsub, row.consumer_count) == (9000, 1, False, 0)
        async with await two.consume(queue) as consumer:
            assert [(await got(consumer)).text for _ in range(1000)] == [f"{number}" for number in range(1000)]

    play(scene)


def test_messages_that_nobody_asked_for_stay_in_the_queue(play: Callable[[Scene], None]) -> None:
    async def scene(one: ZbusClient, two: ZbusClient) -> None:
        queue = fresh_queue()
        await one.create_queue(queue)
        await one.publish_many(queue, ["a", "b", "c"])
        async with await one.consume(queue) as consumer:
            assert (await got(consumer)).text == "a"
        async with await two.consume(queue) as consumer:
            assert [(await got(consumer)).text for _ in range(2)] == ["b", "c"]

    play(scene)


def test_a_consumer_that_gave_up_waiting_keeps_the_late_message_for_the_next_caller(
    play: Callable[[Scene], None],
) -> None:
    """D19: the armed consume is never abandoned."""

    async def scene(one: ZbusClient, two: ZbusClient) -> None:
        queue = fresh_queue()
        await one.create_queue(queue)
        async with await two.consume(queue) as consumer:
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await consumer.get(0.02)
                assert consumer.armed
            await one.publish_many(queue, ["late", "later"])
            while not consumer.held:  # noqa: ASYNC110 - it comes while nobody waits
                await asyncio.sleep(0.005)
            assert [(await got(consumer)).text, (await got(consumer)).text] == ["late", "later"]

    play(scene)


def test_a_reader_cancelled_after_it_was_woken_leaves_the_message_to_the_next(
    play: Callable[[Scene], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(one: ZbusClient, two: ZbusClient) -> None:
        queue = fresh_queue()
        await one.create_queue(queue)
        async with await two.consume(queue) as consumer:
            first = asyncio.create_task(consumer.get())
            await asyncio.sleep(0)
            second, wake = asyncio.create_task(got(consumer)), consumer._inbox._wake

            def wake_and_cancel() -> None:
                wake()
                monkeypatch.undo()
                first.cancel()

            monkeypatch.setattr(consumer._inbox, "_wake", wake_and_cancel)
            await one.publish(queue, "once")
            assert (await second).text == "once"
            assert first.cancelled()

    play(scene)


def test_readers_that_come_and_go_lose_nothing(play: Callable[[Scene], None]) -> None:
    async def scene(one: ZbusClient, two: ZbusClient) -> None:
        queue, came = fresh_queue(), []
        await one.create_queue(queue)
        async with await two.consume(queue) as consumer:
            for number in range(100):
                reader = asyncio.create_task(consumer.get())
                await one.publish(queue, f"{number}")
                reader.cancel()
                came += [each.text for each in await asyncio.gather(reader, return_exceptions=True)
                         if isinstance(each, Delivery)]  # fmt: skip
            while len(came) < 100:
                came.append((await got(consumer)).text)
        assert came == [f"{number}" for number in range(100)]

    play(scene)


def test_readers_of_one_consumer_share_its_messages(play: Callable[[Scene], None]) -> None:
    async def scene(one: ZbusClient, two: ZbusClient) -> None:
        queue = fresh_queue()
        await one.create_queue(queue)
        async with await two.consume(queue) as consumer:
            readers = [asyncio.create_task(got(consumer)) for _ in range(5)]
            await one.publish_many(queue, "abcde")
            assert sorted([(await reader).text for reader in readers]) == list("abcde")

    play(scene)


def test_refusals_carry_status_and_text(play: Callable[[Scene], None]) -> None:
    async def scene(one: ZbusClient, two: ZbusClient) -> None:
        missing = ("404", "MQ(nosuch) Not Found")
        assert await refused(one.publish("nosuch", "x")) == missing
        assert await refused(one.publish_many("nosuch", ["x", "y"])) == missing
        assert await refused(one.request("nosuch", "x")) == missing
        assert await refused(one.serve("nosuch", lambda delivery: b"")) == missing
        assert await refused(one.consume("nosuch", ["*"])) == missing
        async with await one.consume("nosuch") as consumer:
            assert await refused(consumer.get(10)) == missing
        queue = fresh_queue()
        await one.create_queue(queue)
        await one.create_queue(queue)
        assert (await refused(one.create_queue(queue, PUBSUB)))[0] == "400"
        with pytest.raises(MalformedError):
            await one.publish(queue, "x", headers={"x-a": "two\r\nlines"})

    play(scene)


def test_a_token_opens_a_queue(url: str) -> None:
    async def main() -> None:
        queue = fresh_queue()
        async with connect(url, wire="zbus") as stranger, connect(url, wire="zbus", token="open sesame") as friend:
            await stranger.create_queue(queue, token="open sesame")
            assert await refused(stranger.publish(queue, "x")) == ("403", f"MQ({queue}) forbidden")
            await friend.publish(queue, "x")
            async with await stranger.consume(queue) as consumer:
                assert (await refused(consumer.get(10)))[0] == "403"
            async with await friend.consume(queue) as consumer:
                delivery = await got(consumer)
            assert (delivery.text, "token" in delivery.headers) == ("x", False)

    asyncio.run(main())


def test_subscribers_get_the_topics_they_want_from_the_moment_they_consume(play: Callable[[Scene], None]) -> None:
    async def scene(one: ZbusClient, two: ZbusClient) -> None:
        queue = fresh_queue()
        await one.create_queue(queue, PUBSUB)
        async with await two.consume(queue, ["sse", "hk"]) as some, await two.consume(queue, ["*"]) as everything:
            for topic in ("hk", "nyse", "sse"):
                await one.publish(queue, topic, topic=topic)
            assert [(await got(some)).topic for _ in range(2)] == ["hk", "sse"]
            assert [(await got(everything)).topic for _ in range(3)] == ["hk", "nyse", "sse"]

    play(scene)


# ---- requests --------------------------------------------------------------------------------------------------------


def test_requests_are_answered_many_at_a_time(play: Callable[[Scene], None]) -> None:
    async def scene(one: ZbusClient, two: ZbusClient) -> None:
        queue = fresh_queue()
        await one.create_queue(queue)
        together = asyncio.Barrier(20)

        async def handle(delivery: Delivery) -> str:
            await together.wait()
            return delivery.text * 2

        async with await one.serve(queue, handle):
            answers = await asyncio.gather(*(two.request(queue, f"{number}") for number in range(20)))
        assert answers == [f"{number}{number}".encode() for number in range(20)]

    play(scene)


def test_a_failing_service_answers_500_or_what_it_says(play: Callable[[Scene], None]) -> None:
    def handle(delivery: Delivery) -> bytes:
        if delivery.text == "taken":
            raise RemoteError("409", "seat is taken")
        if delivery.text == "odd":
            raise RemoteError("NO_ROUTE_FOUND", "of another wire")
        raise ValueError("bad seat")

    async def scene(one: ZbusClient, two: ZbusClient) -> None:
        queue = fresh_queue()
        await one.create_queue(queue)
        async with await one.serve(queue, handle):
            assert await refused(two.request(queue, "x")) == ("500", "ValueError: bad seat")
            assert await refused(two.request(queue, "taken")) == ("409", "seat is taken")
            assert await refused(two.request(queue, "odd")) == ("500", "of another wire")

    play(scene)


def test_a_consumer_answers_by_hand(play: Callable[[Scene], None]) -> None:
    async def scene(one: ZbusClient, two: ZbusClient) -> None:
        queue = fresh_queue()
        await one.create_queue(queue)
        asking = asyncio.create_task(two.request(queue, "1+1", headers={"x-unit": "m"}))
        async with await one.consume(queue) as consumer:
            delivery = await got(consumer)
            assert (delivery.is_request, delivery.headers["x-unit"]) == (True, "m")
            assert delivery.reply_to
            await delivery.answer("2")
            assert await asking == b"2"

    play(scene)


def test_a_request_that_nobody_answers_ends_in_time(play: Callable[[Scene], None]) -> None:
    async def scene(one: ZbusClient, two: ZbusClient) -> None:
        queue = fresh_queue()
        await one.create_queue(queue)
        with pytest.raises(RequestTimeoutError):
            await two.request(queue, "x", timeout_ms=50)
        async with await one.consume(queue) as consumer:
            await (await got(consumer)).answer("too late")
        await two.heartbeat()

    play(scene)


# ---- connections -----------------------------------------------------------------------------------------------------


def test_a_lost_connection_comes_back_and_so_do_consumers_and_services() -> None:
    async def scene(server: Server) -> None:
        url = f"zbus://127.0.0.1:{zbus_port(server)}"
        async with connect(url, wire="zbus", backoff_s=0.02) as one, connect(url, wire="zbus", backoff_s=0.02) as two:
            await one.create_queue("kept")
            await one.create_queue("service")
            await one.create_queue("ticks", PUBSUB)
            kept, ticks = await two.consume("kept"), await two.consume("ticks", ["hk"])
            await two.serve("service", lambda delivery: delivery.text.upper())
            with pytest.raises(TimeoutError):
                await kept.get(0.02)
            await one.publish("ticks", "before", topic="hk")
            while not ticks.held:  # noqa: ASYNC110 - it comes while nobody waits, so nothing is asked for at the loss
                await asyncio.sleep(0.005)
            server.kill()
            with pytest.raises(ConnectionLostError):
                async with connect(url, wire="zbus", reconnect=False):
                    raise AssertionError("nobody should be there")
            await asyncio.to_thread(server.start)
            await one.publish("kept", "after")
            assert (await got(kept)).text == "after"
            assert await one.request("service", "again") == b"AGAIN"
            while not ticks.reconnects:  # noqa: ASYNC110 - its own connection comes back when it does
                await asyncio.sleep(0.005)
            await one.publish("ticks", "9.80", topic="hk")
            assert [(await got(ticks)).text, (await got(ticks)).text] == ["before", "9.80"]
            assert one.reconnects == 1

    with running_server() as server:
        asyncio.run(scene(server))


def test_without_reconnect_a_loss_is_told_to_everybody() -> None:
    async def scene(server: Server) -> None:
        url = f"zbus://127.0.0.1:{zbus_port(server)}"
        async with connect(url, wire="zbus", reconnect=False) as client:
            await client.create_queue("q")
            consumer = await client.consume("q")
            reading = asyncio.create_task(consumer.get())
            asking = asyncio.create_task(client.request("q", "x", timeout_ms=20_000))
            await client.publish("q", "x")
            assert await reading is not None
            reading = asyncio.create_task(consumer.get())
            await client.heartbeat()
            assert (await reading) is not None
            reading = asyncio.create_task(consumer.get())
            server.kill()
            for task in (reading, asking):
                with pytest.raises(ConnectionLostError):
                    await task

    with running_server() as server:
        asyncio.run(scene(server))


def test_closing_ends_consumers_and_fails_open_calls(url: str) -> None:
    async def main() -> None:
        queue = fresh_queue()
        client = await connect(url, wire="zbus").open()
        await client.create_queue(queue)
        consumer = await client.consume(queue)
        reading = asyncio.create_task(consumer.get())
        async with connect(url, wire="zbus") as other:
            await other.create_queue("never")
        asking = asyncio.create_task(client.request("never"))
        await client.heartbeat()
        await client.close()
        await client.close()
        assert await reading is None
        with pytest.raises(ConnectionLostError):
            await asking

    asyncio.run(main())


def test_heartbeats_are_sent_while_nothing_happens(server: Server) -> None:
    async def main() -> None:
        beats = asyncio.Event()

        async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for _ in range(2):
                assert b"cmd: heartbeat\r\n" in await reader.readuntil(b"\r\n\r\n")
            beats.set()
            writer.close()

        async with await asyncio.start_server(hear, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            async with (
                connect(f"zbus://127.0.0.1:{port}", wire="zbus", heartbeat_s=0.02, reconnect=False),
                asyncio.timeout(10),
            ):
                await beats.wait()

    asyncio.run(main())


def test_a_broker_that_breaks_the_framing_is_left(server: Server) -> None:
    async def main() -> None:
        async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n")
            await reader.read()
            writer.close()

        async with await asyncio.start_server(babble, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            async with connect(f"zbus://127.0.0.1:{port}", wire="zbus", reconnect=False) as client, asyncio.timeout(10):
                with pytest.raises(ConnectionLostError):
                    await client.publish("q", "x")

    asyncio.run(main())


@pytest.mark.parametrize("url", ["zbus://", "zbus://host:port", "zbus+track://", "zbus+track://a:1;b:many"])
def test_urls_that_cannot_be_used_are_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        connect(url)


def test_a_client_made_of_plain_sockets_reads_what_ours_wrote(server: Server, play: Callable[[Scene], None]) -> None:
    async def scene(one: ZbusClient, two: ZbusClient) -> None:
        queue = fresh_queue()
        await one.create_queue(queue)
        await one.publish(queue, "plain")

        def consume() -> bytes:
            with dial_server(server) as peer:
                peer.send("consume", mq=queue, msgid="c-1")
                return peer.reply("c-1").body

        assert await asyncio.to_thread(consume) == b"plain"

    play(scene)


# ---- without asyncio -------------------------------------------------------------------------------------------------


def test_the_blocking_client_has_the_same_verbs(url: str) -> None:
    queue, service = fresh_queue(), fresh_queue()
    with blocking.connect(url, wire="zbus") as one, blocking.connect(url, wire="zbus") as two:
        one.create_queue(queue)
        one.create_queue(service)
        one.publish(queue, "a")
        assert one.publish_many(queue, ["b", "c"]) == 2
        with two.consume(queue) as consumer:
            assert [delivery.text for delivery in itertools.islice(consumer, 3)] == ["a", "b", "c"]
            with pytest.raises(TimeoutError):
                consumer.get(0.02)
            one.publish(queue, "late")
            late = consumer.get(10)
            assert late is not None
            assert late.text == "late"
        with two.serve(service, lambda delivery: delivery.text + "!"):
            assert one.request(service, "hi", timeout_ms=5000) == b"hi!"
        with two.consume(service) as consumer, pytest.raises(RequestTimeoutError):
            one.request(service, "by hand", timeout_ms=20)
        assert {row.name for row in one.queues()} >= {queue, service}
        one.heartbeat()
