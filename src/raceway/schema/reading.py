"""From a type and the bytes of a definition to something that checks. Libraries are loaded when first needed."""

from __future__ import annotations

from raceway.model.schemas import Mode, SchemaType
from raceway.schema.definition import Definition
from raceway.schema.plain import Bytes, Number, String


def read_definition(schema_type: SchemaType, definition: bytes) -> Definition:
    """Raises SchemaInvalidError."""
    if schema_type == "json_schema":
        from raceway.schema.json_schema import JsonSchema

        return JsonSchema(definition)
    if schema_type == "avro":
        from raceway.schema.avro import Avro

        return Avro(definition)
    if schema_type == "protobuf":
        from raceway.schema.protobuf import Protobuf

        return Protobuf(definition)
    return {"bytes": Bytes, "string": String, "number": Number}[schema_type]()


def incompatibilities(new: Definition, old: Definition, mode: Mode) -> list[str]:
    """Why `new` may not follow `old`; empty when it may."""
    if mode == "none" or new.fingerprint == old.fingerprint:
        return []
    if new.schema_type != old.schema_type:
        return [f"the type changes from {old.schema_type} to {new.schema_type}"]
    reasons: list[str] = []
    if mode in ("backward", "full"):
        reasons += [f"the new version cannot read the old one's data: {reason}" for reason in new.refusals(old)]
    if mode in ("forward", "full"):
        reasons += [f"the old version cannot read the new one's data: {reason}" for reason in old.refusals(new)]
    return reasons
