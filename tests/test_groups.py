"""Groups name tests that exist, and what is handed out by itself shares no fixture with its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.groups import GROUPS, SINGLE, group_of, rank_of

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("entry", [*GROUPS, *SINGLE])
def test_entry_names_files_that_exist(entry: str) -> None:
    assert any(each.is_dir() or each.suffix == ".py" for each in ROOT.glob(f"{entry.rstrip('/')}*"))


@pytest.mark.parametrize("file", SINGLE)
def test_what_is_handed_out_by_itself_has_no_fixture_of_its_module(file: str) -> None:
    assert "scope=" not in (ROOT / file).read_text("utf-8")


def test_what_shares_a_jvm_comes_first_and_what_shares_nothing_comes_last() -> None:
    spark, one = "tests/pipeline/test_jobs.py::test_x", "tests/broker/test_bus.py::test_x"
    planted = "tests/sim/test_planted.py::test_x[a]"
    assert [group_of(each) for each in (spark, one, planted)] == ["spark", "tests/broker/test_bus.py", planted]
    assert sorted((planted, one, spark), key=rank_of) == [spark, one, planted]
