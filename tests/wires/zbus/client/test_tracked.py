"""The client that asks a tracker where the queues are: a tracker and two brokers, reported by the test."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from raceway.client import PUBSUB, Delivery, QueueRow, TrackedClient, connect
from raceway.client import sync as blocking
from raceway.errors import ConnectionLostError, RemoteError
from raceway.wires.zbus.client.tracked import read_table
from tests.rigs.server import Server, running_server
from tests.rigs.zbus_wire import dial_server, zbus_port

NOWHERE = "127.0.0.1:9"


class Realm(NamedTuple):
    tracker: Server
    brokers: list[Server]

    @property
    def url(self) -> str:
        return f"zbus+track://{NOWHERE};{address(self.tracker)}"

    def report(self, *brokers: Server, **changes: dict[str, Any]) -> None:
        """Each broker's own data to the tracker; `changes` by queue replace what it says."""
        with dial_server(self.tracker) as peer:
            for broker in brokers or self.brokers:
                with dial_server(broker) as door:
                    door.send("admin", method="data", msgid="d")
                    report = door.reply("d").json()
                for queue, change in changes.items():
                    report["mqTable"].setdefault(queue, {"name": queue, "mode": 1}).update(change)
                peer.send("track_report", json.dumps(report))
            peer.send("admin", method="ping", msgid="p")
            peer.reply("p")


def address(server: Server) -> str:
    return f"127.0.0.1:{zbus_port(server)}"


@pytest.fixture(scope="module")
def realm() -> Iterator[Realm]:
    with (
        running_server(RACEWAY_LISTEN__ZBUS__TRACKER="true", RACEWAY_LISTEN__ZBUS__PROBE_MS=60_000) as tracker,
        running_server() as one,
        running_server() as two,
    ):
        yield Realm(tracker, [one, two])


def create(server: Server, queue: str, mode: int = 1) -> None:
    with blocking.connect(f"zbus://{address(server)}", wire="zbus") as client:
        client.create_queue(queue, mode)


def waiting(server: Server, queue: str) -> int:
    with blocking.connect(f"zbus://{address(server)}", wire="zbus") as client:
        (count,) = [row.unconsumed_msg_count for row in client.queues() if row.name == queue]
        assert isinstance(count, int)
        return count


async def got(consumer: Any) -> Delivery:
    delivery = await consumer.get(10)
    assert isinstance(delivery, Delivery)
    return delivery


async def until_known(client: TrackedClient, queue: str, brokers: int) -> None:
    end = time.monotonic() + 10
    while sum(queue in rows for rows in client.table.values()) < brokers:
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


def test_a_message_goes_to_the_least_loaded_broker_that_has_the_queue(realm: Realm) -> None:
    one, two = realm.brokers
    create(one, "load")
    create(two, "load")
    create(two, "only")

    async def main() -> None:
        async with connect(realm.url, wire="zbus+track") as client:
            realm.report(one, load={"loadFactor": 5.0})
            realm.report(two, load={"loadFactor": 0.5})
            await until_known(client, "load", 2)
            await client.publish("load", "x")
            assert await client.publish_many("load", ["y", "z"]) == 2
            await client.publish("only", "x")
            await client.publish("load", "chosen", broker=address(one))
            with pytest.raises(RemoteError) as refused:
                await client.publish("nowhere", "x")
            assert refused.value.reported == "404"

    asyncio.run(main())
    assert (waiting(one, "load"), waiting(two, "load"), waiting(two, "only")) == (1, 3, 1)


def test_a_published_message_goes_to_every_broker_of_a_pubsub_queue(realm: Realm) -> None:
    for broker in realm.brokers:
        create(broker, "ticks", PUBSUB)
    realm.report()

    async def main() -> None:
        async with connect(realm.url, wire="zbus+track") as client:
            consumers = [await client.consume("ticks", ["hk"], broker=address(broker)) for broker in realm.brokers]
            anywhere = await client.consume("ticks", ["*"])
            await client.publish("ticks", "9.80", topic="hk")
            assert await client.publish_many("ticks", ["9.81"], topic="hk") == 1
            for consumer in (*consumers, anywhere):
                assert [(await got(consumer)).text, (await got(consumer)).text] == ["9.80", "9.81"]

    asyncio.run(main())


def test_a_consumer_goes_where_messages_wait_and_never_forgets_a_broker_it_asked(realm: Realm) -> None:
    one, two = realm.brokers
    create(one, "spread")
    create(two, "spread")
    realm.report()

    async def main() -> None:
        async with connect(realm.url, wire="zbus+track") as client:
            await until_known(client, "spread", 2)
            consumer = await client.consume("spread")
            with pytest.raises(TimeoutError):
                await consumer.get(0.05)
            (armed,) = consumer._consumers
            other = two if armed == address(one) else one
            await client.publish("spread", "there", broker=address(other))
            reading = asyncio.create_task(got(consumer))
            realm.report(other)
            assert (await reading).text == "there"
            await client.publish("spread", "late", broker=armed)
            assert (await got(consumer)).text == "late"
            await consumer.close()

    asyncio.run(main())


