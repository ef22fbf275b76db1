"""Which schema version a payload is read with, and what comes out. Without Spark: rows as an Arrow batch has them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from raceway.model.schemas import SchemaReference, SchemaVersion
from raceway.pipeline.transforms.values import SchemaVersions, Typed
from tests.pipeline.rows import START_US
from tests.pipeline.schemas import JSON_SCHEMA, PROTO, V1, V2, avro, datum, framed, version

LATER_US = START_US + 60_000_000
KNOWN = SchemaVersions(
    [
        avro(1, 1, V1),
        avro(2, 2, V2, LATER_US),
        version(3, 2, 1, "protobuf", PROTO),
        version(4, 3, 1, "json_schema", JSON_SCHEMA),
        version(5, 4, 1, "bytes", b""),
        version(6, 5, 1, "avro", b"no longer a definition"),
    ]
)
ONE, TWO = datum(V1, {"id": 7}), datum(V2, {"id": 7, "note": "x"})


def read(payload: bytes, schema_id: int | None = None, number: int | None = None, **more: Any) -> Typed:
    return KNOWN.read(schema_id, number, more.get("time_us", LATER_US), more.get("wire", "danube"), payload)


def said(typed: Typed) -> tuple[int | None, Any]:
    """The version, and the value."""
    return typed.schema_version, None if typed.value is None else json.loads(typed.value)


def test_each_message_is_read_by_its_own_version() -> None:
    assert said(read(ONE, 1, 1)) == (1, {"id": 7})
    assert said(read(TWO, 1, 2)) == (2, {"id": 7, "note": "x"})
    assert read(TWO, 1, 2)[2:4] == ("subject-1", "avro")


def test_without_a_number_the_latest_one_of_its_time_is_meant() -> None:
    assert said(read(ONE, 1, time_us=LATER_US - 1)) == (1, {"id": 7})
    assert said(read(TWO, 1, time_us=LATER_US)) == (2, {"id": 7, "note": "x"})


def test_a_payload_of_another_version_is_a_fault_and_has_no_value() -> None:
    found = read(TWO, 1, 1)
    assert (found.value, found.schema_version) == (None, 1)
    assert found.fault is not None
    assert "bytes" in found.fault


def test_a_prefix_names_the_version_and_is_cut_off() -> None:
    assert said(read(framed(1, ONE))) == (1, {"id": 7})
    assert said(read(framed(1, ONE), 1, 2)) == (1, {"id": 7}), "a prefix of the same subject says it more exactly"
    assert said(read(framed(3, b"\x00\x08\x05"))) == (1, {"n": 5})
    assert said(read(framed(3, b"\x02\x02\x0a\x01x"))) == (1, {"text": "x"}), "the second message type"


def test_what_begins_like_a_prefix_by_chance_is_no_prefix() -> None:
    assert read(framed(1, b"\xff\xff")) == Typed(None, None)
    assert read(framed(5, b"anything")) == Typed(None, None), "bytes fit everything"
    assert read(framed(2, TWO), time_us=LATER_US - 1) == Typed(None, None), "not registered yet"
    assert read(framed(99, ONE)) == Typed(None, None)
    assert read(b"\x00\x01") == Typed(None, None)
    assert said(read(b"\x00\x00\x00\x00\x01", 4)) == (1, None)
    assert read(b"\x00\x00\x00\x00\x01", 4).fault is None


def test_a_prefix_that_fits_nothing_is_the_fault_that_is_told() -> None:
    found = read(framed(1, b"\xff\xff"), 1, 2)
    assert (found.schema_version, found.value) == (1, None)
    assert found.fault
    nameless = read(framed(3, b"\x81"), 2, 1)
    assert nameless.fault
    assert nameless.subject == "subject-2"


def test_a_prefix_without_a_message_type_means_the_first() -> None:
    assert said(read(framed(3, b"\x08\x05"))) == (1, {"n": 5}), "as the client of Node writes it"


def test_of_subjects_that_share_a_definition_the_named_one_is_meant() -> None:
    known = SchemaVersions([avro(1, 1, V1), version(1, 9, 4, "avro", json.dumps(V1).encode(), LATER_US)])
    assert known.read(9, 4, LATER_US, "mb", framed(1, ONE))[:3] == (9, 4, "subject-9")
    assert known.read(None, None, LATER_US, "mb", framed(1, ONE))[:3] == (1, 1, "subject-1"), "the first"


def test_a_number_that_was_given_again_means_what_it_meant_at_the_time() -> None:
    known = SchemaVersions([avro(1, 1, V1), avro(2, 1, V2, LATER_US)])
    assert said(known.read(1, 1, LATER_US - 1, "danube", ONE)) == (1, {"id": 7})
    assert said(known.read(1, 1, LATER_US, "danube", TWO)) == (1, {"id": 7, "note": "x"})


def test_definitions_that_use_others_are_read_with_them() -> None:
    """Each type in its own way, over two steps; also where what is used was deleted."""
    leaf, outer = b'{"type": "record", "name": "L", "fields": [{"name": "n", "type": "int"}]}', SchemaReference
    made = [
        version(1, 1, 1, "avro", leaf),
        uses(version(2, 2, 1, "avro", b'{"type": "record", "name": "M", "fields": [{"name": "l", "type": "L"}]}'),
             outer("L", "subject-1", 1)),
        uses(version(3, 3, 1, "avro", b'{"type": "array", "items": "M"}'), outer("M", "subject-2", 1)),
        version(4, 4, 1, "json_schema", b'{"type": "integer"}'),
        uses(version(5, 5, 1, "json_schema", b'{"properties": {"n": {"$ref": "n.json"}}}'),
             outer("n.json", "subject-4", 1)),
        version(6, 6, 1, "protobuf", b'syntax = "proto3"; package p; message L { int32 n = 1; }'),
        uses(version(7, 7, 1, "protobuf", b'syntax = "proto3"; import "l.proto"; message M { p.L l = 1; }'),
             outer("l.proto", "subject-6", 1)),
    ]  # fmt: skip
    known = SchemaVersions([msgspec.structs.replace(each, deleted=True) for each in made])

    def value(number: int, body: bytes) -> Any:
        found = known.read(None, None, START_US, "mb", framed(number, body))
        return None if found.value is None else json.loads(found.value)

    assert value(3, b"\x02\x06\x00") == [{"l": {"n": 3}}]
    assert value(5, b'{"n": 3}') == {"n": 3}
    assert value(5, b'{"n": "x"}') is None
    assert value(7, b"\x00\x0a\x02\x08\x03") == {"l": {"n": 3}}


def uses(version: SchemaVersion, *references: SchemaReference) -> SchemaVersion:
    return msgspec.structs.replace(version, references=references)


def test_numbers_that_nobody_gave_are_a_fault() -> None:
    assert read(ONE, 77, 1) == Typed(77, 1, fault="no subject has the schema id 77")
    assert read(ONE, 1, 9) == Typed(1, 9, "subject-1", fault="subject 'subject-1' has no version 9")


def test_a_definition_that_cannot_be_read_any_more_is_a_fault() -> None:
    assert read(ONE, 5, 1).fault == "the definition can no longer be parsed"


def test_json_says_where_it_does_not_fit() -> None:
    assert said(read(b'{"n": 1}', 3, 1)) == (1, {"n": 1})
    fault = read(b'{"n": "x"}', 3, 1).fault
    assert fault is not None
    assert fault.startswith("/n: ")


def test_a_document_of_seneca_may_have_keys_that_no_schema_speaks_of() -> None:
    assert said(read(b'{"cmd": "buy"}', 3, 1, wire="seneca")) == (1, {"cmd": "buy"})
    assert read(b"{]", 3, 1, wire="seneca").fault is not None


def test_a_payload_that_nobody_can_read_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the end of the run: the same batch would come again and again."""

    def stumble(*_: object) -> Typed:
        raise RecursionError("too deep")

    monkeypatch.setattr(SchemaVersions, "read", stumble)
    columns = {"schema_id": [1], "schema_version": [2], "time_us": [0], "wire": ["mb"], "payload": [b""]}
    found = KNOWN.read_batch(pa.RecordBatch.from_pydict(columns))
    assert found.column("value_fault").to_pylist() == ["payload cannot be read: too deep"]
    assert found.column("schema_version").to_pylist() == [2]


def test_columns_of_a_batch_keep_their_place() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "wire": ["danube", "mb"],
            "schema_id": pa.array([1, None], pa.int64()),
            "schema_version": pa.array([None, None], pa.int64()),
            "time_us": [LATER_US, LATER_US],
            "payload": [TWO, b"\x00"],
        }
    )
    found = KNOWN.read_batch(batch)
    assert found.schema.names == [*batch.schema.names, "subject", "schema_type", "value", "value_fault"]
    assert found.column("schema_version").to_pylist() == [2, None]
    assert found.column("value_fault").to_pylist() == [None, None]
