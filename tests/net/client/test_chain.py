"""A conversation that our own clients carry from wire to wire is one tree."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Iterator
from typing import Any

import pytest

from raceway.client import Delivery, Message, connect
from raceway.net.client.chain import handling
from raceway.wires.mb.client.messages import mb_parent
from tests.rigs.http_door import get
from tests.rigs.server import Server, running_server, wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


def spans(server: Server, root: str, count: int) -> list[dict[str, Any]]:
    def complete() -> list[dict[str, Any]] | None:
        found = get(server, f"/api/traces/{root}").json().get("spans", [])
        return found if len(found) == count else None

    found: list[dict[str, Any]] = wait_until(complete, 10, f"{count} spans")
    return found


def test_what_a_handler_sends_over_other_wires_belongs_to_what_it_handles(server: Server) -> None:
    """MB asks; its service asks a queue of zbus, whose service publishes on Danube, zbus and MB."""

    async def run() -> None:
        mb, zbus = (
            connect(f"mb://127.0.0.1:{server.port('tcp')}", wire="mb"),
            connect(f"zbus://127.0.0.1:{server.port('zbus')}", wire="zbus"),
        )
        danube = connect(f"danube://127.0.0.1:{server.port('danube')}", wire="danube")
        async with mb, zbus, danube:
            await zbus.create_queue("chain.stock")
            await zbus.create_queue("chain.log")

            async def check(delivery: Delivery) -> dict[str, int]:
                await danube.publish("/default/chain.danube", b"1")
                await zbus.publish_many("chain.log", [b"2", b"3"])
                await mb.publish("chain.mb", b"4", confirm=False)
                return {"left": 3}

            async def order(message: Message) -> bytes:
                answer: bytes = await zbus.request("chain.stock", {"bag": 17})
                return answer

            async with await zbus.serve("chain.stock", check), await mb.serve("chain.order", order):
                assert json.loads(await mb.request("chain.order", {"bag": 17})) == {"left": 3}

    asyncio.run(run())
    (root,) = get(server, "/topics/chain.order?limit=1").json()["messages"]
    found = spans(server, root["correlation_id"], 6)
    by_position = {span["position"]: span for span in found}
    tree = {(span["topic"], span["wire"]): by_position.get(span["parent"], {}).get("topic") for span in found}
    assert tree == {
        ("chain.order", "mb"): None, ("chain.stock", "zbus"): "chain.order", ("chain.danube", "danube"): "chain.stock",
        ("chain.log", "zbus"): "chain.stock", ("chain.mb", "mb"): "chain.stock",
    }  # fmt: skip


def test_what_is_sent_outside_of_a_handler_has_no_parent(server: Server) -> None:
    async def run() -> None:
        async with connect(f"zbus://127.0.0.1:{server.port('zbus')}", wire="zbus") as zbus:
            await zbus.create_queue("chain.alone")
            await zbus.publish("chain.alone", b"1")
            await zbus.publish("chain.alone", b"2", headers={"msgid-raw": "said"})

    asyncio.run(run())
    first, second = get(server, "/topics/chain.alone").json()["messages"]
    assert (first.get("parent_id"), second["parent_id"]) == (None, "said")


@pytest.mark.parametrize(
    ("received", "named"),
    [("8F14E45F-CEEA-467F-9A0C-1B2C3D4E5F60", b"8F14E45F-CEEA-467F-9A0C-1B2C3D4E5F60"), ("a/b", None), (None, None)],
)
def test_mb_names_only_parents_that_it_can_say(received: str | None, named: bytes | None) -> None:
    context = contextvars.copy_context()
    context.run(handling.set, received)
    assert context.run(mb_parent) == named
