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

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from raceway.pipeline.tables import HOUR_US, REJECTED_MESSAGES, Derived
from raceway.pipeline.transforms.counting import Counting
from raceway.pipeline.transforms.topic_stats import CLEAN_MESSAGES
from raceway.wires.captures.columns import JOURNAL

KEY = ("source", "hour", "subject", "schema_version", "producer", "wire")
DDL = """
    source string, hour timestamp, subject string, schema_version bigint, producer string, wire string,
    schema_type string, messages bigint, violations bigint, tolerated bigint, refused bigint, closed boolean
"""


def _adds(name: str, rows: DataFrame) -> DataFrame:
    """Return what each stored or refused message adds."""
    if name == CLEAN_MESSAGES:
        tolerated = (F.col("value_fault").isNotNull() | _was_tolerated()).cast("bigint")
        accepted = rows.where(F.col("subject").isNotNull() | _was_tolerated())
        return accepted.select(
            *_key(),
            "schema_type",
            _count("messages", 1),
            _count("tolerated", tolerated),
            _count("violations", tolerated),
            _count("refused", 0),
        )
    # Imports refuse by the rules of their wire instead.
    by_bus = rows.where(F.col("source") == JOURNAL)
    return by_bus.select(
        *_key(), _count("messages", 0), _count("tolerated", 0), _count("violations", 1), _count("refused", 1)
    )


def _key() -> list[Column]:
    """Return the columns of the key."""
    # Not NULL, so that queries can name the group of messages without a subject.
    known = {name: F.coalesce(name, F.lit("")) for name in ("subject", "producer")}
    return [
        known.get(name, F.date_trunc("hour", "time") if name == "hour" else F.col(name)).alias(name) for name in KEY
    ]


def _count(name: str, value: Column | int) -> Column:
    """Return a count under its name."""
    return F.lit(value).cast("bigint").alias(name)


def _was_tolerated() -> Column:
    """Return whether the bus accepted a message that broke a rule. The `error` of an answer is something else."""
    return F.coalesce((F.col("kind") != "response") & F.col("error").isNotNull(), F.lit(False))


COUNTING = Counting(
    ddl=DDL,
    key=KEY,
    span="hour",
    span_us=HOUR_US,
    inputs={CLEAN_MESSAGES: "time_us", REJECTED_MESSAGES: "time_us"},
    adds=_adds,
    sums=("messages", "tolerated", "violations", "refused"),
    at_least_one=("messages", "refused"),
    greatest=("schema_type",),
)
TABLE = Derived(
    name="gold.schema_usage",
    ddl=DDL,
    key=KEY,
    when="hour",
    inputs=(CLEAN_MESSAGES, REJECTED_MESSAGES),
    transform=COUNTING.transform,
    advance=COUNTING.advance,
    due=COUNTING.is_due,
)
