from __future__ import annotations

import json
import time
from typing import Any

import pytest

from raceway.errors import SchemaInvalidError
from raceway.schema.json_schema import JsonSchema


def _reference_s() -> float:
    """CPU seconds of a fixed piece of work: machines differ, and one machine differs from hour to hour."""
    began = time.process_time()
    sum(range(10_000_000))
    return time.process_time() - began


# Far more than anything here should take, far less than a hang: 5 s where the reference takes a sixth of a second.
PATIENCE_S = max(5.0, 30 * _reference_s())


def schema(document: Any) -> JsonSchema:
    return JsonSchema(json.dumps(document).encode())


def fault(document: Any, payload: bytes) -> tuple[str, str] | None:
    found = schema(document).maybe_fault(payload)
    return None if found is None else (found.path, found.rule)


ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}}},
    "required": ["id"],
    "$defs": {"line": {"type": "object", "properties": {"sku": {"type": "string", "pattern": "^[A-Z]+$"}}}},
}


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"id": 1}', None),
        (b'{"id": 1, "lines": [{"sku": "AB"}]}', None),
        (b'{"id": "1"}', ("/id", "properties/id/type")),
        (b"{}", ("", "required")),
        (b'{"id": 1, "lines": [{"sku": "AB"}, {"sku": "ab"}]}', ("/lines/1/sku", "pattern")),
        (b"not json", ("", "json")),
        (b"", ("", "json")),
        (b"\xff", ("", "json")),
        (b'{"id": NaN}', ("", "json")),
    ],
)
def test_a_payload_is_checked_and_the_place_is_named(payload: bytes, expected: tuple[str, str] | None) -> None:
    found = fault(ORDER, payload)
    if expected is None or found is None:
        assert found == expected
    else:
        assert found[0] == expected[0]
        assert expected[1] in found[1]


def test_pointers_escape_what_pointers_are_made_of() -> None:
    assert fault({"properties": {"a/b~c": {"type": "null"}}}, b'{"a/b~c": 1}') == (
        "/a~1b~0c",
        "properties/a/b~c/type",
    )


@pytest.mark.parametrize(
    "definition",
    [b"", b"nope", b"5", b'"text"', b"[]", b'{"type": "nope"}', b'{"properties": 1}', b'{"required": "a"}',
     b'{"$ref": "#/$defs/missing"}', b'{"$schema": "urn:unknown"}'],
)  # fmt: skip
def test_what_is_no_json_schema_is_refused(definition: bytes) -> None:
    with pytest.raises(SchemaInvalidError):
        JsonSchema(definition)


@pytest.mark.parametrize(
    "reference", ["http://127.0.0.1:1/x", "https://example.org/s.json", "file:///etc/passwd", "other.json"]
)
def test_a_reference_out_of_the_document_is_refused_and_never_fetched(reference: str) -> None:
    with pytest.raises(SchemaInvalidError):
        schema({"properties": {"a": {"$ref": reference}}})


def test_a_definition_nested_too_deep_is_refused() -> None:
    for depth in (200, 5000, 100_000):
        with pytest.raises(SchemaInvalidError):
            JsonSchema(b'{"not":' * depth + b"{}" + b"}" * depth)


def test_a_payload_nested_too_deep_is_a_fault_and_nothing_worse() -> None:
    recursive = {"properties": {"a": {"$ref": "#"}}}
    for depth in (200, 2000, 500_000):
        schema(recursive).maybe_fault(b'{"a":' * depth + b"1" + b"}" * depth)


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "a{1000}{1000}", "("])
def test_patterns_that_cannot_be_searched_in_linear_time_are_refused(pattern: str) -> None:
    with pytest.raises(SchemaInvalidError):
        schema({"pattern": pattern})


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|aa)*$", "(.*)*x"])
def test_patterns_that_are_catastrophic_elsewhere_take_no_time(pattern: str) -> None:
    began = time.process_time()
    schema({"pattern": pattern}).maybe_fault(json.dumps("a" * 50_000 + "b").encode())
    assert time.process_time() - began < PATIENCE_S


def test_patterns_are_bounded_in_number_and_in_size_together() -> None:
    with pytest.raises(SchemaInvalidError, match="1001 patterns"):
        schema({"anyOf": [{"pattern": f"a{number}"} for number in range(1001)]})
    large = "^[a-z]{1,2000}"
    assert schema({"pattern": large}).maybe_fault(b'"abc"') is None
    with pytest.raises(SchemaInvalidError):
        schema({"anyOf": [{"pattern": f"{large}{number}"} for number in range(900)]})


def test_values_and_patterns_that_are_tried_one_by_one_count_as_work() -> None:
    structured = schema({"items": {"enum": [[number] for number in range(50_000)]}})
    assert structured.maybe_fault(json.dumps([[1]] * 10).encode()) is None
    found = structured.maybe_fault(json.dumps([[49_999]] * 1000).encode())
    assert found is not None
    assert found.rule == "work"


def test_a_wide_schema_takes_a_long_text() -> None:
    """Work is counted by places of the value, not by its bytes."""
    wide = schema({"anyOf": [{"properties": {"kind": {"const": number}}} for number in range(300)]})
    assert wide.maybe_fault(json.dumps({"kind": 5, "text": "x" * 3_000_000}).encode()) is None


