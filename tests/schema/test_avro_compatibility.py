"""Which Avro schema reads which: the rules of the specification, and the `avro` package's checker as second opinion."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import parse
from hypothesis import given, settings
from hypothesis import strategies as st

from raceway.schema.avro import Avro
from raceway.schema.reading import incompatibilities


def record(*fields: Any, name: str = "R", **rest: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **rest}


def field(name: str, kind: Any, **rest: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **rest}


def enum(*symbols: str, **rest: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **rest}


def fixed(size: int, name: str = "F") -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


A, B = field("a", "int"), field("b", "string")

# reader, writer, can it be read?
RULES: list[tuple[Any, Any, bool]] = [
    *((kind, kind, True) for kind in ("null", "boolean", "int", "long", "float", "double", "bytes", "string")),
    ("long", "int", True), ("float", "int", True), ("double", "int", True), ("float", "long", True),
    ("double", "long", True), ("double", "float", True), ("string", "bytes", True), ("bytes", "string", True),
    ("int", "long", False), ("long", "float", False), ("float", "double", False), ("int", "string", False),
    ("boolean", "int", False), ("null", "int", False),
    (record(A), record(A, B), True),
    (record(A, B), record(A), False),
    (record(A, field("b", "string", default="")), record(A), True),
    (record(field("a", "long")), record(A), True),
    (record(field("a", "string")), record(field("a", "long")), False),
    (record(A, name="Other"), record(A), False),
    (record(A, name="Other", aliases=["R"]), record(A), True),
    (record(A, name="space.R"), record(A, name="other.R"), True),
    (record(field("z", "int", aliases=["a"])), record(A), True),
    (record(field("o", record(A, name="I"))), record(field("o", record(A, B, name="I"))), True),
    (record(field("o", record(A, B, name="I"))), record(field("o", record(A, name="I"))), False),
    (enum("a", "b"), enum("a"), True),
    (enum("a"), enum("a", "b"), False),
    (enum("a", default="a"), enum("a", "b"), True),
    (fixed(4), fixed(4), True), (fixed(4), fixed(5), False), (fixed(4, "G"), fixed(4), False),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, True),
    ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, False),
    ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}, True),
    ({"type": "map", "values": "int"}, {"type": "array", "items": "int"}, False),
    (["null", "int"], "int", True), (["null", "string"], "int", False),
    (["null", "long"], ["null", "int"], True), (["null"], ["null", "int"], False),
    ("int", ["int"], True), ("int", ["int", "null"], False), (["int", "string"], ["string", "int"], True),
    (["null", record(A, B)], ["null", record(A)], False),
]  # fmt: skip


def schema(document: Any) -> Avro:
    return Avro(json.dumps(document).encode())


def reads(reader: Any, writer: Any) -> bool:
    return not schema(reader).refusals(schema(writer))


def oracle(reader: Any, writer: Any) -> bool:
    checker: Any = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
    found = checker.get_compatibility(parse(json.dumps(reader)), parse(json.dumps(writer)))
    return bool(found.compatibility is SchemaCompatibilityType.compatible)


@pytest.mark.parametrize(("reader", "writer", "expected"), RULES)
def test_the_rules_of_the_specification(reader: Any, writer: Any, expected: bool) -> None:
    assert reads(reader, writer) is expected


# The package compares names of nested records with their namespaces, and does not know aliases of names.
NOT_SHARED = {json.dumps([r, w]) for r, w, _ in RULES if "space.R" in json.dumps(r) or "aliases" in json.dumps(r)}


@pytest.mark.parametrize(("reader", "writer", "expected"), RULES)
def test_the_avro_package_says_the_same(reader: Any, writer: Any, expected: bool) -> None:
    if json.dumps([reader, writer]) not in NOT_SHARED:
        assert oracle(reader, writer) is expected


def test_modes_ask_the_question_in_one_direction_or_both() -> None:
    old, new = schema(record(A)), schema(record(A, B))
    assert incompatibilities(new, old, "backward")
    assert not incompatibilities(new, old, "forward")
    assert incompatibilities(new, old, "full")


def test_recursive_records_are_compared_to_the_end() -> None:
    def tree(value: str) -> dict[str, Any]:
        return record(field("v", value), field("left", ["null", "R"]), field("right", ["null", "R"]))

    assert reads(tree("long"), tree("int"))
    assert not reads(tree("int"), tree("long"))


def test_the_place_is_named() -> None:
    deep = [record(field("o", record(field("x", kind), name="I"))) for kind in ("int", "string")]
    assert schema(deep[0]).refusals(schema(deep[1])) == ["/o/x: string cannot be read as int"]


# ---- random schemas -------------------------------------------------------------------------------------------------

LEAVES = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "string", "bytes"])


def _records(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.dictionaries(st.sampled_from("abc"), st.tuples(inner, st.booleans()), max_size=3)
    return fields.map(
        lambda found: record(
            *(field(name, ["null", kind] if nullable else kind, **({"default": None} if nullable else {}))
              for name, (kind, nullable) in found.items() if not nullable or kind in PLAIN)
        )
    )  # fmt: skip


PLAIN = ("boolean", "int", "long", "float", "double", "string", "bytes")
UNIONS = st.lists(LEAVES, min_size=1, max_size=3, unique=True)
SCHEMAS: st.SearchStrategy[Any] = (
    LEAVES | UNIONS | _records(LEAVES | UNIONS.map(list) | LEAVES.map(lambda kind: {"type": "map", "values": kind}))
)


@given(SCHEMAS, SCHEMAS)
@settings(max_examples=500, deadline=None)
def test_random_schemas_are_judged_as_the_avro_package_judges_them(reader: Any, writer: Any) -> None:
    assert reads(reader, writer) == oracle(reader, writer)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(), "boolean": st.booleans(), "int": st.integers(-9, 9), "long": st.integers(-(2**40), 2**40),
    "float": st.just(1.5), "double": st.just(2.5), "string": st.text("xyz"), "bytes": st.just(b"xyz"),
}  # fmt: skip


@st.composite
def written(draw: st.DrawFn, document: Any) -> Any:
    if isinstance(document, list):
        return draw(written(draw(st.sampled_from(document))))
    if isinstance(document, str):
        return draw(VALUES[document])
    if document["type"] == "map":
        return draw(st.dictionaries(st.text("k", max_size=2), written(document["values"]), max_size=2))
    return {each["name"]: draw(written(each["type"])) for each in document["fields"]}


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_where_schemas_are_called_compatible_data_of_the_one_is_read_by_the_other(data: st.DataObject) -> None:
    reader, writer = data.draw(SCHEMAS), data.draw(SCHEMAS)
    if not reads(reader, writer):
        return
    out = io.BytesIO()
    writers = fastavro.parse_schema(writer)
    fastavro.schemaless_writer(out, writers, data.draw(written(writer)))
    out.seek(0)
    value = fastavro.schemaless_reader(out, writers, fastavro.parse_schema(reader))
    again = io.BytesIO()
    fastavro.schemaless_writer(again, fastavro.parse_schema(reader), value)
    assert schema(reader).maybe_fault(again.getvalue()) is None
