"""SQL over the tables: with DuckDB for Parquet, which starts at once, and with Spark for Delta."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from raceway.errors import PipelineError
from raceway.pipeline import registry
from raceway.pipeline.lake import Lake, ParquetLake, key_of
from raceway.wires.captures.columns import schema_of

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection


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
            for schema in dict.fromkeys(name.split(".")[0] for name in registry.names()):
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            for name in registry.names():
                self._create(connection, name)
            try:
                found = connection.sql(sql)
            except duckdb.Error as error:
                raise PipelineError(str(error).split("\n\nLINE")[0].replace("\n", "; ")) from error
            return found.to_arrow_table()

    def _create(self, connection: DuckDBPyConnection, name: str) -> None:
        key = key_of(name)
        if not self._lake.parts(name):
            connection.register("nothing", schema_of(f"{registry.columns(name)}, {key} string").empty_table())
            connection.execute(f"CREATE TABLE {name} AS FROM nothing")  # names are ours
            return
        path = str(self._lake.path(name)).replace("'", "''")
        types = f"hive_partitioning = true, hive_types = {{'{key}': VARCHAR}}"
        connection.execute(f"CREATE VIEW {name} AS FROM read_parquet('{path}/*/*.parquet', {types})")


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
