"""Columns of the bronze tables for Arrow and Spark, and the conversion of journal rows to bronze rows.

`bronze.messages` has the journal's schema and two more columns: `source`, because captures are imported into the same
table, and `time`, which is `time_us` as a timestamp. Lists and maps are empty, never NULL: Spark's conversion of NULL
ones to Python takes time quadratic in the size of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from raceway.journal.format import SCHEMA

JOURNAL = "journal"
IMPORT = "import:"
REJECTED_TOPIC = "raceway.rejected"

TIMESTAMP = pa.timestamp("us", tz="UTC")
_SOURCE = pa.field("source", pa.string())
_TIME = pa.field("time", TIMESTAMP)


def _bronze_fields() -> list[pa.Field]:
    before = SCHEMA.get_field_index("time_us")
    fields = list(SCHEMA)
    return [_SOURCE, *fields[:before], _TIME, *fields[before:]]


BRONZE = pa.schema(_bronze_fields())

REJECTED = pa.schema(
    [
        *(BRONZE.field(name) for name in ("source", "partition", "sequence", "time", "time_us", "wire", "topic")),
        ("code", pa.string()),
        ("reason", pa.string()),
        ("path", pa.string()),
        ("subject", pa.string()),
        *(BRONZE.field(name) for name in ("schema_version", "producer", "attributes", "payload")),
    ]
)

_SQL_NAMES = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.bool_(): "boolean",
    pa.float64(): "double",
    TIMESTAMP: "timestamp",
}


def ddl(schema: pa.Schema) -> str:
    """The schema in Spark's DDL syntax."""
    return ", ".join(f"`{field.name}` {sql_type(field.type)}" for field in schema)


def sql_type(kind: pa.DataType) -> str:
    if pa.types.is_map(kind):
        return f"map<{sql_type(kind.key_type)},{sql_type(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{sql_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{sql_type(field.type)}' for field in kind)}>"
    return _SQL_NAMES[kind]


def journal_columns(columns: Sequence[str]) -> list[str]:
    """Journal columns from which these bronze columns are computed."""
    made_of = {"source": "sequence", "time": "time_us"}
    return list(dict.fromkeys(made_of.get(name, name) for name in columns))


def as_bronze(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Compute these bronze columns from journal rows that have `journal_columns(columns)`."""
    schema = pa.schema([BRONZE.field(name) for name in columns])
    return pa.RecordBatch.from_arrays([_bronze_column(batch, name) for name in columns], schema=schema)


def _bronze_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name == "source":
        return pa.repeat(pa.scalar(JOURNAL, pa.string()), batch.num_rows)
    if name == "time":
        return batch.column("time_us").cast(TIMESTAMP)
    return batch.column(name)
