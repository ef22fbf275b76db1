"""A wire's name is in the code of its own room, and otherwise in the list of wires alone: everything else asks the
record (`raceway.wires.wire`).

Names of Python and texts count; docstrings, comments, help texts and descriptions of settings do not: those are about
wires, too. What is still named elsewhere is listed here, with the reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from raceway.wires import WIRES

ROOT = Path(__file__).parent.parent / "src" / "raceway"
NAMES = {wire.name for wire in WIRES}
# Rooms, the list, and the demo, which is a story of all four.
EXEMPT = ("wires/__init__.py", *(f"wires/{name}/" for name in NAMES), "demo/")

TYPED = "type checkers need the class of each wire's client spelled out, and users import them from here"
PUBLISHED = "a name that users know: of a setting, a metric or an error, or a text of one"
STORED = "the column `wire` of stored rows, and attributes of the rows of a wire, which the broker reads"
REASONS = {
    "client/__init__.py": TYPED,
    "client/sync.py": TYPED,
    "config/reading.py": "the old name of a setting, still read",
    "cli/bench.py": "benchmarks are named after what they measure",
    "cli/words.py": "the end of help texts",
    "web/metrics.py": PUBLISHED,
    "errors.py": PUBLISHED,
    "model/document.py": PUBLISHED,
    "model/envelope.py": STORED,
    "model/wires.py": STORED,
}


def words(name: str) -> Iterator[str]:
    """Parts of a Python name: `MbClient`, `danube_admin` and `ZBUS` have the name of a wire in them."""
    for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name):
        yield part.lower()


def named(source: str) -> Iterator[tuple[int, str]]:
    """Places where code names a wire, with the line."""
    tree = ast.parse(source)
    told = set(_told(tree))
    for node in ast.walk(tree):
        for name in _names(node):
            if NAMES & set(words(name)):
                yield node.lineno, name  # type: ignore[attr-defined]
        if isinstance(node, ast.Constant) and node not in told:
            text = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
            if isinstance(text, str) and NAMES & set(re.findall(r"[a-z]+", text)):
                yield node.lineno, text


def _names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.alias(name=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ImportFrom(module=str(name)):
            yield name


def _told(tree: ast.Module) -> Iterator[ast.Constant]:
    """Texts for people: docstrings, help texts, descriptions of settings and metrics."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value
        if isinstance(node, ast.keyword) and node.arg in ("help", "description"):
            yield from (each for each in ast.walk(node.value) if isinstance(each, ast.Constant))
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Annotated":
            # The help of an option or argument (`cli/options.py`): the last text, after the option itself.
            said = [each for each in ast.iter_child_nodes(node.slice) if isinstance(each, ast.Constant)]
            yield from [each for each in said if isinstance(each.value, str)][-1:]


def files() -> dict[str, str]:
    found = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in sorted(ROOT.rglob("*.py"))}
    return {name: source for name, source in found.items() if not name.startswith(EXEMPT)}


def test_only_the_list_names_a_wire() -> None:
    wrong = {name: list(named(source)) for name, source in files().items() if name not in REASONS}
    assert {name: found for name, found in wrong.items() if found} == {}, "ask the record of the wire instead"


@pytest.mark.parametrize("name", sorted(REASONS))
def test_exceptions_are_needed(name: str) -> None:
    assert list(named(files()[name])), "it names no wire any more: take it off the list"


@pytest.mark.parametrize(
    "code",
    [
        "x = 'mb'",
        "x = b'zbus'",
        "f(MbClient)",
        "a.danube_admin",
        "import x.seneca",
        "ZBUS = 1",
        "Annotated[str, '--mb', 'x']",
    ],
)
def test_names_are_found(code: str) -> None:
    assert list(named(code))


@pytest.mark.parametrize(
    "code",
    ['"""Of MB."""', "f(help='over zbus')", "number = combined", "x = 'thumb'", "# mb", "Annotated[int, '-x', 'zbus']"],
)
def test_other_things_are_not(code: str) -> None:
    assert not list(named(code))
