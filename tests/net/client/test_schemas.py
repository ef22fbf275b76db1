"""Schema calls of clients, against a bus in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import msgspec
import pydantic
import pytest

from raceway import client
from raceway.client.sync import SyncClient, connect
from raceway.errors import ConfigError, ConnectionLostError, RemoteError
from raceway.net.client.schemas import json_schema
from raceway.testing import MemoryBus, memory_bus


class Order(msgspec.Struct):
    id: int


class OrderWithNote(msgspec.Struct):
    id: int
    note: str = ""


class Renamed(msgspec.Struct):
    number: int


class Seat(pydantic.BaseModel):
    row: int


@pytest.fixture(scope="module")
def bus() -> Iterator[MemoryBus]:
    with memory_bus() as running:
        yield running


@pytest.fixture
def mb(bus: MemoryBus) -> Iterator[SyncClient]:
    with connect(bus.url("mb"), console=bus.console) as client:
        yield client


def test_versions_are_registered_checked_and_fetched(mb: SyncClient) -> None:
    first = mb.schemas.register("orders", Order)
    assert (first.subject, first.version, first.is_new_version) == ("orders", 1, True)
    again = mb.schemas.register("orders", Order)
    assert (again.version, again.is_new_version) == (1, False)
    refused = mb.schemas.check("orders", Renamed)
    assert not refused.is_compatible
    assert "number" in str(refused.reasons)
    assert mb.schemas.check("orders", OrderWithNote).is_compatible
    second = mb.schemas.register("orders", OrderWithNote, description="with a note")
    assert second.version == 2
    assert json.loads(mb.schemas.fetch("orders", 1).content) == json_schema(Order)
    assert mb.schemas.fetch("orders").version == 2
    with pytest.raises(RemoteError, match="number"):
        mb.schemas.register("orders", Renamed)


def test_other_types_of_definitions(mb: SyncClient) -> None:
    avro = '{"type":"record","name":"Bag","fields":[{"name":"kg","type":"double"}]}'
    assert mb.schemas.register("bags", avro, type="avro").schema_type == "avro"
    assert mb.schemas.fetch("bags").content.decode() == avro
    assert mb.schemas.register("seats", Seat).schema_type == "json_schema"


def test_bound_topic_refuses_what_does_not_match(mb: SyncClient) -> None:
    mb.schemas.register("strict", Order)
    bound = mb.schemas.bind("strict.orders", "strict", policy="enforce", validate=True)
    assert (bound.topic, bound.subject, bound.policy, bound.validate_payload) == (
        "strict.orders", "strict", "enforce", True,
    )  # fmt: skip
    assert mb.publish("strict.orders", Order(7)).no_route
    with pytest.raises(RemoteError, match="id"):
        mb.publish("strict.orders", {"id": "seven"})


def test_unknown_subjects_and_wrong_places_are_said(mb: SyncClient, bus: MemoryBus) -> None:
    with pytest.raises(RemoteError, match="nothing"):
        mb.schemas.fetch("nothing/here")
    with connect(bus.url("mb"), console="http://127.0.0.1:9") as lost, pytest.raises(ConnectionLostError):
        lost.schemas.fetch("orders")
    with connect(bus.url("mb"), console="mb://x") as wrong, pytest.raises(ConfigError, match="http"):
        wrong.schemas.fetch("orders")


def test_asynchronous_form_of_every_wire(bus: MemoryBus) -> None:
    async def scene(port: str) -> None:
        async with client.connect(bus.url(port), console=bus.console) as each:
            assert (await each.schemas.register(f"of.{port}", Order)).version == 1
            assert (await each.schemas.fetch(f"of.{port}")).version == 1

    for port in ("mb", "danube", "zbus", "seneca"):
        asyncio.run(scene(port))


def test_token_of_the_administrator_is_sent() -> None:
    with memory_bus({"security.admin_token": "secret"}) as bus:
        with connect(bus.url("mb"), console=bus.console, admin_token="secret") as known:
            assert known.schemas.register("orders", Order).version == 1
        with connect(bus.url("mb"), console=bus.console, admin_token="wrong") as stranger, pytest.raises(RemoteError):
            stranger.schemas.register("orders", OrderWithNote)
