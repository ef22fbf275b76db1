"""Columns of payloads: what a definition in Avro, JSON Schema or Protobuf describes, as types of Spark.

Payloads are read from the JSON that `silver.messages` has of them (`value`). What has no one type of its own (unions,
any JSON, recursion) is a text: the JSON as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from pyspark.sql import Column
from pyspark.sql import functions as F

from raceway.schema.avro import Avro
from raceway.schema.avro_nodes import Node
from raceway.schema.definition import Definition
from raceway.schema.json_schema import JsonSchema
from raceway.schema.protobuf import Protobuf

# Deeper parts are text.
_DEPTH = 8
_NOT_IN_NAMES = re.compile(r"\W", re.ASCII)


class Member(NamedTuple):
    """A member of an object: its name in the payload, its name as a column, and its type."""

    name: str
    column: str
    kind: Kind


@dataclass(frozen=True)
class Kind:
    """A type: `raw` is what is read from JSON, `sql` what it becomes. `default` stands for a missing value."""

    raw: str
    sql: str
    default: Any = None
    members: tuple[Member, ...] = ()
    item: Kind | None = None

    def column(self, parsed: Column) -> Column:
        """The value from what was read."""
        if self.members:
            made = F.struct(*(each.kind.column(parsed.getField(each.name)).alias(each.column) for each in self.members))
            return F.when(parsed.isNotNull(), made)
        if (item := self.item) is not None:
            if self.sql.startswith("map"):
                return F.transform_values(parsed, lambda _, value: item.column(value))
            return F.transform(parsed, item.column)
        value = parsed if self.raw == self.sql else parsed.try_cast(self.sql)
        return value if self.default is None else F.coalesce(value, F.lit(self.default))


TEXT = Kind("string", "string")
_BOOLEAN, _INT, _BIGINT, _DOUBLE = (Kind(name, name) for name in ("boolean", "int", "bigint", "double"))


def kind_of(definition: Definition) -> Kind:
    """The type of the payloads of a definition."""
    match definition:
        case Avro():
            return _avro(definition.node, ())
        case JsonSchema():
            return _json(definition.document, definition.document, 0)
        case Protobuf() if definition.messages:
            return _message(definition.first, ())
    return TEXT


def column_name(name: str) -> str:
    """A name that every reader of Delta takes: letters, digits and underscores."""
    plain = _NOT_IN_NAMES.sub("_", name)
    return f"_{plain}" if not plain or plain[0].isdigit() else plain


def _array(item: Kind) -> Kind:
    return Kind(f"array<{item.raw}>", f"array<{item.sql}>", item=item)


def _map(item: Kind) -> Kind:
    return Kind(f"map<string,{item.raw}>", f"map<string,{item.sql}>", item=item)


def _object(members: Mapping[str, Kind]) -> Kind:
    """An object; without known members a text."""
    if not members:
        return TEXT
    found = tuple(Member(name, column, members[name]) for name, column in _distinct(members))
    raw = ",".join(f"`{each.name.replace('`', '``')}`:{each.kind.raw}" for each in found)
    sql = ",".join(f"{each.column}:{each.kind.sql}" for each in found)
    return Kind(f"struct<{raw}>", f"struct<{sql}>", members=found)


def _distinct(names: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names, each with its column; a name that Spark cannot tell from an earlier one is left out."""
    read: set[str] = set()
    used: set[str] = set()
    for name in names:
        if name.lower() in read:
            continue
        read.add(name.lower())
        column = base = column_name(name)
        number = 1
        while column.lower() in used:
            number += 1
            column = f"{base}_{number}"
        used.add(column.lower())
        yield name, column


# ---- Avro -----------------------------------------------------------------------------------------------------------

_OF_AVRO = {
    "boolean": _BOOLEAN, "int": _INT, "long": _BIGINT, "float": _DOUBLE, "double": _DOUBLE,
}  # fmt: skip


