"""Names of topics, patterns over them, and who matches what.

A canonical name is what every wire shares: letters and digits of any script in Unicode normal form C, `.`, `_` and
`-`, 255 characters at most. Dots part a name into levels. A wire may spell less: MB knows ASCII letters and digits
only, each level starting with a letter, five levels at most.

A pattern is a name in which a whole level may be `+` (exactly one level) and the last level may be `#` (zero or more
levels). Matching disregards case. Names under `system.` and `raceway.` are the broker's own streams: a pattern sees
them only if its first level is that very word, so `#` does not receive the audit stream.

`matches` says the rules in the plainest way and is the oracle; `PatternTrie` answers the same question for many
patterns at once.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Generic, TypeVar

from raceway.errors import NameInvalidError, NameReservedError

MAX_NAME_LENGTH = 255
MAX_MB_LEVELS = 5
RESERVED = ("system", "raceway")
ANY_LEVEL, ANY_TAIL = "+", "#"
# Topics of this Danube namespace are those of all wires; those of others only Danube can spell.
DEFAULT_NAMESPACE = "default"

# Possessive quantifiers: a name comes from the network and must not be able to make the search backtrack.
_mb_topic = re.compile(r"[A-Za-z][A-Za-z0-9]*+(?:\.[A-Za-z][A-Za-z0-9]*+)*+").fullmatch
_mb_pattern = re.compile(r"(?:(?:[A-Za-z][A-Za-z0-9]*+|\+)\.)*+(?:[A-Za-z][A-Za-z0-9]*+|\+|#)").fullmatch

V = TypeVar("V")


def canonical_name(text: str) -> str:
    """`text` in normal form C. Raises NameInvalidError if it cannot be a topic on any wire."""
    name = unicodedata.normalize("NFC", text)
    if not name:
        raise NameInvalidError(text, "it is empty")
    if len(name) > MAX_NAME_LENGTH:
        raise NameInvalidError(text, f"it has {len(name)} characters, {MAX_NAME_LENGTH} are allowed")
    for character in name:
        if character not in "._-" and not _is_letter_or_digit(character):
            raise NameInvalidError(text, f"{character!r} is not allowed, only letters, digits, '.', '_' and '-' are")
    return name


def _is_letter_or_digit(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] == "L" or category == "Nd"


@lru_cache(maxsize=8192)  # every message and every acknowledgement names its topic
def parse_danube_topic(text: str) -> str:
    """The topic that Danube calls `/namespace/topic`: the bare name in namespace `default`, else the whole of it.

    Raises NameInvalidError. Dots may stand in the topic only: other wires' topics have them.
    """
    parts = text.split("/")
    if len(parts) != 3 or parts[0]:
        raise NameInvalidError(text, "a topic is named /namespace/topic")
    namespace, topic = parse_namespace(parts[1]), canonical_name(parts[2])
    return topic if namespace == DEFAULT_NAMESPACE else f"/{namespace}/{topic}"


def parse_namespace(text: str) -> str:
    """The name of a Danube namespace in normal form C. Raises NameInvalidError."""
    name = canonical_name(text)
    if "." in name:
        raise NameInvalidError(text, "the name of a namespace has no dots")
    return name


def danube_topic(name: str) -> str:
    """What Danube calls this topic."""
    return name if name.startswith("/") else f"/{DEFAULT_NAMESPACE}/{name}"


def namespace_of(name: str) -> str:
    """The Danube namespace of a topic."""
    return name.split("/", 2)[1] if name.startswith("/") else DEFAULT_NAMESPACE


def is_reserved(name: str) -> bool:
    """Does the name belong to the broker? The bare words `system` and `raceway` are ordinary names."""
    if name.startswith("/"):
        return fold(namespace_of(name)) in RESERVED
    first, dot, _ = name.partition(".")
    return bool(dot) and fold(first) in RESERVED


def refuse_reserved(name: str) -> None:
    """Raises NameReservedError for a name that only the broker may publish to."""
    if is_reserved(name):
        raise NameReservedError(name)


def fold(name: str) -> str:
    """The form in which names that differ only in case are equal."""
    return name.casefold()


def is_mb_topic(text: str) -> bool:
    """Topic rules of MB headers. The whole text must match: a final newline is not forgiven."""
    return _has_mb_size(text) and _mb_topic(text) is not None


def is_mb_pattern(text: str) -> bool:
    """Subscription rules of MB headers: an MB topic in which wildcards may stand; they count as levels."""
    return _has_mb_size(text) and _mb_pattern(text) is not None


def _has_mb_size(text: str) -> bool:
    return len(text) <= MAX_NAME_LENGTH and text.count(".") < MAX_MB_LEVELS


def has_wildcard(pattern: str) -> bool:
    return ANY_LEVEL in pattern or ANY_TAIL in pattern


def matches(pattern: str, topic: str) -> bool:
    """Does the pattern see the topic? One pair at a time, level by level."""
    if is_reserved(topic) and pattern[:1] in (ANY_LEVEL, ANY_TAIL):
        return False
    return _match_levels(fold(pattern).split("."), fold(topic).split("."))


def _match_levels(pattern: list[str], topic: list[str]) -> bool:
    if pattern == [ANY_TAIL]:
        return True
    if not pattern or not topic:
        return not pattern and not topic
    return pattern[0] in (ANY_LEVEL, topic[0]) and _match_levels(pattern[1:], topic[1:])


class _Node(Generic[V]):
    """A level of the trie. `values` are of patterns that end here, in order of arrival."""

    __slots__ = ("children", "values")

    def __init__(self) -> None:
        self.children: dict[str, _Node[V]] = {}
        self.values: dict[V, None] = {}


class PatternTrie(Generic[V]):
    """Patterns with values; all that match a topic are found in one walk over its levels."""

    def __init__(self) -> None:
        self._root: _Node[V] = _Node()

    def add(self, pattern: str, value: V) -> None:
        """A repeat changes nothing. Values must be hashable."""
        node = self._root
        for level in fold(pattern).split("."):
            node = node.children.setdefault(level, _Node())
        node.values[value] = None

    def remove(self, pattern: str, value: V) -> bool:
        """Takes away what `add` put under exactly this pattern; False if it was not there."""
        path = [self._root]
        levels = fold(pattern).split(".")
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return False
            path.append(child)
        if value not in path[-1].values:
            return False
        del path[-1].values[value]
        self._prune(path, levels)
        return True

    @staticmethod
    def _prune(path: list[_Node[V]], levels: list[str]) -> None:
        """Branches that lead nowhere go, or subscribing to ever new names would fill the memory."""
        while levels and not path[-1].values and not path[-1].children:
            path.pop()
            del path[-1].children[levels.pop()]

    def find(self, topic: str) -> list[V]:
        """Values of all patterns that match; a value stands once for each of them."""
        found: list[V] = []
        wild = not is_reserved(topic)
        nodes = [self._root]
        for level in fold(topic).split("."):
            following: list[_Node[V]] = []
            for node in nodes:
                children = node.children
                if level in children:
                    following.append(children[level])
                if wild:
                    if ANY_LEVEL in children:
                        following.append(children[ANY_LEVEL])
                    if ANY_TAIL in children:
                        found += children[ANY_TAIL].values
            wild = True
            nodes = following
        for node in nodes:
            found += node.values
            if ANY_TAIL in node.children:
                found += node.children[ANY_TAIL].values
        return found

    def __bool__(self) -> bool:
        return bool(self._root.children)
