"""silver.messages: payloads as text, repeats left out."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from raceway.pipeline.lake import Lake
from raceway.pipeline.transforms import messages
from tests.pipeline.lakes import fill
from tests.pipeline.rows import Row, inputs, message

MINUTE = 60


def table(spark: SparkSession, *rows: Row) -> list[dict[str, Any]]:
    return [row.asDict() for row in messages.transform(inputs(spark, list(rows))).orderBy("sequence").collect()]


def test_payloads_as_text_and_whether_they_are_one_json_value(spark: SparkSession) -> None:
    expected: list[tuple[bytes, str | None, bool]] = [
        (b'{"a": [1, 2]}', '{"a": [1, 2]}', True),
        (b"true", "true", True),
        (b" null ", " null ", True),
        (b"not JSON", "not JSON", False),
        (b'{"a":1} x', '{"a":1} x', False),
        (b"1, 2", "1, 2", False),
        (b'1, "b": 2', '1, "b": 2', False),
        (b"1] x", "1] x", False),
        (b"1} x", "1} x", False),
        (b'{"a":1}]}', '{"a":1}]}', False),
        (b"[1], [2]", "[1], [2]", False),
        (b'{"a":1,"a":2}', '{"a":1,"a":2}', True),
        (b'{"a":1,"a":2} 3', '{"a":1,"a":2} 3', False),
        (b"{'a':1}", "{'a':1}", False),
        (b"", "", False),
        (b"\xff\xfe", None, False),
        ("Käse".encode(), "Käse", False),
        (b"[" * 100_000, "[" * 100_000, False),
        (b"-" * 3000, "-" * 3000, False),
        (b'"\\ud800"', '"\\ud800"', True),
        (b"1" * 3000, "1" * 3000, True),
        (b"[" * 3000 + b"]" * 3000, "[" * 3000 + "]" * 3000, True),
        (b"\n{}\r\n", "\n{}\r\n", True),
        (b"[NaN]", "[NaN]", False),
    ]
    rows = table(spark, *(message(at, payload=payload) for at, (payload, _, _) in enumerate(expected)))
    assert [(row["payload"], row["text"], row["valid_json"]) for row in rows] == expected
    assert [row["bytes"] for row in rows] == [len(payload) for payload, _, _ in expected]


def named(sequence: int, dedup_id: str, **fields: Any) -> Row:
    return message(sequence, **{"producer": "p", "attributes": {"x-dedup-id": dedup_id}} | fields)


def test_a_repeat_of_the_same_producer_is_left_out(spark: SparkSession) -> None:
    rows = [named(0, "a"), named(1, "a"), named(2, "b"), named(3, "a", producer="other"), named(4, "a", topic="other")]
    assert [row["sequence"] for row in table(spark, *rows, named(5, ""), named(6, ""))] == [0, 2, 3, 4, 5, 6]


def test_a_repeat_after_the_window_is_a_message(spark: SparkSession) -> None:
    rows = table(spark, named(0, "a"), named(11 * MINUTE, "a"), named(12 * MINUTE, "a"))
    assert [row["sequence"] for row in rows] == [0, 11 * MINUTE]


def test_the_same_text_without_such_an_id_is_no_repeat(spark: SparkSession) -> None:
    assert len(table(spark, message(0, message_id="x"), message(1, message_id="x"))) == 2


def test_repeats_are_known_across_parts(lake: Lake) -> None:
    rows = [named(0, "a"), message(1), named(2, "a"), message(3), named(4, "a"), named(5, "b")]
    fill(lake, rows, (2, 4), [messages.STATE, messages.TABLE])
    kept = lake.frame("silver.messages").collect()
    assert sorted(row["sequence"] for row in kept) == [0, 1, 3, 5]
