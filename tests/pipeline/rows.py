"""Builders of bronze rows: a test names what it is about, the rest has sensible values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from raceway.model.schemas import SchemaVersion
from raceway.pipeline.tables import MESSAGES, Inputs
from raceway.wires.captures.columns import BRONZE, JOURNAL

Row = dict[str, Any]
START_US = 1_700_000_000_000_000


def message(sequence: int, **fields: Any) -> Row:
    """A publish; a second passes from one position to the next."""
    row: Row = {
        "source": JOURNAL,
        "partition": 0,
        "sequence": sequence,
        "topic": "orders.created",
        "time_us": START_US + sequence * 1_000_000,
        "wire": "mb",
        "kind": "publish",
        "message_id": f"m{sequence}",
        "attributes": {},
        "hops": [],
        "payload": b"{}",
    } | fields
    row.setdefault("correlation_id", row["message_id"])
    return row


def request(sequence: int, timeout_ms: int | None = 5000, **fields: Any) -> Row:
    return message(sequence, **{"kind": "request", "topic": "orders.price", "timeout_ms": timeout_ms} | fields)


def answer(sequence: int, answers: int | None, **fields: Any) -> Row:
    """An answer to the request at position `answers`; it repeats that one's id."""
    values = {"kind": "response", "topic": "orders.price", "answers": answers, "message_id": f"m{answers}"}
    return message(sequence, **values | fields)


def bronze(rows: Iterable[Row]) -> pa.Table:
    found = list(rows)
    columns = []
    for field in BRONZE:
        name = "time_us" if field.name == "time" else field.name
        values = [_value(row.get(name)) for row in found]
        columns.append(
            pa.array(values, pa.int64()).cast(field.type) if field.name == "time" else pa.array(values, field.type)
        )
    return pa.table(columns, schema=BRONZE)


def _value(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value


def frame(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    """Rows of `bronze.messages` as a transform gets them."""
    return spark.createDataFrame(bronze(rows))


def inputs(
    spark: SparkSession, messages: Sequence[Row], schemas: Sequence[SchemaVersion] = (), **others: DataFrame
) -> Inputs:
    """What a transform gets when all of bronze is these messages; "now" is the time of the last one of each source.

    Other inputs by name with `__` for the dot: `silver__messages=frame`.
    """
    horizons: dict[str, int] = {}
    for row in messages:
        horizons[row["source"]] = max(horizons.get(row["source"], 0), row["time_us"])
    frames = {MESSAGES: frame(spark, messages)} | {name.replace("__", "."): rows for name, rows in others.items()}
    return Inputs(frames, horizons, schemas=schemas)
