"""What a bus decides, by settings that only it knows, is in its rows: the tables say the same as the bus."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from raceway import config
from raceway.client import Message, connect
from raceway.errors import RacewayError
from raceway.pipeline.folders import Folders
from raceway.pipeline.jobs import Job, Order
from raceway.pipeline.lake import DELETED, Lake
from raceway.pipeline.query import Tables
from raceway.pipeline.verify import verify
from tests.rigs.http_door import post
from tests.rigs.schema_rest import bind, register
from tests.rigs.server import Server, running_server

GOOD, WRONG = b'{"id":1}', b'{"id":"x"}'
# None of them is a default.
DEADLINES_MS = {"mb": 310, "http": 310, "zbus": 420, "seneca": 530}
SETTINGS = {
    "RACEWAY_BROKER__REQUEST_TIMEOUT_MS": DEADLINES_MS["mb"],
    "RACEWAY_LISTEN__ZBUS__REQUEST_TIMEOUT_MS": DEADLINES_MS["zbus"],
    "RACEWAY_LISTEN__SENECA__REQUEST_TIMEOUT_MS": DEADLINES_MS["seneca"],
}


async def _never(_: Message) -> bytes:
    await asyncio.sleep(60)
    return b""


async def talk(server: Server) -> None:
    """Requests that nobody answers in time, on every wire that asks; messages that fit a schema and that do not."""
    async with AsyncExitStack() as stack:
        doors = {"mb": "tcp", "zbus": "zbus", "seneca": "seneca"}
        clients: dict[str, Any] = {
            wire: await stack.enter_async_context(connect(f"{wire}://127.0.0.1:{server.port(door)}", reconnect=False))  # type: ignore[arg-type]
            for wire, door in doors.items()
        }
        await clients["mb"].serve("slow.echo", _never)
        await _fail(clients["mb"].request("slow.echo", GOOD))
        await _fail(clients["mb"].request("slow.echo", GOOD, timeout_ms=200))
        await _fail(clients["zbus"].request("slow.echo", GOOD))
        await _fail(clients["seneca"].request("role:slow,cmd:echo", {"id": 1}))
        await asyncio.to_thread(post, server, "/requests/slow.echo", GOOD)
        for topic in ("typed.warn", "typed.free", "typed.enforce", "typed.asked"):
            await clients["zbus"].create_queue(topic)
            for payload in (GOOD, WRONG, WRONG):
                await _fail(clients["mb"].publish(topic, payload))
                await _fail(clients["zbus"].publish(topic, payload))
            await _fail(clients["seneca"].publish(f"role:typed,cmd:{topic.split('.')[1]}", {"id": "x"}))
            await asyncio.to_thread(post, server, f"/topics/{topic}", WRONG)
        await clients["mb"].serve("typed.asked", _never)
        await _fail(clients["mb"].request("typed.asked", WRONG, timeout_ms=1))
        await clients["zbus"].create_queue("slow.done")
        await clients["mb"].publish("slow.done", GOOD)


async def _fail(call: Any) -> None:
    with suppress(RacewayError):
        await call


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The tables, and what the bus counted."""
    data: Path = tmp_path_factory.mktemp("facts") / "data"
    with running_server(data, **SETTINGS) as server:
        register(server, "user")
        for topic, subject, policy in (
            ("typed.warn", "user", "warn"), ("typed.free", None, "warn"), ("typed.enforce", "user", "enforce"),
            ("typed.asked", "user", "warn"),
        ):  # fmt: skip
            bind(server, topic, subject, policy)
        asyncio.run(talk(server))
        counted = {
            policy: server.metric("raceway_schema_violations_total", policy=policy) for policy in ("warn", "enforce")
        }
        server.stop()
    lake = Lake(spark, Folders(data))
    Job(lake, Order(config.PipelineSettings(master="local[2]"), once=True)).run()
    return {"lake": lake, "tables": Tables(lake), "counted": counted}


def rows(tables: Tables, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in tables.select(sql).to_pylist()]


def test_deadlines_are_those_of_the_bus(told: dict[str, Any]) -> None:
    found = rows(
        told["tables"],
        "SELECT wire, timeout_ms, deadline_us - requested_us AS waits, status FROM silver.exchanges "
        "WHERE topic = 'slow.echo' ORDER BY wire, timeout_ms",
    )
    expected = sorted([*DEADLINES_MS.items(), ("mb", 200)])
    assert found == [(wire, ms, 1000 * ms, "timeout") for wire, ms in expected]


def test_what_was_tolerated_and_refused_is_what_the_bus_counted(told: dict[str, Any]) -> None:
    ((tolerated, refused, violations),) = rows(
        told["tables"], "SELECT sum(tolerated), sum(refused), sum(violations) FROM gold.schema_usage"
    )
    # On each of the two topics bound to a subject four wrong ones of two wires and two more, on the one without subject
    # all eight, and a request.
    assert told["counted"] == {"warn": 6 + 6 + 8 + 1, "enforce": 6}
    assert (tolerated, refused, violations) == (21, 6, 27)
    by_subject = dict(rows(told["tables"], "SELECT subject, sum(tolerated) FROM gold.schema_usage GROUP BY 1"))
    assert by_subject == {"user": 13, "": 8}


def test_every_gold_table_has_an_expected_count_and_it_holds(told: dict[str, Any]) -> None:
    verdict = verify(told["lake"], told["tables"], full=True)
    assert verdict.is_good, verdict
    gold = [table for table in verdict.tables if table.table.startswith("gold.")]
    assert len(gold) == 4
    assert all(table.expected == table.rows > 0 for table in gold), gold


@pytest.mark.parametrize("name", ["gold.topic_stats", "gold.service_graph", "gold.schema_usage", "gold.traces"])
def test_a_gold_table_without_its_rows_is_not_good(told: dict[str, Any], name: str) -> None:
    """As far as its inputs by its own word, and empty."""
    lake: Lake = told["lake"]
    lake.commit(name, (), lake.paths(name), kind=DELETED)
    verdict = verify(lake, told["tables"])
    assert name in [table.table for table in verdict.tables if not table.is_good]
