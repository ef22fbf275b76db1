"""gold.traces: all messages that one message led to, across wires.

Messages of one trace share a correlation id. A message that *is* the root (its own id is the correlation id, and it is
no answer) begins a trace; any other continues the one that its correlation id is in, unless that has been silent for
longer than the gap. Requests and publishes are the nodes of the tree, an answer ends the node of its request.

Which trace a message belongs to depends on times and positions only. A part of bronze must know from earlier parts
where a trace began that it continues: exchanges and chains are carried from part to part; roots that nothing has
followed yet, most publishes, are not carried but searched for when something does follow. A link belongs to the first
row in the part that has the correlation id, so that it stays true when parts are merged.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from raceway.pipeline.tables import MESSAGES, Derived, Inputs, position_bucket
from raceway.pipeline.transforms import trees
from raceway.pipeline.transforms.trace_links import GAP_US, LOOKED_AT, beginnings, carry

_ROW = ("source", "partition", "sequence")

DDL = f"{trees.DDL}, time timestamp, total_us bigint"
_NEEDED = (
    "source", "part", "correlation_id", "sequence", "time_us", "wire", "kind", "topic", "producer", "message_id",
    "parent_id", "answers", "error", "linked", "linked_us",
)  # fmt: skip


def transform(inputs: Inputs) -> DataFrame:
    """Return the rows of the table."""
    rows = inputs[MESSAGES].where(F.col("correlation_id").isNotNull())
    # All rows of a correlation id in one partition: a trace is computed in one place.
    whole = _linked(rows, inputs.links).select(*_NEEDED).repartition("source", "correlation_id")
    found = whole.mapInArrow(_trees, trees.DDL)
    return found.select(
        *trees.SCHEMA.names,
        F.timestamp_micros("start_us").alias("time"),
        (F.col("end_us") - F.col("start_us")).alias("total_us"),
        position_bucket(F.col("source"), F.col("first_sequence")).alias("bucket"),
    )


def _linked(rows: DataFrame, links: DataFrame | None) -> DataFrame:
    """Return each row with what `carry` found for it: where its trace began, and the time of the row before it."""
    if links is None:
        nothing = F.lit(None).cast("bigint")
        return rows.withColumns({"linked": nothing, "linked_us": nothing})
    known = links.select(*_ROW, F.col("first_sequence").alias("linked"), F.col("last_us").alias("linked_us"))
    return rows.join(known, list(_ROW), "left")


def _trees(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Compute the trees of a partition from all its rows: a trace may lie across two batches."""
    held = list(batches)
    if held:
        yield from trees.trees_of(beginnings(pa.Table.from_batches(held))).to_batches(max_chunksize=10_000)


TABLE = Derived(
    name="gold.traces",
    ddl=DDL,
    key=("source", "correlation_id", "first_sequence"),
    transform=transform,
    looks_at={MESSAGES: LOOKED_AT},
    carry=carry,
    expected=(
        "messages that begin a trace: roots, and the first of a correlation id after silence",
        "(SELECT count(*) FROM (SELECT kind, message_id, correlation_id, time_us - lag(time_us) OVER "  # noqa: S608 - our own number
        "(PARTITION BY source, correlation_id ORDER BY sequence) AS silent_us FROM bronze.messages "
        "WHERE correlation_id IS NOT NULL) AS g "
        f"WHERE silent_us IS NULL OR silent_us > {GAP_US} OR "
        "(kind <> 'response' AND lower(message_id) = lower(correlation_id)))",
    ),
)
