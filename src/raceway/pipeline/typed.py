"""Tables of single topics, `topics.NAME`, with real columns: a topic that is bound to a subject has one.

Its rows are the messages that a version of a bound subject reads. A message that names no schema is read with the first
subject that its topic was bound to, in the version that was the latest at its time, as the bus checks it.

Columns come from all versions of the subject. A column keeps its type: where a later version gives a field another one,
the field gets a column of its own, `NAME_vVERSION`. So earlier files need not be written anew.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from raceway.model.schemas import SchemaVersion
from raceway.pipeline.payload_columns import Kind, Member, column_name, kind_of
from raceway.pipeline.tables import BRONZE_KEY, Derived, Inputs, NewRows, Step, row
from raceway.pipeline.transforms.topic_stats import CLEAN_MESSAGES
from raceway.pipeline.transforms.values import DDL as OF_VALUES
from raceway.pipeline.transforms.values import SchemaVersions, with_values
from raceway.pipeline.words import COLUMNS
from raceway.pipeline.written import CLOSED, DAY, TOLD
from raceway.wires.captures.columns import columns_of

SCHEMA = "topics"
_META = """source string, partition int, sequence bigint, offset bigint, time timestamp, time_us bigint, wire string,
    kind string, message_id string, correlation_id string, producer string, subject string, schema_version bigint"""
_RESERVED = {name for name, _ in columns_of(_META)} | {*TOLD, DAY, CLOSED}
# Partitions of a topic are topics of these names.
_PARTITION = re.compile(r"-part-\d+$")
_STRUCTURED = ("avro", "json_schema", "protobuf")
# A payload that is no object is read as one with this member.
_WHOLE = "value"
# Columns of a table, at most: readers list them all.
_MOST_COLUMNS = 1000


class PayloadColumn(NamedTuple):
    """A column: the member of payloads it is read from, in the payloads of these versions (subject, number).

    `layer` tells apart members of one name and different types: each layer is read by itself.
    """

    name: str
    member: Member
    versions: frozenset[tuple[str, int]]
    layer: int
    is_whole: bool


@dataclass(frozen=True)
class TypedTable(Derived):
    """The table of one topic, or of a topic with its partitions."""

    topics: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    schema_id: int = 0
    columns: tuple[PayloadColumn, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def comment(self) -> str:
        topic = _PARTITION.sub("", self.topics[0])
        return f"Messages of the topic {topic}, with columns of the schema {', '.join(self.subjects)}."

    def metadata(self, column: str) -> dict[str, str]:
        if column in self.fields:
            return {"comment": f"Member `{self.fields[column]}` of the payload."}
        return {"comment": COLUMNS[column]}


def table_name(topic: str, taken: Sequence[str]) -> str:
    """The name of a topic's table. Where another topic has it, the later one gets a hash."""
    plain = f"{SCHEMA}.{column_name(topic.strip('/')).lower()}"
    return plain if plain not in taken else f"{plain}_{hashlib.sha256(topic.encode()).hexdigest()[:8]}"


def typed_tables(bindings: Mapping[str, Sequence[str]], versions: Sequence[SchemaVersion]) -> tuple[TypedTable, ...]:
    """The tables of bound topics. `bindings` are the subjects that each topic was bound to, in the order in which they
    were."""
    known = SchemaVersions(versions)
    found: dict[str, TypedTable] = {}
    for base, topics in _by_base(bindings).items():
        subjects = tuple(dict.fromkeys(subject for topic in topics for subject in bindings[topic]))
        if columns := tuple(_columns(known, versions, subjects)):
            table = _table(table_name(base, list(found)), topics, subjects, columns, versions)
            found[table.name] = table
    return tuple(found.values())


