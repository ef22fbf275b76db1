"""Deletion of messages from everything that has them, for the right to be forgotten.

`select` finds the messages that an expression is true of, in the journal, its archive and the tables, and with them
their copies: dead letters, refused messages on `raceway.rejected`, repeats with the same deduplication id. Their keys
are written to a file before anything changes; whatever is interrupted is completed from that file, since each step can
be repeated:

    1. rows with these keys leave every table that has them; exchanges and traces that they were part of are computed
       again without them; sums follow, as they do when other rows change. `bronze.messages` is the last
    2. files that the tables no longer need are deleted at once, and with them all earlier versions
    3. the rows of the journal, of held files and of the archive are written anew without their content
    4. it is noted in `state.deletions`. What was deleted is not: the expression may name the person
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from raceway import config
from raceway.errors import ConfigError
from raceway.journal.archive.blanking import blank_archive, check_owner
from raceway.journal.archive.ledger import maybe_store
from raceway.journal.read.reader import Reader
from raceway.journal.write.blanking import blank_folder
from raceway.model.envelope import DELETED as DELETED_ROW
from raceway.pipeline import keeping, registry
from raceway.pipeline.lake import DELETED, FORGOTTEN, Lake
from raceway.pipeline.progress import now_us
from raceway.pipeline.refreshing import refresh, tune
from raceway.pipeline.tables import BRONZE_KEY, MESSAGES, REJECTED_MESSAGES, Derived, Inputs, file_name
from raceway.pipeline.transforms import exchanges, traces
from raceway.pipeline.transforms.messages import DEDUP_ATTRIBUTE, read_payloads
from raceway.pipeline.written import sync
from raceway.wires.captures.columns import BRONZE, JOURNAL, REJECTED_TOPIC, as_bronze, journal_columns, sql_type

# Attributes of dead letters that name the original.
_ORIGINAL_TOPIC, _ORIGINAL_OFFSET = "x-original-topic", "x-original-topic-offset"
_DEFAULT_NAMESPACE = "/default/"
_KEY = list(BRONZE_KEY)
_ID = "raceway.deletion"
_COUNTED = ("topic", "count_all")


class Deleted(NamedTuple):
    """Result of a deletion: messages in the tables and in the journal, and segments of the archive."""

    messages: int
    blanked: int
    archived_segments: int


class TopicCount(NamedTuple):
    topic: str
    messages: int


# ---- finding --------------------------------------------------------------------------------------------------------


def select(lake: Lake, where: str) -> pa.Table:
    """Keys and topics of the messages that an SQL expression is true of, and of their copies.

    It may use the columns of `bronze.messages` and those that `silver.messages` computes from payloads. Raises
    ConfigError if it cannot be evaluated.
    """
    lake.book.follow(lake.folders.journal, lake.storage.settings)
    tune(lake, _bytes(lake))
    messages = _messages(lake)
    _check(lake, messages, where)
    # Messages are read once; what is looked up afterwards are the few that are found, or may be copies.
    concerned = _concerned(read_payloads(_under_each_topic(messages), lake.book.versions), where).persist()
    try:
        found = concerned.where("is_found")
        copies = [found.select(*_KEY), _dead_letters(concerned, found), _repeats(concerned, found)]
        keys = reduce(DataFrame.unionByName, copies).distinct()
        chosen = concerned.select(*_KEY, F.col("sent_to").alias("topic")).distinct().join(keys, _KEY, "left_semi")
        return chosen.toArrow()
    finally:
        concerned.unpersist()


def by_topic(keys: pa.Table) -> list[TopicCount]:
    """How many of the messages that were found each topic has."""
    counted = keys.group_by("topic").aggregate([([], "count_all")]).sort_by("topic")
    return [TopicCount(*row) for row in zip(*(counted.column(name).to_pylist() for name in _COUNTED), strict=True)]


def _bytes(lake: Lake) -> int:
    """About how much is read to find messages: what is not in the tables yet is counted by the journal's files."""
    journal = sum(path.stat().st_size for path in lake.folders.data.glob("segment-*"))
    return journal + sum(lake.files(MESSAGES).column("size_bytes").to_pylist() if lake.paths(MESSAGES) else ())


def _messages(lake: Lake) -> DataFrame:
    """Every message that is somewhere: in the journal and its archive, in held files, or in a table alone."""
    reader = Reader(lake.folders.data, lake.storage.settings)
    try:
        first = reader.first_position()
        held = [as_bronze(batch, BRONZE.names) for batch in _held_rows(reader)]
    finally:
        reader.close()
    source = lake.spark.read.format("raceway").option("path", str(lake.folders.data))
    found = [source.option("failOnDataLoss", "false").load()]
    if held:
        found.append(lake.spark.createDataFrame(pa.Table.from_batches(held)))
    found.append(lake.frame(MESSAGES).where((F.col("source") != JOURNAL) | (F.col("sequence") < first)))
    refused = lake.frame(REJECTED_MESSAGES).where(F.col("source") != JOURNAL)
    found.append(refused.select(*(_column(refused, field) for field in BRONZE)))
    # What was deleted earlier has no content.
    return reduce(DataFrame.unionByName, found).where(~F.col("error").eqNullSafe(DELETED_ROW))


