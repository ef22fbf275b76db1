"""Compatibility of JSON Schemas: can one read what was written with another?

The rule for members of an object, whichever of the two schemas is older:

    declared by both            a member that the reader requires must be required of the writer; then its schemas are
                                compared
    declared by one of them     compatible if it is optional there; refused if it is required there

The rule applies at every depth: inside members, items and alternatives. A changed `type` is refused in both directions.
Writers are assumed to write only members their schema declares; otherwise nothing could ever be added. Every other
keyword of the reader must be no narrower than the writer's; where that cannot be shown, the schemas are incompatible.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import ge, le
from typing import Any

from raceway.schema.effort import Comparison, Effort, TooIntricateError
from raceway.schema.json_refs import ANNOTATIONS, REFERENCES, References, walk
from raceway.schema.json_text import canonical_json

# Reasons reported at most.
MAX_REASONS = 20
# Keywords compared by rules of their own.
STRUCTURAL = {
    "type", "properties", "required", "additionalProperties", "items", "prefixItems", "additionalItems", "enum",
    "const", "allOf", "anyOf", "oneOf",
}  # fmt: skip
# JSON Schema Validation 2020-12, 6.2 to 6.5. Each tells whether the reader's limit is no narrower.
NUMERIC_LIMITS: dict[str, Callable[[Any, Any], bool]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), le),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), ge),
    "multipleOf": lambda reader, writer: isinstance(reader, int) and isinstance(writer, int) and writer % reader == 0,
}
# Keywords that apply to one type of value only (Validation, 6): irrelevant if the writer never writes that type.
ONLY_FOR = {
    "object": {"properties", "required", "additionalProperties", "minProperties", "maxProperties", "patternProperties",
               "propertyNames", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"},
    "array": {"items", "prefixItems", "additionalItems", "contains", "minContains", "maxContains", "minItems",
              "maxItems", "uniqueItems", "unevaluatedItems"},
    "string": {"minLength", "maxLength", "pattern"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
}  # fmt: skip


def refusals(reader: Any, writer: Any) -> list[str]:
    """List why `reader` cannot read what was written with `writer`; empty if it can."""
    if _equal(reader, writer):
        return []
    try:
        comparison = _JsonComparison(References(reader), References(writer), Effort())
        return comparison.compare(reader, writer, "")[:MAX_REASONS]
    except (TooIntricateError, RecursionError):
        return ["comparison budget exceeded: the schemas are too complex to compare"]


class _JsonComparison(Comparison):
    """A comparison of two schemas, with a step budget."""

    def __init__(
        self, reader: References, writer: References, effort: Effort, around: _JsonComparison | None = None
    ) -> None:
        super().__init__(effort, around)
        self._reader, self._writer = reader, writer
        self._kept: list[Any] = []

    def compare(self, reader: Any, writer: Any, path: str) -> list[str]:
        """Compare two schemas, with their references followed."""
        reader, writer = self._reader.resolved(reader), self._writer.resolved(writer)
        self._kept += (reader, writer)  # keeps both alive: an id is unique only while its object lives
        return super().compare(reader, writer, path)

    def _compare(self, reader: Any, writer: Any, path: str) -> list[str]:
        """Compare two schemas that were not compared before."""
        here = path or "/"
        # Core 2020-12, 4.3.2: true and {} accept everything, false nothing.
        if reader is True or writer is False or reader == {}:
            return []
        if _equal(reader, writer) and not _holds_reference(reader):
            return []
        if reader is False:
            return [f"{here}: the reader accepts no value"]
        assert isinstance(reader, dict)
        writer = {} if writer is True else writer
        found = _types(reader, writer, here)
        if found:
            return found
        kinds = _kinds(writer)
        for rule in (self._members, self._items, self._alternatives):
            found += rule(reader, writer, path)
        found += _values(reader, writer, here)
        for keyword in reader.keys() - STRUCTURAL - ANNOTATIONS:
            # Irrelevant if it applies only to types that the writer never writes.
            if not any(keyword in words and kind not in kinds for kind, words in ONLY_FOR.items()):
                found += _keyword(keyword, reader, writer, here)
        return found

    # ---- members -----------------------------------------------------------------------------------------------------

    def _members(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
        """Compare the members of objects."""
        if "object" not in _kinds(writer):
            return []
        found: list[str] = []
        theirs, ours = _table(writer, "properties"), _table(reader, "properties")
        required_there, required_here = _names(writer), _names(reader)
        for name in dict.fromkeys((*theirs, *ours, *sorted(required_here))):
            at = f"{path}/{name}"
            if name in theirs and name in ours:
                if name in required_here - required_there:
                    found.append(f"{at}: required by the reader, optional for the writer")
                found += self.compare(ours[name], theirs[name], at)
            elif name in ours and name in required_here:
                found.append(f"{at}: required, and the writer does not declare it")
            elif name in theirs and name in required_there:
                found.append(f"{at}: a required member of the writer that the reader does not declare")
            elif name in theirs:
                found += self._undeclared(reader, theirs[name], at)
            elif name in ours:
                found += self._unwritten(ours[name], writer, at)
            elif name not in required_there:
                found.append(f"{at}: required, and the writer does not declare it")
        if _equal(reader.get("patternProperties"), writer.get("patternProperties")):
            writer = {**writer, "patternProperties": {}}
        return found + self._unwritten(reader.get("additionalProperties", True), writer, f"{path}/*")

    def _undeclared(self, reader: dict[str, Any], theirs: Any, at: str) -> list[str]:
        """Compare an optional member that only the writer declares with what the reader accepts of others."""
        for keyword in ("patternProperties", "unevaluatedProperties"):
            if reader.get(keyword, True) not in (True, {}):
                return [f"{at}: the reader does not declare it, and its {keyword} may refuse it"]
        rest = reader.get("additionalProperties", True)
        if rest is False:
            return [f"{at}: the reader does not declare it, and allows no additional members"]
        return self.compare(rest, theirs, at)

    def _unwritten(self, ours: Any, writer: dict[str, Any], at: str) -> list[str]:
        """Compare what the reader accepts as a member with what the writer may write as one that it does not
        declare."""
        rest = writer.get("additionalProperties")
        others = [*_table(writer, "patternProperties").values(), *([rest] if isinstance(rest, dict) else [])]
        return [reason for theirs in others for reason in self.compare(ours, theirs, at)]

    # ---- items -------------------------------------------------------------------------------------------------------

    def _items(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
        """Compare the items of arrays, position by position and then the rest."""
        if "array" not in _kinds(writer):
            return []
        (our_first, our_rest), (their_first, their_rest) = _sequence(reader), _sequence(writer)
        found: list[str] = []
        for place in range(max(len(our_first), len(their_first))):
            ours = our_first[place] if place < len(our_first) else our_rest
            theirs = their_first[place] if place < len(their_first) else their_rest
            found += self.compare(ours, theirs, f"{path}/{place}")
        return found + self.compare(our_rest, their_rest, f"{path}/[]")

    # ---- alternatives ------------------------------------------------------------------------------------------------

    def _alternatives(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
        """Compare `allOf`, `anyOf` and `oneOf`."""
        found: list[str] = []
        here = path or "/"
        for branch in reader.get("allOf", ()):
            if not any(self._reads(branch, theirs) for theirs in (*writer.get("allOf", ()), _bare(writer))):
                found += [f"{here}: a branch of `allOf` may be narrower than the writer's schema"]
        for keyword in ("anyOf", "oneOf"):
            if keyword in reader and not self._covers(keyword, reader, writer):
                found += [f"{here}: `{keyword}` may refuse values of the writer"]
        return found

    def _covers(self, keyword: str, reader: dict[str, Any], writer: dict[str, Any]) -> bool:
        """Report whether the reader's alternatives accept everything the writer's schema does."""
        branches = reader[keyword]
        theirs = writer.get(keyword)
        if keyword == "oneOf" and not self._are_disjoint(branches):
            # Core 2020-12, 10.2.1.3: exactly one branch must accept a value, so any change may break it.
            return theirs is not None and self._same(branches, theirs)
        for written in theirs if theirs is not None else writer.get("anyOf", writer.get("oneOf", [_bare(writer)])):
            if not any(self._reads(branch, written) for branch in branches):
                return False
        return True

    def _are_disjoint(self, branches: list[Any]) -> bool:
        """Report whether the alternatives accept different types, so that at most one can match."""
        kinds = [_kinds(self._reader.resolved(branch)) for branch in branches]
        return sum(map(len, kinds)) == len(set().union(*kinds))

    def _same(self, ours: list[Any], theirs: list[Any]) -> bool:
        """Report whether the alternatives are equal, in order, including what they refer to."""
        return ours == theirs and all(
            self._reads(a, b) and _JsonComparison(self._writer, self._reader, self._effort)._reads(b, a)
            for a, b in zip(ours, theirs, strict=True)
        )

    def _reads(self, reader: Any, writer: Any) -> bool:
        """Compare on trial."""
        return not _JsonComparison(self._reader, self._writer, self._effort, self).compare(reader, writer, "")


# ---- keywords -------------------------------------------------------------------------------------------------------


def _types(reader: dict[str, Any], writer: dict[str, Any], here: str) -> list[str]:
    """Compare `type`."""
    ours, theirs = reader.get("type"), writer.get("type")
    if ours is None:
        return []
    if theirs is None:
        values = _maybe_values(writer)
        if values is not None and all(_is_of(value, _type_names(ours)) for value in values):
            return []
        return [f"{here}: the reader wants type {_shown(ours)}, the writer may write any"]
    if _type_names(ours) == _type_names(theirs):
        return []
    return [f"{here}: the type differs: {_shown(ours)} for the reader, {_shown(theirs)} for the writer"]


def _values(reader: dict[str, Any], writer: dict[str, Any], here: str) -> list[str]:
    """Compare `enum` and `const`."""
    ours, theirs = _maybe_values(reader), _maybe_values(writer)
    if ours is None:
        return []
    if theirs is None:
        return [f"{here}: the reader accepts only certain values, the writer may write others"]
    known = {_text(value) for value in ours}
    missing = [value for value in theirs if _text(value) not in known]
    return [f"{here}: the reader does not accept {_shown(missing[0])}"] if missing else []


def _keyword(keyword: str, reader: dict[str, Any], writer: dict[str, Any], here: str) -> list[str]:
    """Compare one keyword of the reader with the writer's."""
    ours, theirs = reader[keyword], writer.get(keyword)
    # Only references that cannot be followed are left here; equal ones mean the same published schema.
    if keyword in REFERENCES and ours == theirs:
        return []
    if _equal(ours, theirs) and not _holds_reference(ours):
        return []
    wider = NUMERIC_LIMITS.get(keyword)
    if wider is not None and _is_number(ours) and _is_number(theirs) and wider(ours, theirs):
        return []
    if keyword in ("uniqueItems", "unevaluatedProperties", "unevaluatedItems") and ours in (False, True):
        return [] if (ours is False) == (keyword == "uniqueItems") else [f"{here}: `{keyword}` is narrower"]
    if keyword in ("minLength", "minItems", "minProperties") and ours == 0:
        return []
    if theirs is None:
        return [f"{here}: `{keyword}` restricts the reader but not the writer"]
    return [f"{here}: `{keyword}` may be narrower than the writer's"]


