"""SQL over the tables: with DuckDB for Parquet, which starts at once, and with Spark for Delta."""

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
    """All tables under their names, including empty ones."""

    @abstractmethod
    def select(self, sql: str) -> pa.Table:
        """Run a query. Raises PipelineError with the message of the engine."""

    def number(self, sql: str) -> int:
        return int(self.select(sql).column(0)[0].as_py())


def open_tables(lake: Lake) -> Tables:
    return DuckTables(lake) if isinstance(lake, ParquetLake) else SparkTables(lake)


class DuckTables(Tables):
    """DuckDB over the Parquet files. Views are created for each query, because parts change."""

    def __init__(self, lake: ParquetLake) -> None:
        self._lake = lake

    def select(self, sql: str) -> pa.Table:
        import duckdb

        with duckdb.connect(":memory:") as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("CREATE MACRO size(list) AS len(list)")  # Spark's name of the function
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
    """Spark SQL over Delta tables."""

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
    """Name of the temporary view of a table: temporary views have no schema."""
    return name.replace(".", "_")


def _with_views(sql: str) -> str:
    """Replace names of tables by names of views, except inside quotes."""
    names = "|".join(re.escape(name) for name in registry.names())
    quoted = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""
    return re.sub(rf"{quoted}|\b({names})\b", lambda found: _view(found[1]) if found[1] else found[0], sql)


def parted(text: str) -> list[str]:
    """Split at commas, except inside angle brackets."""
    found, depth, begin = [], 0, 0
    for at, character in enumerate(text + ","):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "," and depth == 0:
            found.append(text[begin:at].strip())
            begin = at + 1
    return found


def duck_columns(ddl: str) -> list[tuple[str, str]]:
    """Names and DuckDB types of columns given in Spark's DDL syntax."""
    return [(name.strip("`"), duck_type(kind)) for name, _, kind in (part.partition(" ") for part in parted(ddl))]


def duck_type(kind: str) -> str:
    """The DuckDB name of a Spark type."""
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
