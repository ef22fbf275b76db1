"""gold.traces: everything that one message led to, whatever wires it crossed.

Messages of one trace share a correlation id. A message that *is* the root (its own id is the correlation id, and it
answers nothing) begins a trace; any other continues the one that its correlation id is in, unless that has been silent
for longer than the gap. Requests and publishes are the nodes of the tree, an answer ends the node of its request.

Which trace a message belongs to depends on times and positions only. What a part of bronze must know of parts before it
is where a trace began that it continues: exchanges and chains are carried from part to part; roots that nothing has
followed yet, most publishes, are not carried but looked for when something does follow. A link says it of the first row
in the part that has the correlation id, so that it stays true when parts are merged.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from raceway.pipeline.columns import ddl
from raceway.pipeline.tables import MESSAGES, Carried, Derived, Earlier, Inputs, position_bucket
from raceway.pipeline.transforms.trees import SCHEMA, trees_of

# How long a trace may be silent and still go on: the longest deadlines are an hour, real chains take seconds.
GAP_US = 10 * 60 * 1_000_000
_ID = ("source", "correlation_id")
_ROW = ("source", "partition", "sequence")

DDL = f"{ddl(SCHEMA)}, time timestamp, total_us bigint"
_LOOKED_AT = ("time_us", "kind", "message_id")
_NEEDED = ("sequence", "time_us", "wire", "kind", "topic", "producer", "message_id", "parent_id", "answers", "error")


def transform(inputs: Inputs) -> DataFrame:
    named = _named(inputs[MESSAGES], inputs.links)
    trace = ("source", "correlation_id", "first_sequence")
    whole = named.select(*trace, *_NEEDED).repartition(*trace)
    found = whole.mapInArrow(_trees, ddl(SCHEMA))
    return found.select(
        *SCHEMA.names,
        F.timestamp_micros("start_us").alias("time"),
        (F.col("end_us") - F.col("start_us")).alias("total_us"),
        position_bucket(F.col("source"), F.col("first_sequence")).alias("bucket"),
    )


def _trees(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows of a partition together: a trace may lie across two batches."""
    held = list(batches)
    if held:
        yield from trees_of(pa.Table.from_batches(held)).to_batches(max_chunksize=10_000)


def _named(rows: DataFrame, links: DataFrame | None) -> DataFrame:
    """Each row with the position its trace began at."""
    rows = rows.where(F.col("correlation_id").isNotNull())
    if links is None:
        nothing = F.lit(None).cast("bigint")
        return _sessions(rows.withColumns({"linked": nothing, "linked_us": nothing}))
    known = links.select(*_ROW, F.col("first_sequence").alias("linked"), F.col("last_us").alias("linked_us"))
    return _sessions(rows.join(known, list(_ROW), "left"))


def _sessions(rows: DataFrame) -> DataFrame:
    same = Window.partitionBy(*_ID, "part").orderBy("sequence")
    before_us = F.coalesce(F.lag("time_us").over(same), F.col("linked_us"))
    begins = _is_root() | before_us.isNull() | (F.col("time_us") - before_us > GAP_US)
    began = rows.withColumn("began_at", F.when(begins, F.col("sequence")).otherwise(F.col("linked")))
    first = F.last("began_at", ignorenulls=True).over(same)
    return began.withColumn("first_sequence", first).drop("began_at", "linked", "linked_us")


def _is_root() -> Column:
    """Never NULL, also where a message has no id."""
    own = F.lower("message_id") == F.lower("correlation_id")
    return (F.col("kind") != "response") & F.coalesce(own, F.lit(False))


# ---- from part to part ----------------------------------------------------------------------------------------------


def carry(rows: DataFrame, active: DataFrame | None, earlier: Earlier | None) -> Carried:
    """`links`: where traces began that this part continues. `active`: traces that a later part may continue."""
    part = rows.where(F.col("correlation_id").isNotNull()).select(*_ROW, "correlation_id", *_LOOKED_AT)
    part = part.withColumn("part", F.lit(""))
    links = _links(part, active, earlier)
    here = (
        _named(part, links)
        .groupBy(*_ID)
        .agg(
            F.max("first_sequence").alias("first_sequence"),
            F.max("time_us").alias("last_us"),
            F.bool_or(~_is_root() | (F.col("kind") == "request")).alias("followed"),
        )
    )
    if active is None:
        return Carried(links, here.where("followed").select(*_ID, "first_sequence", "last_us"))
    kept = here.join(active.select(*_ID, F.lit(True).alias("known")), list(_ID), "left").where("followed or known")
    seen = kept.select(*_ID, "first_sequence", "last_us").unionByName(active.join(here, list(_ID), "left_anti"))
    now = rows.agg(F.max("time_us").alias("now_us"))
    still = seen.crossJoin(F.broadcast(now)).where(F.col("last_us") >= F.col("now_us") - GAP_US)
    return Carried(links, still.select(*_ID, "first_sequence", "last_us"))


def _links(part: DataFrame, active: DataFrame | None, earlier: Earlier | None) -> DataFrame:
    """Of ids whose first row here begins no trace: those carried, and single roots of parts before."""
    first = part.groupBy(*_ID).agg(
        F.min_by(_is_root(), "sequence").alias("rooted"),
        F.min("partition").alias("partition"),
        F.min("sequence").alias("sequence"),
        F.min("time_us").alias("from_us"),
    )
    continuing = first.where(~F.col("rooted"))
    known = active if active is not None else _nothing(continuing)
    carried = continuing.join(known, list(_ID)).select(*_ROW, "first_sequence", "last_us")
    missing = continuing.join(known.select(*_ID), list(_ID), "left_anti")
    span = missing.agg(F.min("from_us")).first()
    if earlier is None or span is None or span[0] is None:
        return carried
    found = earlier(span[0] - GAP_US).where(_is_root()).join(missing.select(*_ID), list(_ID), "left_semi")
    alone = found.groupBy(*_ID).agg(F.max("sequence").alias("first_sequence"), F.max("time_us").alias("last_us"))
    return carried.unionByName(missing.join(alone, list(_ID)).select(*_ROW, "first_sequence", "last_us"))


def _nothing(rows: DataFrame) -> DataFrame:
    """No trace to go on with."""
    began = rows.select(*_ID, F.col("sequence").alias("first_sequence"), F.col("from_us").alias("last_us"))
    return began.limit(0)


def feeds(_: str, rows: DataFrame, inputs: Inputs) -> DataFrame:
    named = _named(rows, inputs.links)
    return named.select("part", position_bucket(F.col("source"), F.col("first_sequence")).alias("bucket")).distinct()


TABLE = Derived(
    name="gold.traces",
    ddl=DDL,
    key=("source", "correlation_id", "first_sequence"),
    inputs=(MESSAGES,),
    transform=transform,
    feeds=feeds,
    carry=carry,
)
