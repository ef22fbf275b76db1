"""silver.exchanges: requests and what became of them."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from raceway.pipeline.lake import WRITER, Lake
from raceway.pipeline.refreshing import refresh
from raceway.pipeline.transforms import exchanges
from tests.pipeline.lakes import append, fill
from tests.pipeline.rows import START_US, Row, answer, inputs, message, request


def table(spark: SparkSession, *rows: Row) -> dict[int, dict[str, Any]]:
    """By position of the request."""
    found = exchanges.transform(inputs(spark, list(rows))).collect()
    return {row["sequence"]: row.asDict() for row in found}


def test_a_request_and_its_answer_are_one_row(spark: SparkSession) -> None:
    rows = (
        request(0, producer="shop", payload=b"12345"),
        message(1),
        answer(2, 0, producer="prices", wire="zbus", payload=b"1"),
    )
    (row,) = table(spark, *rows).values()
    assert (row["status"], row["caller"], row["callee"], row["callee_wire"]) == ("answered", "shop", "prices", "zbus")
    assert (row["requested_us"], row["latency_us"], row["answer_sequence"]) == (START_US, 2_000_000, 2)
    assert (row["request_bytes"], row["answer_bytes"], row["due_us"]) == (5, 1, None)


def test_answers_are_found_by_position_not_by_id(spark: SparkSession) -> None:
    """Two requests of the same id, answered in the other order."""
    rows = (request(0, message_id="a"), request(1, message_id="a"), answer(2, 1, message_id="a", producer="x"))
    found = table(spark, *rows, answer(3, 0, message_id="a", producer="y"))
    assert (found[0]["callee"], found[1]["callee"]) == ("y", "x")


def test_an_unanswered_request_is_open_until_its_deadline_and_then_a_timeout(spark: SparkSession) -> None:
    open_one = table(spark, request(0, timeout_ms=5000), message(4))[0]
    assert (open_one["status"], open_one["due_us"]) == ("open", START_US + 5_000_000)
    passed = table(spark, request(0, timeout_ms=5000), message(5))[0]
    assert (passed["status"], passed["due_us"]) == ("timeout", None)


@pytest.mark.parametrize("wire", ["mb", "zbus", "seneca", "http"])
def test_a_row_without_a_deadline_stays_open_until_it_is_answered(spark: SparkSession, wire: str) -> None:
    """It waits in a queue, or was stored by a bus that wrote down only what requests named. `late` is still told."""
    old = [request(at, timeout_ms=None, wire=wire, forwarded_id="x") for at in range(2)]
    found = table(spark, *old, answer(2, 1, error="late"), message(36_000))
    assert [(row["status"], row["timeout_ms"], row["deadline_us"], row["due_us"]) for row in found.values()] == [
        ("open", None, None, None), ("late", None, None, None)
    ]  # fmt: skip


def test_all_the_time_there_is_is_no_deadline(spark: SparkSession) -> None:
    row = table(spark, request(0, timeout_ms=2**63 - 1), message(3600))[0]
    assert (row["status"], row["deadline_us"]) == ("open", None)


def test_a_late_answer_mends_a_timeout_and_is_counted(spark: SparkSession) -> None:
    row = table(spark, request(0, timeout_ms=1000), answer(9, 0, error="late", producer="slow"))[0]
    assert (row["status"], row["callee"], row["latency_us"], row["late_answers"]) == ("late", "slow", 9_000_000, 1)


def test_a_second_answer_is_counted_and_the_first_one_counts(spark: SparkSession) -> None:
    row = table(spark, request(0), answer(1, 0, producer="a"), answer(2, 0, producer="b", error="duplicate"))[0]
    assert (row["status"], row["callee"], row["duplicate_answers"]) == ("answered", "a", 1)


def test_an_answer_that_failed_has_its_code(spark: SparkSession) -> None:
    row = table(spark, request(0), answer(1, 0, error="INVALID_REQUEST"))[0]
    assert (row["status"], row["error"]) == ("error", "INVALID_REQUEST")


@pytest.mark.parametrize("code", ["no_route", "busy"])
def test_what_the_bus_refused_itself_is_an_error_without_callee(spark: SparkSession, code: str) -> None:
    """Also where there is no deadline; and however quick the refusal was, no service was."""
    row = table(spark, request(0, wire="zbus", timeout_ms=None), answer(1, 0, error=code, producer="raceway"))[0]
    assert (row["status"], row["error"], row["due_us"]) == ("error", code, None)
    assert (row["callee"], row["callee_wire"], row["latency_us"]) == (None, None, None)
    assert (row["answer_sequence"], row["answered_us"]) == (1, START_US + 1_000_000)


def test_only_the_bus_refuses_without_being_a_callee(spark: SparkSession) -> None:
    rows = (request(0), answer(1, 0, error="no_route", producer="relay"), request(2), answer(3, 2, producer="raceway"))
    found = table(spark, *rows, request(4), answer(5, 4, error="no_route", producer=None))
    assert [found[at]["callee"] for at in (0, 2, 4)] == ["relay", "raceway", None]
    assert all(row["callee_wire"] == "mb" and row["latency_us"] for row in found.values())


def test_an_answer_without_its_request_is_an_orphan(spark: SparkSession) -> None:
    found = table(spark, answer(7, 3), answer(8, None, message_id="z"))
    assert {position: row["status"] for position, row in found.items()} == {3: "orphan", 8: "orphan"}
    assert found[3]["answer_sequence"] == 7
    assert found[8]["message_id"] == "z"


def test_sources_are_worlds_of_their_own(spark: SparkSession) -> None:
    """The capture's clock says nothing about the journal's requests, nor do its positions."""
    capture = "import:" + "a" * 64
    found = exchanges.transform(
        inputs(spark, [request(0), message(9000, source=capture), answer(9001, 0, source=capture)])
    )
    assert {(row["source"], row["status"]) for row in found.collect()} == {("journal", "open"), (capture, "orphan")}


def test_answers_in_later_batches_mend_the_row_of_their_request(lake: Lake) -> None:
    """Out of order, late and twice; what was a timeout, or open, when its own batch was taken in."""
    rows = [
        request(0),
        request(1, timeout_ms=1000),
        *(message(at) for at in range(2, 5)),
        request(5),
        answer(6, 5, producer="first"),
        answer(7, 0, producer="second"),
        answer(8, 1, error="late"),
        answer(9, 0, error="duplicate"),
    ]
    fill(lake, rows, (2, 6, 8), [exchanges.TABLE])
    found = {row["sequence"]: row for row in lake.frame("silver.exchanges").collect()}
    assert {at: (row["status"], row["callee"], row["verdict"]) for at, row in found.items()} == {
        0: ("answered", "second", "in time"), 1: ("late", None, "late"), 5: ("answered", "first", "in time"),
    }  # fmt: skip
    assert found[0]["duplicate_answers"] == found[1]["late_answers"] == 1


def test_an_answer_in_time_counts_though_a_repeat_of_it_came_first(lake: Lake) -> None:
    """The journal lost the rows in between; what an earlier batch made of the repeat is mended."""
    rows = [request(0), answer(1, 0, error="duplicate", producer="again"), answer(2, 0, error="E", producer="first")]
    fill(lake, rows, (1, 2), [exchanges.TABLE])
    (found,) = lake.frame("silver.exchanges").collect()
    assert (found["status"], found["error"], found["callee"], found["duplicate_answers"]) == ("error", "E", "first", 1)


def test_only_files_that_a_batch_concerns_are_written_again(lake: Lake) -> None:
    fill(lake, [request(0, None), request(1, None)], (1,), [exchanges.TABLE])
    first, second = (
        sorted(lake.paths("silver.exchanges", sequence=(0, 0))),
        lake.paths("silver.exchanges", sequence=(1, 1)),
    )
    fill(lake, [message(2), answer(3, 1)], (), [exchanges.TABLE])
    now = lake.paths("silver.exchanges")
    assert set(first) <= set(now)
    assert not set(second) & set(now)


def test_an_open_request_of_a_capture_stays_open_whatever_time_the_journal_has(lake: Lake) -> None:
    """Its own time does not go on."""
    capture = "import:" + "ab" * 32
    append(lake, [request(0, source=capture)])
    append(lake, [message(0, time_us=START_US + 10**9), request(1, time_us=START_US + 10**9)])
    refresh(lake, [exchanges.TABLE])
    refresh(lake, [exchanges.TABLE])
    assert lake.progress("silver.exchanges", WRITER) == 1, "nothing is due"
    found = {row["source"]: row["status"] for row in lake.frame("silver.exchanges").collect()}
    assert found == {capture: "open", "journal": "open"}
