"""One word, one meaning: no two classes or type aliases of the package share a name, but for the few listed here."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parent.parent / "src" / "raceway"
# The same thing seen from both ends: a client's users and the broker call it by the one word that there is for it.
SHARED = {
    "Consumer": "a consumer in the broker's table, and a client's iterator over what it is given",
    "Subscriber": "a receiver of published messages in the broker, and its row in an MB list",
    "Subscription": "a subscription in the broker's table, and a client's iterator over its messages",
    "SubscriptionRow": "a row of the broker's outcome, and the same row as an MB client decodes it",
    "TopicRow": "a row of the broker's list of topics, and one of MB's list",
}


def named(tree: ast.Module) -> Iterator[str]:
    """Classes anywhere, and aliases at the top: named like classes, not made by a call as type variables are."""
    yield from (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and not isinstance(node.value, ast.Call):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (target.id for target in targets if isinstance(target, ast.Name))
            yield from (name for name in names if name[0].isupper() and not name.isupper())


def test_no_two_classes_or_aliases_share_a_name() -> None:
    places = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        if not path.name.endswith("_pb2.py"):
            for name in named(ast.parse(path.read_text("utf-8"))):
                places[name].append(str(path.relative_to(SOURCES)))
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in SHARED} == {}
    assert [name for name in SHARED if len(places[name]) < 2] == []


def test_classes_and_aliases_are_found() -> None:
    source = "class Able:\n    class Baker: ...\nCharlie = list[Able]\nDog: TypeAlias = 'Able'\n"
    source += "Easy = TypeVar('Easy')\nLIMIT = 1\nname = 2\n"
    assert list(named(ast.parse(source))) == ["Able", "Baker", "Charlie", "Dog"]