_KINDS = {
    type(None): "null", bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object",
}  # fmt: skip
ALL_KINDS = set(_KINDS.values())


def _kinds(node: Any) -> set[str]:
    """Return the types a schema accepts, as far as it names them; an integer is a number."""
    if not isinstance(node, dict):
        return set(ALL_KINDS)
    if "type" in node:
        return {"number" if name == "integer" else name for name in _type_names(node["type"])}
    values = _maybe_values(node)
    return {_kind_of(value) for value in values} if values is not None else set(ALL_KINDS)


def _type_names(named: Any) -> set[str]:
    """The names in `type`, a string or a list."""
    return {named} if isinstance(named, str) else set(named)


def _is_of(value: Any, names: set[str]) -> bool:
    """Report whether a value is of one of the types. 1.0 is an integer (Validation, 6.1.1)."""
    if "integer" in names and _is_number(value) and value == int(value):
        return True
    return _kind_of(value) in names


def _kind_of(value: Any) -> str:
    """The JSON type of a value."""
    return _KINDS[type(value)]


def _sequence(node: dict[str, Any]) -> tuple[list[Any], Any]:
    """Return the schemas of the first items, and that of all others."""
    # 2020-12 has `prefixItems` and `items`; earlier drafts a list in `items`, and `additionalItems`.
    if isinstance(node.get("prefixItems"), list):
        return node["prefixItems"], node.get("items", True)
    items = node.get("items", True)
    return (items, node.get("additionalItems", True)) if isinstance(items, list) else ([], items)


