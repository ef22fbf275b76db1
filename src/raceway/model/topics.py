"""Names of topics, patterns over them, and matching.

A canonical name is common to all wires: letters and digits of any script in Unicode normal form C, `.`, `_` and `-`,
255 characters at most. Dots separate levels. A wire may allow less (`Wire.spells`).

A pattern is a name in which a whole level may be `+` (exactly one level) and the last level may be `#` (zero or more
levels). Matching ignores case. Names under `system.` and `raceway.` are the broker's own streams: a pattern matches
them only if its first level is that word itself, so `#` does not receive the audit stream.

`matches` states the rules in the simplest way and is the oracle of the tests; `PatternTrie` matches many patterns at
once.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Generic, TypeVar

from raceway.errors import NameInvalidError, NameReservedError

MAX_NAME_LENGTH = 255
RESERVED = ("system", "raceway")
# Streams of the bus itself: records of all messages, and of the log.
AUDIT_STREAM, LOG_STREAM = "system.message", "system.log"
ANY_LEVEL, ANY_TAIL = "+", "#"
# Topics of this Danube namespace are shared by all wires; only Danube can name those of others.
DEFAULT_NAMESPACE = "default"

V = TypeVar("V")


def canonical_name(text: str) -> str:
    """Return `text` in normal form C. Raises NameInvalidError if it is not a valid topic on any wire."""
    # Two spellings of the same characters (é as one code point or two) must name the same topic.
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
def parse_namespaced_topic(text: str) -> str:
    """Return the canonical name of `/namespace/topic`: the bare topic in namespace `default`, else the whole.

    Raises NameInvalidError. Dots are allowed in the topic only, because topics of other wires have them.
    """
    parts = text.split("/")
    if len(parts) != 3 or parts[0]:
        raise NameInvalidError(text, "it must have the form /namespace/topic")
    namespace, topic = parse_namespace(parts[1]), canonical_name(parts[2])
    return topic if namespace == DEFAULT_NAMESPACE else f"/{namespace}/{topic}"


def parse_namespace(text: str) -> str:
    """Return the name of a namespace in normal form C. Raises NameInvalidError."""
    name = canonical_name(text)
    if "." in name:
        raise NameInvalidError(text, "a namespace must not contain dots")
    return name


def namespaced_topic(name: str) -> str:
    """Return the name of a topic with its namespace, `/namespace/topic`."""
    return name if name.startswith("/") else f"/{DEFAULT_NAMESPACE}/{name}"


def namespace_of(name: str) -> str:
    """Return the Danube namespace of a topic."""
    return name.split("/", 2)[1] if name.startswith("/") else DEFAULT_NAMESPACE


def is_reserved(name: str) -> bool:
    """Return whether a name is reserved for the broker."""
    # The bare words `system` and `raceway`, without a dot, are ordinary names.
    if name.startswith("/"):
        return fold(namespace_of(name)) in RESERVED
    first, dot, _ = name.partition(".")
    return bool(dot) and fold(first) in RESERVED


def refuse_reserved(name: str) -> None:
    """Raise NameReservedError for a name that only the broker may publish to."""
    if is_reserved(name):
        raise NameReservedError(name)


def fold(name: str) -> str:
    """Return the form in which names that differ only in case are equal."""
    return name.casefold()


def has_wildcard(pattern: str) -> bool:
    """Return whether a pattern can match more than one topic."""
    return ANY_LEVEL in pattern or ANY_TAIL in pattern


def matches(pattern: str, topic: str) -> bool:
    """Return whether a pattern matches a topic, level by level."""
    if is_reserved(topic) and pattern[:1] in (ANY_LEVEL, ANY_TAIL):
        return False
    return _match_levels(fold(pattern).split("."), fold(topic).split("."))


def _match_levels(pattern: list[str], topic: list[str]) -> bool:
    if pattern == [ANY_TAIL]:
        return True
    if not pattern or not topic:
        return not pattern and not topic
    return pattern[0] in (ANY_LEVEL, topic[0]) and _match_levels(pattern[1:], topic[1:])


class _TrieNode(Generic[V]):
    """A level of the trie. `values` belong to patterns that end here, in order of adding."""

    __slots__ = ("children", "values")

    def __init__(self) -> None:
        self.children: dict[str, _TrieNode[V]] = {}
        self.values: dict[V, None] = {}


class PatternTrie(Generic[V]):
    """Patterns with values. All patterns that match a topic are found in one walk over its levels."""

    def __init__(self) -> None:
        self._root: _TrieNode[V] = _TrieNode()

    def add(self, pattern: str, value: V) -> None:
        """Add a value, which must be hashable, to a pattern. A repeat is a no-op."""
        node = self._root
        for level in fold(pattern).split("."):
            node = node.children.setdefault(level, _TrieNode())
        node.values[value] = None

    def remove(self, pattern: str, value: V) -> bool:
        """Remove a value from exactly this pattern; return False if it was not there."""
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
        # Empty nodes go too. Otherwise subscribing to ever new names would fill the memory.
        while levels and not path[-1].values and not path[-1].children:
            path.pop()
            del path[-1].children[levels.pop()]
        return True

    def find(self, topic: str) -> list[V]:
        """Return the values of all patterns that match a topic; a value is repeated for each of its patterns."""
        found: list[V] = []
        # In a reserved name the first level must not be matched by a wildcard.
        wild = not is_reserved(topic)
        nodes = [self._root]
        for level in fold(topic).split("."):
            following: list[_TrieNode[V]] = []
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
            # `#` also matches zero levels.
            if ANY_TAIL in node.children:
                found += node.children[ANY_TAIL].values
        return found

    def __bool__(self) -> bool:
        return bool(self._root.children)
