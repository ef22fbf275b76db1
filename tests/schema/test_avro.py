"""Avro definitions and datums. `fastavro` writes the datums: what it writes must be taken."""

from __future__ import annotations

import io
import json
import time
import zlib
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raceway.errors import SchemaInvalidError
from raceway.schema.avro import Avro
from raceway.schema.avro_datum import WrongError, container_blocks

USER: dict[str, Any] = {
    "type": "record",
    "name": "User",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "mail", "type": ["null", "string"], "default": None},
        {"name": "level", "type": {"type": "enum", "name": "Level", "symbols": ["LOW", "HIGH"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "scores", "type": {"type": "map", "values": "double"}},
    ],
}
ADA = {"id": 7, "name": "Ada", "mail": None, "level": "HIGH", "tags": ["a"], "scores": {"x": 1.5}}


def schema(document: Any) -> Avro:
    return Avro(json.dumps(document).encode())


def datum(document: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(document), value)
    return out.getvalue()


def container(document: Any, values: list[Any], codec: str = "null") -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(document), values, codec=codec)
    return out.getvalue()


def fault(document: Any, payload: bytes) -> tuple[str, str] | None:
    found = schema(document).maybe_fault(payload)
    return None if found is None else (found.path, found.rule)


def test_one_binary_datum_is_taken() -> None:
    assert fault(USER, datum(USER, ADA)) is None


def test_every_shorter_or_longer_payload_is_refused() -> None:
    whole = datum(USER, ADA)
    for size in range(len(whole)):
        assert fault(USER, whole[:size]) is not None
    assert fault(USER, whole + b"\x00") == ("/", "end")


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_container_file_is_taken_and_its_damage_is_noticed(codec: str) -> None:
    file = container(USER, [ADA, {**ADA, "id": 8}], codec)
    assert fault(USER, file) is None
    assert fault(USER, file[:-1]) is not None
    assert fault(USER, file[:-20] + b"\xff" * 20) is not None


def test_a_container_file_of_an_older_schema_is_taken_if_it_can_be_read() -> None:
    old = {**USER, "fields": USER["fields"][:2]}
    new = {**USER, "fields": [*USER["fields"][:2], {"name": "x", "type": "int", "default": 0}]}
    file = container(old, [{"id": 1, "name": "a"}])
    assert fault(new, file) is None
    assert fault({**USER, "fields": [*USER["fields"][:2], {"name": "x", "type": "int"}]}, file) == ("/", "container")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (ADA, None),
        ({**ADA, "mail": "a@b"}, None),
        ({**ADA, "mail": {"string": "a@b"}}, None),
        ({key: value for key, value in ADA.items() if key != "mail"}, None),
        ({**ADA, "id": "7"}, ("/id", "long")),
        ({**ADA, "id": 1 << 70}, ("/id", "long")),
        ({**ADA, "level": "MIDDLE"}, ("/level", "enum")),
        ({**ADA, "extra": 1}, ("/extra", "record")),
        ({key: value for key, value in ADA.items() if key != "name"}, ("/name", "record")),
        ({**ADA, "tags": [1]}, ("/tags", "array")),
    ],
)
def test_json_is_taken_with_branches_named_or_not(value: Any, expected: tuple[str, str] | None) -> None:
    assert fault(USER, json.dumps(value).encode()) == expected


@pytest.mark.parametrize(
    ("document", "payload", "rule"),
    [
        ("int", b"\x80\x80\x80\x80\x20", "int"),
        ("long", b"\xff" * 12, "long"),
        ("boolean", b"\x02", "boolean"),
        ("string", b"\x02\xff", "string"),
        ("bytes", b"\x01", "bytes"),
        (["null", "int"], b"\x04", "union"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "enum"),
        ({"type": "array", "items": "int"}, b"\x80\x80\x80\x80\x02\x00", "count"),
        ({"type": "fixed", "name": "F", "size": 4}, b"abc", "end"),
        ("double", b"\xff" * 7, "end"),
    ],
)
def test_what_breaks_a_rule_names_it(document: Any, payload: bytes, rule: str) -> None:
    found = schema(document).maybe_fault(payload)
    assert found is not None
    assert found.rule == rule


def test_the_place_of_a_fault_is_named() -> None:
    nested = {"type": "record", "name": "A", "fields": [{"name": "list", "type": {"type": "array", "items": USER}}]}
    broken = {"type": "record", "name": "A", "fields": [{"name": "list", "type": {"type": "array", "items": "bytes"}}]}
    found = schema(nested).maybe_fault(datum(broken, {"list": [b"\xff" * 3]}))
    assert found is not None
    assert found.path.startswith("/list/*")


