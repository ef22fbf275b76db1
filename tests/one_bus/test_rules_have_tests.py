"""Every rule of the manual's page on one bus is proven by a test that names it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

TESTS = Path(__file__).parent.parent
# Where the column HTTP of the table of errors is proven, and who reads over HTTP.
HTTP_DOOR = ("end_to_end/test_http_door.py", "end_to_end/test_http_streams.py", "web/test_event_streams.py")
PAGE = TESTS.parent / "docs" / "understand" / "one-bus.md"
RULE = re.compile(r"\*\*([NTSAELD][0-9]+)\*\*")
NAMED = re.compile(r"\b([NTSAELD][0-9]+)\b")


def rules() -> list[str]:
    return RULE.findall(PAGE.read_text("utf-8"))


def named(files: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """(rule, test) for each rule that the docstring of a test in these files begins with."""
    for file in files:
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                first = (ast.get_docstring(node) or "").partition(". ")[0].partition(":")[0]
                yield from ((rule, node.name) for rule in NAMED.findall(first))


def test_every_rule_has_a_test_and_every_name_is_a_rule() -> None:
    stated = rules()
    assert len(stated) == len(set(stated)), "a name is given twice"
    proven = {rule for rule, _ in named(Path(__file__).parent.glob("test_*.py"))}
    assert set(stated) - proven == set(), "rules that no test names"
    assert proven - set(stated) == set(), "tests that name no rule"


def test_every_error_is_proven_over_http_too() -> None:
    proven = {rule for rule, _ in named(TESTS / file for file in HTTP_DOOR)}
    assert {rule for rule in rules() if rule[0] == "E"} - proven == set()
    assert proven - set(rules()) == set(), "tests that name no rule"


def test_the_rules_of_each_part_are_numbered_without_a_gap() -> None:
    for letter in "NTSAELD":
        numbers = [int(rule[1:]) for rule in rules() if rule[0] == letter]
        assert numbers == list(range(1, len(numbers) + 1)), letter
