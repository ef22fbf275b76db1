"""What a payload says, as JSON: the same as the libraries that wrote it say."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.schema.avro import Avro
from raceway.schema.protobuf import Protobuf
from raceway.schema.reading import read_definition

TREE: dict[str, Any] = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "size", "type": ["null", "long", "double", "boolean"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["LEAF", "NODE"]}},
        {"name": "marks", "type": {"type": "map", "values": "int"}},
        {"name": "raw", "type": "bytes"},
        {"name": "tag", "type": {"type": "fixed", "name": "Tag", "size": 2}},
        {"name": "weight", "type": "float"},
        {"name": "below", "type": {"type": "array", "items": "Tree"}},
    ],
}
SCHEMA = Avro(json.dumps(TREE).encode())
LONG = st.integers(-(2**63), 2**63 - 1)
INT = st.integers(-(2**31), 2**31 - 1)
FLOAT = st.floats(width=32, allow_nan=False, allow_infinity=False)


def node(below: st.SearchStrategy[list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "name": st.text(),
            "size": st.none() | st.booleans() | LONG | FLOAT,
            "kind": st.sampled_from(["LEAF", "NODE"]),
            "marks": st.dictionaries(st.text(), INT, max_size=3),
            "raw": st.binary(max_size=4),
            "tag": st.binary(min_size=2, max_size=2),
            "weight": FLOAT,
            "below": below,
        }
    )


TREES = st.recursive(node(st.just([])), lambda inner: node(st.lists(inner, max_size=3)), max_leaves=5)


def datum(value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(TREE), value)
    return out.getvalue()


def as_json(value: Any) -> Any:
    """Bytes are characters from 0 to 255."""
    if isinstance(value, dict):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [as_json(each) for each in value]
    return value.decode("latin-1") if isinstance(value, bytes) else value


@given(TREES)
def test_an_avro_datum_says_what_was_written(tree: dict[str, Any]) -> None:
    assert SCHEMA.maybe_fault(datum(tree)) is None
    assert json.loads(SCHEMA.maybe_json(datum(tree)) or "") == as_json(tree)


LEAF: dict[str, Any] = {
    "name": "a", "size": None, "kind": "LEAF", "marks": {}, "raw": b"\xff", "tag": b"ok", "weight": 0.5, "below": [],
}  # fmt: skip


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_container_file_is_the_list_of_its_datums(codec: str) -> None:
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(TREE), [LEAF, LEAF | {"name": "b"}], codec=codec)
    assert json.loads(SCHEMA.maybe_json(out.getvalue()) or "") == [as_json(LEAF), as_json(LEAF | {"name": "b"})]


def test_avro_as_json_stays_as_it_is() -> None:
    text = json.dumps(as_json(LEAF | {"size": {"long": 3}}))
    assert SCHEMA.maybe_fault(text.encode()) is None
    assert SCHEMA.maybe_json(text.encode()) == text


def test_what_json_has_no_number_for_is_null() -> None:
    assert json.loads(SCHEMA.maybe_json(datum(LEAF | {"weight": math.nan})) or "")["weight"] is None


def test_a_protobuf_message_by_the_names_of_its_definition() -> None:
    definition = b"""syntax = "proto3"; import "google/protobuf/any.proto";
        message Order { int64 order_id = 1; string note = 2; repeated Item items = 3; google.protobuf.Any more = 4;
          message Item { string sku = 1; } }
        message Other { bool yes = 1; }"""
    order = Protobuf(definition)
    payload = b"\x08\x07\x12\x03K\xc3\xa4\x1a\x03\x0a\x01A"
    assert json.loads(order.maybe_json(payload) or "") == {"order_id": "7", "note": "Kä", "items": [{"sku": "A"}]}
    assert json.loads(order.maybe_json(b"\x08\x01", (1,)) or "") == {"yes": True}
    assert order.maybe_json(b"\x22\x05\x0a\x03x/y") is None, "nobody knows the type y"


def test_what_protobuf_has_no_json_for_has_none() -> None:
    definition = b'syntax = "proto3"; import "google/protobuf/struct.proto"; message A { google.protobuf.Value v = 1; }'
    not_a_number = b"\x0a\x09\x11\x00\x00\x00\x00\x00\x00\xf8\x7f"
    assert Protobuf(definition).maybe_fault(not_a_number) is None
    assert Protobuf(definition).maybe_json(not_a_number) is None


def test_plain_types_say_what_they_can() -> None:
    assert read_definition("string", b"").maybe_json(b'say "x"') == '"say \\"x\\""'
    assert read_definition("json_schema", b"{}").maybe_json(b' {"a":1}') == ' {"a":1}'
    assert read_definition("bytes", b"").maybe_json(b"\x00") is None
    assert read_definition("number", b"").maybe_json(b"\x00" * 8) is None
