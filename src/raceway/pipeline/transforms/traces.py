"""gold.traces: all messages that one message led to, across wires.

Messages of one trace share a correlation id. A message that *is* the root (its own id is the correlation id, and it is
no answer) begins a trace; any other continues the one that its correlation id is in, unless that has been silent for
longer than the gap, or has reached the longest age. Requests and publishes are the nodes of the tree, an answer ends
the node of its request.

Which trace a message belongs to depends on times and positions only. The table itself tells a batch which traces it
continues: the newest one of each id, if its end is not longer ago than the gap. Their messages are read again, from the
time they began, and their rows are replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from raceway.pipeline.tables import MESSAGES, Derived, Inputs, NewRows, Step, file_name, row
from raceway.pipeline.transforms import trees
from raceway.pipeline.transforms.beginnings import GAP_US, beginnings
from raceway.wires.captures.columns import JOURNAL

NAME = "gold.traces"
_KEY = ("source", "correlation_id", "first_sequence")
DDL = f"{trees.DDL}, time timestamp, total_us bigint"
_NEEDED = (
    "source", "correlation_id", "sequence", "time_us", "wire", "kind", "topic", "producer", "message_id", "parent_id",
    "answers", "error",
)  # fmt: skip


def transform(inputs: Inputs) -> DataFrame:
    """Return the rows of the table."""
    return _traced(_chained(inputs[MESSAGES]), inputs)


def advance(work: Step) -> NewRows:
    """Compute new traces, and those that new messages continue."""
    new = _chained(work.added(MESSAGES))
    first, first_us = work.least(MESSAGES, "sequence"), work.least(MESSAGES, "time_us")
    paths = work.lake.paths(NAME, end_us=(first_us - GAP_US, None)) if first_us is not None else []
    if not paths:
        return NewRows(_traced(new, work.inputs()))
    growing = _growing(work.lake.frame(NAME, paths), new)
    found = growing.groupBy("file").agg(F.min("start_us")).collect()
    if not found:
        return NewRows(_traced(new, work.inputs()))
    names = {row[0] for row in found}
    replaced = [path for path in paths if path.rsplit("/", 1)[1] in names]
    since_us = min(row[1] for row in found)
    added = set(work.changes[MESSAGES].added)
    earlier = [path for path in work.lake.paths(MESSAGES, time_us=(since_us, None)) if path not in added]
    before = _chained(work.lake.frame(MESSAGES, earlier)).where(F.col("sequence") < F.lit(first))
    continued = before.join(growing.select(*_KEY), ["source", "correlation_id"]).where("sequence >= first_sequence")
    kept = work.lake.frame(NAME, replaced).join(growing.select(*_KEY), list(_KEY), "left_anti")
    traced = _traced(new.unionByName(continued.select(*_NEEDED)), work.inputs())
    return NewRows(traced.unionByName(kept), replaced)


def _growing(rows: DataFrame, new: DataFrame) -> DataFrame:
    """Return the newest trace of each id that occurs among new messages of the journal, and the file it lies in."""
    ids = new.where(F.col("source") == JOURNAL).select("source", "correlation_id").distinct()
    known = rows.select(*_KEY, "start_us", file_name()).join(ids, ["source", "correlation_id"], "left_semi")
    newest = F.max_by(F.struct("first_sequence", "start_us", "file"), "first_sequence").alias("newest")
    return known.groupBy("source", "correlation_id").agg(newest).select("source", "correlation_id", "newest.*")


def _chained(rows: DataFrame) -> DataFrame:
    """Return what a trace needs of the messages that belong to one."""
    return rows.where(F.col("correlation_id").isNotNull()).select(*_NEEDED)


def _traced(rows: DataFrame, inputs: Inputs) -> DataFrame:
    """Return the traces of messages, of which all earlier ones are there."""
    # All rows of a correlation id in one partition: a trace is computed in one place.
    whole = rows.repartition("source", "correlation_id")
    found = whole.mapInArrow(partial(_trees, inputs.limits.trace_us), trees.DDL)
    total_us = F.col("end_us") - F.col("start_us")
    return found.select(*row(DDL, time=F.timestamp_micros("start_us"), total_us=total_us))


def _trees(longest_us: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Compute the trees of a partition from all its rows: a trace may lie across two batches."""
    held = list(batches)
    if held:
        rows = beginnings(pa.Table.from_batches(held), longest_us)
        yield from trees.trees_of(rows).to_batches(max_chunksize=10_000)


TABLE = Derived(
    name=NAME,
    ddl=DDL,
    key=_KEY,
    when="start_us",
    inputs=(MESSAGES,),
    transform=transform,
    advance=advance,
)
