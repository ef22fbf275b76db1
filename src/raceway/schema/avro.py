"""Avro schemas. A definition is parsed into nodes once; payloads and other versions are checked against those.

An own implementation, because fastavro is not made for untrusted input: it accepts definitions that break the
specification, crashes the process on a deeply nested datum, and exhausts memory on six bytes that announce an array of
nulls.
"""

from __future__ import annotations

from typing import ClassVar

from raceway.model.schemas import SchemaType
from raceway.schema.avro_compatibility import refusals
from raceway.schema.avro_datum import json_of, maybe_fault
from raceway.schema.avro_reader import read_schema
from raceway.schema.definition import Definition, Fault, Resolved
from raceway.schema.json_text import canonical_json, document_of


class Avro(Definition):
    """An Avro definition."""

    schema_type: ClassVar[SchemaType] = "avro"

    def __init__(self, definition: bytes, references: Resolved = ()) -> None:
        self.references = references
        self._document = document_of(definition)
        self.node = read_schema(self._document, [document_of(each.definition) for each in references])

    @property
    def canonical(self) -> bytes:
        """The definition as JSON with sorted keys."""
        # Not Avro's Parsing Canonical Form, which drops defaults and aliases: both matter for schema resolution.
        return canonical_json(self._document)

    def maybe_fault(self, payload: bytes, index: tuple[int, ...] = ()) -> Fault | None:
        """Check a payload in binary, container or JSON form."""
        return maybe_fault(self.node, payload)

    def maybe_json(self, payload: bytes, index: tuple[int, ...] = ()) -> str | None:
        """Decode a valid payload to JSON."""
        return json_of(self.node, payload)

    def refusals(self, writer: Definition) -> list[str]:
        """Compare by Avro's schema resolution."""
        assert isinstance(writer, Avro)
        return refusals(self.node, writer.node)
