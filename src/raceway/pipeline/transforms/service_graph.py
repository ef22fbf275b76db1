"""gold.service_graph: calls between services, by hour.

A request without an answer has no callee; its row has `nobody`, so that every sum includes it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from raceway.pipeline.tables import HOUR_US, Derived
from raceway.pipeline.transforms.counting import Counting
from raceway.pipeline.transforms.exchanges import NAME as EXCHANGES

NOBODY = "nobody"
_STATUSES = {"error": "errors", "timeout": "timeouts", "late": "late", "open": "open"}
_KEY = ("source", "hour", "topic", "caller", "wire", "callee", "callee_wire")
DDL = """
    source string, hour timestamp, topic string, caller string, wire string, callee string, callee_wire string,
    calls bigint, errors bigint, timeouts bigint, late bigint, open bigint,
    latency_p50_us double, latency_p95_us double, latency_p99_us double, latency_counts map<int,bigint>, closed boolean
"""


def _adds(_: str, rows: DataFrame) -> DataFrame:
    """Return what each exchange adds."""
    # An orphan is an answer without a request: its caller is unknown.
    return rows.where("status <> 'orphan'").select(
        "source",
        F.date_trunc("hour", "time").alias("hour"),
        "topic",
        F.coalesce("caller", F.lit(NOBODY)).alias("caller"),
        "wire",
        F.coalesce("callee", F.lit(NOBODY)).alias("callee"),
        F.coalesce("callee_wire", F.lit("")).alias("callee_wire"),
        F.lit(1).alias("calls"),
        *((F.col("status") == status).cast("bigint").alias(name) for status, name in _STATUSES.items()),
        "latency_us",
    )


COUNTING = Counting(
    ddl=DDL,
    key=_KEY,
    span="hour",
    span_us=HOUR_US,
    inputs={EXCHANGES: "requested_us"},
    adds=_adds,
    sums=("calls", *_STATUSES.values()),
    at_least_one=("calls",),
    exact=EXCHANGES,
)
TABLE = Derived(
    name="gold.service_graph",
    ddl=DDL,
    key=_KEY,
    when="hour",
    inputs=(EXCHANGES,),
    transform=COUNTING.transform,
    advance=COUNTING.advance,
    due=COUNTING.is_due,
)