async def busy(client: TrackedClient) -> list[QueueRow]:
    return [row for row in await client.queues() if row.name == "adder" and row.consumer_count]


def test_requests_go_where_somebody_serves(realm: Realm) -> None:
    one, two = realm.brokers
    create(one, "adder")
    create(two, "adder")
    realm.report()

    async def main() -> None:
        async with connect(realm.url, wire="zbus+track") as service, connect(realm.url, wire="zbus+track") as caller:
            await until_known(service, "adder", 2)
            async with await service.serve("adder", lambda delivery: delivery.text + "!"):
                while not (serving := await busy(caller)):
                    await asyncio.to_thread(realm.report)
                    await asyncio.sleep(0.01)
                # Busy as it may be: elsewhere nobody would answer.
                (there,) = [broker for broker in realm.brokers if address(broker) == serving[0].broker]
                realm.report(there, adder={"loadFactor": 9.0})
                while (await busy(caller))[0].load_factor != 9.0:
                    await caller.changed()
                assert await caller.request("adder", "1+1", timeout_ms=5000) == b"1+1!"

    asyncio.run(main())


def test_a_queue_is_made_where_there_are_fewest(realm: Realm) -> None:
    realm.report()

    async def main() -> None:
        async with connect(realm.url, wire="zbus+track") as client:
            creating = asyncio.create_task(client.create_queue("fresh"))
            while not creating.done():
                await asyncio.to_thread(realm.report)
                await asyncio.sleep(0.01)
            await creating
            await client.publish("fresh", "x")
            await client.heartbeat()

    asyncio.run(main())
    assert sum(_has(broker, "fresh") for broker in realm.brokers) == 1


def _has(server: Server, queue: str) -> bool:
    with blocking.connect(f"zbus://{address(server)}", wire="zbus") as client:
        return queue in [row.name for row in client.queues()]


def test_a_broker_that_cannot_be_reached_is_passed_over(realm: Realm) -> None:
    one, _ = realm.brokers
    create(one, "sturdy")
    reports = {
        broker: {"broker": broker, "mqTable": {"sturdy": {"name": "sturdy", "mode": 1, "loadFactor": load}}}
        for broker, load in ((NOWHERE, 0.0), (address(one), 9.0))
    }
    table = json.dumps({"brokerTable": reports, "mqTable": {}}).encode()

    async def track(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A tracker that has not noticed yet."""
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(table), table))
        await reader.read()
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(track, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            async with connect(f"zbus+track://127.0.0.1:{port}", wire="zbus+track") as client:
                await client.publish("sturdy", "x")

    asyncio.run(main())
    assert waiting(one, "sturdy") == 1


def test_without_a_tracker_there_is_no_client(realm: Realm) -> None:
    async def main() -> None:
        with pytest.raises(ConnectionLostError):
            await connect(f"zbus+track://{NOWHERE}").open()
        with pytest.raises(RemoteError):  # a broker that is no tracker refuses
            await connect(f"zbus+track://{address(realm.brokers[0])}").open()

    asyncio.run(main())


def test_references_of_old_trackers_do_no_harm() -> None:
    queue = {"name": "q", "mode": 1, "unconsumedMsgCount": 3}
    table = {
        "brokerTable": {"a:1": {"broker": "a:1", "mqTable": {"q": queue}}, "b:1": {"$ref": "$.brokerTable.x"}},
        "mqTable": {"q": [{"$ref": "$.brokerTable.a.mqTable.q"}]},
    }
    found = read_table(json.dumps(table).encode())
    assert {broker: rows["q"].unconsumed_msg_count for broker, rows in found.items()} == {"a:1": 3}
    assert read_table(b"[]") == read_table(b"{") == {}


def test_brokers_that_report_themselves_are_found_and_forgotten(realm: Realm) -> None:
    """Nothing but the real parts: the broker's own reports, the tracker's pushes and its look whether it is there."""
    with running_server(RACEWAY_LISTEN__ZBUS__TRACKER="true", RACEWAY_LISTEN__ZBUS__PROBE_MS=100) as tracker:
        settings: dict[str, Any] = {
            "RACEWAY_LISTEN__ZBUS__TRACKERS": address(tracker), "RACEWAY_LISTEN__ZBUS__REPORT_MS": 100,
        }  # fmt: skip

        async def main(one: Server, two: Server) -> None:
            async with connect(f"zbus+track://{address(tracker)}", wire="zbus+track") as client:
                while len(client.table) < 2:
                    await client.changed()
                for broker in (one, two):
                    await client.create_queue("shared", broker=address(broker))
                await until_known(client, "shared", 2)
                consumer = await client.consume("shared")
                with pytest.raises(TimeoutError):
                    await consumer.get(0.05)
                (armed,) = consumer._consumers
                gone, left = (one, two) if armed == address(one) else (two, one)
                gone.kill()
                while address(gone) in client.table:
                    await client.changed()
                await client.publish("shared", "still here")
                assert (await got(consumer)).text == "still here"
                assert list(consumer._consumers) == [address(left)]

        with running_server(**settings) as one, running_server(**settings) as two:
            asyncio.run(asyncio.wait_for(main(one, two), 20))
