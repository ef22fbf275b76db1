"""Columns of the bronze tables for Arrow and Spark, and the conversion of journal rows to bronze rows.

`bronze.messages` has the journal's schema and two more columns: `source`, because captures are imported into the same
table, and `time`, which is `time_us` as a timestamp. Lists and maps are empty, never NULL: Spark's conversion of NULL
ones to Python takes time quadratic in the size of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, get_type_hints

import pyarrow as pa

from raceway.journal.format import SCHEMA

JOURNAL = "journal"
IMPORT = "import:"
REJECTED_TOPIC = "raceway.rejected"

TIMESTAMP = pa.timestamp("us", tz="UTC")
_BEFORE = SCHEMA.get_field_index("time_us")
BRONZE = SCHEMA.insert(_BEFORE, pa.field("time", TIMESTAMP)).insert(0, pa.field("source", pa.string()))

_TYPES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
    "timestamp": TIMESTAMP,
}
_SQL_NAMES = {kind: name for name, kind in _TYPES.items()}
_OF_TUPLES = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}


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


def schema_of(text: str) -> pa.Schema:
    """The schema that is written in Spark's DDL syntax."""
    return pa.schema([(name, _arrow_type(kind)) for name, kind in columns_of(text)])


def columns_of(text: str) -> list[tuple[str, str]]:
    """Names and types of columns in Spark's DDL syntax."""
    return [(name.strip("`"), kind.strip()) for name, _, kind in (part.partition(" ") for part in _parted(text))]


def _parted(text: str) -> list[str]:
    """Split at commas, except inside angle brackets."""
    found, depth, begin = [], 0, 0
    for at, character in enumerate(text + ","):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "," and depth == 0:
            found.append(text[begin:at].strip())
            begin = at + 1
    return found


def _arrow_type(kind: str) -> pa.DataType:
    outer, _, inside = kind.strip().removesuffix(">").partition("<")
    match outer:
        case "array":
            return pa.list_(_arrow_type(inside))
        case "map":
            return pa.map_(*map(_arrow_type, _parted(inside)))
        case "struct":
            fields = (field.partition(":") for field in _parted(inside))
            return pa.struct([(name.strip(), _arrow_type(of)) for name, _, of in fields])
    return _TYPES[outer]


def schema_of_tuple(kind: type[NamedTuple]) -> pa.Schema:
    """The schema of rows that are tuples of this kind: texts, whole numbers and booleans."""
    return pa.schema([(name, _OF_TUPLES[hint]) for name, hint in get_type_hints(kind).items()])


REJECTED = pa.schema(
    [
        *(BRONZE.field(name) for name in ("source", "partition", "sequence", "time", "time_us", "wire", "topic")),
        *schema_of("code string, reason string, path string, subject string"),
        *(BRONZE.field(name) for name in ("schema_version", "producer", "attributes", "payload")),
    ]
)


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
