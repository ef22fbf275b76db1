"""The process that runs SQL of others: what it answers, and what no query gets out of it."""

from __future__ import annotations

import csv
import datetime
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from raceway.config import MIB
from raceway.errors import PipelineError
from raceway.model.sql import SqlAsked, SqlForm, SqlTold
from raceway.pipeline.sandbox import connected, select

HOUR = datetime.datetime(2026, 11, 15, 12, tzinfo=datetime.UTC)
STATS = pa.table({
    "topic": ["a", "b", "c"], "messages": [3, 1, 2], "hour": pa.array([HOUR] * 3, pa.timestamp("us", "UTC")),
    "payload": [b"\xff", b"text", None],
    "attributes": pa.array([[("k", "v")], [], None], pa.map_(pa.string(), pa.string())),
})  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables; the first version of one of them was replaced."""
    found = tmp_path_factory.mktemp("data") / "tables"
    write_deltalake(str(found / "gold" / "stats"), STATS)
    for n in (1, 2):
        write_deltalake(str(found / "silver" / "messages"), pa.table({"n": [n]}), mode="overwrite")
    (found / "secret.txt").write_text("secret")
    return found


def asked_of(root: Path, sql: str, form: SqlForm = "json", rows: int = 100, **more: Any) -> SqlAsked:
    limits = {"memory_bytes": 256 * MIB, "timeout_s": 60.0} | more
    return SqlAsked(sql=sql, root=str(root), tables=["gold.stats", "silver.messages"], form=form, rows=rows, **limits)


def run(root: Path, sql: str, form: SqlForm = "json", **more: Any) -> tuple[SqlTold, bytes]:
    """In its own process, as the bus does."""
    asked = asked_of(root, sql, form, **more)
    done = subprocess.run(
        [sys.executable, "-m", "raceway.pipeline.sandbox"], input=msgspec.json.encode(asked), capture_output=True,
        timeout=100, check=False, env={"MALLOC_ARENA_MAX": "2", "SECRET": "of the bus"}, cwd="/",
    )  # fmt: skip
    line, found, body = done.stdout.partition(b"\n")
    assert found, done
    return msgspec.json.decode(line, type=SqlTold), body


def rows_of(root: Path, sql: str, **more: Any) -> list[list[Any]]:
    told, body = run(root, sql, **more)
    assert told.error == ""
    found: list[list[Any]] = json.loads(body)
    return found


def test_rows_of_the_current_files_are_values_of_json(root: Path) -> None:
    told, body = run(root, "SELECT topic, messages, hour, payload, attributes FROM gold.stats ORDER BY 1")
    assert json.loads(body)[0] == ["a", 3, "2026-11-15T12:00:00+00:00", "/w==", "[('k', 'v')]"]
    assert told.columns[:2] == [{"name": "topic", "type": "string"}, {"name": "messages", "type": "int64"}]
    # What was replaced is still on disk.
    assert rows_of(root, "SELECT n FROM silver.messages UNION ALL SELECT count(*) FROM gold.stats") == [[2], [3]]


def test_tables_are_asked_as_they_were(root: Path) -> None:
    assert rows_of(root, "SELECT n FROM silver.messages", at="0") == [[1]]
    assert rows_of(root, "SELECT n FROM silver.messages", at="2100-01-01") == [[2]]
    # A table that had no such version is missed by those who ask it.
    assert rows_of(root, "SELECT n FROM silver.messages", at="1") == [[2]]
    assert "gold.stats" in run(root, "SELECT * FROM gold.stats", at="1")[0].error
    assert "silver.messages: did not exist" in run(root, "FROM silver.messages", at="2001-01-01")[0].error
    assert run(root, "SELECT 1", at="yesterday")[0].error.startswith("at is a version (7) or a time")


def test_so_many_rows_are_given_and_that_there_are_more_is_told(root: Path) -> None:
    told, body = run(root, "SELECT * FROM range(100000) t(n)", rows=5)
    assert (json.loads(body), told.is_cut) == ([[n] for n in range(5)], True)
    assert not run(root, "SELECT * FROM range(5)", rows=5)[0].is_cut
    assert rows_of(root, "SELECT 1 AS a, 2 AS a") == [[1, 2]], "names may come twice"


def test_files_have_the_same_rows(root: Path) -> None:
    sql = "SELECT topic, hour, payload FROM gold.stats ORDER BY messages DESC"
    _, text = run(root, sql, "csv")
    found = list(csv.reader(io.StringIO(text.decode())))
    assert found[:2] == [["topic", "hour", "payload"], ["a", "2026-11-15T12:00:00+00:00", "/w=="]]
    table = pq.read_table(io.BytesIO(run(root, sql, "parquet")[1]))
    assert table.to_pylist()[0] == {"topic": "a", "hour": HOUR, "payload": b"\xff"}


READING = [
    "SELECT * FROM read_text('{root}/secret.txt')",
    "SELECT * FROM read_blob('{root}/secret.txt')",
    "SELECT * FROM '{root}/secret.txt'",
    "SELECT * FROM read_csv('{root}/secret.txt')",
    "SELECT * FROM read_parquet('{root}/gold/stats/*/*.parquet')",
    "SELECT * FROM glob('{root}/*')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM query('SELECT * FROM read_text(''/etc/passwd'')')",
    "SELECT getenv('SECRET')",
    "SELECT * FROM read_json('http://127.0.0.1:9/x')",
    "SELECT * FROM asked",
    "SELECT * FROM read_duckdb('{root}/x.db')",
]
CHANGING = [
    "COPY (SELECT 1) TO '{root}/out.csv'",
    "COPY gold.stats TO '{root}/out.parquet'",
    "ATTACH '{root}/x.db' AS x",
    "ATTACH ':memory:' AS x",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET memory_limit = '100GB'",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "PRAGMA memory_limit = '100GB'",
    "PRAGMA database_list",
    "EXPORT DATABASE '{root}/out'",
    "CREATE TABLE x AS SELECT 1",
    "INSERT INTO gold.stats VALUES (1)",
    "DROP VIEW gold.stats",
    "CALL pragma_version()",
    "CREATE SECRET (TYPE s3)",
    "SELECT 1; COPY (SELECT 1) TO '{root}/out.csv'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{root}/out.csv'",
    "",
    "not SQL",
]


@pytest.mark.parametrize("sql", READING + CHANGING)
def test_nothing_but_the_tables_is_read_and_nothing_is_changed(root: Path, sql: str) -> None:
    before = sorted(root.rglob("*"))
    with pytest.raises(PipelineError):
        select(asked_of(root, sql.replace("{root}", str(root))))
    assert sorted(root.rglob("*")) == before


@pytest.mark.parametrize(
    "sql", [each for each in READING + CHANGING if "{root}" in each or each.startswith(("SET", "INS"))]
)
def test_the_engine_refuses_by_itself_what_would_leave_the_tables(root: Path, sql: str) -> None:
    """Also if a statement were taken for one that reads."""
    before = sorted(root.rglob("*"))
    with connected(asked_of(root, "")) as connection, pytest.raises(duckdb.Error):
        connection.execute(sql.replace("{root}", str(root))).fetchall()
    assert sorted(root.rglob("*")) == before


def test_a_refusal_is_told_in_words_of_the_engine(root: Path) -> None:
    told, body = run(root, "SELECT * FROM read_text('/etc/passwd')")
    assert (told.error, body) == (
        "Permission Error: File system LocalFileSystem has been disabled by configuration",
        b"",
    )
    told, body = run(root, "COPY (SELECT 1) TO '/tmp/out.csv'")
    assert (told.error, body) == ("only one statement that reads, such as SELECT, is run here", b"")


def test_a_query_that_needs_too_much_memory_is_refused(root: Path) -> None:
    told, _ = run(
        root,
        "SELECT count(*) FROM (SELECT range || repeat('x', 100) FROM range(50000000) GROUP BY ALL)",
        memory_bytes=64 * MIB,
    )
    assert told.error == "the query needs more memory than it may have"


def test_the_bus_does_not_import_what_runs_the_sql() -> None:
    """Neither Spark nor DuckDB: they are extras, and large."""
    code = (
        "import sys, raceway.server.process;"
        "print([name for name in ('duckdb', 'pyspark', 'deltalake') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