def _by_base(topics: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Topics by their names, those of partitions by that of the whole."""
    found: dict[str, tuple[str, ...]] = {}
    for topic in topics:
        base = _PARTITION.sub("", topic)
        found[base] = (*found.get(base, ()), topic)
    return found


def _table(
    name: str,
    topics: tuple[str, ...],
    subjects: tuple[str, ...],
    columns: tuple[PayloadColumn, ...],
    versions: Sequence[SchemaVersion],
) -> TypedTable:
    ddl = ", ".join([_META, *(f"{each.name} {each.member.kind.sql}" for each in columns)])
    schema_id = next(each.schema_id for each in versions if each.subject == subjects[0])
    fields = {each.name: each.member.name for each in columns}

    def transform(inputs: Inputs) -> DataFrame:
        return _rows(table, inputs[CLEAN_MESSAGES], inputs.schemas)

    table = TypedTable(
        name=name, ddl=ddl, key=BRONZE_KEY, inputs=(CLEAN_MESSAGES,), transform=transform, advance=_advance,
        topics=topics, subjects=subjects, schema_id=schema_id, columns=columns, fields=fields,
    )  # fmt: skip
    return table


def _advance(work: Step) -> NewRows:
    """Append what is new. After a deletion, files with the rest of rows that are there already are new as well."""
    rows = work.table.transform(work.inputs())
    if work.changes[CLEAN_MESSAGES].has_losses:
        rows = rows.join(work.lake.frame(work.table.name).select(*BRONZE_KEY), list(BRONZE_KEY), "left_anti")
    return NewRows(rows)


# ---- columns --------------------------------------------------------------------------------------------------------


def _columns(
    known: SchemaVersions, versions: Sequence[SchemaVersion], subjects: Sequence[str]
) -> Iterator[PayloadColumn]:
    """The columns of all versions of these subjects, in the order in which they came."""
    found: dict[tuple[str, str, bool], PayloadColumn] = {}
    for version in _in_order(versions, subjects):
        definition = known.maybe_definition(version)
        if definition is None:
            continue
        for member, is_whole in _members(kind_of(definition)):
            key = (member.name.lower(), member.kind.sql, is_whole)
            mark = (version.subject, version.version)
            if key in found:
                found[key] = found[key]._replace(versions=found[key].versions | {mark})
            elif len(found) < _MOST_COLUMNS:
                name = _free_name(member.column, version.version, {each.name.lower() for each in found.values()})
                layer = sum(each[0] == key[0] for each in found)
                found[key] = PayloadColumn(name, member, frozenset({mark}), layer, is_whole)
    yield from found.values()


def _in_order(versions: Sequence[SchemaVersion], subjects: Sequence[str]) -> list[SchemaVersion]:
    chosen = [each for each in versions if each.subject in subjects and each.schema_type in _STRUCTURED]
    return sorted(chosen, key=lambda each: (each.created_at_ms, subjects.index(each.subject), each.version))


def _members(kind: Kind) -> Iterator[tuple[Member, bool]]:
    if kind.members:
        yield from ((member, False) for member in kind.members)
    else:
        yield Member(_WHOLE, _WHOLE, kind), True


def _free_name(column: str, version: int, used: set[str]) -> str:
    name = f"payload_{column}" if column.lower() in _RESERVED else column
    if name.lower() in used:
        name = f"{name}_v{version}"
    while name.lower() in used:
        name += "_"
    return name


# ---- rows -----------------------------------------------------------------------------------------------------------


def _rows(table: TypedTable, messages: DataFrame, versions: Sequence[SchemaVersion]) -> DataFrame:
    """The rows of a table from those of `silver.messages`."""
    concerned = messages.where(F.col("topic").isin(*table.topics) & F.col("kind").isin("publish", "request"))
    named = concerned.where(F.col("subject").isin(*table.subjects))
    silent = concerned.where(F.col("subject").isNull() & F.col("schema_id").isNull())
    of_values = [name for name, _ in columns_of(OF_VALUES)]
    bound = silent.drop(*of_values).withColumn("schema_id", F.lit(table.schema_id).cast("bigint"))
    read = with_values(bound, versions).select(*named.columns)
    typed = named.unionByName(read).where("value IS NOT NULL")
    return _parsed(table, typed)


def _parsed(table: TypedTable, rows: DataFrame) -> DataFrame:
    """Rows with the columns of payloads."""
    layers = sorted({(each.layer, each.is_whole) for each in table.columns})
    read = {f"_layer_{layer}_{is_whole}": _layer(table, layer, is_whole) for layer, is_whole in layers}
    repeated = {name for name, times in _times(table).items() if times > 1}
    columns = {}
    for each in table.columns:
        parsed = each.member.kind.column(F.col(f"_layer_{each.layer}_{each.is_whole}").getField(each.member.name))
        kept = F.when(_is_of(each.versions), parsed) if each.member.name.lower() in repeated else parsed
        columns[each.name] = _never_null(kept, each.member.kind.sql)
    return rows.withColumns(read).select(*row(table.ddl, **columns))


def _times(table: TypedTable) -> dict[str, int]:
    """How many columns are read from members of one name."""
    found: dict[str, int] = {}
    for each in table.columns:
        found[each.member.name.lower()] = found.get(each.member.name.lower(), 0) + 1
    return found


def _layer(table: TypedTable, layer: int, is_whole: bool) -> Column:
    """The members of one layer, read from the JSON of a payload."""
    chosen = [each.member for each in table.columns if (each.layer, each.is_whole) == (layer, is_whole)]
    raw = ",".join(f"`{each.name.replace('`', '``')}`:{each.kind.raw}" for each in chosen)
    text = F.concat(F.lit(f'{{"{_WHOLE}":'), F.col("value"), F.lit("}")) if is_whole else F.col("value")
    return F.from_json(text, f"struct<{raw}>")


def _is_of(versions: frozenset[tuple[str, int]]) -> Column:
    """Whether a row was read with one of these versions."""
    by_subject: dict[str, list[int]] = {}
    for subject, number in versions:
        by_subject.setdefault(subject, []).append(number)
    found = F.lit(False)
    for subject, numbers in by_subject.items():
        found = found | ((F.col("subject") == subject) & F.col("schema_version").isin(*numbers))
    return found


def _never_null(column: Column, sql: str) -> Column:
    """Missing lists and maps as empty ones: passing NULL ones to Python takes time quadratic in the number of rows."""
    if sql.startswith("array<"):
        return F.coalesce(column, F.array().cast(sql))
    if sql.startswith("map<"):
        return F.coalesce(column, F.create_map().cast(sql))
    return column
