"""silver.messages: messages in a form for queries.

Payloads are text where they are UTF-8, and `value`, JSON, where a schema version tells what they mean (see `values`).
`schema_id` and `schema_version` are those of the version that the payload was read with, otherwise those of the
message.

Repeats are left out. A repeat is a message whose sender marks it as one: the same attribute `x-dedup-id` of the same
producer on the same topic, within the window after the one before. The bus itself refuses such repeats while it runs;
captures and a bus without that window do not. All messages of the journal that have such an id are in a narrow table,
`state.dedup_ids`, in which a batch looks for earlier ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BooleanType

from raceway.model.schemas import SchemaVersion
from raceway.pipeline.tables import BRONZE_KEY, MESSAGES, Derived, Inputs, NewRows, Step, row
from raceway.pipeline.transforms.json_text import is_json
from raceway.pipeline.transforms.values import with_values
from raceway.wires.captures.columns import BRONZE, JOURNAL, columns_of

DEDUP_IDS = "state.dedup_ids"
DEDUP_ATTRIBUTE = "x-dedup-id"
# Same window as the bus.
DEDUP_WINDOW_US = 10 * 60 * 1_000_000
_ID = ("source", "topic", "sender", "dedup_id")
# First and last character of a JSON value; anything in between.
_LIKE_JSON = r'^[ \t\n\r]*["\[{\-0-9tfn](?s:.*["\]}0-9el])?[ \t\n\r]*$'
_ROW = ["source", "partition", "sequence"]

DDL = """
    source string, partition int, sequence bigint, topic string, offset bigint, time timestamp, time_us bigint,
    sent_ms bigint, wire string, kind string, message_id string, parent_id string, correlation_id string,
    answers bigint, producer string, producer_id bigint, schema_id bigint, schema_version bigint, routing_key string,
    attributes map<string,string>, encoding string, error string, bytes bigint, payload binary, text string,
    valid_json boolean, subject string, schema_type string, value string, value_fault string
"""
_NAMED_DDL = """
    source string, partition int, sequence bigint, time_us bigint, topic string, sender string, dedup_id string
"""
_KEPT = [name for name, _ in columns_of(DDL) if name in BRONZE.names]


def transform(inputs: Inputs) -> DataFrame:
    """Return the rows of the table."""
    named = _named(inputs[MESSAGES])
    if DEDUP_IDS in inputs.frames:
        named = named.where(F.col("source") != JOURNAL).unionByName(inputs[DEDUP_IDS])
    return _cleaned(_without_repeats(inputs[MESSAGES], named), inputs)


def _cleaned(messages: DataFrame, inputs: Inputs) -> DataFrame:
    """Return the rows of these messages."""
    return read_payloads(messages.select(*_KEPT), inputs.schemas).select(*row(DDL))


def read_payloads(messages: DataFrame, versions: Sequence[SchemaVersion]) -> DataFrame:
    """Return messages with the columns that are computed from their payloads."""
    text = F.try_validate_utf8(F.col("payload").cast("string"))
    computed = {"bytes": F.length("payload").cast("bigint"), "text": text, "valid_json": _is_json(text)}
    return with_values(messages, versions).withColumns(computed)


def advance(work: Step) -> NewRows:
    """Append new messages; repeats among them are found in `state.dedup_ids`, which has the new ones, too."""
    first_us = work.least(MESSAGES, "time_us")
    paths = [] if first_us is None else work.lake.paths(DEDUP_IDS, time_us=(first_us - DEDUP_WINDOW_US, None))
    if not paths and set(work.horizons) <= {JOURNAL}:
        return NewRows(_cleaned(work.added(MESSAGES), work.inputs()))
    return NewRows(transform(work.inputs(state__dedup_ids=work.lake.frame(DEDUP_IDS, paths))))


def _is_json(text: Column) -> Column:
    """Return whether a text is one JSON value by RFC 8259.

    Spark's parser is fast and accepts nearly all values. A text that it rejects, but that begins and ends like a value,
    is checked by the grammar: Spark has limits that the grammar does not have.
    """
    nothing = F.lit(None).cast("string")
    taken = _is_taken_by_spark(text)
    judged: Column = _judged(F.when(taken, nothing).when(text.rlike(_LIKE_JSON), text).otherwise(""))
    return judged


@arrow_udf(BooleanType())  # type: ignore[call-overload,untyped-decorator]  # by the annotations
def _judged(doubtful: pa.Array) -> pa.Array:
    """Check the doubtful texts; NULL is already accepted, so that only few texts are passed to Python."""
    return pa.array([text is None or is_json(text) for text in doubtful.to_pylist()], pa.bool_())


def _is_taken_by_spark(text: Column) -> Column:
    """Return whether Spark accepts the text as one value with nothing after it.

    The parser ignores trailing text, so the text is put into a list and into an object: only a complete value fits
    both. The first checks the value, the second only where it ends: listing keys is cheaper than parsing values.
    """
    listed = F.concat(F.lit("["), text, F.lit("]"))
    named = F.concat(F.lit('{"a":'), text, F.lit("}"))
    return F.try_parse_json(listed).isNotNull() & F.json_object_keys(named).isNotNull()


def _without_repeats(rows: DataFrame, named: DataFrame) -> DataFrame:
    """Remove repeats. There are few, if any: they are found in a few columns, so that payloads are read once."""
    before = F.lag("time_us").over(Window.partitionBy(*_ID).orderBy("sequence"))
    timed = named.select(*_ROW, "time_us", before.alias("before_us"))
    repeats = timed.where(F.col("time_us") - F.col("before_us") <= DEDUP_WINDOW_US).select(*_ROW)
    # Broadcast: the few repeats go to every worker, and the rows are not shuffled.
    return rows.join(F.broadcast(repeats), _ROW, "left_anti")


def _named(rows: DataFrame) -> DataFrame:
    """Return the rows that have a deduplication id, as `state.dedup_ids` has them."""
    told = F.try_element_at("attributes", F.lit(DEDUP_ATTRIBUTE))
    named = rows.where(F.col("kind").isin("publish", "request") & (told != ""))
    return named.select(*row(_NAMED_DDL, sender=F.coalesce("producer", F.lit("")), dedup_id=told))


def _state(inputs: Inputs) -> DataFrame:
    """Return the rows of `state.dedup_ids`: a capture is complete when it comes, and needs no memory."""
    return _named(inputs[MESSAGES]).where(F.col("source") == JOURNAL)


STATE = Derived(name=DEDUP_IDS, ddl=_NAMED_DDL, key=BRONZE_KEY, inputs=(MESSAGES,), transform=_state)
TABLE = Derived(
    name="silver.messages",
    ddl=DDL,
    key=BRONZE_KEY,
    inputs=(MESSAGES,),
    looks_up=(DEDUP_IDS,),
    transform=transform,
    advance=advance,
)
