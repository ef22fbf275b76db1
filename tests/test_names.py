"""One word, one meaning: no two classes or type aliases of the package share a name, but for the few listed here.

A log event occurs once in the product, and a docstring begins with an imperative or a noun phrase.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent.parent / "src" / "raceway"
# The same thing seen from both ends: a client's users and the broker call it by the one word that there is for it.
SHARED = {
    "Consumer": "a consumer in the broker's table, and a client's iterator over what it is given",
    "Subscriber": "a receiver of published messages in the broker, and its row in an MB list",
    "Subscription": "a subscription in the broker's table, and a client's iterator over its messages",
    "SubscriptionRow": "a row of the broker's outcome, and the same row as an MB client decodes it",
    "TopicRow": "a row of the broker's list of topics, and one of MB's list",
}

LOGGING = {"debug", "info", "warning", "error", "exception", "critical"}
# Words with which a docstring would point at something else instead of naming its object.
OBLIQUE = {
    "and", "as", "but", "he", "if", "it", "its", "of", "one", "same", "so", "such", "that", "then", "there",
    "these", "they", "this", "those", "what", "whatever", "which", "who", "whoever", "whom", "whose",
}  # fmt: skip


def sources() -> dict[str, ast.Module]:
    """Modules of the package without the generated ones."""
    files = [path for path in sorted(SOURCES.rglob("*.py")) if not path.name.endswith("_pb2.py")]
    return {path.relative_to(SOURCES).as_posix(): ast.parse(path.read_text("utf-8")) for path in files}


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
    for path, tree in sources().items():
        for name in named(tree):
            places[name].append(path)
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in SHARED} == {}
    assert [name for name in SHARED if len(places[name]) < 2] == []


def test_classes_and_aliases_are_found() -> None:
    source = "class Able:\n    class Baker: ...\nCharlie = list[Able]\nDog: TypeAlias = 'Able'\n"
    source += "Easy = TypeVar('Easy')\nLIMIT = 1\nname = 2\n"
    assert list(named(ast.parse(source))) == ["Able", "Baker", "Charlie", "Dog"]


def events(tree: ast.Module) -> Iterator[str]:
    """Texts of log events. One with a hole is told by its source."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=method), args=[first, *_]) if method in LOGGING:
                yield from _texts(first)


def _texts(event: ast.expr) -> Iterator[str]:
    match event:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr():
            yield ast.unparse(event)
        case ast.IfExp(body=one, orelse=other):
            yield from (*_texts(one), *_texts(other))


def test_a_log_event_occurs_once() -> None:
    places = defaultdict(list)
    for path, tree in sources().items():
        for event in events(tree):
            places[event].append(path)
    assert len(places) > 100
    assert {event: found for event, found in places.items() if len(found) > 1} == {}


def test_log_events_are_found() -> None:
    source = "log.info('ready', port=1)\nlog().error('lost')\nself._log.warning(f'{a} gone')\n"
    source += "log.debug('on' if x else 'off')\nlog.bind('no event')\nlog.info(text)\n"
    assert list(events(ast.parse(source))) == ["ready", "lost", "f'{a} gone'", "on", "off"]


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, ast.get_docstring(node) or ""


def is_oblique(text: str) -> bool:
    words = [word.strip(".,;:`'\"") for word in text.lower().split()]
    return words[:2] == ["the", "same"] or not OBLIQUE.isdisjoint(words[:1])


def test_a_docstring_names_its_object() -> None:
    oblique = [
        f"{path}:{line} {text.splitlines()[0]}"
        for path, tree in sources().items()
        for line, text in docstrings(tree)
        if is_oblique(text)
    ]
    assert oblique == [], "begin with an imperative or a noun phrase"


@pytest.mark.parametrize("text", ["It flushes.", "The same, later.", "What is left.", "Whoever asks.", "Its name."])
def test_oblique_docstrings_are_found(text: str) -> None:
    assert is_oblique(text)


@pytest.mark.parametrize("text", ["", "Flush.", "The samples of a read.", "Whether it is open.", "A name."])
def test_others_are_not(text: str) -> None:
    assert not is_oblique(text)
