"""silver.messages: messages as somebody who asks questions wants them.

Payloads are text where they are UTF-8, and `value`, JSON, where a schema version says what they mean (see `values`).
`schema_id` and `schema_version` are those of the version that was read with, else what the message says.

Repeats are left out. A repeat is a message whose sender says so: the same attribute `x-dedup-id` of the same producer
on the same topic, not longer than the window after the one before. The bus itself refuses such repeats while it runs;
captures and a bus without that window do not. What a part of bronze must know of parts before it, when an id was seen
last, is carried from part to part; a link says it of the first row in the part that has the id.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from raceway.pipeline.tables import MESSAGES, Carried, Derived, Earlier, Inputs, own_position, position_bucket
from raceway.pipeline.transforms.values import with_values

DEDUP_ATTRIBUTE = "x-dedup-id"
# The window of the bus.
DEDUP_WINDOW_US = 10 * 60 * 1_000_000
_ID = ("source", "topic", "sender", "dedup_id")
_ROW = ["source", "partition", "sequence"]

DDL = """
    source string, partition int, sequence bigint, topic string, offset bigint, time timestamp, time_us bigint,
    sent_ms bigint, wire string, kind string, message_id string, parent_id string, correlation_id string,
    answers bigint, producer string, producer_id bigint, schema_id bigint, schema_version bigint, routing_key string,
    attributes map<string,string>, encoding string, error string, bytes bigint, payload binary, text string,
    valid_json boolean, subject string, schema_type string, value string, value_fault string
"""
_KEPT = (
    "source", "partition", "sequence", "topic", "offset", "time", "time_us", "sent_ms", "wire", "kind", "message_id",
    "parent_id", "correlation_id", "answers", "producer", "producer_id", "schema_id", "schema_version", "routing_key",
    "attributes", "encoding", "error",
)  # fmt: skip


def transform(inputs: Inputs) -> DataFrame:
    text = F.try_validate_utf8(F.col("payload").cast("string"))
    rows = _without_repeats(inputs[MESSAGES], inputs.links).select(*_KEPT, "payload")
    return with_values(rows, inputs.schemas).select(
        *_KEPT,
        F.length("payload").cast("bigint").alias("bytes"),
        "payload",
        text.alias("text"),
        _is_json(text).alias("valid_json"),
        "subject",
        "schema_type",
        "value",
        "value_fault",
        position_bucket(F.col("source"), F.col("sequence")).alias("bucket"),
    )


def _is_json(text: Column) -> Column:
    """One JSON value and nothing behind it, which the parser would not mind: only a whole value can stand in both."""
    listed = F.concat(F.lit("["), text, F.lit("]"))
    named = F.concat(F.lit('{"a":'), text, F.lit("}"))
    both = F.try_parse_json(listed).isNotNull() & F.try_parse_json(named).isNotNull()
    return F.coalesce(text.isNotNull() & both, F.lit(False))


def _without_repeats(rows: DataFrame, links: DataFrame | None) -> DataFrame:
    before = F.lag("time_us").over(Window.partitionBy(*_ID, "part").orderBy("sequence"))
    named = _named(rows).withColumn("before_us", before)
    if links is not None:
        named = named.join(links.select(*_ROW, "last_us"), _ROW, "left")
        named = named.withColumn("before_us", F.coalesce("before_us", "last_us"))
    first = F.col("before_us").isNull() | (F.col("time_us") - F.col("before_us") > DEDUP_WINDOW_US)
    unnamed = rows.where(_dedup_id().isNull())
    return unnamed.unionByName(named.where(first).select(*rows.columns))


def _named(rows: DataFrame) -> DataFrame:
    """Rows that say who they are."""
    named = rows.where(_dedup_id().isNotNull())
    return named.withColumns({"dedup_id": _dedup_id(), "sender": F.coalesce("producer", F.lit(""))})


def _dedup_id() -> Column:
    """NULL where there is none; an empty one says nothing."""
    told = F.try_element_at("attributes", F.lit(DEDUP_ATTRIBUTE))
    return F.when(F.col("kind").isin("publish", "request") & (told != ""), told)


def carry(rows: DataFrame, active: DataFrame | None, _: Earlier | None) -> Carried:
    """`links`: when the id of a row was last seen before this part. `active`: ids whose window is still open."""
    here = (
        _named(rows)
        .groupBy(*_ID)
        .agg(F.min("partition").alias("partition"), F.min("sequence").alias("sequence"), F.max("time_us").alias("now"))
    )
    seen = here.select(*_ID, F.col("now").alias("last_us"))
    if active is None:
        return Carried(here.select(*_ROW, F.col("now").alias("last_us")).limit(0), seen)
    links = here.join(active, list(_ID)).select(*_ROW, "last_us")
    seen = seen.unionByName(active).groupBy(*_ID).agg(F.max("last_us").alias("last_us"))
    now = rows.agg(F.max("time_us").alias("now_us"))
    still = seen.crossJoin(F.broadcast(now)).where(F.col("last_us") >= F.col("now_us") - DEDUP_WINDOW_US)
    return Carried(links, still.select(*_ID, "last_us"))


TABLE = Derived(
    name="silver.messages",
    ddl=DDL,
    key=("source", "partition", "sequence"),
    inputs=(MESSAGES,),
    transform=transform,
    feeds=own_position,
    carry=carry,
)
