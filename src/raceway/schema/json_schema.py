"""JSON Schema: drafts 4 to 2020-12, checked by `jsonschema-rs`.

Patterns are compiled by an engine that takes linear time; what it does not know (look-around, back-references) is
refused at registration. References must lead inside the document, or to schemas that it was registered with.
"""

from __future__ import annotations

from typing import Any, ClassVar

from raceway.errors import SchemaInvalidError
from raceway.model.schemas import SchemaType
from raceway.schema.definition import Definition, Fault, Resolved
from raceway.schema.json_bundle import bundled
from raceway.schema.json_compatibility import refusals
from raceway.schema.json_cost import cost_of
from raceway.schema.json_refs import walk
from raceway.schema.json_text import canonical_json, decode_json, document_of

# A compiled pattern may be far larger than its text: how many there may be, one of them, and all together.
MAX_PATTERNS = 1000
PATTERN_BYTES, ALL_PATTERNS_BYTES = 4 * 1024 * 1024, 16 * 1024 * 1024
# A complaint may quote the value it is about.
REASON_CHARACTERS = 300


class JsonSchema(Definition):
    schema_type: ClassVar[SchemaType] = "json_schema"

    def __init__(self, definition: bytes, references: Resolved = ()) -> None:
        self.references = references
        self._own = document_of(definition)
        if not isinstance(self._own, (dict, bool)):
            raise SchemaInvalidError("definition", "a JSON Schema is an object, true or false")
        self.document = bundled(self._own, references)
        self._validator = _compile(self.document)
        self._cost = cost_of(self.document)

    @property
    def canonical(self) -> bytes:
        return canonical_json(self._own)

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
            return Fault("", "nesting", _shortened(str(error)))

    def maybe_json(self, payload: bytes, index: tuple[int, ...] = ()) -> str | None:
        return payload.decode()

    def refusals(self, writer: Definition) -> list[str]:
        assert isinstance(writer, JsonSchema)
        return refusals(self.document, writer.document)

    def _fault(self, value: Any) -> Fault | None:
        """The first one only: there may be as many as values."""
        from jsonschema_rs import ValidationError

        try:
            self._validator.validate(value)
        except ValidationError as error:
            return _fault_of(error)
        return None


def _fault_of(error: Any) -> Fault:
    path = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in error.instance_path)
    rule = "/".join(map(str, error.schema_path))
    return Fault(path[:REASON_CHARACTERS], rule[:REASON_CHARACTERS], _shortened(error.message))


def _compile(document: Any) -> Any:
    import jsonschema_rs

    count = _count_patterns(document)
    if count > MAX_PATTERNS:
        raise SchemaInvalidError("definition", f"has {count} patterns, {MAX_PATTERNS} are allowed")
    limit = min(PATTERN_BYTES, ALL_PATTERNS_BYTES // max(count, 1))
    try:
        return jsonschema_rs.validator_for(
            document,
            offline=True,
            validate_formats=False,  # an annotation, as in the newest draft: what may change freely cannot refuse
            pattern_options=jsonschema_rs.RegexOptions(size_limit=limit, dfa_size_limit=limit),
        )
    except jsonschema_rs.ValidationError as error:
        where = "".join(f"/{part}" for part in error.instance_path)
        at = f"at {where}: " if where else ""
        raise SchemaInvalidError("definition", f"is no JSON Schema: {at}{_shortened(error.message)}") from error
    except ValueError as error:
        raise SchemaInvalidError("definition", f"is no JSON Schema: {error}") from error


def _count_patterns(document: Any) -> int:
    """Members called so may be none; counting a few too many does no harm."""
    found = 0
    for node in walk(document):
        names = node.get("patternProperties")
        found += ("pattern" in node) + (len(names) if isinstance(names, dict) else 0)
    return found


def _shortened(text: str) -> str:
    return text if len(text) <= REASON_CHARACTERS else text[: REASON_CHARACTERS - 1] + "…"
