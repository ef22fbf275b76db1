"""The client without asyncio, against the started server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from itertools import islice

import msgspec
import pytest

from raceway.client import Message, Receipt
from raceway.client.sync import SyncMbClient, connect
from raceway.errors import ConnectionLostError, PayloadTypeError, RemoteError
from tests.rigs.ports import free_port_base
from tests.rigs.server import running_server, wait_until


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server() as server:
        yield f"mb://127.0.0.1:{server.port('tcp')}"


@pytest.fixture
def bus(url: str) -> Iterator[SyncMbClient]:
    with connect(url, wire="mb") as client:
        yield client


def test_publish_and_read(bus: SyncMbClient) -> None:
    with bus.subscribe("sync.#") as messages:
        bus.publish("sync.a", b"1")
        assert bus.publish_many("sync.a", [b"2", b"3"]) == 2
        assert [message.payload for message in islice(messages, 3)] == [b"1", b"2", b"3"]
        assert messages.dropped == 0
        with pytest.raises(TimeoutError):
            messages.get(timeout_s=0.01)
    assert messages.get() is None


def test_handlers_run_in_threads_and_may_use_the_client(bus: SyncMbClient, url: str) -> None:
    threads = set()

    def handle(message: Message) -> bytes:
        threads.add(threading.current_thread())
        bus.publish("sync.chained", b"from within")
        return message.payload.upper()

    with connect(url, wire="mb") as other, other.audit() as audit, bus.subscribe("sync.chained") as chained:
        with bus.serve("sync.upper", handle):
            assert other.request("sync.upper", "loud") == b"LOUD"
        assert chained.get(5)
        received = (record.json()["message"] for record in audit if b'"from"' in record.payload)
        header = next(message["header"] for message in received if message["header"]["topic"] == "sync.chained")
        assert "parentRequestId" in header
    assert threading.current_thread() not in threads


class Offer(msgspec.Struct):
    fruit: str
    euros: int


def test_types_on_both_sides(bus: SyncMbClient) -> None:
    with bus.subscribe("sync.offers") as offers:
        assert bus.publish("sync.offers", Offer("apple", 3)) == Receipt(topic="sync.offers", no_route=False)
        offer = offers.typed(Offer).get(5)
        assert offer is not None
        assert offer.value == Offer("apple", 3)
    assert bus.publish("sync.offers", Offer("apple", 3)).no_route
    with bus.serve("sync.price", lambda message: Offer(message.text, 4)):
        assert bus.request("sync.price", "plum", reply=Offer) == Offer("plum", 4)
        with pytest.raises(PayloadTypeError, match="not of type int"):
            bus.request("sync.price", "plum", reply=int)


def test_service_that_gets_another_type_says_which_field(bus: SyncMbClient) -> None:
    with bus.serve("sync.typed", lambda message: message.decode(Offer).euros):
        assert bus.request("sync.typed", Offer("plum", 4), reply=int) == 4
        with pytest.raises(RemoteError) as caught:
            bus.request("sync.typed", {"fruit": "plum", "euros": "4"})
    assert (caught.value.reported, caught.value.details) == ("MALFORMED_MESSAGE", {"path": "$.euros"})


def test_handlers_of_a_stream_run_in_threads(bus: SyncMbClient) -> None:
    seen: list[bytes] = []
    barrier = threading.Barrier(2)

    def handle(message: Message) -> None:
        barrier.wait(10)  # both are here at the same time, or it breaks
        seen.append(message.payload)

    with bus.subscribe("sync.work").handle(handle, concurrency=2) as workers:
        assert bus.publish_many("sync.work", [b"1", b"2"]) == 2
        wait_until(lambda: len(seen) == 2)
    workers.wait()
    assert sorted(seen) == [b"1", b"2"]


def test_the_bus_tells_about_itself(bus: SyncMbClient) -> None:
    bus.register("plain", "without asyncio")
    assert "plain" in [service.name for service in bus.services()]
    with bus.subscribe("sync.told"):
        assert [row.topic for row in bus.subscriptions()] == ["sync.told"]
        assert "sync.told" in [row.topic for row in bus.topics()]
    assert bus.metrics()["connection.active"] >= 1
    bus.heartbeat()


def test_log_can_be_watched(bus: SyncMbClient) -> None:
    with bus.watch_log() as log:
        with pytest.raises(RemoteError):
            bus.request("nobody.there")
        record = log.get(5)
        assert record is not None
        assert record.json()["level"] == "error"


def test_no_bus_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())  # some are of earlier tests, and may end meanwhile
    with pytest.raises(ConnectionLostError):
        connect(f"mb://127.0.0.1:{free_port_base()}")
    assert set(threading.enumerate()) <= before


def test_closing_twice_is_fine_and_ends_the_iteration(url: str) -> None:
    client = connect(url, wire="mb")
    messages = client.subscribe("sync.closing")
    reader = threading.Thread(target=lambda: list(messages))
    reader.start()
    client.close()
    client.close()
    reader.join(5)
    assert not reader.is_alive()


def test_it_is_used_and_closed_also_in_a_thread_whose_own_loop_runs(url: str) -> None:
    """In a notebook, say: every cell runs inside a loop."""

    async def cell() -> bytes:
        with connect(url, wire="mb") as client, client.serve("sync.cell", lambda message: message.payload):
            return bytes(client.request("sync.cell", b"echo"))

    before = set(threading.enumerate())  # some are of earlier tests, and may end meanwhile
    assert asyncio.run(cell()) == b"echo"
    assert set(threading.enumerate()) <= before
