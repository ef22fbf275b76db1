"""Types of columns from definitions of each kind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raceway.model.schemas import SchemaType
from raceway.pipeline.payload_columns import column_name, kind_of
from raceway.schema.reading import read_definition


def sql(kind: SchemaType, definition: Any) -> str:
    text = definition if isinstance(definition, str) else json.dumps(definition)
    return kind_of(read_definition(kind, text.encode(), ())).sql


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def test_avro() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "f", "type": "float"}]}
    told = record(
        ("i", "int"), ("l", "long"), ("d", "double"), ("b", "boolean"), ("s", "string"), ("y", "bytes"),
        ("maybe", ["null", "long"]), ("either", ["string", "long"]), ("inner", inner),
        ("list", {"type": "array", "items": "int"}), ("map", {"type": "map", "values": "double"}),
        ("colour", {"type": "enum", "name": "C", "symbols": ["red"]}), ("again", ["null", "R"]),
    )  # fmt: skip
    assert sql("avro", told) == (
        "struct<i:int,l:bigint,d:double,b:boolean,s:string,y:string,maybe:bigint,either:string,inner:struct<f:double>,"
        "list:array<int>,map:map<string,double>,colour:string,again:string>"
    )
    assert sql("avro", '"long"') == "bigint"


def test_json_schema() -> None:
    told = {
        "type": "object",
        "$defs": {"place": {"type": "object", "properties": {"lat": {"type": "number"}}}},
        "properties": {
            "n": {"type": "integer"}, "s": {"type": ["string", "null"]}, "any": {},
            "or": {"type": ["string", "integer"]},
            "at": {"type": "string", "format": "date-time"}, "place": {"$ref": "#/$defs/place"},
            "tags": {"type": "array", "items": {"type": "string"}}, "free": {"type": "object"},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "first name": {"type": "boolean"},
        },
    }  # fmt: skip
    assert sql("json_schema", told) == (
        "struct<n:bigint,s:string,any:string,or:string,at:timestamp,place:struct<lat:double>,tags:array<string>,"
        "free:string,counts:map<string,bigint>,first_name:boolean>"
    )
    tree = {"type": "object", "properties": {"below": {"$ref": "#"}, "n": {"type": "integer"}}}
    assert sql("json_schema", tree).count("n:bigint") < 12, "recursion ends somewhere"
    assert sql("json_schema", {"type": "array", "items": {"type": "number"}}) == "array<double>"


def test_protobuf() -> None:
    told = """syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/struct.proto";
        enum Colour { RED = 0; BLUE = 1; }
        message Order { int32 i = 1; int64 l = 2; uint64 u = 3; double d = 4; bool b = 5; string s = 6; bytes y = 7;
          Colour colour = 8; repeated int64 list = 9; map<string, int32> map = 10; Inner inner = 11;
          google.protobuf.Timestamp at = 12; google.protobuf.Struct any = 13; optional int32 maybe = 14;
          Order again = 15; message Inner { float f = 1; } }"""
    assert sql("protobuf", told) == (
        "struct<i:int,l:bigint,u:string,d:double,b:boolean,s:string,y:string,colour:string,list:array<bigint>,"
        "map:map<string,int>,inner:struct<f:double>,at:timestamp,any:string,maybe:int,again:string>"
    )
    kinds = {each.name: each.kind for each in kind_of(read_definition("protobuf", told.encode(), ())).members}
    defaults = {name: kind.default for name, kind in kinds.items() if kind.default is not None}
    assert defaults == {"i": 0, "l": 0, "u": "", "d": 0.0, "b": False, "s": "", "y": "", "colour": "RED"}
    assert (kinds["l"].raw, kinds["i"].raw) == ("string", "int"), "64-bit integers are texts in JSON"


def test_definitions_without_structure_are_text() -> None:
    assert sql("string", "{}") == "string"


@pytest.mark.parametrize(
    ("name", "column"), [("n", "n"), ("first name", "first_name"), ("9", "_9"), ("é", "_"), ("", "_"), ("a;b", "a_b")]
)
def test_names_of_columns_are_plain(name: str, column: str) -> None:
    assert column_name(name) == column


def test_members_that_spark_cannot_tell_apart_are_one() -> None:
    told = {"type": "object", "properties": {name: {"type": "integer"} for name in ("a", "A", "a b", "a_b")}}
    assert sql("json_schema", told) == "struct<a:bigint,a_b:bigint,a_b_2:bigint>"