def test_measuring_a_schema_is_bounded_itself() -> None:
    """Many references to a schema with many members."""
    many: dict[str, Any] = {"properties": {f"p{number}": {} for number in range(5000)}}
    began = time.process_time()
    with pytest.raises(SchemaInvalidError, match="too many"):
        schema({"$defs": {"many": many}, "allOf": [{"$ref": "#/$defs/many"}] * 4000})
    assert time.process_time() - began < PATIENCE_S


def test_alternatives_that_multiply_are_refused_when_registered() -> None:
    """Each line doubles the work of the one before."""
    defs: dict[str, Any] = {"d0": {"type": "integer"}}
    for line in range(1, 40):
        defs[f"d{line}"] = {"allOf": [{"$ref": f"#/$defs/d{line - 1}"}] * 2}
    with pytest.raises(SchemaInvalidError, match="subschemas apply to one value"):
        schema({"$defs": defs, "$ref": "#/$defs/d39"})


def test_ways_that_multiply_from_level_to_level_admit_only_shallow_values() -> None:
    """Each level of the schema doubles the work of the one above it."""
    document: dict[str, Any] = {"type": "integer"}
    defs: dict[str, Any] = {"d0": document}
    for level in range(1, 40):
        below = {"$ref": f"#/$defs/d{level - 1}"}
        defs[f"d{level}"] = {"allOf": [{"properties": {"a": below}}, {"properties": {"a": below}}]}
    began = time.process_time()
    multiplied = schema({"$defs": defs, "$ref": "#/$defs/d39"})
    assert multiplied.maybe_fault(b'{"a": {"a": {}}}') is None
    found = multiplied.maybe_fault(b'{"a":' * 39 + b"1" + b"}" * 39)
    assert found is not None
    assert found.rule == "work"
    assert time.process_time() - began < PATIENCE_S


def test_a_schema_that_grows_with_the_depth_of_the_value_admits_only_shallow_values() -> None:
    """Two alternatives for the same member, each leading back: twice the work with each level of the value."""
    node = {"properties": {"op": {"const": "add"}, "left": {"$ref": "#"}}}
    other = {"properties": {"op": {"const": "mul"}, "left": {"$ref": "#"}}}
    expression = schema({"anyOf": [{"type": "integer"}, node, other]})
    assert expression.maybe_fault(b'{"op": "mul", "left": {"op": "add", "left": 1}}') is None
    deep = b'{"op": "x", "left": ' * 60 + b"1" + b"}" * 60
    began = time.process_time()
    found = expression.maybe_fault(deep)
    assert found is not None
    assert found.rule == "work"
    assert time.process_time() - began < PATIENCE_S


def test_an_ordinary_recursive_schema_admits_deep_values() -> None:
    tree = schema({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "value": {"type": "integer"}}})
    deep = b'{"value": 1, "left": ' * 100 + b"{}" + b"}" * 100
    assert tree.maybe_fault(deep) is None
    assert tree.maybe_fault(b'{"left": ' * 900 + b"{}" + b"}" * 900) is None


def test_a_recursive_schema_with_alternatives_admits_deep_values_that_cause_little_work() -> None:
    """The evaluations are counted exactly: each level has one alternative that leads on."""
    here, there = {"properties": {"a": {"$ref": "#"}}}, {"properties": {"b": {"$ref": "#"}, "c": {"$ref": "#"}}}
    either = schema({"anyOf": [{"type": "integer"}, here, there, {"properties": {"c": {"$ref": "#"}}}]})
    assert either.maybe_fault(b'{"a": ' * 200 + b'{"c": 1, "b": 2}' + b"}" * 200) is None


def test_a_value_in_which_every_alternative_applies_at_every_level_is_refused_in_time() -> None:
    branch = {"items": {"$ref": "#"}}
    doubled = schema({"anyOf": [{"type": "integer"}, branch, branch]})
    assert doubled.maybe_fault(b"[[[[1]]]]") is None
    began = time.process_time()
    for payload in (b"[" * 60 + b"]" * 60, b"[" + b"[[[1,2],[3]]]," * 200_000 + b"1]"):
        found = doubled.maybe_fault(payload)
        assert found is not None
        assert found.rule == "work"
    assert time.process_time() - began < PATIENCE_S


def test_many_alternatives_for_many_items_are_counted_in_time() -> None:
    wide = schema({"anyOf": [{"items": {"enum": [f"{n}", [n]]}} for n in range(3000)]})
    began = time.process_time()
    found = wide.maybe_fault(json.dumps(["x"] * 100_000).encode())
    assert found is not None
    assert found.rule == "work"
    assert time.process_time() - began < PATIENCE_S


@pytest.mark.parametrize("document", [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"not": {"$ref": "#"}}])
def test_a_reference_back_to_itself_without_a_step_into_the_value_is_refused(document: Any) -> None:
    with pytest.raises(SchemaInvalidError, match="leads back"):
        schema(document)


def test_large_arrays_of_unique_items_are_checked_in_time() -> None:
    began = time.process_time()
    schema({"uniqueItems": True}).maybe_fault(json.dumps(list(range(100_000))).encode())
    assert time.process_time() - began < PATIENCE_S


def test_a_complaint_does_not_repeat_a_large_value() -> None:
    found = schema({"type": "integer"}).maybe_fault(json.dumps("x" * 100_000).encode())
    assert found is not None
    assert len(found.reason) <= 300


def test_formats_are_notes() -> None:
    assert fault({"format": "date-time"}, b'"yesterday"') is None
