"""gold.schema_usage: which producers use which version of which schema, by hour, and how often a payload did not
conform.

    messages    accepted and stored
    tolerated   of these, messages that broke a rule of a topic that only warns: the bus recorded it in `error`;
                and payloads that do not match their version, on topics whose policy does not check payloads
    refused     never stored under their topic: the policy is to enforce
    violations  both

Messages that broke a rule before any subject was found, because their topic has none or because they name one that does
not exist, are under the subject `''`; `schema_version` is NULL if a message named none that exists.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from raceway.pipeline.tables import REJECTED_MESSAGES, Derived, Inputs, row, time_bucket, time_buckets
from raceway.pipeline.transforms.service_graph import HOUR
from raceway.pipeline.transforms.topic_stats import CLEAN_MESSAGES
from raceway.wires.captures.columns import JOURNAL

KEY = ("source", "hour", "subject", "schema_version", "producer", "wire")
DDL = """
    source string, hour timestamp, subject string, schema_version bigint, producer string, wire string,
    schema_type string, messages bigint, violations bigint, tolerated bigint, refused bigint
"""


def transform(inputs: Inputs) -> DataFrame:
    """Return the rows of the table."""
    rows, rejected = inputs[CLEAN_MESSAGES], inputs[REJECTED_MESSAGES]
    tolerated = F.col("value_fault").isNotNull() | _was_tolerated()
    accepted = rows.where(F.col("subject").isNotNull() | _was_tolerated())
    stored = _counted(accepted, F.col("schema_type"), messages=1, tolerated=tolerated, refused=0)
    # Imports refuse by the rules of their wire instead.
    by_bus = rejected.where(F.col("source") == JOURNAL)
    refused = _counted(by_bus, F.lit(None).cast("string"), messages=0, tolerated=0, refused=1)
    sums = (F.sum(name).alias(name) for name in ("messages", "tolerated", "refused"))
    grouped = stored.unionByName(refused).groupBy(*KEY).agg(F.max("schema_type").alias("schema_type"), *sums)
    return grouped.select(
        *row(DDL, violations=F.col("tolerated") + F.col("refused")),
        time_bucket(F.unix_micros("hour"), HOUR).alias("bucket"),
    )


def _was_tolerated() -> Column:
    """Return whether the bus accepted a message that broke a rule. The `error` of an answer is something else."""
    return F.coalesce((F.col("kind") != "response") & F.col("error").isNotNull(), F.lit(False))


def _counted(rows: DataFrame, schema_type: Column, **counts: Column | int) -> DataFrame:
    """Return the key, the type and the counts of each row."""
    return rows.select(
        "source",
        F.date_trunc("hour", "time").alias("hour"),
        # Not NULL, so that queries can name the group of messages without a subject.
        F.coalesce("subject", F.lit("")).alias("subject"),
        "schema_version",
        F.coalesce("producer", F.lit("")).alias("producer"),
        "wire",
        schema_type.alias("schema_type"),
        *(F.lit(count).cast("bigint").alias(name) for name, count in counts.items()),
    )


def feeds(name: str, rows: pa.Table) -> Iterable[str]:
    """Return the buckets that these rows of an input change."""
    if name == CLEAN_MESSAGES:
        tolerated = pc.and_(pc.not_equal(rows.column("kind"), "response"), pc.is_valid(rows.column("error")))
        rows = rows.filter(pc.or_(pc.is_valid(rows.column("subject")), tolerated))
    return time_buckets(rows.column("time"), HOUR)


TABLE = Derived(
    name="gold.schema_usage",
    ddl=DDL,
    key=KEY,
    transform=transform,
    looks_at={CLEAN_MESSAGES: ("time", "subject", "kind", "error"), REJECTED_MESSAGES: ("time",)},
    feeds=feeds,
    expected=(
        "hours of versions, producers and wires with a message, stored or refused",
        "(SELECT count(*) FROM ("
        "SELECT source, time_us - time_us % 3600000000 AS hour, coalesce(subject, '') AS subject, schema_version, "
        "coalesce(producer, '') AS producer, wire FROM silver.messages "
        "WHERE subject IS NOT NULL OR (kind <> 'response' AND error IS NOT NULL) UNION "
        "SELECT source, time_us - time_us % 3600000000 AS hour, coalesce(subject, '') AS subject, schema_version, "
        "coalesce(producer, '') AS producer, wire FROM bronze.rejected WHERE source = 'journal') AS g)",
    ),
)
