"""Definitions by type, and compatibility by mode. Libraries are imported on first use."""

from __future__ import annotations

from raceway.errors import SchemaInvalidError
from raceway.model.schemas import CompatibilityMode, SchemaType
from raceway.schema.definition import Definition, Resolved
from raceway.schema.plain import Number, Plain, String

TRANSITIVE = "_transitive"


def read_definition(schema_type: SchemaType, definition: bytes, references: Resolved = ()) -> Definition:
    """Parse a definition. Raises SchemaInvalidError."""
    if schema_type == "json_schema":
        # Imported on first use: most buses need one of these libraries or none.
        from raceway.schema.json_schema import JsonSchema

        return JsonSchema(definition, references)
    if schema_type == "avro":
        from raceway.schema.avro import Avro

        return Avro(definition, references)
    if schema_type == "protobuf":
        from raceway.schema.protobuf import Protobuf

        return Protobuf(definition, references)
    if references:
        raise SchemaInvalidError("references", f"a schema of type {schema_type} cannot have references")
    return {"bytes": Plain, "string": String, "number": Number}[schema_type]()


def incompatibilities(new: Definition, old: Definition, mode: CompatibilityMode) -> list[str]:
    """List why `new` may not follow `old`; empty if it may."""
    if mode == "none" or (new.fingerprint, new.references) == (old.fingerprint, old.references):
        return []
    if new.schema_type != old.schema_type:
        return [f"the type changes from {old.schema_type} to {new.schema_type}"]
    direction = mode.removesuffix(TRANSITIVE)
    reasons: list[str] = []
    if direction in ("backward", "full"):
        reasons += [f"the new version cannot read the old one's data: {reason}" for reason in new.refusals(old)]
    if direction in ("forward", "full"):
        reasons += [f"the old version cannot read the new one's data: {reason}" for reason in old.refusals(new)]
    return reasons
