"""gold.traces: trees across wires, parts and time."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from raceway.pipeline.lake import Lake
from raceway.pipeline.tables import Limits
from raceway.pipeline.transforms import traces
from tests.pipeline.lakes import fill
from tests.pipeline.rows import START_US, Row, answer, inputs, message, request

MINUTE = 60


def chain() -> list[Row]:
    """MB asks Seneca, which asks zbus: one tree. Each second one row."""
    return [
        request(0, message_id="r", wire="mb", producer="web", topic="shop.buy"),
        request(1, message_id="s", parent_id="r", correlation_id="r", wire="seneca", producer="shop", topic="price"),
        request(2, message_id="t", parent_id="s", correlation_id="r", wire="zbus", producer="price", topic="tax"),
        answer(3, 2, message_id="t", correlation_id="r", wire="zbus", producer="tax", topic="tax"),
        answer(4, 1, message_id="s", correlation_id="r", wire="seneca", producer="price", topic="price"),
        answer(5, 0, message_id="r", correlation_id="r", wire="seneca", producer="shop", topic="shop.buy"),
    ]


def table(spark: SparkSession, *rows: Row) -> list[dict[str, Any]]:
    found = traces.transform(inputs(spark, list(rows))).orderBy("first_sequence").collect()
    return [row.asDict(recursive=True) for row in found]


def test_a_chain_over_three_wires_is_one_tree(spark: SparkSession) -> None:
    (trace,) = table(spark, *chain())
    assert (trace["messages"], trace["requests"], trace["depth"], trace["errors"]) == (6, 3, 3, 0)
    assert (trace["wires"], trace["crossings"]) == (["mb", "seneca", "zbus"], 3)
    assert (trace["start_us"], trace["total_us"], trace["critical_us"]) == (START_US, 5_000_000, 5_000_000)
    assert trace["critical_path"] == ["shop.buy", "price", "tax"]
    assert [(node["sequence"], node["parent"], node["depth"]) for node in trace["tree"]] == [
        (0, None, 1), (1, 0, 2), (2, 1, 3),
    ]  # fmt: skip
    assert [(node["answerer"], node["end_us"] - START_US) for node in trace["tree"]] == [
        ("shop", 5_000_000), ("price", 4_000_000), ("tax", 3_000_000),
    ]  # fmt: skip


def test_a_message_that_led_to_nothing_is_a_trace_of_one(spark: SparkSession) -> None:
    (trace,) = table(spark, message(7, topic="news", wire="danube"))
    assert (trace["messages"], trace["depth"], trace["wires"], trace["total_us"]) == (1, 1, ["danube"], 0)
    assert (trace["critical_path"], trace["tree"][0]["sequence"]) == (["news"], 7)


def test_the_critical_path_leads_to_what_ended_last(spark: SparkSession) -> None:
    rows = [
        request(0, message_id="r", topic="root"),
        request(1, message_id="fast", parent_id="r", correlation_id="r", topic="fast"),
        request(2, message_id="slow", parent_id="r", correlation_id="r", topic="slow"),
        answer(3, 1, correlation_id="r"),
        answer(9, 2, correlation_id="r"),
        answer(10, 0, correlation_id="r", error="BROKEN"),
    ]
    (trace,) = table(spark, *rows)
    assert (trace["critical_path"], trace["errors"]) == (["root", "slow"], 1)
    assert trace["tree"][0]["error"] == "BROKEN"


def test_a_trace_whose_root_is_not_there_has_all_it_has(spark: SparkSession) -> None:
    """Seneca's correlation id is the id of no message."""
    rows = [request(0, message_id="m1", correlation_id="c"), answer(1, 0, message_id="m1", correlation_id="c")]
    (trace,) = table(spark, *rows)
    assert (trace["correlation_id"], trace["messages"], trace["depth"]) == ("c", 2, 1)


def test_the_same_root_again_is_another_trace(spark: SparkSession) -> None:
    """An id need not be unique: whoever begins with it anew begins a new tree."""
    rows = [request(0, message_id="r"), answer(1, 0, message_id="r", correlation_id="r")]
    again = [request(2, message_id="r"), answer(3, 2, message_id="r", correlation_id="r")]
    assert [(trace["first_sequence"], trace["messages"]) for trace in table(spark, *rows, *again)] == [(0, 2), (2, 2)]


def test_what_follows_after_a_long_silence_is_another_trace(spark: SparkSession) -> None:
    rows = [message(0, message_id="r"), message(11 * MINUTE, parent_id="r", correlation_id="r")]
    assert [trace["messages"] for trace in table(spark, *rows)] == [1, 1]


def world() -> list[Row]:
    """Several traces at once: one that only begins, one that is followed later, one chain, one that comes again."""
    return [
        message(0, message_id="alone"),
        message(1, message_id="followed"),
        *(row | {"sequence": row["sequence"] + 2, "answers": _moved(row.get("answers"), 2)} for row in chain()),
        message(8, message_id="x", parent_id="followed", correlation_id="followed"),
        message(9, message_id="y", parent_id="x", correlation_id="followed"),
        message(10, message_id="alone"),
        message(11, message_id="z", parent_id="alone", correlation_id="alone"),
    ]


def _moved(position: int | None, by: int) -> int | None:
    return None if position is None else position + by


def test_borders_of_batches_change_nothing(lake: Lake) -> None:
    """Two of the traces reach over several batches."""
    rows = [row | {"time_us": START_US + row["sequence"] * 1_000_000} for row in world()]
    fill(lake, rows, (3, 8, 11), [traces.TABLE])
    found = lake.frame("gold.traces").orderBy("first_sequence").collect()
    assert [(row["correlation_id"], row["first_sequence"], row["messages"]) for row in found] == [
        ("alone", 0, 1), ("followed", 1, 3), ("r", 2, 6), ("alone", 10, 2),
    ]  # fmt: skip


def test_an_id_that_is_never_silent_costs_a_batch_its_longest_age_at_most(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise every batch reads all history since the id came first (and is slower with every batch)."""
    steady = Lake(lake.spark, lake.folders, limits=Limits(trace_us=30 * MINUTE * 1_000_000))
    asked: list[int] = []

    def paths(table: str, **bounds: Any) -> list[str]:
        if table == "bronze.messages" and "time_us" in bounds:
            asked.append(bounds["time_us"][0])
        return Lake.paths(steady, table, **bounds)

    monkeypatch.setattr(steady, "paths", paths)
    for hour in range(3):
        rows = [
            message(n, message_id=None, correlation_id="c", time_us=START_US + n * 5 * MINUTE * 1_000_000)
            for n in range(12 * hour, 12 * hour + 12)
        ]
        fill(steady, rows, (), [traces.TABLE])
        if asked:
            assert rows[0]["time_us"] - asked[-1] <= 35 * MINUTE * 1_000_000
    assert len(asked) == 2
    found = steady.frame("gold.traces").orderBy("first_sequence").collect()
    assert [(row["first_sequence"], row["messages"]) for row in found] == [(n, 7) for n in range(0, 35, 7)] + [(35, 1)]
