"""gold.topic_stats: one minute of one topic on one wire.

Messages count in the minute they came, exchanges in the minute of their request. `latency_…` covers all exchanges that
were answered by a service.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from raceway.pipeline.tables import Derived, Inputs, own_time, row, time_bucket
from raceway.pipeline.transforms.service_graph import EXCHANGES, percentiles

CLEAN_MESSAGES = "silver.messages"
# Minutes in a bucket: live traffic changes one bucket at a time.
SPAN_MINUTES = 10
KEY = ("source", "minute", "topic", "wire")
DDL = """
    source string, minute timestamp, topic string, wire string,
    publishes bigint, requests bigint, responses bigint, bytes bigint, errors bigint,
    answered bigint, timeouts bigint, latency_p50_us double, latency_p95_us double, latency_p99_us double
"""


def transform(inputs: Inputs) -> DataFrame:
    """Return the rows of the table."""
    # Full outer: a minute may have only messages, or only exchanges whose messages were repeats.
    joined = _messages(inputs[CLEAN_MESSAGES]).join(_exchanges(inputs[EXCHANGES]), list(KEY), "full_outer")
    counts = ("publishes", "requests", "responses", "bytes", "errors", "answered", "timeouts")
    return joined.select(
        *row(DDL, **{name: F.coalesce(name, F.lit(0)).cast("bigint") for name in counts}),
        time_bucket(F.unix_micros("minute"), SPAN_MINUTES).alias("bucket"),
    )


def _messages(rows: DataFrame) -> DataFrame:
    """Return counts of messages by minute, topic and wire."""
    kinds = (("publish", "publishes"), ("request", "requests"), ("response", "responses"))
    return rows.groupBy("source", _minute().alias("minute"), "topic", "wire").agg(
        *(F.count_if(F.col("kind") == kind).alias(name) for kind, name in kinds),
        F.sum("bytes").alias("bytes"),
        F.count("error").alias("errors"),
    )


def _exchanges(rows: DataFrame) -> DataFrame:
    """Return counts and latencies of exchanges by minute, topic and wire."""
    asked = rows.where("status <> 'orphan'")
    return asked.groupBy("source", _minute().alias("minute"), "topic", "wire").agg(
        F.count("latency_us").alias("answered"),
        F.count_if(F.col("status") == "timeout").alias("timeouts"),
        *percentiles("latency_us"),
    )


def _minute() -> Column:
    """Return the minute of a row."""
    return F.date_trunc("minute", "time")


TABLE = Derived(
    name="gold.topic_stats",
    ddl=DDL,
    key=KEY,
    transform=transform,
    looks_at={CLEAN_MESSAGES: ("time",), EXCHANGES: ("time",)},
    feeds=own_time(SPAN_MINUTES),
    expected=(
        "minutes of topics and wires with a message or a request",
        "(SELECT count(*) FROM ("
        "SELECT source, time_us - time_us % 60000000 AS minute, topic, wire FROM silver.messages UNION "
        "SELECT source, requested_us - requested_us % 60000000 AS minute, topic, wire FROM silver.exchanges "
        "WHERE status <> 'orphan') AS g)",
    ),
)
