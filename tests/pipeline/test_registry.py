"""Every table as it is registered: what `verify` asks can be asked, and an empty lake has them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from raceway.pipeline import registry
from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import Lake
from raceway.pipeline.query import Tables
from raceway.pipeline.tables import MESSAGES
from raceway.pipeline.verify import check_table
from raceway.pipeline.words import COLUMNS, TABLES
from raceway.wires.captures.columns import columns_of


def test_names_are_of_three_layers_and_unique() -> None:
    assert len(set(registry.names())) == len(registry.names())
    assert {name.split(".")[0] for name in registry.names()} == {"bronze", "silver", "gold"}


def test_inputs_come_before_what_is_computed_from_them() -> None:
    known = {MESSAGES}
    for table in registry.DERIVED:
        assert {*table.inputs, *table.looks_up} <= known, table.name
        known.add(table.name)


def test_keys_and_times_are_columns(tmp_path: Path) -> None:
    tables = Tables(Lake(None, Folders(tmp_path)))
    for name in registry.names():
        table = registry.table(name)
        columns = set(tables.select(f"SELECT * FROM {name}").column_names)
        assert {*table.key, table.when} <= columns, name


def test_every_table_and_column_is_told_in_words() -> None:
    columns = {name for table in registry.every().values() for name, _ in columns_of(table.ddl)}
    assert set(COLUMNS) == columns | {"day"}
    assert set(TABLES) == set(registry.every())


def test_a_table_is_reset_with_all_that_knows_its_versions() -> None:
    assert registry.with_dependent("silver.exchanges") == {"silver.exchanges", "gold.topic_stats", "gold.service_graph"}
    assert registry.with_dependent("silver.messages") >= {"state.dedup_ids", "gold.topic_stats", "gold.schema_usage"}


@pytest.mark.parametrize("name", registry.names())
def test_verify_finds_nothing_wrong_with_an_empty_table(tmp_path: Path, name: str) -> None:
    lake = Lake(None, Folders(tmp_path))
    verdict = check_table(lake, Tables(lake), name)
    assert verdict.is_good
    assert verdict.rows == 0
