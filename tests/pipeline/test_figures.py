"""gold.topic_stats by the minute and gold.service_graph by the hour, against figures counted by hand."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from raceway.pipeline.tables import Limits
from raceway.pipeline.transforms import exchanges, messages, service_graph, topic_stats
from tests.pipeline.rows import START_US, Row, answer, inputs, message, request

# START_US is 22:13:20 UTC: forty seconds later a minute begins, 2,800 seconds later an hour.
NEXT_MINUTE, NEXT_HOUR = 40, 2800
LATENCIES_MS = (10, 20, 30, 40, 900)


def at(sequence: int, second: float, row: Row) -> Row:
    return row | {"sequence": sequence, "time_us": START_US + int(second * 1_000_000)}


def traffic() -> list[Row]:
    shop: Row = {"producer": "shop", "payload": b"12345"}
    desk: Row = {"producer": "desk", "wire": "zbus", "payload": b"1"}
    rows = []
    for number, latency_ms in enumerate(LATENCIES_MS):
        rows.append(at(2 * number, number, request(0, **shop)))
        rows.append(at(2 * number + 1, number + latency_ms / 1000, answer(0, 2 * number, **desk)))
    return [
        *rows,
        at(10, 10, request(0, **shop)),
        at(11, 11, answer(0, 10, **desk, error="NO_PRICE")),
        at(12, 12, request(0, timeout_ms=1000, **shop)),
        at(13, 14, request(0, timeout_ms=1000, **shop)),
        at(14, 15, answer(0, None, **desk)),
        at(15, NEXT_MINUTE, answer(0, 13, **desk, error="late")),
        at(16, NEXT_MINUTE, message(0, payload=b"1234567")),
        at(17, NEXT_HOUR, request(0, timeout_ms=10_000, wire="seneca", payload=b"")),
    ]


def quantiles(latencies_us: list[int]) -> list[float]:
    cuts = statistics.quantiles(latencies_us, n=100, method="inclusive")
    return [cuts[49], cuts[94], cuts[98]]


def computed(spark: SparkSession, table: Any) -> list[dict[str, Any]]:
    given = inputs(spark, traffic())
    silver = inputs(
        spark,
        traffic(),
        silver__messages=messages.transform(given),
        silver__exchanges=exchanges.transform(given),
    )
    closing = replace(silver, limits=Limits(close_us=0))
    return [row.asDict() for row in table.TABLE.transform(closing).collect()]


def test_messages_count_when_they_came_and_exchanges_when_they_were_asked_for(spark: SparkSession) -> None:
    rows = computed(spark, topic_stats)
    found = {(row["minute"].strftime("%H:%M"), row["topic"], row["wire"]): row for row in rows}
    counts = ("publishes", "requests", "responses", "bytes", "errors", "answered", "timeouts")
    assert {key: tuple(row[name] for name in counts) for key, row in found.items()} == {
        ("22:13", "orders.price", "mb"): (0, 8, 0, 40, 0, 7, 1),
        ("22:13", "orders.price", "zbus"): (0, 0, 7, 7, 1, 0, 0),
        ("22:14", "orders.price", "zbus"): (0, 0, 1, 1, 1, 0, 0),
        ("22:14", "orders.created", "mb"): (1, 0, 0, 7, 0, 0, 0),
        ("23:00", "orders.price", "seneca"): (0, 1, 0, 0, 0, 0, 0),
    }  # fmt: skip
    busy = found["22:13", "orders.price", "mb"]
    latencies = [*(1000 * latency for latency in LATENCIES_MS), 1_000_000, 26_000_000]
    assert [busy[f"latency_p{share}_us"] for share in (50, 95, 99)] == pytest.approx(quantiles(latencies))
    assert found["23:00", "orders.price", "seneca"]["latency_p50_us"] is None
    assert {row["minute"].minute for row in rows if row["closed"]} == {13, 14}


def test_a_call_is_an_edge_and_one_that_nobody_answered_is_missed_by_no_sum(spark: SparkSession) -> None:
    rows = computed(spark, service_graph)
    names = ("calls", "errors", "timeouts", "late", "open")
    edges = {
        (row["hour"].hour, row["caller"], row["wire"], row["callee"], row["callee_wire"]): tuple(
            row[name] for name in names
        )
        for row in rows
    }
    assert edges == {
        (22, "shop", "mb", "desk", "zbus"): (7, 1, 0, 1, 0),
        (22, "shop", "mb", "nobody", ""): (1, 0, 1, 0, 0),
        (23, "nobody", "seneca", "nobody", ""): (1, 0, 0, 0, 1),
    }
    (busy,) = (row for row in rows if row["calls"] == 7)
    latencies = [*(1000 * latency for latency in LATENCIES_MS), 1_000_000, 26_000_000]
    assert [busy[f"latency_p{share}_us"] for share in (50, 95, 99)] == pytest.approx(quantiles(latencies))
