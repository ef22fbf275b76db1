"""Avro schemas. A definition is turned into nodes once; payloads and other versions are compared with those.

Ours, because what is at hand is not made for strangers: fastavro takes definitions that break the specification, ends
the process on a deeply nested datum, and fills the memory from six bytes that announce an array of nulls.
"""

from __future__ import annotations

from typing import ClassVar

from raceway.model.schemas import SchemaType
from raceway.schema.avro_compatibility import refusals
from raceway.schema.avro_datum import maybe_fault
from raceway.schema.avro_reader import read_schema
from raceway.schema.avro_values import json_of
from raceway.schema.definition import Definition, Fault, Resolved
from raceway.schema.json_text import canonical_json, document_of


class Avro(Definition):
    schema_type: ClassVar[SchemaType] = "avro"

    def __init__(self, definition: bytes, references: Resolved = ()) -> None:
        self.references = references
        self._document = document_of(definition)
        self.node = read_schema(self._document, [document_of(each.definition) for each in references])

    @property
    def canonical(self) -> bytes:
        return canonical_json(self._document)

    def maybe_fault(self, payload: bytes, index: tuple[int, ...] = ()) -> Fault | None:
        return maybe_fault(self.node, payload)

    def maybe_json(self, payload: bytes, index: tuple[int, ...] = ()) -> str | None:
        return json_of(self.node, payload)

    def refusals(self, writer: Definition) -> list[str]:
        assert isinstance(writer, Avro)
        return refusals(self.node, writer.node)
