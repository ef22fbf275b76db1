"""silver.hops: differences of one clock only."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from raceway.pipeline.transforms import hops
from tests.pipeline.rows import answer, inputs, message, request


def hop(*times: int | None, sid: str = "a", rid: str = "b", mid: str = "m") -> dict[str, Any]:
    return {"sid": sid, "rid": rid, "mid": mid, "tms": list(times)}


def entries(spark: SparkSession, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    found = hops.transform(inputs(spark, list(rows))).orderBy("sequence", "hop").collect()
    return [row.asDict() for row in found]


@pytest.mark.parametrize("wire", ["mb", "zbus"])
def test_the_bus_wrote_all_three_times(spark: SparkSession, wire: str) -> None:
    (row,) = entries(spark, request(0), answer(1, 0, wire=wire, hops=[hop(100, 103, 150)]))
    assert (row["queue_ms"], row["processing_ms"], row["round_trip_ms"], row["network_ms"]) == (3, 47, 50, None)


def test_times_of_sender_and_receiver_are_never_mixed(spark: SparkSession) -> None:
    """Their clocks are an hour apart: only differences within each come out."""
    hour = 3_600_000
    (row,) = entries(spark, answer(1, 0, wire="seneca", hops=[hop(0, hour + 20, hour + 25, 47)]))
    assert (row["processing_ms"], row["round_trip_ms"], row["network_ms"], row["queue_ms"]) == (5, 47, 42, None)


def test_what_was_not_written_is_not_guessed(spark: SparkSession) -> None:
    (row,) = entries(spark, message(0, wire="seneca", hops=[hop(5)]))
    assert (row["processing_ms"], row["round_trip_ms"], row["queue_ms"], row["times_ms"]) == (None, None, None, [5])


def test_wild_times_are_no_difference(spark: SparkSession) -> None:
    """Clients write what they like; there is no number for some differences."""
    least, most = -(2**63), 2**63 - 1
    (row,) = entries(spark, message(0, wire="seneca", hops=[hop(least, most, least, most)]))
    assert (row["processing_ms"], row["round_trip_ms"], row["network_ms"]) == (None, None, None)


def test_every_entry_is_a_row_in_order(spark: SparkSession) -> None:
    rows = entries(spark, message(0, hops=[hop(1, sid="a"), hop(2, sid="b")]), message(1))
    assert [(row["sequence"], row["hop"], row["sid"]) for row in rows] == [(0, 0, "a"), (0, 1, "b")]