def _held_rows(reader: Reader) -> Iterator[pa.RecordBatch]:
    for segment in reader.held():
        yield from segment.read(segment.first, segment.last + 1, journal_columns(BRONZE.names))


def _column(rows: DataFrame, field: pa.Field) -> Column:
    """A column of refused messages as `bronze.messages` has it; they have fewer."""
    if field.name in rows.columns:
        return F.col(field.name)
    empty = F.array() if pa.types.is_list(field.type) else F.lit(None)
    return empty.cast(sql_type(field.type)).alias(field.name)


def _check(lake: Lake, messages: DataFrame, where: str) -> None:
    """Raise ConfigError for an expression that is not one, is not true or false, or names an unknown column."""
    rows = read_payloads(messages.limit(0), lake.book.versions)
    # Spark would print each refusal as JSON with a stack, too.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        told = rows.select(F.expr(where)).schema.fields
        if len(told) != 1 or not isinstance(told[0].dataType, BooleanType):
            raise ConfigError("--where", f"{where!r} is not a condition: it is neither true nor false")
        rows.where(where)  # what is true of all messages together (aggregates, windows) is none, either
    except AnalysisException as error:
        raise ConfigError("--where", _explained(error, where, rows.columns)) from None


def _explained(error: AnalysisException, where: str, columns: Sequence[str]) -> str:
    if error.getCondition() and str(error.getCondition()).startswith("UNRESOLVED_COLUMN"):
        name = (error.getMessageParameters() or {}).get("objectName", "").strip("`")
        return f"there is no column {name}; known: {', '.join(columns)}"
    first = str(error).strip().splitlines()[0].removeprefix(f"[{error.getCondition()}]").strip()
    return f"{where!r} cannot be evaluated: {first.split(' SQLSTATE')[0].rstrip('.')}"


def _attribute(name: str) -> Column:
    return F.try_element_at("attributes", F.lit(name))


def _original_topic() -> Column:
    """The topic that a dead letter was first published to; NULL for other messages."""
    named = _attribute(_ORIGINAL_TOPIC)
    plain = F.substring(named, len(_DEFAULT_NAMESPACE) + 1, 1 << 30)
    return F.when(named.startswith(_DEFAULT_NAMESPACE), plain).otherwise(named)


def _under_each_topic(messages: DataFrame) -> DataFrame:
    """Messages, and dead letters and refused ones also under the topic that they were sent to at first."""
    refused = F.when(F.col("topic") == REJECTED_TOPIC, _attribute("topic"))
    told = {"sent_to": F.col("topic"), "original_topic": _original_topic()}
    topics = F.array_compact(F.array("topic", F.coalesce("original_topic", refused)))
    return messages.withColumns(told).withColumn("topic", F.explode_outer(topics))


def _concerned(messages: DataFrame, where: str) -> DataFrame:
    """The messages that are found and those that may be copies, with what tells so."""
    told = {
        "is_found": F.coalesce(F.expr(where), F.lit(False)),
        "original_offset": _attribute(_ORIGINAL_OFFSET).try_cast("bigint"),
        "sender": F.coalesce("producer", F.lit("")),
        "dedup_id": _attribute(DEDUP_ATTRIBUTE),
    }
    rows = messages.select(
        *_KEY, "sent_to", "offset", "original_topic", *(each.alias(name) for name, each in told.items())
    )
    return rows.where("is_found OR original_topic IS NOT NULL OR dedup_id <> ''")


def _dead_letters(messages: DataFrame, originals: DataFrame) -> DataFrame:
    """Dead letters that are copies of these messages."""
    named = originals.select(
        "source", F.col("sent_to").alias("original_topic"), F.col("offset").alias("original_offset")
    )
    return messages.join(named.dropna(), ["source", "original_topic", "original_offset"], "left_semi").select(*_KEY)


def _repeats(messages: DataFrame, originals: DataFrame) -> DataFrame:
    """Messages that their sender marked as the same."""
    same = ["source", "sent_to", "sender", "dedup_id"]
    return messages.join(originals.where("dedup_id <> ''").select(*same), same, "left_semi").select(*_KEY)


# ---- deleting -------------------------------------------------------------------------------------------------------


def collected(keys: pa.Table) -> pa.Table:
    """The keys of messages that `select` found, each once and in order."""
    return keys.group_by(_KEY).aggregate([]).sort_by([(name, "ascending") for name in _KEY])


def begin(lake: Lake, keys: pa.Table) -> None:
    """Write down which messages are to be deleted. From now on `complete` does the rest."""
    target = lake.folders.deleting
    staged = target.with_suffix(".new")
    pq.write_table(keys.replace_schema_metadata({_ID: uuid.uuid4().hex}), staged)
    sync(staged)
    os.replace(staged, target)
    sync(target.parent)


