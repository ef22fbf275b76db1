"""Relations between the messages of one capture: answers to their requests, and every message to the first of its
chain.

A wire pairs by ids (`Wire.pairing`), and a file may hold the same id twice; ambiguous pairs are left open.

Only ids and positions are joined. The result is small and stored beside the files; each worker then completes the rows
of its own pieces. A capture without answers and parents is not touched at all.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from raceway.pipeline.imports.pieces import PieceReport, in_workers
from raceway.pipeline.written import ROW_GROUP_ROWS, open_writer
from raceway.wires import wire_of
from raceway.wires.captures.columns import BRONZE, ddl, schema_of
from raceway.wires.captures.verdicts import spread
from raceway.wires.wire import Pairing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# A chain of more than 2^16 messages is cut: no real chain is that long, and a ring has no first message.
_ROUNDS = 16
_UNCHANGED = {"answers": "bigint", "kind": "string", "topic": "string"}
# Values found for a row; NULL leaves the row as it is.
_DONE = schema_of("file string")
_LINKS = pa.schema([BRONZE.field(name) for name in ("sequence", *_UNCHANGED, "correlation_id")])


def complete(spark: SparkSession, wire: str, told: Sequence[PieceReport], folder: Path) -> None:
    """Complete the rows in the files of these pieces, where there is something to complete."""
    pairing = wire_of(wire).pairing
    if pairing is None or not any(each.related for each in told):
        return
    files = [each.messages_file for each in told if each.messages_file]
    rows = (
        spark.read.schema(ddl(BRONZE))
        .parquet(*files)
        .select("sequence", "kind", "topic", "message_id", "parent_id", "correlation_id", "reply_to")
    )
    found = str(folder / "links")
    _links(rows, pairing).write.parquet(found)
    in_workers(spark, len(files), partial(_complete_file, files, found), _DONE)


def _links(rows: DataFrame, pairing: Pairing) -> DataFrame:
    """Return (sequence, answers, kind, topic, correlation_id) of the rows that change."""
    rooted = rows.withColumn("root", F.col("correlation_id")) if pairing.has_roots else _with_roots(rows, pairing)
    answers = _answers(rooted, pairing)
    return answers.unionByName(_moved(rooted).join(answers, "sequence", "left_anti"))


# ---- answers --------------------------------------------------------------------------------------------------------


def _key(columns: tuple[str, ...], folds_case: bool) -> Column:
    """Return the values of these columns as one key; NULL if one of them is."""
    # NUL separates the parts: no id contains it, and `concat` is NULL if either part is.
    first, *others = [F.lower(name) if folds_case else F.col(name) for name in columns]
    return F.concat(first, *(part for each in others for part in (F.lit("\0"), each)))


def _answers(rows: DataFrame, pairing: Pairing) -> DataFrame:
    """Return the answers with the request of each."""
    asked = rows.where("kind = 'request'").select(
        _key(pairing.asked, pairing.folds_case).alias("key"),
        F.col("sequence").alias("at"),
        "topic",
        F.col("root").alias("correlation_id"),
    )
    requests = (
        # Only keys of exactly one request: with two, an answer cannot be assigned without doubt.
        asked.where("key IS NOT NULL")
        .groupBy("key")
        .agg(F.count("*").alias("times"), *(F.first(name).alias(name) for name in ("at", "topic", "correlation_id")))
        .where("times = 1")
    )
    named = [_key(columns, pairing.folds_case) for columns in pairing.answered]
    told = rows.where(F.col("kind") == pairing.kind).select("sequence", F.posexplode(F.array(*named)))
    # An answer comes after its request; an earlier message with the same id is something else.
    best = told.join(requests, F.col("col") == F.col("key")).where("at < sequence")
    first = best.groupBy("sequence").agg(F.min_by(F.struct("at", "topic", "correlation_id"), "pos").alias("one"))
    return first.select(
        "sequence",
        F.col("one.at").alias("answers"),
        F.lit("response").alias("kind"),
        (F.col("one.topic") if pairing.lends_topic else F.lit(None).cast("string")).alias("topic"),
        F.col("one.correlation_id").alias("correlation_id"),
    )


# ---- chains ---------------------------------------------------------------------------------------------------------


def _with_roots(rows: DataFrame, pairing: Pairing) -> DataFrame:
    """Return the rows with `root`: the id at the beginning of the chain that a message's parent belongs to.

    Pointer jumping: every round looks twice as far up.
    """
    same = F.lower if pairing.folds_case else F.col
    named = rows.where("kind <> 'response' AND message_id IS NOT NULL AND parent_id IS NOT NULL")
    chain = named.groupBy(same("message_id").alias("id")).agg(F.min_by("parent_id", "sequence").alias("up"))
    # Checkpointed, or the plan of each round would contain all rounds before it.
    chain = chain.where(same("up") != F.col("id")).localCheckpoint()
    for _ in range(_ROUNDS):
        joined = chain.select("id", "up").join(_above(chain), same("up") == F.col("above"), "left")
        chain = joined.select("id", F.coalesce("next", "up").alias("up"), "next").localCheckpoint()
        if chain.where("next IS NOT NULL").isEmpty():
            break
    up = rows.join(_above(chain), same("parent_id") == F.col("above"), "left")
    return up.withColumn("root", F.coalesce("next", "correlation_id")).drop("above", "next")


def _above(chain: DataFrame) -> DataFrame:
    """Return the chain with its columns renamed for a join with itself."""
    return chain.select(F.col("id").alias("above"), F.col("up").alias("next"))


def _moved(rows: DataFrame) -> DataFrame:
    """Return messages that are no answers and belong to a chain that began before their parent."""
    nothing = [F.lit(None).cast(kind).alias(name) for name, kind in _UNCHANGED.items()]
    moved = rows.where("kind <> 'response' AND root <> correlation_id")
    return moved.select("sequence", *nothing, F.col("root").alias("correlation_id"))


# ---- in a worker ----------------------------------------------------------------------------------------------------


def _complete_file(files: Sequence[str], found: str, number: int) -> dict[str, str]:
    """Write the links into the rows of a piece. Written aside and renamed, so that a repeated task finds a complete
    file."""
    file = Path(files[number])
    rows = pq.read_table(file, schema=BRONZE)
    sequences = rows.column("sequence").to_numpy()
    within = (pc.field("sequence") >= int(sequences[0])) & (pc.field("sequence") <= int(sequences[-1]))
    links = pq.read_table(found, schema=_LINKS, filters=within).sort_by("sequence")
    if not len(links):
        return {"file": files[number]}
    places = np.searchsorted(sequences, links.column("sequence").to_numpy())
    for name in _LINKS.names[1:]:
        at = BRONZE.get_field_index(name)
        column = pc.coalesce(spread(links.column(name).combine_chunks(), places, len(rows)), rows.column(name))
        rows = rows.set_column(at, BRONZE.field(at), column)
    written = file.with_suffix(".new")
    with open_writer(written, BRONZE) as writer:
        writer.write_table(rows, ROW_GROUP_ROWS)
    os.replace(written, file)
    return {"file": files[number]}
