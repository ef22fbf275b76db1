"""Entries of the tiers name tests that exist: a renamed one must not change its tier unnoticed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tiers import SLOW, VERBS, is_slow, is_verb

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("entry", SLOW + VERBS)
def test_entry_names_tests_that_exist(entry: str) -> None:
    path, _, test = entry.partition("::")
    files = [each for each in ROOT.glob(f"{path}*") if each.is_dir() or each.suffix == ".py"]
    assert files, f"no file begins with {path}"
    name = re.match(r"\w*", test)
    assert name is not None
    assert not test or f"def {name[0]}" in files[0].read_text("utf-8"), f"no test begins with {test}"


def test_everything_else_is_quick() -> None:
    assert is_slow("tests/recovery/test_kill.py::test_x")
    assert not is_slow("tests/recovery/test_torn_tail.py::test_x")


def test_everything_else_is_no_verb() -> None:
    assert is_verb("tests/wires/mb/listen/test_session.py::test_x")
    assert not is_verb("tests/wires/mb/codec/test_receiver.py::test_x")
