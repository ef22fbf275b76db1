"""The Danube client of the package against a started server."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trustme

from raceway.client import DanubeClient, FailurePolicy, Receipt, connect, sync
from raceway.errors import ConfigError, ConnectionLostError, InvalidValueError, NameInvalidError, RemoteError
from raceway.model.hashing import fnv1a64
from raceway.wires.danube.client.consumer import DanubeMessage
from tests.rigs.danube_tokens import ISSUER, SECRET, token
from tests.rigs.server import Server, running_server

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(RACEWAY_BROKER__SUBSCRIPTIONS__FAILURE__BASE_REDELIVERY_DELAY_MS=10) as server:
        yield server


@pytest.fixture
def topic() -> str:
    return f"client.t{next(_numbers)}"


def url(server: Server) -> str:
    return f"danube://127.0.0.1:{server.port('danube')}"


def on_the_bus(server: Server, scene: Callable[[DanubeClient], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        async with asyncio.timeout(30), connect(url(server), wire="danube") as bus:
            await scene(bus)

    asyncio.run(play())


def test_client_with_a_name_shows_it_on_both_ends(server: Server, topic: str) -> None:
    async def play() -> None:
        async with asyncio.timeout(30), connect(url(server), wire="danube", name="scales") as bus:
            async with await bus.consume(topic, in_flight=5) as consumer:
                assert consumer.subscription == "scales"
                assert consumer.name.startswith("scales-")
                assert await bus.publish(topic, b"1") == Receipt(topic=f"/default/{topic}")
                (message,) = await take(consumer, 1)
                assert message.producer == "scales"
            assert await bus.in_flight(topic, "scales") is None, "that of the consumer, not of the subscription"

    asyncio.run(play())


def test_new_subscription_begins_where_it_is_told(server: Server, topic: str) -> None:
    async def scene(bus: DanubeClient) -> None:
        await bus.publish_many(topic, [b"0", b"1", b"2"])
        for start, expected in (("first", b"0"), (1, b"1")):
            async with await bus.consume(topic, name=f"from.{start}", start=start) as consumer:
                (message,) = await take(consumer, 1)
                assert message.payload == expected

    on_the_bus(server, scene)


async def take(consumer: Any, count: int) -> list[DanubeMessage]:
    messages = []
    for _ in range(count):
        message = await consumer.get(10)
        await consumer.ack(message)
        messages.append(message)
    return messages


def test_what_is_published_is_received_and_done_when_acknowledged(server: Server, topic: str) -> None:
    async def scene(bus: DanubeClient) -> None:
        producer = await bus.producer(topic, "till")
        async with await bus.subscribe(topic, "billing", name="first") as orders:
            await producer.send({"id": 7}, key="k", attributes={"a": "ä"})
            message = await orders.get(10)
            assert message is not None
            assert (message.json(), message.key, message.attributes) == ({"id": 7}, "k", {"a": "ä"})
            assert (message.topic, message.offset, message.producer) == (f"/default/{topic}", 0, "till")
            assert message.id == f"/default/{topic}@0"
            await orders.ack(message)
            await producer.send("second")
        async with await bus.subscribe(topic, "billing", name="first") as orders:
            [message] = await take(orders, 1)
            assert message.text == "second"
            with pytest.raises(TimeoutError):
                await orders.get(0.1)

    on_the_bus(server, scene)


def test_publish_makes_the_topic_and_many_go_together(server: Server, topic: str) -> None:
    async def scene(bus: DanubeClient) -> None:
        await bus.publish(topic, b"first")
        async with await bus.subscribe(f"/default/{topic}", "s") as consumer:
            sent = [b"%d" % number for number in range(10_000)]
            assert await bus.publish_many(topic, sent) == 10_000
            got = await take(consumer, 200)
            assert [message.payload for message in got] == sent[:200]
            assert [message.offset for message in got] == list(range(1, 201))

    on_the_bus(server, scene)


def test_messages_larger_than_every_window_pass(server: Server, topic: str) -> None:
    async def scene(bus: DanubeClient) -> None:
        await bus.publish(topic, b"")
        async with await bus.subscribe(topic, "s") as consumer:
            sent = [os.urandom(4_000_000) for _ in range(5)]
            assert await bus.publish_many(topic, sent) == 5
            assert [message.payload for message in await take(consumer, 5)] == sent

    on_the_bus(server, scene)


def test_a_topic_that_is_not_reliable_is_taken_as_it_is(server: Server, topic: str) -> None:
    async def scene(bus: DanubeClient) -> None:
        await bus.producer(topic, reliable=False)
        async with await bus.subscribe(topic, "s") as consumer:
            await bus.publish(topic, b"x")
            [message] = await take(consumer, 1)
            assert (message.payload, message.offset) == (b"x", 0)

    on_the_bus(server, scene)


def test_what_is_not_wanted_now_comes_again(server: Server, topic: str) -> None:
    async def scene(bus: DanubeClient) -> None:
        await bus.publish(topic)
        async with await bus.subscribe(topic, "s") as consumer:
            await bus.publish(topic, b"x")
            first = await consumer.get(10)
            assert first is not None
            await consumer.nack(first, delay_ms=0, reason="later")
            assert await take(consumer, 1) == [first]

    on_the_bus(server, scene)


def test_a_subscription_begins_where_it_says_on_a_topic_that_it_makes(server: Server, topic: str) -> None:
    async def scene(bus: DanubeClient) -> None:
        with pytest.raises(RemoteError, match="not found"):
            await bus.subscribe(topic, "early", start="first")
        early = await bus.subscribe(topic, "early", create_topic=True)
        await bus.publish_many(topic, [b"0", b"1", b"2"])
        middle = datetime.now(UTC)
        await bus.publish_many(topic, [b"3", b"4"])
        assert [message.text for message in await take(early, 5)] == ["0", "1", "2", "3", "4"]
        for start, wanted in (("first", 0), (2, 2), (middle.isoformat(), 3)):
            late = await bus.subscribe(topic, f"late-{start}", start=start)
            assert [message.offset for message in await take(late, 5 - wanted)] == list(range(wanted, 5))
        with pytest.raises(RemoteError) as caught:
            await bus.subscribe(topic, "wrong", start="yesterday")
        assert caught.value.reported == "INVALID_ARGUMENT"

    on_the_bus(server, scene)


def test_a_consumer_says_how_many_messages_it_wants_at_once(server: Server, topic: str) -> None:
    async def scene(bus: DanubeClient) -> None:
        one = await bus.subscribe(topic, "s", type="shared", in_flight=1, create_topic=True)
        await bus.publish_many(topic, [b"%d" % number for number in range(30)])
        first = await one.get(10)
        assert first is not None
        with pytest.raises(TimeoutError):
            await one.get(0.2)
        other = await bus.subscribe(topic, "s", type="shared", in_flight=25)
        assert [(await other.get(10)).offset for _ in range(25)] == list(range(1, 26))  # type: ignore[union-attr]
        await one.ack(first)
        message = await one.get(10)
        assert message is not None
        assert message.offset == 26

    on_the_bus(server, scene)


def test_partitions_are_one_topic(server: Server, topic: str) -> None:
    async def scene(bus: DanubeClient) -> None:
        producer = await bus.producer(topic, "p", partitions=3)
        async with await bus.subscribe(topic, "s") as consumer:
            for key in ("a", "b", "ключ"):
                await producer.send(key, key=key)
            got = {message.text: message.topic for message in await take(consumer, 3)}
            assert got == {key: f"/default/{topic}-part-{fnv1a64(key.encode()) % 3}" for key in got}
            await bus.publish_many(topic, [b"1", b"2", b"3"])
            assert {message.topic[-1] for message in await take(consumer, 3)} == {"0", "1", "2"}

    on_the_bus(server, scene)


@pytest.mark.parametrize("type", ["shared", "failover", "key_shared"])
def test_several_consumers_of_one_subscription(server: Server, topic: str, type: str) -> None:
    async def scene(bus: DanubeClient) -> None:
        await bus.publish(topic)
        consumers = [await bus.subscribe(topic, "s", type=type, name=f"c{number}") for number in range(2)]
        for number in range(20):
            await bus.publish(topic, b"%d" % number, key=str(number))
        came: set[bytes] = set()
        while len(came) < 20:
            done, waiting = await asyncio.wait(
                [asyncio.ensure_future(take(consumer, 1)) for consumer in consumers],
                return_when=asyncio.FIRST_COMPLETED,
            )
            came |= {message.payload for each in done for message in each.result()}
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    on_the_bus(server, scene)


def test_refusals_name_the_status(server: Server, topic: str) -> None:
    async def scene(bus: DanubeClient) -> None:
        with pytest.raises(RemoteError) as refused:
            await bus.subscribe(topic, "s")
        assert refused.value.reported == "NOT_FOUND"
        with pytest.raises(RemoteError) as refused:
            await bus.publish("raceway.rejected", b"x")
        assert refused.value.reported == "INVALID_ARGUMENT"
        with pytest.raises(RemoteError) as refused:
            await bus.publish(topic, b"x" * 5_000_000)
        assert refused.value.reported == "INVALID_ARGUMENT"
        await bus.publish(topic)
        async with await bus.subscribe(topic, "s", name="a"):
            with pytest.raises(RemoteError) as refused:
                await bus.subscribe(topic, "s", name="b")
            assert refused.value.reported == "PERMISSION_DENIED"
        with pytest.raises(NameInvalidError):
            await bus.publish("no topic", b"x")
        with pytest.raises(ConfigError, match="key_shared"):
            await bus.subscribe(topic, "s", type="private")

    on_the_bus(server, scene)


def test_a_subscription_is_ended_when_nobody_needs_it(server: Server, topic: str) -> None:
    async def scene(bus: DanubeClient) -> None:
        await bus.publish(topic)
        async with await bus.subscribe(topic, "s"):
            pass
        await bus.unsubscribe(topic, "s")
        with pytest.raises(RemoteError) as refused:
            await bus.unsubscribe(topic, "s")
        assert refused.value.reported == "NOT_FOUND"

    on_the_bus(server, scene)


def test_consumers_and_producers_go_on_after_a_restart() -> None:
    async def play(server: Server) -> None:
        async with asyncio.timeout(60), connect(url(server), wire="danube", backoff_s=0.05) as bus:
            producer = await bus.producer("orders", "p")
            async with await bus.subscribe("orders", "s") as consumer:
                await producer.send(b"1")
                await producer.send(b"2")
                await take(consumer, 1)
                assert (await consumer.get(10)) is not None  # not acknowledged
                await asyncio.to_thread(server.restart)
                await _until(lambda: producer.send(b"3"))
                assert [message.payload for message in await take(consumer, 2)] == [b"2", b"3"]
                assert bus.reconnects == 1

    with running_server() as server:
        asyncio.run(play(server))


async def _until(call: Callable[[], Awaitable[object]]) -> None:
    """Repeat a publish that a lost connection has swallowed, or that came while the bus was stopping."""
    while True:
        try:
            await call()
            return
        except ConnectionLostError:
            await asyncio.sleep(0)
        except RemoteError as error:
            if error.reported != "UNAVAILABLE":
                raise


def test_without_reconnecting_a_loss_ends_the_consumer() -> None:
    async def play(server: Server) -> None:
        async with asyncio.timeout(30), connect(url(server), wire="danube", reconnect=False) as bus:
            await bus.publish("orders")
            consumer = await bus.subscribe("orders", "s")
            await asyncio.to_thread(server.kill)
            with pytest.raises(ConnectionLostError):
                await consumer.get(10)

    with running_server() as server:
        asyncio.run(play(server))


def test_no_bus_is_a_lost_connection(server: Server) -> None:
    with pytest.raises(ConnectionLostError):
        asyncio.run(connect("danube://127.0.0.1:1").open())


def test_over_tls_with_a_token(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "chain.pem")
    settings: dict[str, Any] = {
        "RACEWAY_LISTEN__TLS_CERTIFICATE": tmp_path / "chain.pem", "RACEWAY_LISTEN__TLS_KEY": tmp_path / "key.pem",
        "RACEWAY_SECURITY__ENABLED": "true", "RACEWAY_SECURITY__TOKEN_SECRET": SECRET,
        "RACEWAY_SECURITY__TOKEN_ISSUER": ISSUER, "RACEWAY_SECURITY__SUPER_ADMINS": "root",
    }  # fmt: skip
    with running_server(**settings) as server:
        address = f"danube+tls://127.0.0.1:{server.port('danube')}"
        with sync.connect(address, wire="danube", ca_file=str(tmp_path / "ca.pem"), token=token("root")) as bus:
            bus.publish("orders", b"x")
        with (
            sync.connect(address, wire="danube", ca_file=str(tmp_path / "ca.pem")) as bus,
            pytest.raises(RemoteError, match="PERMISSION_DENIED"),
        ):
            bus.publish("orders", b"x")


# ---- without asyncio -------------------------------------------------------------------------------------------------


def test_the_same_without_asyncio(server: Server, topic: str) -> None:
    with sync.connect(url(server), wire="danube") as bus:
        producer = bus.producer(topic, "p")
        with bus.subscribe(topic, "s") as consumer:
            producer.send({"n": 1}, key="k", attributes={"a": "b"})
            assert producer.send_many([b"2", b"3"]) == 2
            bus.publish(topic, b"4")
            assert bus.publish_many(topic, [b"5"]) == 1
            got = []
            for message in consumer:
                got.append(message)
                if len(got) == 1:
                    consumer.nack(message, delay_ms=0)
                    continue
                consumer.ack(message)
                if len(got) == 6:
                    break
            assert sorted(message.payload for message in got) == [b"2", b"3", b"4", b"5", b'{"n":1}', b'{"n":1}']
            with pytest.raises(TimeoutError):
                consumer.get(0.1)
        bus.unsubscribe(topic, "s")


def test_a_closed_consumer_leaves_nothing_behind(server: Server, topic: str) -> None:
    async def scene(bus: DanubeClient) -> None:
        await bus.publish(topic)
        for number in range(3):
            async with await bus.subscribe(topic, f"s{number}") as consumer:
                await bus.publish(topic, b"x")
                assert await consumer.get(5) is not None
        del consumer
        assert bus._channel._waiting == {}
        await asyncio.sleep(0)  # what ended leaves the loop's own list
        gc.collect()
        assert len(bus._consumers) == 0

    on_the_bus(server, scene)


# ---- policies --------------------------------------------------------------------------------------------------------


def test_a_policy_is_set_before_its_subscription_and_sends_failures_to_the_dead_letters(
    server: Server, topic: str
) -> None:
    async def scene(bus: DanubeClient) -> None:
        policy = FailurePolicy(
            max_redelivery_count=1, base_redelivery_delay_ms=10, poison="dead_letter",
            dead_letter_topic=f"{topic}.failed",
        )  # fmt: skip
        await bus.publish(topic, b"before")
        await bus.set_failure_policy(topic, "s", policy)
        assert await bus.failure_policy(topic, "s") == policy
        letters = await bus.subscribe(f"{topic}.failed", "all", create_topic=True)
        consumer = await bus.subscribe(topic, "s")
        await bus.publish(topic, b"poison")
        for _ in range(2):
            message = await consumer.get(10)
            assert message is not None
            await consumer.nack(message, delay_ms=0, reason="no such order")
        [letter] = await take(letters, 1)
        assert (letter.payload, letter.attributes["x-failure-reason"]) == (b"poison", "no such order")
        await bus.set_failure_policy(topic, "s", None)
        assert await bus.failure_policy(topic, "s") == FailurePolicy(base_redelivery_delay_ms=10), "that of the bus"

    on_the_bus(server, scene)


def test_messages_in_flight_are_set_for_all_consumers_and_by_one(server: Server, topic: str) -> None:
    async def scene(bus: DanubeClient) -> None:
        await bus.publish_many(topic, [b"x"] * 9)
        await bus.set_in_flight(topic, "s", 2)
        assert await bus.in_flight(topic, "s") == 2
        first = await bus.subscribe(topic, "s", type="shared", start="first")
        second = await bus.subscribe(topic, "s", type="shared", in_flight=3)
        for consumer, count in ((first, 2), (second, 3)):
            for _ in range(count):
                await consumer.get(10)
            with pytest.raises(TimeoutError):
                await consumer.get(0.2)
        await bus.set_in_flight(topic, "s", None)
        assert await bus.in_flight(topic, "s") is None

    on_the_bus(server, scene)


def test_a_policy_that_cannot_be_is_refused(server: Server, topic: str) -> None:
    async def scene(bus: DanubeClient) -> None:
        await bus.publish(topic)
        for call in (
            bus.failure_policy(topic, "s"),
            bus.set_failure_policy(topic, "s", None),
            bus.in_flight(topic, "s"),
        ):
            with pytest.raises(RemoteError, match="not found"):
                await call
        for wrong in (FailurePolicy(poison="dead_letter"), FailurePolicy(max_redelivery_count=1 << 32)):
            with pytest.raises(InvalidValueError):
                await bus.set_failure_policy(topic, "s", wrong)
        with pytest.raises(RemoteError, match="in_flight"):
            await bus.set_in_flight(topic, "s", 1_000_000)
        own = FailurePolicy(poison="dead_letter", dead_letter_topic=topic)
        with pytest.raises(RemoteError, match="must be a different topic"):
            await bus.set_failure_policy(topic, "s", own)

    on_the_bus(server, scene)


def test_policies_without_asyncio(server: Server, topic: str) -> None:
    with sync.connect(url(server), wire="danube") as bus:
        bus.publish(topic)
        policy = FailurePolicy(max_redelivery_count=2, poison="drop", backoff="fixed")
        bus.set_failure_policy(topic, "s", policy)
        bus.set_in_flight(topic, "s", 4)
        bus.set_failure_policy(topic, "s", None)
        assert bus.in_flight(topic, "s") == 4, "what was not taken back stays"
        bus.set_in_flight(topic, "s", None)
        with pytest.raises(RemoteError, match="not found"):
            bus.failure_policy(topic, "s")
