"""A bus under traffic on all four wires while the pipeline runs beside it; the tables then say what clients know."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from raceway.client import DanubeClient, MbClient, Message, connect
from raceway.errors import RacewayError, RemoteError
from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import Lake
from raceway.pipeline.progress import maybe_read
from raceway.pipeline.query import Tables
from raceway.pipeline.verify import verify
from tests.pipeline.drivers import driver
from tests.pipeline.quick_spark import QUICKLY
from tests.pipeline.schemas import V1, V2, datum
from tests.rigs.schema_rest import bind, register
from tests.rigs.server import Server, running_server, wait_until

PUBLISHES, REQUESTS, FAILING, ORDERS = 300, 20, 3, 10
SHOP = {"mb": "shop.mb", "danube": "shop.danube", "zbus": "shop.zbus", "seneca": "shop.seneca"}


async def trade(server: Server) -> None:
    """Publishes on every wire; requests on three, answered over MB by a service that publishes meanwhile."""
    host = "127.0.0.1"
    async with AsyncExitStack() as stack:

        async def enter(url: str) -> Any:
            return await stack.enter_async_context(connect(url, reconnect=False))

        desk, listener, mb = [await enter(f"mb://{host}:{server.port('tcp')}") for _ in range(3)]
        danube = await enter(f"danube://{host}:{server.port('danube')}")
        zbus = await enter(f"zbus://{host}:{server.port('zbus')}")
        seneca = await enter(f"seneca://{host}:{server.port('seneca')}")
        await listener.subscribe("shop.#")
        await listener.subscribe("price.#")
        await desk.serve("price.get", _priced(desk))
        await desk.serve("price.never", _never)
        await zbus.create_queue("shop.zbus")
        loads = [{"n": number} for number in range(PUBLISHES)]
        await asyncio.gather(
            mb.publish_many("shop.mb", loads),
            danube.publish_many("shop.danube", [json.dumps(load).encode() for load in loads]),
            zbus.publish_many("shop.zbus", [json.dumps(load).encode() for load in loads]),
            seneca.publish_many("role:shop,cmd:seneca", loads),
        )
        for number in range(REQUESTS):
            await asyncio.gather(
                _ask(mb.request("price.get", {"n": number}), fails=number < FAILING),
                _ask(zbus.request("price.get", json.dumps({"n": number + FAILING}).encode()), fails=False),
                _ask(seneca.request("role:price,cmd:get", {"n": number + FAILING}), fails=False),
            )
        await _write_orders(server, danube, mb)
        await _ask(mb.request("price.never", {}, timeout_ms=200), fails=True)
        await asyncio.sleep(0.3)  # the deadline has passed, and the next row says so
        await mb.publish("shop.mb", {"n": PUBLISHES})


async def _write_orders(server: Server, danube: DanubeClient, mb: MbClient) -> None:
    """A schema that changes in mid-stream, and a message that it refuses."""
    for number, schema in enumerate((V1, V2), 1):
        await asyncio.to_thread(register, server, "order", schema, "avro")
        producer = await danube.producer("typed.orders", f"writer-{number}", subject="order")
        await producer.send_many([datum(schema, {"id": n, "note": "x"}) for n in range(ORDERS)])
    await asyncio.to_thread(bind, server, "typed.orders", "order", "enforce")
    await _ask(mb.publish("typed.orders", b"no order"), fails=True)


def _priced(desk: MbClient) -> Any:
    async def price(message: Message) -> dict[str, int]:
        if message.json()["n"] < FAILING:
            raise RemoteError("NO_PRICE", "nobody knows")
        await desk.publish("price.asked", {"n": message.json()["n"]})
        return {"price": 5}

    return price


async def _never(_: Message) -> bytes:
    await asyncio.sleep(60)
    return b""


async def _ask(call: Any, *, fails: bool) -> None:
    try:
        await call
    except RacewayError:
        assert fails
    else:
        assert not fails


@pytest.mark.timeout(400)
def test_what_clients_know_is_what_the_tables_say(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = {"RACEWAY_JOURNAL__SEGMENT_BYTES": 200_000, "RACEWAY_JOURNAL__UPKEEP_S": 0.1}
    run_arguments = ("run", "--trigger", "0.5", *QUICKLY)
    with running_server(data, **settings) as server, driver(data, *run_arguments) as run:
        file = data / "pipeline" / "progress.json"
        wait_until(lambda: (told := maybe_read(file)) and told.state != "starting", 120, "the run")
        asyncio.run(trade(server))
        server.stop()

        def is_done() -> bool:
            told = maybe_read(file)
            return told is not None and told.rows > 0 and not told.lag and told.state == "idle"

        wait_until(is_done, 240, "everything in the tables")
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 0
    lake = Lake(spark, Folders(data))
    tables = Tables(lake)
    verdict = verify(lake, tables, full=True)
    assert verdict.is_good, verdict

    def rows(sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = tables.select(sql).to_pylist()
        return found

    published = rows("SELECT topic, wire, count(*) AS n FROM silver.messages WHERE topic LIKE 'shop.%' GROUP BY ALL")
    assert {(row["topic"], row["wire"], row["n"]) for row in published} == {
        (topic, wire, PUBLISHES + (wire == "mb")) for wire, topic in SHOP.items()
    }
    exchanges = rows("SELECT topic, wire, status, count(*) AS n FROM silver.exchanges GROUP BY ALL")
    assert {(row["topic"], row["wire"], row["status"], row["n"]) for row in exchanges if row["topic"] != "raceway"} >= {
        ("price.get", "mb", "answered", REQUESTS - FAILING),
        ("price.get", "mb", "error", FAILING),
        ("price.get", "zbus", "answered", REQUESTS),
        ("price.get", "seneca", "answered", REQUESTS),
        ("price.never", "mb", "timeout", 1),
    }
    slow = rows("SELECT count(*) AS n FROM silver.exchanges WHERE status = 'answered' AND latency_us IS NULL")
    assert slow == [{"n": 0}]
    traces = rows(
        "SELECT root_wire, depth, messages, count(*) AS n FROM gold.traces "
        "WHERE root_topic = 'price.get' AND errors = 0 GROUP BY ALL",
    )
    # A request, what its service published meanwhile, and the answer: one tree of depth two.
    assert {(row["root_wire"], row["depth"], row["messages"], row["n"]) for row in traces} == {
        ("mb", 2, 3, REQUESTS - FAILING), ("zbus", 2, 3, REQUESTS), ("seneca", 2, 3, REQUESTS),
    }  # fmt: skip
    typed = rows(
        "SELECT schema_version, value, count(*) AS n FROM silver.messages WHERE topic = 'typed.orders' GROUP BY ALL",
    )
    values = {(row["schema_version"], row["value"]): row["n"] for row in typed}
    assert values == {(1, f'{{"id":{n}}}'): 1 for n in range(ORDERS)} | {
        (2, f'{{"id":{n},"note":"x"}}'): 1 for n in range(ORDERS)
    }
    usage = rows(
        "SELECT schema_version, wire, sum(messages) AS taken, sum(refused) AS refused FROM gold.schema_usage "
        "WHERE subject = 'order' GROUP BY ALL"
    )  # fmt: skip
    assert {(row["schema_version"], row["wire"]): (int(row["taken"]), int(row["refused"])) for row in usage} == {
        (1, "danube"): (ORDERS, 0), (2, "danube"): (ORDERS, 0), (2, "mb"): (0, 1),
    }  # fmt: skip
