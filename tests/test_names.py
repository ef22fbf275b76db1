"""One word, one meaning: no two classes of the package share a name, but for the few listed here."""

from __future__ import annotations

import ast
from collections import defaultdict
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


def test_no_two_classes_share_a_name() -> None:
    places = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and not path.name.endswith("_pb2.py"):
                places[node.name].append(str(path.relative_to(SOURCES)))
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in SHARED} == {}
    assert [name for name in SHARED if len(places[name]) < 2] == []
