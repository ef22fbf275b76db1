from __future__ import annotations

from pathlib import Path

import pytest

from raceway.errors import PipelineError
from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import Lake, ParquetLake
from raceway.pipeline.query import duck_columns, duck_type, open_tables
from tests.pipeline.lakes import append
from tests.pipeline.rows import message


def test_tables_are_asked_by_their_names(any_lake: Lake) -> None:
    append(any_lake, [message(n, wire="zbus" if n % 2 else "mb", attributes={"n": str(n)}) for n in range(10)])
    tables = open_tables(any_lake)
    found = tables.select(
        "SELECT wire, count(*) AS n, min(range) AS part FROM bronze.messages GROUP BY wire ORDER BY wire"
    )
    part = "00000000000000000000-00000000000000000009"
    assert found.to_pylist() == [{"wire": "mb", "n": 5, "part": part}, {"wire": "zbus", "n": 5, "part": part}]
    assert tables.number("SELECT count(*) FROM bronze.rejected WHERE code = 'x'") == 0
    assert tables.select("SELECT 'of bronze.messages' AS said FROM bronze.messages LIMIT 1").to_pylist() == [
        {"said": "of bronze.messages"}
    ]
    with pytest.raises(PipelineError, match="nothing"):
        tables.select("SELECT nothing FROM bronze.messages")


def test_empty_tables_have_their_columns(tmp_path: Path) -> None:
    tables = open_tables(ParquetLake(None, Folders(tmp_path)))
    rows = tables.select("SELECT *, attributes['x'], hops[1].tms[1] FROM bronze.messages")
    assert rows.num_rows == 0
    assert rows.schema.field("sequence").type == "int64"


def test_types_of_spark_have_a_name_in_duckdb() -> None:
    assert duck_type("map<string,array<struct<a:bigint,b:map<string,binary>>>>") == (
        "MAP(VARCHAR, STRUCT(a BIGINT, b MAP(VARCHAR, BLOB))[])"
    )
    assert duck_columns("`a` string, b struct<x:int,y:timestamp>") == [
        ("a", "VARCHAR"),
        ("b", "STRUCT(x INT, y TIMESTAMPTZ)"),
    ]
