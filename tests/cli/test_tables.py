from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence

import pytest
from rich.console import Console

from raceway.cli import tables

ID, TIME = "9b2cc0d4-7a1e-4c55-b1ce-0d2f6a1e9b3c", "2026-01-31 12:00:00"
WIDE = [[ID, TIME, "orders.eu.created", "a payload of several words that may be wrapped", ID]]
NAMES = ["id", "time", "topic", "payload", "chain"]


def shown(width: int, rows: Sequence[Sequence[str]], names: Sequence[str] = NAMES, *, folds: bool = True) -> list[str]:
    screen = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    tables.print_cells(screen, names, rows, folds=folds)
    return [line.rstrip() for line in screen.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_a_table_that_fits_has_columns() -> None:
    lines = shown(60, [["orders", "12"]], ["topic", ">rows"])
    assert lines[1:] == [" topic    rows", " ─────────────", " orders     12", ""]


def test_text_is_wrapped_at_spaces_so_that_the_table_fits() -> None:
    lines = shown(
        60, [["ok", "python", "one two three four five six seven eight nine ten eleven"]], ["", "what", "finding"]
    )
    assert max(map(len, lines)) <= 60
    assert any("eleven" in line and "one" not in line for line in lines)
    assert sum("ok" in line for line in lines) == 1


@pytest.mark.parametrize("width", [48, 60, 80])
def test_a_table_that_does_not_fit_becomes_records_without_a_broken_word(width: int) -> None:
    lines = shown(width, WIDE + WIDE)
    assert max(map(len, lines)) <= width
    assert sum(ID in line for line in lines) == 4
    assert sum(TIME in line for line in lines) == 2
    assert sum("orders.eu.created" in line for line in lines) == 2
    assert [line.split()[0] for line in lines[:3]] == ["id", "time", "topic"]


def test_only_a_word_that_is_longer_than_an_id_is_folded_on_a_terminal() -> None:
    lines = shown(60, [["x" * 150, "end"]], ["payload", "more"])
    assert max(map(len, lines)) <= 60
    assert sum(line.count("x") for line in lines) == 150


def test_nothing_is_folded_in_a_pipe() -> None:
    lines = shown(120, [["x" * 150, ID]], ["payload", "id"], folds=False)
    assert lines == [f"payload  {'x' * 150}", f"id       {ID}", ""]


def test_names_and_values_stay_names_and_values() -> None:
    rows = [["position", "17"], ["reason", "y" * 130]]
    assert shown(120, rows, ["", "pipeline"], folds=False) == ["position  17", f"reason    {'y' * 130}", ""]


@pytest.mark.parametrize(("given", "width"), [("", 120), ("60", 60), ("wide", 120), ("0", 120)])
def test_a_pipe_is_as_wide_as_columns_says(given: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", given)
    assert tables.width_of(io.StringIO()) == width


def test_a_terminal_of_60_columns_gets_lines_of_60() -> None:
    program = f"from raceway.cli import output; output.print_table('', {NAMES!r}, {WIDE!r})"
    leader, follower = pty.openpty()
    env = {"PATH": "/usr/bin:/bin", "TERM": "xterm", "COLUMNS": "60"}
    with subprocess.Popen([sys.executable, "-c", program], stdout=follower, stdin=follower, env=env) as process:
        os.close(follower)
        told = b""
        try:
            while more := os.read(leader, 65536):
                told += more
        except OSError:  # the end of a terminal
            os.close(leader)
    assert process.returncode == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", told.decode()).splitlines()
    assert max(map(len, lines)) <= 60
    assert any(ID in line for line in lines)
