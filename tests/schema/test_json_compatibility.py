"""Which JSON Schema may follow which. The table of the manual, at the top, in members and in items; then every pair of
schemas that is called compatible is held to it: what one admits, the other admits."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raceway.schema.json_compatibility import refusals
from raceway.schema.json_schema import JsonSchema
from raceway.schema.reading import incompatibilities

ID, NAME = {"type": "integer"}, {"type": "string"}


def record(properties: dict[str, Any], *required: str, **rest: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), **rest}


# change: old, new, backward, forward
TABLE = {
    "optional property added": (record({"a": ID}), record({"a": ID, "b": NAME}), True, True),
    "optional property removed": (record({"a": ID, "b": NAME}), record({"a": ID}), True, True),
    "property type changed": (record({"a": ID}), record({"a": NAME}), False, False),
    "type of a required property changed": (record({"a": ID}, "a"), record({"a": NAME}, "a"), False, False),
    "required property removed": (record({"a": ID, "b": NAME}, "b"), record({"a": ID}), False, False),
    "required property removed, still required": (record({"a": ID}, "a"), record({}, "a"), False, False),
    "optional property made required": (record({"a": ID}), record({"a": ID}, "a"), False, True),
    "new property that is required": (record({"a": ID}), record({"a": ID, "b": NAME}, "b"), False, False),
    "required property made optional": (record({"a": ID}, "a"), record({"a": ID}), True, False),
    "nothing changed": (record({"a": ID}, "a"), record({"a": ID}, "a"), True, True),
    "only notes changed": (record({"a": ID}), record({"a": {**ID, "title": "A"}}, description="x"), True, True),
}

PLACES: dict[str, Callable[[Any], Any]] = {
    "at the top": lambda inner: inner,
    "in a member": lambda inner: record({"inner": inner}),
    "in a required member": lambda inner: record({"inner": inner}, "inner"),
    "two members deep": lambda inner: record({"x": record({"y": inner})}),
    "in items": lambda inner: {"type": "array", "items": inner},
    "in items of a member": lambda inner: record({"list": {"type": "array", "items": inner}}),
    "behind a reference": lambda inner: {**record({"r": {"$ref": "#/$defs/r"}}), "$defs": {"r": inner}},
    "in an alternative": lambda inner: {"anyOf": [{"type": "null"}, inner]},
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("change", TABLE)
def test_the_table_of_changes_holds_wherever_an_object_stands(change: str, place: str) -> None:
    old_object, new_object, backward, forward = TABLE[change]
    old, new = (JsonSchema(json.dumps(PLACES[place](each)).encode()) for each in (old_object, new_object))
    assert (not incompatibilities(new, old, "backward")) is backward
    assert (not incompatibilities(new, old, "forward")) is forward
    assert (not incompatibilities(new, old, "full")) is (backward and forward)
    assert not incompatibilities(new, old, "none")


# reader, writer, can it be read?
READING: list[tuple[Any, Any, bool]] = [
    (True, {"type": "string"}, True),
    ({}, {"type": "string"}, True),
    (False, {"type": "string"}, False),
    ({"type": "string"}, True, False),
    ({"type": "string"}, False, True),
    ({"type": "number"}, {"type": "integer"}, False),  # a changed type is refused, also where it would widen
    ({"type": ["string", "null"]}, {"type": ["null", "string"]}, True),
    ({"type": ["integer", "number"]}, {"type": "integer"}, False),
    ({"type": "integer"}, {"enum": [1, 2]}, True),
    ({"type": "integer"}, {"enum": [1, 2.5]}, False),
    ({"enum": ["a", "b"]}, {"enum": ["a"]}, True),
    ({"enum": ["a"]}, {"enum": ["a", "b"]}, False),
    ({"enum": ["a"]}, {"const": "a"}, True),
    ({"enum": [1]}, {"enum": [True]}, False),
    ({"const": "a"}, {"type": "string"}, False),
    ({"maximum": 10}, {"maximum": 5}, True),
    ({"maximum": 5}, {"maximum": 10}, False),
    ({"maximum": 5}, {}, False),
    ({}, {"maximum": 5}, True),
    ({"minLength": 1}, {"minLength": 2}, True),
    ({"minLength": 2}, {"minLength": 1}, False),
    ({"minLength": 0}, {"type": "string"}, True),
    ({"maxLength": 5}, {"type": "integer"}, True),  # says nothing about integers
    ({"multipleOf": 2}, {"multipleOf": 4}, True),
    ({"multipleOf": 4}, {"multipleOf": 2}, False),
    ({"pattern": "^a"}, {"pattern": "^a"}, True),
    ({"pattern": "^a"}, {"pattern": "^ab"}, False),
    ({"uniqueItems": False}, {"type": "array"}, True),
    ({"uniqueItems": True}, {"type": "array"}, False),
    (record({"a": ID}, additionalProperties=False), record({"a": ID, "b": ID}), False),
    (record({"a": ID, "b": ID}, additionalProperties=False), record({"a": ID}), True),
    (record({"a": ID}, additionalProperties=ID), record({"a": ID, "b": ID}), True),
    (record({"a": ID}, additionalProperties=NAME), record({"a": ID, "b": ID}), False),
    (record({"a": ID, "b": NAME}), record({"a": ID}, additionalProperties=ID), False),
    (record({"a": ID, "b": ID}), record({"a": ID}, additionalProperties=ID), True),
    (record({}, additionalProperties=False), record({}, patternProperties={"^x": ID}), False),
    (record({}, unevaluatedProperties=False), record({"a": ID}, unevaluatedProperties=False), False),
    ({"items": ID}, {"type": "array"}, False),
    ({"prefixItems": [ID], "items": NAME}, {"type": "array", "prefixItems": [ID], "items": NAME}, True),
    ({"prefixItems": [ID]}, {"type": "array", "items": NAME}, False),
    ({"items": [ID], "additionalItems": NAME}, {"type": "array", "items": [ID], "additionalItems": NAME}, True),
    ({"anyOf": [ID, NAME]}, ID, True),
    ({"anyOf": [ID, NAME]}, {"anyOf": [NAME]}, True),
    ({"anyOf": [ID]}, {"anyOf": [ID, NAME]}, False),
    ({"oneOf": [ID, NAME]}, {"oneOf": [ID]}, True),  # of different types: at most one can fit
    ({"oneOf": [record({"a": ID}), record({"b": ID})]}, {"oneOf": [record({"a": ID})]}, False),
    ({"allOf": [ID, {"maximum": 9}]}, {"allOf": [ID, {"maximum": 5}]}, True),
    ({"allOf": [ID, {"maximum": 5}]}, {"allOf": [ID]}, False),
    ({"not": ID}, {"not": ID}, True),
    ({"not": ID}, {"not": NAME}, False),
    ({"dependentRequired": {"a": ["b"]}}, {"type": "object"}, False),
]


@pytest.mark.parametrize(("reader", "writer", "expected"), READING)
def test_a_reader_must_admit_whatever_the_writer_may_write(reader: Any, writer: Any, expected: bool) -> None:
    assert (not refusals(reader, writer)) is expected


def test_what_a_reference_leads_to_is_compared_not_its_name() -> None:
    def referring(target: Any) -> dict[str, Any]:
        return {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": target}}

    assert refusals(referring(ID), referring(NAME))
    assert not refusals(referring(ID), referring({**ID, "minimum": 3}))
    assert not refusals(record({"a": ID}), {"type": "object", **referring(ID)})


def test_recursive_schemas_are_compared_to_the_end() -> None:
    def tree(value: Any, *required: str) -> dict[str, Any]:
        return record({"value": value, "left": {"$ref": "#"}, "right": {"$ref": "#"}}, *required)

    assert not refusals(tree(ID), tree(ID, "value"))
    assert refusals(tree(ID, "value"), tree(ID))
    assert refusals(tree(ID), tree(NAME))


def test_beside_a_reference_other_keywords_count_in_newer_drafts_only() -> None:
    def bounded(draft: str, maximum: int) -> dict[str, Any]:
        member = {"$ref": "#/$defs/x", "maximum": maximum}
        return {"$schema": draft, "properties": {"a": member}, "$defs": {"x": ID}}

    new, old = "https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"
    assert refusals(bounded(new, 5), bounded(new, 9))
    assert not refusals(bounded(old, 5), bounded(old, 9))


def test_reasons_name_the_place() -> None:
    (reason,) = refusals(record({"a": record({"b": ID})}), record({"a": record({"b": NAME})}))
    assert reason.startswith("/a/b: the type differs")


def test_comparing_is_given_up_before_it_takes_long() -> None:
    """Alternatives of alternatives of alternatives, none of which fits."""

    def intricate(maximum: int) -> dict[str, Any]:
        defs: dict[str, Any] = {"d0": {"type": "integer", "maximum": maximum}}
        for line in range(1, 20):
            defs[f"d{line}"] = {"anyOf": [{"$ref": f"#/$defs/d{line - 1}"}, {"$ref": f"#/$defs/d{line - 1}"}]}
        return {"$defs": defs, "anyOf": [{"$ref": "#/$defs/d19"}]}

    assert refusals(intricate(1), intricate(2)) == [
        "comparison budget exceeded: the schemas are too complex to compare"
    ]


# ---- every pair that is called compatible ---------------------------------------------------------------------------

NAMES = ("a", "b", "c")
LEAVES = st.sampled_from(
    [
        {"type": "integer"}, {"type": "integer", "maximum": 3}, {"type": "integer", "minimum": 0}, {"type": "string"},
        {"type": "string", "maxLength": 1}, {"enum": ["x", "y"]}, {"enum": ["x"]}, {"const": 2}, {"type": "boolean"},
        {"type": ["string", "null"]}, True,
    ]
)  # fmt: skip


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    properties = draw(st.dictionaries(st.sampled_from(NAMES), inner))
    required = draw(st.lists(st.sampled_from(sorted(properties)), unique=True)) if properties else []
    found = record(properties, *required)
    rest = draw(st.sampled_from([None, False, {"type": "integer"}, {"type": "string"}]))
    return found if rest is None else {**found, "additionalProperties": rest}


SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: (
        objects(inner)
        | inner.map(lambda item: {"type": "array", "items": item})
        | st.lists(inner, min_size=1, max_size=2).map(lambda branches: {"anyOf": branches})
        | st.lists(inner, min_size=1, max_size=2).map(lambda branches: {"allOf": branches})
    ),
    max_leaves=6,
)


@st.composite
def variants(draw: st.DrawFn, document: Any) -> Any:
    """The same schema, or one with a small change somewhere."""
    if draw(st.integers(0, 3)) == 0:
        return draw(SCHEMAS)
    if not isinstance(document, dict):
        return document
    if "properties" in document:
        members = dict(document["properties"])
        for name in NAMES:
            action = draw(st.integers(0, 5))
            if action == 0:
                members.pop(name, None)
            elif action == 1:
                members.setdefault(name, draw(LEAVES))
            elif name in members:
                members[name] = draw(variants(members[name]))
        required = [name for name in members if draw(st.booleans())] if draw(st.booleans()) else document["required"]
        return {**document, "properties": members, "required": required}
    if "items" in document:
        return {**document, "items": draw(variants(document["items"]))}
    for keyword in ("anyOf", "allOf"):
        if keyword in document:
            return {keyword: [draw(variants(branch)) for branch in document[keyword]]}
    return document


@st.composite
def written(draw: st.DrawFn, document: Any) -> Any:
    """A value as a writer with this schema writes it: only members that the schema speaks of."""
    if document is True:
        return draw(st.sampled_from([None, 1, "x", [], {}, True]))
    if "enum" in document or "const" in document:
        return draw(st.sampled_from(document.get("enum", [document.get("const")])))
    if "anyOf" in document:
        return draw(written(draw(st.sampled_from(document["anyOf"]))))
    if "allOf" in document:
        return draw(written(document["allOf"][0]))
    kind = document["type"]
    if kind == "integer":
        return draw(st.integers(document.get("minimum", -5), document.get("maximum", 5)))
    if kind == "string":
        return draw(st.text("xyz", max_size=document.get("maxLength", 3)))
    if kind == "boolean":
        return draw(st.booleans())
    if kind == "array":
        return draw(st.lists(written(document["items"]), max_size=2))
    if isinstance(kind, list):
        return draw(st.none() | st.text("xyz", max_size=2))
    members = document["properties"]
    names = [name for name in members if name in document["required"] or draw(st.booleans())]
    value = {name: draw(written(members[name])) for name in names}
    if isinstance(rest := document.get("additionalProperties"), dict) and draw(st.booleans()):
        other = draw(st.sampled_from([name for name in (*NAMES, "d") if name not in members] or ["d"]))
        value[other] = draw(written(rest))
    return value


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], deadline=None)
@given(data=st.data())
def test_where_schemas_are_called_compatible_a_value_of_the_one_is_a_value_of_the_other(data: st.DataObject) -> None:
    old = data.draw(SCHEMAS)
    new = data.draw(variants(old))
    for reader, writer in ((new, old), (old, new)):
        if refusals(reader, writer):
            continue
        value = json.dumps(data.draw(written(writer))).encode()
        if JsonSchema(json.dumps(writer).encode()).maybe_fault(value) is None:
            assert JsonSchema(json.dumps(reader).encode()).maybe_fault(value) is None, (reader, writer, value)