def _avro(node: Node, above: tuple[int, ...]) -> Kind:
    if len(above) > _DEPTH or id(node) in above:
        return TEXT
    inside = (*above, id(node))
    if node.kind == "union":
        others = [branch for branch in node.branches if branch.kind != "null"]
        return _avro(others[0], inside) if len(others) == 1 else TEXT
    if node.kind in ("record", "error"):
        return _object({field.name: _avro(field.node, inside) for field in node.fields})
    if node.items is not None:
        return (_array if node.kind == "array" else _map)(_avro(node.items, inside))
    return _OF_AVRO.get(node.kind, TEXT)


# ---- JSON Schema ----------------------------------------------------------------------------------------------------

_OF_JSON = {"boolean": _BOOLEAN, "integer": _BIGINT, "number": _DOUBLE, "string": TEXT}
_DATE_TIME = Kind("string", "timestamp")


def _json(schema: Any, document: Any, depth: int) -> Kind:
    for _ in range(_DEPTH):
        if not isinstance(schema, dict) or "$ref" not in schema:
            break
        schema = _pointed(document, schema["$ref"])
    if not isinstance(schema, dict) or depth > _DEPTH:
        return TEXT
    told = schema.get("type")
    kinds = [each for each in (told if isinstance(told, list) else [told]) if each != "null"]
    if len(kinds) != 1:
        return TEXT
    if kinds[0] == "object":
        known = schema.get("properties") or {}
        if not known and isinstance(more := schema.get("additionalProperties"), dict):
            return _map(_json(more, document, depth + 1))
        return _object({name: _json(each, document, depth + 1) for name, each in known.items()})
    if kinds[0] == "array":
        return _array(_json(schema.get("items"), document, depth + 1))
    if schema.get("format") == "date-time":
        return _DATE_TIME
    return _OF_JSON.get(str(kinds[0]), TEXT)


def _pointed(document: Any, reference: Any) -> Any:
    """Return the target of a reference within a document (RFC 6901); None if it leads elsewhere."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found = document
    for part in reference[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found


# ---- Protobuf -------------------------------------------------------------------------------------------------------

# Protobuf's JSON mapping writes 64-bit integers as texts, and NaN and infinity too.
_LONG, _FLOAT = Kind("string", "bigint"), Kind("string", "double")
_OF_PROTOBUF = {
    **dict.fromkeys((FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT), _FLOAT),
    **dict.fromkeys((FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_SFIXED64), _LONG),
    **dict.fromkeys((FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32), _INT),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32), _BIGINT),
    FieldDescriptor.TYPE_BOOL: _BOOLEAN,
}
_ZEROS = {"bigint": 0, "int": 0, "double": 0.0, "boolean": False, "string": ""}
_WELL_KNOWN = {
    "google.protobuf.Timestamp": _DATE_TIME,
    "google.protobuf.DoubleValue": _FLOAT,
    "google.protobuf.FloatValue": _FLOAT,
    "google.protobuf.Int64Value": _LONG,
    "google.protobuf.Int32Value": _INT,
    "google.protobuf.UInt32Value": _BIGINT,
    "google.protobuf.BoolValue": _BOOLEAN,
}


def _message(message: Descriptor, above: tuple[str, ...]) -> Kind:
    if len(above) > _DEPTH or message.full_name in above:
        return TEXT
    if message.full_name.startswith("google.protobuf."):
        return _WELL_KNOWN.get(message.full_name, TEXT)
    inside = (*above, message.full_name)
    return _object({field.name: _field(field, inside) for field in message.fields})


def _field(field: FieldDescriptor, above: tuple[str, ...]) -> Kind:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        return _map(_single(inner.fields_by_name["value"], above))
    single = _single(field, above)
    if field.is_repeated:
        return _array(single)
    if inner is not None or field.has_presence:
        return single
    # A field that cannot be absent is left out of the JSON if it is zero.
    zero = field.enum_type.values_by_number[0].name if field.enum_type is not None else _ZEROS[single.sql]
    return Kind(single.raw, single.sql, zero)


def _single(field: FieldDescriptor, above: tuple[str, ...]) -> Kind:
    if field.message_type is not None:
        return _message(field.message_type, above)
    return _OF_PROTOBUF.get(field.type, TEXT)
