"""A `Protocol` class stands for several implementations, or for one that its module may not import.

Implementations are found by their members, in the source: most of them do not name the protocol.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import raceway

SOURCE = Path(raceway.__file__).parent

# Protocols with one implementation in the package, and why they are there.
WITH_ONE = {
    "Clock": "the event loops of asyncio and uvloop, and the one that tests move by hand",
    "Dice": "the random module of Python, and the seeded one of the simulation",
    "Lane": "a partition of Kafka; the one in memory, with its delays and lost answers, is in the tests",
    "RequestStream": "implemented in the room of a wire, which net may not import",
    "Sleep": "the timer handles of event loops",
    "Step": "implemented in a module that imports this one",
    "StoredTables": "implemented in a module that imports this one",
    "WaitingCall": "implemented in a module that imports this one",
}


class Kind(NamedTuple):
    """A class of the source: its bases, as they are written, and its members, with the attributes that methods set."""

    name: str
    bases: list[str]
    members: set[str]

    @property
    def is_protocol(self) -> bool:
        return any(base in ("Protocol", "typing.Protocol") for base in self.bases)


def kinds() -> list[Kind]:
    """All classes of the package."""
    parsed = (ast.parse(path.read_text("utf-8")) for path in SOURCE.rglob("*.py"))
    found = (node for tree in parsed for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return [Kind(node.name, [_base(base) for base in node.bases], set(_members(node))) for node in found]


def _base(base: ast.expr) -> str:
    return ast.unparse(base.value if isinstance(base, ast.Subscript) else base)


def _members(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement.name
        elif isinstance(statement, ast.AnnAssign):
            yield ast.unparse(statement.target)
        elif isinstance(statement, ast.Assign):
            yield from map(ast.unparse, statement.targets)
    for attribute in ast.walk(node):
        if isinstance(attribute, ast.Attribute) and isinstance(attribute.ctx, ast.Store):
            yield attribute.attr


def all_members(kind: Kind, known: list[Kind]) -> set[str]:
    """Members of a class and of its bases."""
    inherited = (all_members(each, known) for each in known if each.name in kind.bases and each != kind)
    return kind.members.union(*inherited)


def test_a_protocol_has_several_implementations_or_a_reason() -> None:
    known = kinds()
    implementing = [all_members(kind, known) for kind in known if not kind.is_protocol]
    protocols = {kind.name: all_members(kind, known) for kind in known if kind.is_protocol}
    lonely = {name for name, wanted in protocols.items() if sum(wanted <= members for members in implementing) < 2}
    assert lonely == set(WITH_ONE)
