"""gold.topic_stats: one minute of one topic on one wire.

Messages count in the minute they came, exchanges in the minute of their request. `latency_…` covers all exchanges that
were answered by a service.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from raceway.pipeline.tables import MINUTE_US, Derived
from raceway.pipeline.transforms.counting import Counting
from raceway.pipeline.transforms.exchanges import NAME as EXCHANGES

CLEAN_MESSAGES = "silver.messages"
KEY = ("source", "minute", "topic", "wire")
DDL = """
    source string, minute timestamp, topic string, wire string,
    publishes bigint, requests bigint, responses bigint, bytes bigint, errors bigint,
    answered bigint, timeouts bigint, latency_p50_us double, latency_p95_us double, latency_p99_us double,
    latency_counts map<int,bigint>, messages bigint, exchanges bigint, closed boolean
"""
_KINDS = {"publish": "publishes", "request": "requests", "response": "responses"}


def _adds(name: str, rows: DataFrame) -> DataFrame:
    """Return what each message or exchange adds."""
    minute = F.date_trunc("minute", "time").alias("minute")
    if name == CLEAN_MESSAGES:
        return rows.select(
            "source",
            minute,
            "topic",
            "wire",
            *((F.col("kind") == kind).cast("bigint").alias(count) for kind, count in _KINDS.items()),
            "bytes",
            F.col("error").isNotNull().cast("bigint").alias("errors"),
            F.lit(1).alias("messages"),
        )
    return rows.where("status <> 'orphan'").select(
        "source",
        minute,
        "topic",
        "wire",
        F.col("latency_us").isNotNull().cast("bigint").alias("answered"),
        (F.col("status") == "timeout").cast("bigint").alias("timeouts"),
        F.lit(1).alias("exchanges"),
        "latency_us",
    )


COUNTING = Counting(
    ddl=DDL,
    key=KEY,
    span="minute",
    span_us=MINUTE_US,
    inputs={CLEAN_MESSAGES: "time_us", EXCHANGES: "requested_us"},
    adds=_adds,
    sums=(*_KINDS.values(), "bytes", "errors", "answered", "timeouts", "messages", "exchanges"),
    at_least_one=("messages", "exchanges"),
    exact=EXCHANGES,
)
TABLE = Derived(
    name="gold.topic_stats",
    ddl=DDL,
    key=KEY,
    when="minute",
    inputs=(CLEAN_MESSAGES, EXCHANGES),
    transform=COUNTING.transform,
    advance=COUNTING.advance,
    due=COUNTING.is_due,
)
