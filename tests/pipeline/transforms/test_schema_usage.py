"""silver.messages typed by schema versions, and gold.schema_usage, which counts them."""

from __future__ import annotations

import json

import msgspec
from pyspark.sql import SparkSession

from raceway.model.schemas import SchemaReference
from raceway.pipeline.transforms import messages, rejected, schema_usage
from tests.pipeline.rows import Row, inputs, message
from tests.pipeline.schemas import PROTO, V1, V2, avro, datum, framed, version

VERSIONS = [avro(1, 1, V1), avro(2, 2, V2), version(3, 2, 1, "protobuf", PROTO)]
HOUR = 3600


def refused(sequence: int, topic: str, subject: str, number: str, code: str, **fields: object) -> Row:
    """As the bus puts down what a schema refused; the columns are those of the refused message."""
    facts = {"topic": topic, "code": code, "reason": "…", "subject": subject, "version": number, "wire": "zbus"}
    return message(
        sequence, topic="raceway.rejected", attributes=facts | {"producer": "p"}, producer="p", schema_id=1, **fields
    )


def stream() -> list[Row]:
    """A schema that evolves in mid-stream, two producers, an hour apart; and what goes wrong meanwhile."""
    one, two = datum(V1, {"id": 1}), datum(V2, {"id": 2, "note": "n"})
    typed = {"producer": "p", "wire": "danube", "schema_id": 1}
    return [
        message(0, **typed, schema_version=1, payload=one),
        message(1, **typed, schema_version=1, payload=one),
        message(2, **typed | {"producer": "q"}, schema_version=2, payload=two),
        message(3, **typed, schema_version=1, payload=one),
        message(4, **typed, schema_version=1, payload=two),
        message(5, producer="c", payload=framed(3, b"\x00\x08\x05"), attributes={"a": "b"}),
        message(6, payload=b'{"plain": 1}'),
        refused(7, "orders", "subject-1", "2", "payload_invalid", payload=b"\xff"),
        refused(8, "free", "", "", "no_subject"),
        message(9, source="import:" + "a" * 64, schema_id=1, schema_version=1, payload=one),
        message(HOUR, **typed, schema_version=2, payload=two),
    ]


def test_deleted_versions_and_those_that_use_others_are_still_read(spark: SparkSession) -> None:
    """The workers have the definitions that a definition uses, whatever became of them in the registry."""
    leaf = version(4, 3, 1, "avro", b'{"type": "record", "name": "L", "fields": [{"name": "n", "type": "int"}]}')
    array = version(5, 4, 1, "avro", b'{"type": "array", "items": "L"}')
    made = [
        msgspec.structs.replace(leaf, deleted=True),
        msgspec.structs.replace(array, references=(SchemaReference("L", "subject-3", 1),), deleted=True),
    ]
    rows = [
        message(0, payload=framed(5, b"\x04\x02\x04\x00")),
        message(1, schema_id=4, schema_version=1, payload=b"\x02\x06\x00"),
        message(2, payload=framed(4, b"\x08")),
    ]
    clean = messages.transform(inputs(spark, rows, made))
    values = {row["sequence"]: (row["subject"], json.loads(row["value"])) for row in clean.collect()}
    assert values == {
        0: ("subject-4", [{"n": 1}, {"n": 2}]),
        1: ("subject-4", [{"n": 3}]),
        2: ("subject-3", {"n": 4}),
    }


def test_values_and_their_counts_by_hour(spark: SparkSession) -> None:
    given = inputs(spark, stream(), VERSIONS)
    clean = messages.transform(given)
    found = {row["sequence"]: row for row in clean.collect()}
    values = {at: json.loads(row["value"]) for at, row in found.items() if row["value"] is not None}
    first, second = {"id": 1}, {"id": 2, "note": "n"}
    assert values == {0: first, 1: first, 2: second, 3: first, 5: {"n": 5}, HOUR: second}
    assert [found[at]["schema_version"] for at in (0, 2, 4, 5, 6)] == [1, 2, 1, 1, None]
    assert (found[5]["subject"], found[5]["schema_type"], found[5]["attributes"]) == (
        "subject-2",
        "protobuf",
        {"a": "b"},
    )
    assert [at for at, row in found.items() if row["value_fault"] is not None] == [4]
    assert found[9]["subject"] is None, "numbers of another bus mean nothing here"

    both = inputs(spark, stream(), silver__messages=clean, bronze__rejected=rejected.transform(given))
    counted = schema_usage.TABLE.transform(both).collect()
    assert {
        (row["hour"].hour, row["subject"], row["schema_version"], row["producer"], row["wire"]): (
            row["schema_type"], row["messages"], row["violations"], row["tolerated"], row["refused"],
        )
        for row in counted
    } == {
        (22, "subject-1", 1, "p", "danube"): ("avro", 4, 1, 1, 0),
        (22, "subject-1", 2, "q", "danube"): ("avro", 1, 0, 0, 0),
        (22, "subject-2", 1, "c", "mb"): ("protobuf", 1, 0, 0, 0),
        (22, "subject-1", 2, "p", "zbus"): (None, 0, 1, 0, 1),
        (22, "", None, "p", "zbus"): (None, 0, 1, 0, 1),
        (23, "subject-1", 2, "p", "danube"): ("avro", 1, 0, 0, 0),
    }  # fmt: skip
