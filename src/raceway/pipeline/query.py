"""SQL over the tables: DuckDB for Parquet, which starts at once; Spark where only Spark can read them (Delta)."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from raceway.errors import PipelineError
from raceway.pipeline import registry
from raceway.pipeline.lake import Lake, ParquetLake, key_of

if TYPE_CHECKING:
    import pyarrow as pa

_DUCK_TYPES = {"string": "VARCHAR", "binary": "BLOB", "timestamp": "TIMESTAMPTZ"}


class Tables(ABC):
    """All tables under their names, empty ones too."""

    @abstractmethod
    def select(self, sql: str) -> pa.Table:
        """The result of a query. PipelineError with the engine's own sentence if it cannot be run."""

    def number(self, sql: str) -> int:
        return int(self.select(sql).column(0)[0].as_py())


def open_tables(lake: Lake) -> Tables:
    return DuckTables(lake) if isinstance(lake, ParquetLake) else SparkTables(lake)


class DuckTables(Tables):
    """DuckDB over the Parquet files as they lie. Views are made anew for each query: parts come and go."""

    def __init__(self, lake: ParquetLake) -> None:
        self._lake = lake

    def select(self, sql: str) -> pa.Table:
        import duckdb

        with duckdb.connect(":memory:") as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("CREATE MACRO size(list) AS len(list)")  # as Spark calls it
            for statement in self._views():
                connection.execute(statement)
            try:
                found = connection.sql(sql)
            except duckdb.Error as error:
                raise PipelineError(str(error).split("\n\nLINE")[0].replace("\n", "; ")) from error
            return found.to_arrow_table()

    def _views(self) -> Iterator[str]:
        for schema in dict.fromkeys(name.split(".")[0] for name in registry.names()):
            yield f"CREATE SCHEMA IF NOT EXISTS {schema}"
        for name in registry.names():
            yield f"CREATE VIEW {name} AS {self._rows(name)}"  # names are ours

    def _rows(self, name: str) -> str:
        key = key_of(name)
        if not self._lake.parts(name):
            columns = [*duck_columns(registry.columns(name)), (key, "VARCHAR")]
            nothing = (f'NULL::{kind} AS "{column}"' for column, kind in columns)
            return f"SELECT {', '.join(nothing)} WHERE false"
        path = str(self._lake.path(name)).replace("'", "''")
        types = f"hive_partitioning = true, hive_types = {{'{key}': VARCHAR}}"
        return f"SELECT * FROM read_parquet('{path}/*/*.parquet', {types})"  # noqa: S608 - our own path


class SparkTables(Tables):
    """Spark SQL over tables that only it can read."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        for name in registry.names():
            lake.frame(name).withColumnRenamed("part", key_of(name)).createOrReplaceTempView(_view(name))

    def select(self, sql: str) -> pa.Table:
        from pyspark.errors import PySparkException

        try:
            return self._lake.spark.sql(_with_views(sql)).toArrow()
        except PySparkException as error:
            raise PipelineError(str(error).splitlines()[0]) from error


def _view(name: str) -> str:
    """Temporary views have no schema."""
    return name.replace(".", "_")


def _with_views(sql: str) -> str:
    """Names of tables become names of views, except inside of quotes."""
    names = "|".join(re.escape(name) for name in registry.names())
    quoted = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""
    return re.sub(rf"{quoted}|\b({names})\b", lambda found: _view(found[1]) if found[1] else found[0], sql)


def parted(text: str) -> list[str]:
    """What stands between commas; commas inside of angle brackets do not count."""
    found, depth, begin = [], 0, 0
    for at, character in enumerate(text + ","):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "," and depth == 0:
            found.append(text[begin:at].strip())
            begin = at + 1
    return found


def duck_columns(ddl: str) -> list[tuple[str, str]]:
    """Names and DuckDB's types of columns that are written in Spark's SQL."""
    return [(name.strip("`"), duck_type(kind)) for name, _, kind in (part.partition(" ") for part in parted(ddl))]


def duck_type(kind: str) -> str:
    """DuckDB's name of one of Spark's types."""
    outer, _, inside = kind.strip().removesuffix(">").partition("<")
    match outer:
        case "array":
            return f"{duck_type(inside)}[]"
        case "map":
            return f"MAP({', '.join(map(duck_type, parted(inside)))})"
        case "struct":
            fields = (field.partition(":") for field in parted(inside))
            members = (f"{name.strip()} {duck_type(of)}" for name, _, of in fields)
            return f"STRUCT({', '.join(members)})"
    return _DUCK_TYPES.get(outer, outer.upper())