def complete(lake: Lake, settings: config.Config) -> Deleted:
    """Delete the messages that were written down, wherever an earlier attempt was interrupted.

    The caller holds the locks of the data folder and of the tables. Raises PipelineError, JournalError, ArchiveError.
    """
    told = pq.read_table(lake.folders.deleting)
    store = maybe_store(lake.folders.data, settings.storage)
    if store is not None:
        check_owner(lake.folders.data, store)  # before anything changes
    delete_rows(lake, lake.spark.createDataFrame(told.replace_schema_metadata(None)))
    keeping.vacuum(lake, 0)
    positions = _positions(told)
    rows_at_once = settings.journal.row_group_rows
    blanked = blank_folder(lake.folders.data, positions, rows_at_once)
    archived = 0 if store is None else blank_archive(lake.folders.data, store, positions, rows_at_once)
    _note(lake, told)
    lake.folders.deleting.unlink()
    sync(lake.folders.root)
    return Deleted(told.num_rows, blanked, archived)


def delete_rows(lake: Lake, keys: DataFrame) -> None:
    """Delete the rows of these messages from all tables."""
    refresh(lake)  # first, while every table can still read the files that it is computed from
    rest = lake.frame(MESSAGES).join(keys, _KEY, "left_anti")
    gone = lake.frame(MESSAGES).join(keys, _KEY, "left_semi")
    inputs = Inputs({MESSAGES: rest}, lake.horizons(), lake.book.versions, lake.limits)
    _recompute(lake, exchanges.TABLE, _exchanges_of(gone), _exchanges_of(rest), inputs)
    _recompute(lake, traces.TABLE, _traces_of(gone), _traces_of(rest), inputs)
    for table in lake.derived:
        if table.key[: len(_KEY)] == BRONZE_KEY and table.name != exchanges.NAME:
            _remove(lake, table.name, keys, FORGOTTEN)
    refresh(lake)  # computes the sums again
    _remove(lake, MESSAGES, keys, DELETED)


def _exchanges_of(messages: DataFrame) -> DataFrame:
    """Messages with the key of their exchange."""
    asked = F.when(F.col("kind") == "response", F.coalesce("answers", "sequence")).otherwise(F.col("sequence"))
    return messages.where("kind IN ('request', 'response')").withColumn("exchange", asked)


def _traces_of(messages: DataFrame) -> DataFrame:
    return messages.where("correlation_id IS NOT NULL")


def _recompute(lake: Lake, table: Derived, gone: DataFrame, rest: DataFrame, inputs: Inputs) -> None:
    """Compute the rows of a table that these messages were part of again, from the rest of the messages."""
    if table.name == exchanges.NAME:
        by, key = ["source", "partition", "exchange"], ["source", "partition", "sequence"]
    else:
        by = key = ["source", "correlation_id"]
    concerned = gone.select(*by).distinct()
    renamed = concerned.toDF(*key)
    paths = _paths(lake, table.name, renamed, key)
    if not paths:
        return
    kept = lake.frame(table.name, paths).join(renamed, key, "left_anti")
    again = table.transform(_with_messages(inputs, rest.join(concerned, by, "left_semi").drop("exchange")))
    lake.commit(table.name, lake.write(table, kept.unionByName(again.select(*kept.columns))), paths, kind=FORGOTTEN)


def _with_messages(inputs: Inputs, messages: DataFrame) -> Inputs:
    return Inputs({MESSAGES: messages}, inputs.horizons, inputs.schemas, inputs.limits)


def _remove(lake: Lake, name: str, keys: DataFrame, kind: str) -> None:
    """Write the files that have rows with these keys anew, without them."""
    paths = _paths(lake, name, keys, _KEY)
    if paths:
        kept = lake.frame(name, paths).join(keys, _KEY, "left_anti")
        lake.commit(name, lake.write(lake.table(name), kept), paths, kind=kind)


def _paths(lake: Lake, name: str, keys: DataFrame, key: Sequence[str]) -> list[str]:
    """The files of a table that have rows with these keys."""
    if not lake.paths(name):
        return []
    rows = lake.frame(name).select(*key, file_name())
    return lake.paths_of(rows.join(keys, list(key), "left_semi"), name)


def _positions(told: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    of_journal = told.filter(pc.equal(told.column("source"), JOURNAL)).column("sequence")
    return np.unique(of_journal.to_numpy()).astype(np.int64)


def _note(lake: Lake, told: pa.Table) -> None:
    """Note that something was deleted, and how much; once, whatever is repeated."""
    number = (told.schema.metadata or {})[_ID.encode()].decode()
    found = lake.maybe_snapshot(registry.DELETIONS.name)
    known = found.dataset().to_table(["deletion"]).column(0).to_pylist() if found else []
    if number not in known:
        row = {"deletion": number, "messages": told.num_rows, "time_us": now_us()}
        lake.commit(registry.DELETIONS.name, lake.write_few(registry.DELETIONS, [row]))
