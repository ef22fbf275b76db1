"""JSON Schema, drafts 4 to 2020-12, validated by `jsonschema-rs`.

Patterns are compiled by an engine of linear time; constructs it lacks (look-around, back-references) are refused at
registration. References must lead inside the document, or to schemas it was registered with.
"""

from __future__ import annotations

from typing import Any, ClassVar

from raceway.errors import SchemaInvalidError
from raceway.model.schemas import SchemaType
from raceway.schema.definition import Definition, Fault, Resolved
from raceway.schema.json_bundle import bundled
from raceway.schema.json_compatibility import refusals
from raceway.schema.json_cost import Cost
from raceway.schema.json_refs import walk
from raceway.schema.json_text import canonical_json, decode_json, document_of

# A compiled pattern may be far larger than its text: limits of their number, of each one, and of all together.
MAX_PATTERNS = 1000
PATTERN_BYTES, ALL_PATTERNS_BYTES = 4 * 1024 * 1024, 16 * 1024 * 1024
# Limit of a reason, which may quote the value.
REASON_CHARACTERS = 300


class JsonSchema(Definition):
    """A JSON Schema definition."""

    schema_type: ClassVar[SchemaType] = "json_schema"

    def __init__(self, definition: bytes, references: Resolved = ()) -> None:
        self.references = references
        self._own = document_of(definition)
        if not isinstance(self._own, (dict, bool)):
            # Core 2020-12, 4.3: a schema is an object or a boolean.
            raise SchemaInvalidError("definition", "not a JSON Schema: it must be an object, true or false")
        self.document = bundled(self._own, references)
        self._validator = _compile(self.document)
        self._cost = Cost(self.document)

    @property
    def canonical(self) -> bytes:
        """The definition as JSON with sorted keys, without its references."""
        return canonical_json(self._own)

    def maybe_fault(self, payload: bytes, index: tuple[int, ...] = ()) -> Fault | None:
        """Validate a payload."""
        try:
            value = decode_json(payload)
        except ValueError as error:
            return Fault("", "json", f"is not JSON: {error}")
        if not self._cost.allows(value, payload):
            return Fault("", "work", "validation budget exceeded: the value is too large or nested too deep")
        try:
            return None if self._validator.is_valid(value) else self._fault(value)
        except ValueError as error:  # the library's own nesting limit
            return Fault("", "nesting", _shortened(str(error)))

    def maybe_json(self, payload: bytes, index: tuple[int, ...] = ()) -> str | None:
        """Return the payload itself: it is JSON."""
        return payload.decode()

    def refusals(self, writer: Definition) -> list[str]:
        """Compare by the rules of `json_compatibility`."""
        assert isinstance(writer, JsonSchema)
        return refusals(self.document, writer.document)

    def _fault(self, value: Any) -> Fault | None:
        """Return the first fault only: there may be as many as values."""
        from jsonschema_rs import ValidationError

        try:
            self._validator.validate(value)
        except ValidationError as error:
            path = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in error.instance_path)
            rule = "/".join(map(str, error.schema_path))
            return Fault(path[:REASON_CHARACTERS], rule[:REASON_CHARACTERS], _shortened(error.message))
        return None


def _compile(document: Any) -> Any:
    """Compile the validator. Raises SchemaInvalidError."""
    import jsonschema_rs

    count = _count_patterns(document)
    if count > MAX_PATTERNS:
        raise SchemaInvalidError("definition", f"has {count} patterns; the limit is {MAX_PATTERNS}")
    limit = min(PATTERN_BYTES, ALL_PATTERNS_BYTES // max(count, 1))
    try:
        return jsonschema_rs.validator_for(
            document,
            offline=True,
            validate_formats=False,  # Validation 2020-12, 7.2: `format` is an annotation by default
            pattern_options=jsonschema_rs.RegexOptions(size_limit=limit, dfa_size_limit=limit),
        )
    except jsonschema_rs.ValidationError as error:
        where = "".join(f"/{part}" for part in error.instance_path)
        at = f"at {where}: " if where else ""
        raise SchemaInvalidError("definition", f"not a valid JSON Schema: {at}{_shortened(error.message)}") from error
    except ValueError as error:
        raise SchemaInvalidError("definition", f"not a valid JSON Schema: {error}") from error


def _count_patterns(document: Any) -> int:
    """Count patterns. A member that is only called `pattern` counts too, which does no harm."""
    found = 0
    for node in walk(document):
        names = node.get("patternProperties")
        found += ("pattern" in node) + (len(names) if isinstance(names, dict) else 0)
    return found


def _shortened(text: str) -> str:
    """Cut a text to the limit of a reason."""
    return text if len(text) <= REASON_CHARACTERS else text[: REASON_CHARACTERS - 1] + "…"
