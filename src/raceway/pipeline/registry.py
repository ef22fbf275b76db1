"""All derived tables, in order of their dependencies."""

from __future__ import annotations

from raceway.pipeline.tables import BRONZE_DDL, Derived
from raceway.pipeline.transforms import exchanges, hops, messages, schema_usage, service_graph, topic_stats, traces

# Version of the tables and their state. A release that changes columns, their contents, or the state of `carry` needs
# the next number: its first run recomputes every table from bronze.
VERSION = 2

DERIVED: tuple[Derived, ...] = tuple(
    step.TABLE for step in (messages, exchanges, hops, traces, topic_stats, service_graph, schema_usage)
)


def names() -> list[str]:
    """Names of all tables, bronze first."""
    return [*BRONZE_DDL, *(table.name for table in DERIVED)]


def columns(name: str) -> str:
    """Columns of a table in Spark's DDL syntax, without its partition column."""
    if name in BRONZE_DDL:
        return BRONZE_DDL[name]
    return next(table.ddl for table in DERIVED if table.name == name)
