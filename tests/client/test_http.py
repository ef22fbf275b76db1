"""The client of the console port, against a bus in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from raceway.client import AnyMessage, Receipt, connect
from raceway.client import sync as blocking
from raceway.client.sync import SyncHttpClient
from raceway.errors import ConfigError, ConnectionLostError, PayloadTypeError, RemoteError
from raceway.testing import MemoryBus, memory_bus


class Order(msgspec.Struct):
    id: int


@pytest.fixture(scope="module")
def bus() -> Iterator[MemoryBus]:
    with memory_bus() as running:
        yield running


@pytest.fixture
def http(bus: MemoryBus) -> Iterator[SyncHttpClient]:
    with blocking.connect(bus.console, wire="http") as client:
        yield client


def test_receipts_have_offsets_and_say_whether_somebody_listens(http: SyncHttpClient, bus: MemoryBus) -> None:
    name = "Order-events_with.a.name.of.six.parts"
    assert [http.publish(name, Order(n)) for n in range(2)] == [
        Receipt(topic=name, no_route=True, offset=0),
        Receipt(topic=name, no_route=True, offset=1),
    ]
    published = http.publish_many(name, [b"2", b"3", b"4"])
    assert (published, published.no_route) == (3, 3)
    with blocking.connect(bus.url("mb")) as mb, mb.subscribe("http.heard") as messages:
        assert http.publish("http.heard", Order(7)) == Receipt(topic="http.heard", no_route=False, offset=0)
        message = messages.get(10)
        assert message is not None
        assert message.decode(Order) == Order(7)


def test_key_and_headers_travel_along(http: SyncHttpClient, bus: MemoryBus) -> None:
    with (
        blocking.connect(bus.url("danube"), wire="danube", name="reader") as danube,
        danube.consume("http.headers") as messages,
    ):
        http.publish("http.headers", b"1", key="k", headers={"X-Colour": "red"})
        message = messages.get(10)
        assert message is not None
        assert (message.key, message.attributes["x-colour"]) == ("k", "red")


def test_requests_are_answered_on_other_wires(http: SyncHttpClient, bus: MemoryBus) -> None:
    def serve(message: AnyMessage) -> Order:
        return Order(len(message.payload))

    with blocking.connect(bus.url("mb")) as mb, mb.serve("http.length", serve):
        assert http.request("http.length", b"four", reply=Order) == Order(4)
        assert http.request("http.length", "four", timeout_ms=2000) == b'{"id":4}'
        with pytest.raises(PayloadTypeError, match="not of type int"):
            http.request("http.length", b"four", reply=int)


def test_refusals_are_raised(http: SyncHttpClient) -> None:
    with pytest.raises(RemoteError, match="no_route"):
        http.request("http.nobody", b"")
    with pytest.raises(RemoteError, match="reserved"):
        http.publish("system.forged", b"")
    for headers in ({"x-a": "b\r\nx-c: d"}, {"x a": "b"}, {"x-a:": "b"}):
        with pytest.raises(ConfigError, match="not a header"):
            http.publish("http.t", b"", headers=headers)


def test_schemas_are_at_the_same_port(http: SyncHttpClient) -> None:
    assert http.schemas.register("http.orders", Order).version == 1


def test_both_schemes_have_the_default_port_and_a_missing_bus_is_said(bus: MemoryBus) -> None:
    assert connect("raceway://bus.example").address.port == connect("http://bus.example").address.port == 8600

    async def scene() -> None:
        async with connect(bus.console.replace("http://", "raceway://")) as client:
            assert (await client.publish("http.async", b"1")).offset == 0
        with pytest.raises(ConnectionLostError):
            await connect("raceway://127.0.0.1:9").open()

    asyncio.run(scene())
