"""Tables of topics that are bound to schemas: columns from every kind of definition, which grow with its versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from raceway.pipeline import keeping
from raceway.pipeline.folders import Folders
from raceway.pipeline.forgetting import delete_rows
from raceway.pipeline.lake import Lake
from raceway.pipeline.query import Tables
from raceway.pipeline.refreshing import refresh
from raceway.pipeline.typed import table_name, typed_tables
from raceway.pipeline.verify import check_table, differing_rows
from raceway.schema.reading import read_definition
from tests.pipeline.lakes import append, fill
from tests.pipeline.rows import START_US, Row, message
from tests.pipeline.schemas import JSON_SCHEMA, V1, V2, avro, datum, framed, version

CHANGED: dict[str, Any] = V2 | {"fields": [{"name": "id", "type": "string"}, {"name": "time", "type": "long"}]}
PROTO = b"""syntax = "proto3"; message Order { int64 n = 1; repeated string tags = 2; }"""


def columns(*bound: Any, topic: str = "orders.created") -> list[str]:
    (table,) = typed_tables({topic: [bound[0].subject]}, bound)
    return [f"{each.name} {each.member.kind.sql}" for each in table.columns]


def test_columns_come_from_all_versions_and_keep_their_types() -> None:
    versions = avro(1, 1, V1), avro(2, 2, V2, START_US + 1000), avro(3, 3, CHANGED, START_US + 2000)
    assert columns(*versions) == ["id bigint", "note string", "id_v3 string", "payload_time bigint"]
    assert columns(*reversed(versions)) == columns(*versions)
    assert columns(version(1, 7, 1, "avro", b'"long"')) == ["value bigint"]


def test_topics_without_a_structured_schema_have_no_table() -> None:
    assert typed_tables({"t": ["subject-1"]}, [version(1, 1, 1, "string", b"{}")]) == ()
    assert typed_tables({"t": ["gone"]}, [avro(1, 1, V1)]) == ()


def test_names_of_tables() -> None:
    assert table_name("orders.created", []) == "topics.orders_created"
    assert table_name("/default/Orders", []) == "topics.default_orders"
    other = table_name("orders_created", ["topics.orders_created"])
    assert other.startswith("topics.orders_created_")
    bindings = {name: ["subject-1"] for name in ("a.b", "a_b", "p-part-0", "p-part-1")}
    found = typed_tables(bindings, [avro(1, 1, V1)])
    assert [table.topics for table in found] == [("a.b",), ("a_b",), ("p-part-0", "p-part-1")]
    assert len({table.name for table in found}) == 3
    assert found[2].comment == "Messages of the topic p, with columns of the schema subject-1."


# ---- with Spark -----------------------------------------------------------------------------------------------------


@pytest.fixture
def bound(spark: SparkSession, tmp_path: Path) -> Lake:
    """A lake whose bus has bound `orders.created` to an Avro schema of two versions."""
    lake = Lake(spark, Folders(tmp_path / "data"))
    lake.book.learn(avro(1, 1, V1))
    lake.book.learn(avro(2, 2, V2))
    lake.book.learn_binding("orders.created", "subject-1")
    return lake


def rows(lake: Lake, what: str, table: str = "topics.orders_created") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = Tables(lake).select(f"SELECT {what} FROM {table} ORDER BY sequence").to_pylist()
    return found


def orders() -> list[Row]:
    return [
        message(0, schema_id=1, schema_version=1, payload=datum(V1, {"id": 7})),
        message(1, payload=framed(2, datum(V2, {"id": 8, "note": "ünï"}))),
        message(2, payload=datum(V2, {"id": 9, "note": "names no schema"})),
        message(3, payload=b"no Avro, but something else entirely"),
        message(4, topic="elsewhere", schema_id=1, schema_version=1, payload=datum(V1, {"id": 1})),
        message(5, kind="response", payload=datum(V2, {"id": 9, "note": "an answer"})),
    ]


def test_messages_of_a_bound_topic_are_rows_with_columns(bound: Lake) -> None:
    fill(bound, orders(), (2, 3))
    assert rows(bound, "sequence, schema_version, id, note") == [
        {"sequence": 0, "schema_version": 1, "id": 7, "note": None},
        {"sequence": 1, "schema_version": 2, "id": 8, "note": "ünï"},
        {"sequence": 2, "schema_version": 2, "id": 9, "note": "names no schema"},
    ]
    (table,) = bound.typed
    assert differing_rows(bound, table) == 0
    assert check_table(bound, Tables(bound), table.name).is_good
    delta = DeltaTable(bound.storage.url(table.name))
    assert delta.metadata().description == "Messages of the topic orders.created, with columns of the schema subject-1."
    told = {field.name: field.metadata.get("comment") for field in delta.schema().fields}
    assert told["note"] == "Member `note` of the payload."
    assert [each.rows for each in keeping.table_facts(bound) if each.name == table.name] == [3]


def test_a_new_version_adds_columns_and_earlier_rows_have_null_there(bound: Lake) -> None:
    fill(bound, orders())
    before = set(bound.paths("topics.orders_created"))
    bound.book.learn(avro(3, 3, CHANGED))
    new = datum(CHANGED, {"id": "now a text", "time": 17})
    fill(bound, [message(6, schema_id=1, schema_version=3, payload=new)])
    # `refresh` asks the book for what is new; here the test has told it.
    assert before < set(bound.paths("topics.orders_created")), "no file was written anew"
    assert rows(bound, "sequence, id, id_v3, payload_time")[-2:] == [
        {"sequence": 2, "id": 9, "id_v3": None, "payload_time": None},
        {"sequence": 6, "id": None, "id_v3": "now a text", "payload_time": 17},
    ]


def test_json_schema_and_protobuf(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, Folders(tmp_path / "data"))
    lake.book.learn(version(1, 1, 1, "json_schema", JSON_SCHEMA))
    lake.book.learn(version(2, 2, 1, "protobuf", PROTO))
    for topic, subject in (("counts", "subject-1"), ("proto", "subject-2")):
        lake.book.learn_binding(topic, subject)
    made = read_definition("protobuf", PROTO, ())
    order = made._classes.get("Order") or type(made._message("Order", b""))  # type: ignore[attr-defined]
    fill(
        lake,
        [
            message(0, topic="counts", payload=json.dumps({"n": 2**40, "more": 1}).encode()),
            message(1, topic="counts", payload=b'{"n": "not a number"}'),
            message(2, topic="proto", payload=order(n=2**60, tags=["a", "b"]).SerializeToString()),
            message(3, topic="proto", payload=order().SerializeToString()),
        ],
    )
    assert rows(lake, "sequence, n", "topics.counts") == [{"sequence": 0, "n": 2**40}]
    assert rows(lake, "sequence, n, tags", "topics.proto") == [
        {"sequence": 2, "n": 2**60, "tags": ["a", "b"]},
        {"sequence": 3, "n": 0, "tags": []},
    ]


def test_a_deletion_reaches_them_and_adds_nothing_twice(bound: Lake) -> None:
    fill(bound, orders(), (2,))
    keys = bound.frame("bronze.messages").where("sequence IN (1, 3)").select("source", "partition", "sequence")
    bound.folders.root.mkdir(parents=True, exist_ok=True)
    delete_rows(bound, keys)
    assert [row["id"] for row in rows(bound, "id")] == [7, 9]
    refresh(bound)
    assert [row["id"] for row in rows(bound, "id")] == [7, 9]
    append(bound, [message(6, payload=datum(V2, {"id": 10, "note": ""}))])
    refresh(bound)
    assert [row["id"] for row in rows(bound, "id")] == [7, 9, 10]


def test_the_life_of_tables_includes_them(bound: Lake) -> None:
    fill(bound, orders(), (1, 2))
    assert "topics.orders_created" in {done.table for done in keeping.compact(bound)}
    assert "topics.orders_created" in {done.table for done in keeping.vacuum(bound, 0)}
    assert [row["id"] for row in rows(bound, "id")] == [7, 8, 9]
    keeping.reset_table(bound, "silver.messages")
    assert bound.maybe_snapshot("topics.orders_created") is None
    refresh(bound)
    assert [row["id"] for row in rows(bound, "id")] == [7, 8, 9]
    assert "topics.orders_created" in {done.table for done in keeping.retain(bound, 1)}
    assert rows(bound, "id") == []
