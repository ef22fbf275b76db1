"""gold.schema_usage: who writes with which version of which schema, hour by hour, and how often it did not fit.

    messages    taken and stored
    tolerated   of these, payloads that are not what their version says: the topic's policy only warns, or does not look
    refused     never stored under their topic: the policy is to enforce
    violations  both

Messages that were refused before any subject was found, because their topic has none, are under the subject `''`;
`schema_version` is NULL where a message named none that exists.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from raceway.pipeline.columns import JOURNAL
from raceway.pipeline.tables import REJECTED_MESSAGES, Derived, Inputs, time_bucket, time_buckets
from raceway.pipeline.transforms.service_graph import HOUR
from raceway.pipeline.transforms.topic_stats import CLEAN_MESSAGES

KEY = ("source", "hour", "subject", "schema_version", "producer", "wire")
DDL = """
    source string, hour timestamp, subject string, schema_version bigint, producer string, wire string,
    schema_type string, messages bigint, violations bigint, tolerated bigint, refused bigint
"""


def transform(inputs: Inputs) -> DataFrame:
    counted = _stored(inputs[CLEAN_MESSAGES]).unionByName(_refused(inputs[REJECTED_MESSAGES]))
    return (
        counted.groupBy(*KEY)
        .agg(
            F.max("schema_type").alias("schema_type"),
            *(F.sum(name).alias(name) for name in ("messages", "tolerated", "refused")),
        )
        .select(
            *KEY,
            "schema_type",
            "messages",
            (F.col("tolerated") + F.col("refused")).alias("violations"),
            "tolerated",
            "refused",
            time_bucket(F.unix_micros("hour"), HOUR).alias("bucket"),
        )
    )


def _stored(rows: DataFrame) -> DataFrame:
    return rows.where("subject is not null").select(
        *_key("subject"),
        "schema_type",
        F.lit(1).cast("bigint").alias("messages"),
        F.col("value_fault").isNotNull().cast("bigint").alias("tolerated"),
        F.lit(0).cast("bigint").alias("refused"),
    )


def _refused(rows: DataFrame) -> DataFrame:
    """Of the bus; what an import refused was refused by the rules of its wire."""
    return rows.where(F.col("source") == JOURNAL).select(
        *_key("subject"),
        F.lit(None).cast("string").alias("schema_type"),
        F.lit(0).cast("bigint").alias("messages"),
        F.lit(0).cast("bigint").alias("tolerated"),
        F.lit(1).cast("bigint").alias("refused"),
    )


def _key(subject: str) -> list[Column]:
    return [
        F.col("source"),
        F.date_trunc("hour", "time").alias("hour"),
        F.coalesce(subject, F.lit("")).alias("subject"),
        F.col("schema_version"),
        F.coalesce("producer", F.lit("")).alias("producer"),
        F.col("wire"),
    ]


def feeds(name: str, rows: pa.Table) -> Iterable[str]:
    if name == CLEAN_MESSAGES:
        rows = rows.filter(pc.is_valid(rows.column("subject")))
    return time_buckets(rows.column("time"), HOUR)


TABLE = Derived(
    name="gold.schema_usage",
    ddl=DDL,
    key=KEY,
    inputs=(CLEAN_MESSAGES, REJECTED_MESSAGES),
    transform=transform,
    looks_at={CLEAN_MESSAGES: ("time", "subject"), REJECTED_MESSAGES: ("time",)},
    feeds=feeds,
)
