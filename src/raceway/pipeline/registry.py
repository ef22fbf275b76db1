"""All tables that are computed, inputs before what is computed from them."""

from __future__ import annotations

from raceway.pipeline.tables import BRONZE_DDL, Derived
from raceway.pipeline.transforms import exchanges, hops, messages, schema_usage, service_graph, topic_stats, traces

# Of what the tables and the state kept for them look like. A release that changes columns of a table, what is in them,
# or what its `carry` hands on, takes the next number: the first run then computes every table anew from bronze.
VERSION = 2

DERIVED: tuple[Derived, ...] = tuple(
    step.TABLE for step in (messages, exchanges, hops, traces, topic_stats, service_graph, schema_usage)
)


def names() -> list[str]:
    """Every table, bronze first."""
    return [*BRONZE_DDL, *(table.name for table in DERIVED)]


def columns(name: str) -> str:
    """The columns of a table in Spark's SQL, without the one that its folders carry."""
    if name in BRONZE_DDL:
        return BRONZE_DDL[name]
    return next(table.ddl for table in DERIVED if table.name == name)
