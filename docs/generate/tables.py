"""The page of tables, from the pipeline's own definitions."""

from __future__ import annotations

from docs.generate.markdown import page, table
from raceway.pipeline import registry
from raceway.pipeline.tables import Derived, Table
from raceway.pipeline.words import COLUMNS
from raceway.wires.captures.columns import columns_of


def tables_page() -> str:
    lines = [
        "What `raceway pipeline run` keeps, in `DATA/pipeline/tables` or wherever `pipeline.tables` says. Types are",
        "those of Spark. Every table has one column more, `day` (UTC), by which it is partitioned. Lists and maps are",
        "empty where there is nothing, never NULL. The same words are in the log of each table. What they mean is told",
        "in [what the tables say](../understand/tables.md).",
        "",
    ]
    for name in registry.names():
        lines += _one_table(registry.table(name))
    return page("Tables", *lines)


def _one_table(each: Table) -> list[str]:
    inputs = each.inputs if isinstance(each, Derived) else ()
    made_of = f" Computed from {', '.join(f'`{name}`' for name in inputs)}." if inputs else ""
    rows = [(f"`{column}`", f"`{kind}`", COLUMNS[column]) for column, kind in columns_of(each.ddl)]
    return [
        f"## {each.name}",
        "",
        f"{each.comment} Key: {', '.join(f'`{name}`' for name in each.key)}.{made_of}",
        "",
        *table(["column", "type", ""], rows),
    ]
