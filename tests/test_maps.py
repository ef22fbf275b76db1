"""The docstring of a package is its map: it names every module and package in it, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import raceway
from raceway.wires import WIRES

SOURCE = Path(raceway.__file__).parent
# The left column of a line of a map: names with commas, or folders with blanks, between them.
ENTRY = re.compile(r"^ *((?:[a-z_0-9]+/ {2,})+|[a-z_0-9]+/?(?:, [a-z_0-9]+/?)* {2,})\S")
WIRE_ROOMS = [SOURCE / "wires" / wire.name for wire in WIRES]


def packages() -> list[Path]:
    return sorted(file.parent for file in SOURCE.rglob("__init__.py"))


def contents(package: Path) -> set[str]:
    """Names of modules and packages; generated modules (`_pb2`) need no entry."""
    modules = {path.stem for path in package.glob("*.py")} - {"__init__"}
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    return {name for name in modules if not name.endswith("_pb2")} | folders


def doc(package: Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8"))) or ""


def entries(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if found := ENTRY.match(line):
            yield from re.findall(r"[a-z_0-9]+", found[1])


@pytest.mark.parametrize("package", packages(), ids=lambda path: path.relative_to(SOURCE.parent).as_posix())
def test_the_map_of_a_package_has_all_that_is_in_it(package: Path) -> None:
    missing = {name for name in contents(package) if not re.search(rf"\b{name}\b", doc(package))}
    assert missing == set(), f"name them in the docstring of {package / '__init__.py'}"


@pytest.mark.parametrize("package", packages(), ids=lambda path: path.relative_to(SOURCE.parent).as_posix())
def test_the_map_of_a_package_has_nothing_else(package: Path) -> None:
    unknown = [name for name in entries(doc(package)) if not list(package.glob(f"{name}*"))]
    assert unknown == []


def test_entries_are_read() -> None:
    assert list(entries("The room.\n\n  a, b_c   two, of them\nd/  e/   folders; f\nnot one  of them\n")) == [
        "a", "b_c", "d", "e",
    ]  # fmt: skip


@pytest.mark.parametrize("room", WIRE_ROOMS, ids=lambda path: path.name)
def test_the_readme_of_a_wire_names_files_that_exist(room: Path) -> None:
    text = (room / "README.md").read_text("utf-8")
    named = re.findall(r"\]\(([^)]+)\)", text) + re.findall(
        r"`((?:codec|listen|dial|client)/[a-z_/.]+|settings\.py)`", text
    )
    assert len(named) > 4
    assert [name for name in named if not (room / name).exists()] == []
