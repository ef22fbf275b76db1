"""SQL over the tables with DuckDB, which starts at once: over the files of their current version or of an older one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raceway.errors import PipelineError
from raceway.pipeline.lake import Lake
from raceway.wires.captures.columns import schema_of

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from raceway.pipeline.snapshot import At


class Tables:
    """All tables under their names, including empty ones, as they are now or as they were. Views are created for each
    query, because files change."""

    def __init__(self, lake: Lake, at: At | None = None) -> None:
        self._lake, self._at = lake, at

    def select(self, sql: str) -> pa.Table:
        """Run a query. Raises PipelineError with the message of the engine."""
        import duckdb

        with duckdb.connect(":memory:") as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("CREATE MACRO size(list) AS len(list)")  # Spark's name of the function
            for schema in dict.fromkeys(name.split(".")[0] for name in self._lake.names()):
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            left_out = {name: why for name in self._lake.names() if (why := self._maybe_left_out(connection, name))}
            try:
                return connection.sql(sql).to_arrow_table()
            except duckdb.Error as error:
                why = next((why for name, why in left_out.items() if name in sql.lower()), None)
                raise PipelineError(why or str(error).split("\n\nLINE")[0].replace("\n", "; ")) from error

    def number(self, sql: str) -> int:
        return int(self.select(sql).column(0)[0].as_py())

    def _maybe_left_out(self, connection: DuckDBPyConnection, name: str) -> str | None:
        """Create a table; return why it could not be, if it had no such version. A query may not need it."""
        try:
            self._create(connection, name)
        except PipelineError as error:
            if self._at is None:
                raise
            return str(error)
        return None

    def _create(self, connection: DuckDBPyConnection, name: str) -> None:
        found = self._lake.maybe_snapshot(name, self._at)
        if found is not None:
            connection.register(f"files of {name}", found.dataset())
            connection.execute(f'CREATE VIEW {name} AS FROM "files of {name}"')  # names are ours
            return
        connection.register("nothing", schema_of(self._lake.table(name).ddl).empty_table())
        connection.execute(f"CREATE TABLE {name} AS FROM nothing")