@pytest.mark.parametrize(
    "document",
    [
        5, None, {}, [["int"]], ["int", "int"], "nope", {"type": "array"}, {"type": "map"}, {"type": "record"},
        {"type": "record", "name": "R"}, {"type": "record", "name": "1x", "fields": []},
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "foo"}]},
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]},
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "default": "x"}]},
        {"type": "record", "name": "R", "fields": [{"type": "int"}]},
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "R"}]},
        {"type": "enum", "name": "E", "symbols": ["a", "a"]}, {"type": "enum", "name": "E", "symbols": []},
        {"type": "enum", "name": "E", "symbols": ["a"], "default": "b"}, {"type": "fixed", "name": "F", "size": -1},
        {"type": "fixed", "name": "F", "size": True},
        [{"type": "fixed", "name": "F", "size": 1}, {"type": "enum", "name": "F", "symbols": ["a"]}],
    ],
)  # fmt: skip
def test_what_breaks_the_specification_is_refused(document: Any) -> None:
    with pytest.raises(SchemaInvalidError):
        schema(document)


def test_names_are_resolved_in_their_namespace() -> None:
    document = {
        "type": "record", "name": "a.b.Outer",
        "fields": [
            {"name": "x", "type": {"type": "fixed", "name": "Inner", "size": 1}},
            {"name": "y", "type": "Inner"},
            {"name": "z", "type": "a.b.Inner"},
        ],
    }  # fmt: skip
    assert fault(document, b"123") is None


def test_a_logical_type_is_read_as_what_it_is_written_as() -> None:
    assert fault({"type": "long", "logicalType": "timestamp-millis"}, b"\x02") is None
    assert fault({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, b"\x02\x01") is None


# ---- hostile --------------------------------------------------------------------------------------------------------

LIST: dict[str, Any] = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}


@pytest.mark.parametrize("depth", [100, 1000, 2_000_000])
def test_a_deep_datum_is_bounded(depth: int) -> None:
    found = fault(LIST, b"\x02" * depth + b"\x00")
    assert (found is None) is (depth == 100)


def test_deep_json_is_bounded() -> None:
    text = b'{"next":' * 900 + b"null" + b"}" * 900
    assert fault(LIST, text) is not None


def test_alternatives_that_look_alike_do_not_multiply() -> None:
    def node(name: str) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [{"name": "x", "type": ["null", "A", "B", "int"]}]}

    first = node("A")
    first["fields"][0]["type"] = ["null", "A", node("B"), "int"]
    text = b'{"x":' * 80 + b'"wrong"' + b"}" * 80
    assert fault(first, text) is not None


def test_many_alternatives_for_many_values_are_given_up_in_time() -> None:
    branches = [{"type": "enum", "name": f"E{number}", "symbols": [f"s{number}"]} for number in range(5000)]
    text = json.dumps(["s4999"] * 100_000).encode()
    began = time.process_time()
    assert fault({"type": "array", "items": branches}, text) is not None
    assert time.process_time() - began < 5


def test_items_without_bytes_are_refused_when_registered() -> None:
    empty = {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}
    for items in ("null", empty, {"type": "fixed", "name": "F", "size": 0}):
        with pytest.raises(SchemaInvalidError, match="take no bytes"):
            schema({"type": "array", "items": items})


def doubled(levels: int, leaf: str) -> list[dict[str, Any]]:
    """Fields whose records are each made of two of the one before."""
    fields: list[dict[str, Any]] = [
        {"name": "f0", "type": {"type": "record", "name": "R0", "fields": [{"name": "n", "type": leaf}]}}
    ]
    for level in range(1, levels):
        twice = [{"name": name, "type": f"R{level - 1}"} for name in ("a", "b")]
        fields.append({"name": f"f{level}", "type": {"type": "record", "name": f"R{level}", "fields": twice}})
    return fields


def test_records_that_double_without_taking_bytes_do_not_hold_up_anybody() -> None:
    fields = doubled(64, "null")
    whole = {"type": "record", "name": "Whole", "fields": fields}
    began = time.process_time()
    found = schema(whole).maybe_fault(b"")
    assert found is not None
    assert found.rule == "work"
    with pytest.raises(SchemaInvalidError, match="take no bytes"):
        schema(
            {
                "type": "record",
                "name": "W",
                "fields": [*fields, {"name": "x", "type": {"type": "array", "items": "R63"}}],
            }
        )
    assert time.process_time() - began < 10


