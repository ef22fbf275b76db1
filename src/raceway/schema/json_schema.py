"""JSON Schema: drafts 4 to 2020-12, checked by `jsonschema-rs`.

Patterns are compiled by an engine that takes linear time; what it does not know (look-around, back-references) is
refused at registration. References must lead inside the document.
"""

from __future__ import annotations

from typing import Any, ClassVar

from raceway.errors import SchemaInvalidError
from raceway.model.schemas import SchemaType
from raceway.schema.definition import Definition, Fault
from raceway.schema.json_compatibility import refusals
from raceway.schema.json_cost import cost_of
from raceway.schema.json_text import canonical_json, decode_json, document_of

PATTERN_BYTES = 1024 * 1024
# A complaint may quote the value it is about.
REASON_CHARACTERS = 300


class JsonSchema(Definition):
    schema_type: ClassVar[SchemaType] = "json_schema"

    def __init__(self, definition: bytes) -> None:
        self.document = document_of(definition)
        if not isinstance(self.document, (dict, bool)):
            raise SchemaInvalidError("definition", "a JSON Schema is an object, true or false")
        self._validator = _compile(self.document)
        self._cost = cost_of(self.document)

    @property
    def canonical(self) -> bytes:
        return canonical_json(self.document)

    def maybe_fault(self, payload: bytes, index: tuple[int, ...] = ()) -> Fault | None:
        try:
            value = decode_json(payload)
        except ValueError as error:
            return Fault("", "json", f"is not JSON: {error}")
        if not self._cost.allows(value, len(payload)):
            return Fault("", "work", "checking this value could take too long: it is too large or nested too deep")
        try:
            return None if self._validator.is_valid(value) else self._fault(value)
        except ValueError as error:  # the library's own limit of nesting
            return Fault("", "nesting", str(error))

    def refusals(self, writer: Definition) -> list[str]:
        assert isinstance(writer, JsonSchema)
        return refusals(self.document, writer.document)

    def _fault(self, value: Any) -> Fault:
        error = next(self._validator.iter_errors(value))
        path = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in error.instance_path)
        rule = "/".join(map(str, error.schema_path))
        message = error.message
        return Fault(path[:REASON_CHARACTERS], rule[:REASON_CHARACTERS], _shortened(message))


def _compile(document: Any) -> Any:
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(
            document,
            offline=True,
            validate_formats=False,  # an annotation, as in the newest draft: what may change freely cannot refuse
            pattern_options=jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES, dfa_size_limit=PATTERN_BYTES),
        )
    except jsonschema_rs.ValidationError as error:
        where = "".join(f"/{part}" for part in error.instance_path)
        at = f"at {where}: " if where else ""
        raise SchemaInvalidError("definition", f"is no JSON Schema: {at}{_shortened(error.message)}") from error
    except ValueError as error:
        raise SchemaInvalidError("definition", f"is no JSON Schema: {error}") from error


def _shortened(text: str) -> str:
    return text if len(text) <= REASON_CHARACTERS else text[: REASON_CHARACTERS - 1] + "…"
