"""All tables, in order of their dependencies."""

from __future__ import annotations

from collections.abc import Sequence

from raceway.pipeline.tables import BRONZE_DDL, BRONZE_KEY, MESSAGES, Derived, Table
from raceway.pipeline.transforms import (
    exchanges,
    hops,
    messages,
    rejected,
    schema_usage,
    service_graph,
    topic_stats,
    traces,
)

# Version of the tables. A release that changes what columns mean needs the next number: its first run recomputes every
# table from bronze. A new column alone needs none: it is added, and earlier rows have NULL there.
VERSION = 3
# What was imported, positions of the journal that were lost and accepted as such, and when content was deleted: written
# with bronze, and not computed.
CAPTURES = Table(
    "state.captures",
    "source string, wire string, path string, messages bigint, rejected bigint, time_us bigint",
    ("source",),
)
LOSSES = Table("state.losses", "first bigint, last bigint, time_us bigint", ("first",))
DELETIONS = Table("state.deletions", "deletion string, messages bigint, time_us bigint", ("deletion",))
BRONZE_TABLE = Table(MESSAGES, BRONZE_DDL[MESSAGES], BRONZE_KEY)

DERIVED: tuple[Derived, ...] = (
    rejected.TABLE,
    messages.STATE,
    *(step.TABLE for step in (messages, exchanges, hops, traces, topic_stats, service_graph, schema_usage)),
)
_STATE = "state."


def every(typed: Sequence[Derived] = ()) -> dict[str, Table]:
    """All tables by name, with those that hold state; `typed` are those of topics, which every lake has of its own."""
    return {table.name: table for table in (BRONZE_TABLE, *DERIVED, *typed, CAPTURES, LOSSES, DELETIONS)}


def table(name: str) -> Table:
    """Return one of the tables that every lake has."""
    return every()[name]


def names(typed: Sequence[Derived] = ()) -> list[str]:
    """Names of the tables for users, bronze first."""
    return [name for name in every(typed) if not name.startswith(_STATE)]


def columns(name: str) -> str:
    """Columns of a table in Spark's DDL syntax, without the partition `day`."""
    return table(name).ddl


def with_dependent(name: str, typed: Sequence[Derived] = ()) -> set[str]:
    """A table, all that are computed from it, and what these look up: they know versions of it that are gone."""
    found, derived = {name}, (*DERIVED, *typed)
    for each in derived:
        if found & {*each.inputs}:
            found.add(each.name)
    return found | {other for each in derived if each.name in found for other in each.looks_up}
