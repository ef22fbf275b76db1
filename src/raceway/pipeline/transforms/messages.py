"""silver.messages: messages in a form for queries.

Payloads are text where they are UTF-8, and `value`, JSON, where a schema version tells what they mean (see `values`).
`schema_id` and `schema_version` are those of the version that the payload was read with, otherwise those of the
message.

Repeats are left out. A repeat is a message whose sender marks it as one: the same attribute `x-dedup-id` of the same
producer on the same topic, within the window after the one before. The bus itself refuses such repeats while it runs;
captures and a bus without that window do not. The time at which an id was last seen in earlier parts of bronze is
carried from part to part; a link records it for the first row in the part that has the id.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BooleanType

from raceway.pipeline.tables import MESSAGES, Carried, Derived, Earlier, Inputs, own_position, position_bucket, row
from raceway.pipeline.transforms.json_text import is_json
from raceway.pipeline.transforms.values import with_values
from raceway.wires.captures.columns import BRONZE, columns_of

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
_KEPT = [name for name, _ in columns_of(DDL) if name in BRONZE.names]


def transform(inputs: Inputs) -> DataFrame:
    """Return the rows of the table."""
    text = F.try_validate_utf8(F.col("payload").cast("string"))
    rows = _without_repeats(inputs[MESSAGES], inputs.links).select(*_KEPT)
    return with_values(rows, inputs.schemas).select(
        *row(DDL, bytes=F.length("payload").cast("bigint"), text=text, valid_json=_is_json(text)),
        position_bucket(F.col("source"), F.col("sequence")).alias("bucket"),
    )


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


def _without_repeats(rows: DataFrame, links: DataFrame | None) -> DataFrame:
    """Remove repeats. There are few, if any: they are found in a few columns, so that payloads are read once."""
    before = F.lag("time_us").over(Window.partitionBy(*_ID, "part").orderBy("sequence"))
    named = _named(rows).select(*_ROW, "time_us", before.alias("before_us"))
    if links is not None:
        named = named.join(links.select(*_ROW, "last_us"), _ROW, "left")
        named = named.withColumn("before_us", F.coalesce("before_us", "last_us"))
    repeats = named.where(F.col("time_us") - F.col("before_us") <= DEDUP_WINDOW_US).select(*_ROW)
    # Broadcast: the few repeats go to every worker, and the rows are not shuffled.
    return rows.join(F.broadcast(repeats), _ROW, "left_anti")


def _named(rows: DataFrame) -> DataFrame:
    """Return the rows that have a deduplication id."""
    named = rows.where(_dedup_id().isNotNull())
    return named.withColumns({"dedup_id": _dedup_id(), "sender": F.coalesce("producer", F.lit(""))})


def _dedup_id() -> Column:
    """Return the deduplication id; NULL if there is none or it is empty."""
    told = F.try_element_at("attributes", F.lit(DEDUP_ATTRIBUTE))
    return F.when(F.col("kind").isin("publish", "request") & (told != ""), told)


def carry(rows: pa.Table, active: pa.Table | None, _: Earlier | None) -> Carried:
    """Return `links`: when the id of a row was last seen before this part, and `active`: ids whose window is still
    open."""
    here = _last_seen(rows)
    known = here.slice(0, 0) if active is None else active
    links = here.drop_columns(["last_us"]).join(known.select([*_ID, "last_us"]), list(_ID), join_type="inner")
    seen = pa.concat_tables([here.select([*_ID, "last_us"]), known.select([*_ID, "last_us"])])
    latest = seen.group_by(list(_ID)).aggregate([("last_us", "max")]).rename_columns([*_ID, "last_us"])
    now_us = pc.max(rows.column("time_us")).as_py() or 0
    still = latest.filter(pc.greater_equal(latest.column("last_us"), now_us - DEDUP_WINDOW_US))
    return Carried(links.select([*_ROW, "last_us"]), still, own_position(MESSAGES, rows))


def _last_seen(rows: pa.Table) -> pa.Table:
    """Return each id of these rows, with the first row that has it and the time it was last seen."""
    told = pc.map_lookup(rows.column("attributes"), DEDUP_ATTRIBUTE, "last")
    may_repeat = pc.is_in(rows.column("kind"), value_set=pa.array(["publish", "request"]))
    named = rows.append_column("dedup_id", told).filter(pc.and_(may_repeat, pc.not_equal(told, "")))
    named = named.append_column("sender", pc.fill_null(named.column("producer"), ""))
    facts: list[tuple[str, str]] = [("partition", "min"), ("sequence", "min"), ("time_us", "max")]
    return named.group_by(list(_ID)).aggregate(facts).rename_columns([*_ID, *_ROW[1:], "last_us"])


TABLE = Derived(
    name="silver.messages",
    ddl=DDL,
    key=("source", "partition", "sequence"),
    transform=transform,
    looks_at={MESSAGES: ("source", "partition", "sequence", "time_us", "kind", "topic", "producer", "attributes")},
    carry=carry,
)
