"""SQL of whoever may read the tables, in a process of its own: `python -m raceway.pipeline.sandbox`.

The console port starts it for one query, writes an `SqlAsked` to its standard input, and kills it when the time is
over. Several walls keep a query within the tables:

- it is one statement, a SELECT or an EXPLAIN;
- DuckDB opens no files and no addresses, loads no extensions and keeps its settings (`enable_external_access`,
  `lock_configuration`). What it reads are Arrow datasets of the files that belong to the tables, now or at the time
  that was asked for;
- names in a query are never looked up among Python's variables;
- memory is limited twice, by DuckDB and by the kernel; nothing is spilled to disk, and the process can write no file
  (RLIMIT_FSIZE). It gets none of the bus's environment.
"""

from __future__ import annotations

import csv
import ctypes
import io
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from raceway import config
from raceway.errors import ConfigError, PipelineError
from raceway.model.sql import SqlAsked, SqlTold, shown_cell

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds
    from duckdb import DuckDBPyConnection

    from raceway.pipeline.snapshot import At

# What the process itself needs beside the query: code, stacks and arenas of its threads, most of it never touched.
OVERHEAD_BYTES = 3 * 1024 * config.MIB
THREADS = 2
# Below the bus, not below everything: a person waits for the answer.
NICENESS = 5
BATCH_ROWS = 2048
# Settings of DuckDB, in this order: the last ones forbid others.
WALLS = {
    "threads": THREADS, "TimeZone": "UTC", "python_enable_replacements": False, "temp_directory": "",
    "max_temp_directory_size": "0B", "autoinstall_known_extensions": False, "autoload_known_extensions": False,
    "allow_community_extensions": False, "disabled_filesystems": "LocalFileSystem", "enable_external_access": False,
}  # fmt: skip
# prctl(2): send this process a signal when its parent exits.
PR_SET_PDEATHSIG = 1


def main() -> int:
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=SqlAsked)
    _confine(asked)
    try:
        columns, rows, is_cut = select(asked)
        body = _encoded(asked, columns, rows)
    except (PipelineError, MemoryError) as error:
        told, body = SqlTold(error=str(error) or "the query needs more memory than it may have"), b""
    else:
        told = SqlTold([{"name": field.name, "type": str(field.type)} for field in columns], is_cut)
    sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n" + body)
    return 0


def _confine(asked: SqlAsked) -> None:
    os.nice(NICENESS)
    with suppress(OSError, AttributeError):  # not on Linux
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    memory, seconds = asked.memory_bytes + OVERHEAD_BYTES, round(asked.timeout_s * THREADS) + 1
    for kind, limit in ((resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, seconds)):
        resource.setrlimit(kind, (limit, limit))


def select(asked: SqlAsked) -> tuple[pa.Schema, list[pa.RecordBatch], bool]:
    """Return the columns and at most `rows` rows, and whether there were more. Raises PipelineError with the words of
    the engine, MemoryError."""
    import duckdb

    left_out: dict[str, str] = {}
    try:
        _check_statement(asked.sql)
        with connected(asked, left_out) as connection:
            return _first(connection.execute(asked.sql), asked.rows)
    except duckdb.OutOfMemoryException as error:
        raise MemoryError from error
    except duckdb.Error as error:
        why = next((why for name, why in left_out.items() if name in asked.sql.lower()), None)
        raise PipelineError(why or str(error).split("\n\nLINE")[0].replace("\n", "; ")) from error


def _check_statement(sql: str) -> None:
    """Raises PipelineError, duckdb.Error."""
    import duckdb

    kinds = [statement.type for statement in duckdb.extract_statements(sql)]
    if len(kinds) != 1 or kinds[0] not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        raise PipelineError("only one statement that reads, such as SELECT, is run here")


def connected(asked: SqlAsked, left_out: dict[str, str] | None = None) -> DuckDBPyConnection:
    """Open a database that has the tables. Tables that had no version at the time that is asked for are added to
    `left_out`, with the reason. Raises PipelineError."""
    import duckdb

    at = _maybe_at(asked.at)
    connection = duckdb.connect(":memory:")
    for name, value in {"memory_limit": f"{asked.memory_bytes}B", **WALLS}.items():
        connection.execute(f"SET {name} = '{value}'")
    connection.execute("CREATE MACRO size(list) AS len(list)")  # as `raceway pipeline query` has it
    for name in asked.tables:
        schema, _, table = name.partition(".")
        connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
        try:
            dataset = _dataset(Path(asked.root), name, at)
        except PipelineError as error:
            if at is None or left_out is None:
                raise
            left_out[name] = str(error)
            continue
        connection.register(f"files of {name}", dataset)
        connection.execute(f'CREATE VIEW "{schema}"."{table}" AS FROM "files of {name}"')  # names are ours
    connection.execute("SET lock_configuration = true")
    return connection


def _maybe_at(text: str) -> At | None:
    """Return the version or time that is asked for; None for now. Raises PipelineError."""
    from raceway.pipeline.snapshot import parse_at

    try:
        return parse_at(text) if text else None
    except ConfigError as error:
        raise PipelineError(f"at {error.reason}") from error


def _dataset(root: Path, name: str, at: At | None) -> ds.Dataset:
    """Return the rows of the files that belong to a table, or did at a version or a time. Raises PipelineError."""
    from raceway.pipeline.snapshot import Snapshot
    from raceway.pipeline.storage import storage_of

    return Snapshot(storage_of(str(root)), name, at).dataset()


def _first(result: Any, rows: int) -> tuple[pa.Schema, list[pa.RecordBatch], bool]:
    reader = result.to_arrow_reader(BATCH_ROWS)
    found: list[pa.RecordBatch] = []
    count = 0
    for batch in reader:
        found.append(batch.slice(0, rows - count))
        count += batch.num_rows
        if count > rows:
            break
    return reader.schema, found, count > rows


def _encoded(asked: SqlAsked, columns: pa.Schema, batches: list[pa.RecordBatch]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if asked.form == "parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_batches(batches, columns), sink)
        return bytes(sink.getvalue())
    # By number: names of columns may come twice.
    rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
    if asked.form == "json":
        return msgspec.json.encode([[shown_cell(cell) for cell in row] for row in rows])
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns.names)
    writer.writerows([shown_cell(cell, sys.maxsize) for cell in row] for row in rows)
    return text.getvalue().encode()


if __name__ == "__main__":
    raise SystemExit(main())
