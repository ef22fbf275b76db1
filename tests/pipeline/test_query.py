from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from raceway.errors import ConfigError, PipelineError
from raceway.pipeline.delta_lake import DeltaLake
from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import Lake, ParquetLake
from raceway.pipeline.query import open_tables
from raceway.wires.captures.columns import TIMESTAMP, ddl, schema_of
from tests.pipeline.lakes import append
from tests.pipeline.rows import bronze, message


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


def test_delta_tables_are_asked_without_spark_also_as_they_were(tmp_path: Path) -> None:
    lake = DeltaLake(None, Folders(tmp_path))
    key = pa.field("range", pa.string())
    for first in (0, 10):
        rows = bronze(message(n, attributes={"n": str(n)}) for n in range(first, first + 10))
        rows = rows.append_column(key, pa.repeat(pa.scalar("some"), 10))
        write_deltalake(lake.storage.url("bronze.messages"), rows, mode="append", partition_by=["range"])
    counted = "SELECT count(*) FROM bronze.messages"
    assert open_tables(lake).number(f"{counted} WHERE attributes['n'] >= '15' AND range = 'some'") == 13, "as text"
    assert open_tables(lake).number("SELECT count(*) FROM gold.traces") == 0
    assert open_tables(lake, 0).number(counted) == 10
    with pytest.raises(PipelineError, match=r"^bronze\.messages: .*7"):
        open_tables(lake, 7).number(counted)
    assert open_tables(lake, 7).number("SELECT 1") == 1, "it is not asked for"
    assert lake.arrow("bronze.messages", "some", ["sequence"]).num_rows == 20
    assert lake.arrow("bronze.messages", "other", ["sequence"]).num_rows == 0
    lake.remove("bronze.messages")
    assert open_tables(DeltaLake(None, Folders(tmp_path))).number(counted) == 0


def test_plain_parquet_has_no_earlier_versions(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--at: only tables in the format delta"):
        open_tables(ParquetLake(None, Folders(tmp_path)), 0)


def test_empty_tables_have_their_columns(tmp_path: Path) -> None:
    tables = open_tables(ParquetLake(None, Folders(tmp_path)))
    rows = tables.select("SELECT *, attributes['x'], hops[1].tms[1] FROM bronze.messages")
    assert rows.num_rows == 0
    assert rows.schema.field("sequence").type == "int64"


def test_empty_tables_have_the_types_of_their_columns(tmp_path: Path) -> None:
    tables = open_tables(ParquetLake(None, Folders(tmp_path)))
    kinds = tables.select(
        "SELECT typeof(tree), typeof(time), typeof(wires) FROM (SELECT NULL) LEFT JOIN gold.traces ON true"
    )
    tree, time, wires = kinds.to_pylist()[0].values()
    assert tree.startswith('STRUCT("sequence" BIGINT, parent BIGINT, depth INTEGER, ')
    assert tree.endswith(")[]")
    assert (time, wires) == ("TIMESTAMP WITH TIME ZONE", "VARCHAR[]")
    assert tables.select(
        "SELECT typeof(attributes) FROM (SELECT NULL) LEFT JOIN bronze.messages ON true"
    ).to_pylist() == [{"typeof(attributes)": "MAP(VARCHAR, VARCHAR)"}]


def test_types_of_spark_are_types_of_arrow() -> None:
    text = "`a` string, b struct<x:int,y:timestamp>, c map<string,array<struct<a:bigint,b:map<string,binary>>>>"
    inner = pa.struct([("a", pa.int64()), ("b", pa.map_(pa.string(), pa.binary()))])
    expected = pa.schema(
        [
            ("a", pa.string()),
            ("b", pa.struct([("x", pa.int32()), ("y", TIMESTAMP)])),
            ("c", pa.map_(pa.string(), pa.list_(inner))),
        ]
    )
    assert schema_of(text) == expected
    assert schema_of(ddl(expected)) == expected
