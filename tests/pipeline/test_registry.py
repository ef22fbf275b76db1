"""Every table as it is registered: what `verify` asks can be asked, and an empty lake has them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from raceway.pipeline import registry
from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import Lake, ParquetLake
from raceway.pipeline.query import open_tables
from raceway.pipeline.tables import BRONZE_DDL
from raceway.pipeline.verify import check_table
from tests.pipeline.lakes import append
from tests.pipeline.rows import message


def test_names_are_of_three_layers_and_unique() -> None:
    assert len(set(registry.names())) == len(registry.names())
    assert {name.split(".")[0] for name in registry.names()} == {"bronze", "silver", "gold"}


def test_inputs_come_before_what_is_computed_from_them() -> None:
    known = set(BRONZE_DDL)
    for table in registry.DERIVED:
        assert set(table.inputs) <= known, table.name
        known.add(table.name)


def test_keys_and_due_columns_are_columns(tmp_path: Path) -> None:
    tables = open_tables(ParquetLake(None, Folders(tmp_path)))
    for table in registry.DERIVED:
        columns = set(tables.select(f"SELECT * FROM {table.name}").column_names)
        assert {*table.key, *([table.due] if table.due else [])} <= columns, table.name


@pytest.mark.parametrize("name", registry.names())
def test_verify_finds_nothing_wrong_with_an_empty_table(tmp_path: Path, name: str) -> None:
    lake = ParquetLake(None, Folders(tmp_path))
    verdict = check_table(lake, open_tables(lake), name)
    assert verdict.is_good
    assert verdict.rows == 0


def test_verify_asks_in_words_that_every_engine_knows(any_lake: Lake) -> None:
    append(any_lake, [message(n) for n in range(3)])
    tables = open_tables(any_lake)
    assert check_table(any_lake, tables, "bronze.messages").rows == 3
    for table in registry.DERIVED:
        if table.expected is not None:
            assert tables.number(f"SELECT {table.expected[1]}") >= 0
