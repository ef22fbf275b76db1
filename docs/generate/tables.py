"""The page of tables, from the pipeline's own definitions."""

from __future__ import annotations

from docs.generate.markdown import page, table
from raceway.pipeline import registry
from raceway.pipeline.tables import BRONZE_DDL, BRONZE_KEY
from raceway.wires.captures.columns import columns_of


def tables_page() -> str:
    lines = [
        "What `raceway pipeline run` keeps, in `DATA/pipeline/tables` or wherever `pipeline.tables` says. Types are",
        "those of Spark. Bronze tables have one column more, `range`, the others `bucket`: the folder a row lies in.",
        "Lists and maps are empty where there is nothing, never NULL. What the words mean is told in",
        "[what the tables say](../understand/tables.md).",
        "",
    ]
    for name, columns in BRONZE_DDL.items():
        lines += _one_table(name, columns, BRONZE_KEY, ())
    for each in registry.DERIVED:
        lines += _one_table(each.name, each.ddl, each.key, each.inputs)
    return page("Tables", *lines)


def _one_table(name: str, columns: str, key: tuple[str, ...], inputs: tuple[str, ...]) -> list[str]:
    made_of = f" Computed from {', '.join(f'`{each}`' for each in inputs)}." if inputs else ""
    rows = [(f"`{column}`", f"`{kind}`") for column, kind in columns_of(columns)]
    return [
        f"## {name}",
        "",
        f"Key: {', '.join(f'`{each}`' for each in key)}.{made_of}",
        "",
        *table(["column", "type"], rows),
    ]
