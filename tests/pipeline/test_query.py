from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from raceway.errors import PipelineError
from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import Lake
from raceway.pipeline.query import Tables
from raceway.wires.captures.columns import TIMESTAMP, ddl, schema_of
from tests.pipeline.lakes import append
from tests.pipeline.rows import message
from tests.rigs.server import wait_until


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(None, Folders(tmp_path))


def test_tables_are_asked_by_their_names(lake: Lake) -> None:
    append(lake, [message(n, wire="zbus" if n % 2 else "mb", attributes={"n": str(n)}) for n in range(10)])
    tables = Tables(lake)
    found = tables.select(
        "SELECT wire, count(*) AS n, min(day) AS day FROM bronze.messages GROUP BY wire ORDER BY wire"
    )
    day = date(2023, 11, 14)
    assert found.to_pylist() == [{"wire": "mb", "n": 5, "day": day}, {"wire": "zbus", "n": 5, "day": day}]
    assert tables.number("SELECT count(*) FROM bronze.rejected WHERE code = 'x'") == 0
    assert tables.number("SELECT count(*) FROM bronze.messages WHERE attributes['n'] >= '7'") == 3
    assert tables.select("SELECT 'of bronze.messages' AS said FROM bronze.messages LIMIT 1").to_pylist() == [
        {"said": "of bronze.messages"}
    ]
    with pytest.raises(PipelineError, match="nothing"):
        tables.select("SELECT nothing FROM bronze.messages")


def test_tables_are_asked_as_they_were_at_a_time(tmp_path: Path) -> None:
    lake = Lake(None, Folders(tmp_path))
    before = datetime.now(UTC) - timedelta(seconds=1)
    append(lake, [message(0)])
    then = datetime.now(UTC) + timedelta(milliseconds=5)
    wait_until(lambda: datetime.now(UTC) > then + timedelta(milliseconds=5), 10, "a later millisecond")
    append(lake, [message(1)])
    counted = "SELECT count(*) FROM bronze.messages"
    assert Tables(lake, then).number(counted) == 1
    assert Tables(lake, datetime.now(UTC) + timedelta(seconds=1)).number(counted) == 2
    with pytest.raises(PipelineError, match=r"bronze\.messages: did not exist at"):
        Tables(lake, before).number(counted)


def test_tables_are_asked_as_they_were(lake: Lake) -> None:
    for first in (0, 10):
        append(lake, [message(n) for n in range(first, first + 10)])
    counted = "SELECT count(*) FROM bronze.messages"
    assert Tables(lake).number(counted) == 20
    assert Tables(lake, 0).number(counted) == 10
    with pytest.raises(PipelineError, match=r"^bronze\.messages: .*7"):
        Tables(lake, 7).number(counted)
    assert Tables(lake, 7).number("SELECT 1") == 1, "it is not asked for"
    lake.remove("bronze.messages")
    assert Tables(lake).number(counted) == 0


def test_empty_tables_have_their_columns(tmp_path: Path) -> None:
    tables = Tables(Lake(None, Folders(tmp_path)))
    rows = tables.select("SELECT *, attributes['x'], hops[1].tms[1] FROM bronze.messages")
    assert rows.num_rows == 0
    assert rows.schema.field("sequence").type == "int64"


def test_empty_tables_have_the_types_of_their_columns(tmp_path: Path) -> None:
    tables = Tables(Lake(None, Folders(tmp_path)))
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