def test_steps_without_bytes_are_counted_over_all_blocks_of_a_file() -> None:
    document = {"type": "record", "name": "N", "fields": [{"name": f"n{n}", "type": "null"} for n in range(30)]}
    value = {f"n{n}": None for n in range(30)}
    one = container(document, [value])
    sync = one[-16:]
    block = one[one.index(sync) + 16 :]
    node = schema(document).node
    assert len(list(container_blocks(node, one + 20 * block, spare=1000))) == 21
    with pytest.raises(WrongError) as wrong:
        list(container_blocks(node, one + 40 * block, spare=1000))
    assert wrong.value.rule == "work"


def test_a_long_chain_of_records_is_read() -> None:
    fields: list[dict[str, Any]] = [{"name": "f0", "type": {"type": "record", "name": "R0", "fields": []}}]
    for level in range(1, 3000):
        one = [{"name": "a", "type": f"R{level - 1}"}]
        fields.append({"name": f"f{level}", "type": {"type": "record", "name": f"R{level}", "fields": one}})
    assert schema({"type": "record", "name": "Whole", "fields": fields}).maybe_fault(b"") is not None


def test_a_compressed_block_may_not_unfold_without_end() -> None:
    document = "bytes"
    file = bytearray(container(document, [b"x"], "deflate"))
    huge = zlib.compress(b"\x00" * (64 * 1024 * 1024), 9)[2:-4]
    sync = bytes(file[-16:])
    head = bytes(file[: file.index(sync) + 16])

    def varint(value: int) -> bytes:
        value <<= 1
        out = b""
        while value >= 0x80:
            out, value = out + bytes((value & 0x7F | 0x80,)), value >> 7
        return out + bytes((value,))

    assert fault(document, head + varint(1) + varint(len(huge)) + huge + sync) == ("/", "container")


def test_a_definition_may_be_deep_only_within_bounds() -> None:
    document: Any = "int"
    for _ in range(3000):
        document = {"type": "array", "items": document}
    with pytest.raises((SchemaInvalidError, RecursionError)):
        schema(document)
    with pytest.raises(SchemaInvalidError):
        Avro(b'{"type":"array","items":' * 3000 + b'"int"' + b"}" * 3000)


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_no_payload_does_more_than_be_refused(payload: bytes) -> None:
    schema(USER).maybe_fault(payload)
    schema(USER).maybe_fault(b"Obj\x01" + payload)


# ---- against fastavro -----------------------------------------------------------------------------------------------


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 3) -> tuple[Any, Any]:
    """A schema and a value of it."""
    leaves: list[tuple[Any, st.SearchStrategy[Any]]] = [
        ("null", st.none()), ("boolean", st.booleans()), ("int", st.integers(-(2**31), 2**31 - 1)),
        ("long", st.integers(-(2**63), 2**63 - 1)), ("double", st.floats(allow_nan=False)), ("bytes", st.binary()),
        ("string", st.text()),
    ]  # fmt: skip
    kinds = ["leaf", "leaf", "array", "map", "record", "union"] if depth else ["leaf"]
    kind = draw(st.sampled_from(kinds))
    if kind == "leaf":
        name, values = draw(st.sampled_from(leaves))
        return name, draw(values)
    inner, value = draw(typed_values(depth - 1))
    if kind == "array":
        if inner == "null":
            inner, value = "int", 3
        return {"type": "array", "items": inner}, [value] * draw(st.integers(0, 3))
    if kind == "map":
        return {"type": "map", "values": inner}, dict.fromkeys(draw(st.lists(st.text(max_size=3), max_size=3)), value)
    if kind == "union":
        return (["null", inner] if inner != "null" and not isinstance(inner, list) else inner), value
    number = draw(st.integers(0, 10**9))
    name = f"R{number}x{depth}"
    return {"type": "record", "name": name, "fields": [{"name": "a", "type": "int"}, {"name": "f", "type": inner}]}, {
        "a": 1,
        "f": value,
    }


@given(typed_values())
@settings(max_examples=300, deadline=None)
def test_what_fastavro_writes_is_taken(pair: tuple[Any, Any]) -> None:
    document, value = pair
    written = datum(document, value)
    assert schema(document).maybe_fault(written) is None