def _table(node: dict[str, Any], key: str) -> dict[str, Any]:
    """A member that is an object, otherwise empty."""
    found = node.get(key)
    return found if isinstance(found, dict) else {}


def _names(node: dict[str, Any]) -> set[str]:
    """The names in `required`."""
    found = node.get("required")
    return set(found) if isinstance(found, list) else set()


def _bare(node: dict[str, Any]) -> dict[str, Any]:
    """The schema without `allOf`."""
    return {key: value for key, value in node.items() if key != "allOf"}


def _maybe_values(node: dict[str, Any]) -> list[Any] | None:
    """The values of `const` or `enum`, if any."""
    if "const" in node:
        return [node["const"]]
    found = node.get("enum")
    return found if isinstance(found, list) else None


def _equal(a: Any, b: Any) -> bool:
    """Report equality as JSON (Core 2020-12, 4.2.2): true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return bool(a == b)


def _text(value: Any) -> bytes:
    """Return a text that is the same for values equal as JSON: 1.0 is 1."""
    return canonical_json(_with_whole_numbers(value))


def _with_whole_numbers(value: Any) -> Any:
    """Replace floats without a fraction by integers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_with_whole_numbers(each) for each in value]
    return {key: _with_whole_numbers(each) for key, each in value.items()} if isinstance(value, dict) else value


def _holds_reference(node: Any) -> bool:
    """Report whether a schema contains a reference: equal text may still refer to something that changed."""
    return any(key in each for each in walk(node) for key in REFERENCES)


def _is_number(value: Any) -> bool:
    """Report whether a value is a JSON number; bool is an int in Python."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """Format a value for a reason."""
    return (
        "/".join(map(str, value)) if isinstance(value, list) else repr(value) if isinstance(value, str) else str(value)
    )
