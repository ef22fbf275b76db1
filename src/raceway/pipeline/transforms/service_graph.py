"""gold.service_graph: calls between services, by hour.

A request without an answer has no callee; its row has `nobody`, so that every sum includes it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from raceway.pipeline.tables import Derived, Inputs, own_time, row, time_bucket

EXCHANGES = "silver.exchanges"
NOBODY = "nobody"
HOUR = 60
DDL = """
    source string, hour timestamp, topic string, caller string, wire string, callee string, callee_wire string,
    calls bigint, errors bigint, timeouts bigint, late bigint, open bigint,
    latency_p50_us double, latency_p95_us double, latency_p99_us double
"""


def transform(inputs: Inputs) -> DataFrame:
    """Return the rows of the table."""
    # An orphan is an answer without a request: its caller is unknown.
    calls = inputs[EXCHANGES].where("status <> 'orphan'")
    grouped = calls.groupBy(
        "source",
        F.date_trunc("hour", "time").alias("hour"),
        "topic",
        F.coalesce("caller", F.lit(NOBODY)).alias("caller"),
        "wire",
        F.coalesce("callee", F.lit(NOBODY)).alias("callee"),
        F.coalesce("callee_wire", F.lit("")).alias("callee_wire"),
        time_bucket(F.unix_micros("time"), HOUR).alias("bucket"),
    )
    return grouped.agg(
        F.count("*").alias("calls"),
        *(
            F.count_if(F.col("status") == status).alias(name)
            for status, name in (("error", "errors"), ("timeout", "timeouts"), ("late", "late"), ("open", "open"))
        ),
        *percentiles("latency_us"),
    ).select(*row(DDL), "bucket")


def percentiles(name: str) -> list[Column]:
    """Return exact percentiles: approximate ones change with the number of partitions."""
    base = name.removesuffix("_us")
    return [F.percentile(name, F.lit(share / 100)).alias(f"{base}_p{share}_us") for share in (50, 95, 99)]


TABLE = Derived(
    name="gold.service_graph",
    ddl=DDL,
    key=("source", "hour", "topic", "caller", "wire", "callee", "callee_wire"),
    transform=transform,
    looks_at={EXCHANGES: ("time",)},
    feeds=own_time(HOUR),
    expected=(
        "hours of callers and callees with a request",
        "(SELECT count(*) FROM (SELECT DISTINCT source, requested_us - requested_us % 3600000000 AS hour, topic, "
        "coalesce(caller, 'nobody') AS caller, wire, coalesce(callee, 'nobody') AS callee, "
        "coalesce(callee_wire, '') AS callee_wire FROM silver.exchanges WHERE status <> 'orphan') AS g)",
    ),
)
