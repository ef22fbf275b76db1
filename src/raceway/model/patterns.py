"""Seneca's patterns: which of them a message matches, and what they are called on the bus.

A pattern is a few keys with values, `cmd:sum,role:math`; values compare as text. Which pattern wins is not "most keys":
keys are tested in alphabetical order, the first branch that matches is followed, deeper matches on it override
shallower ones, and other branches are tried only while nothing has been found. `PatternRouter` is that rule as npm
`seneca` has it, order of adding and globs included, because a service must not be reached by other messages through
the bus than it would be directly. (One thing is not copied: there a value such as `constructor` is taken for a branch
that every object has, and then hides globs.)

A pin is a pattern by which a service is attached. Its name on the bus is the values of its keys joined by dots, the
keys in the order `sys role plugin base area aim cmd`, then alphabetical: `role:math,cmd:sum` is `math.sum`. A value `*`
is one level: `role:math,cmd:*` is the pattern `math.+` over topics. What cannot be spelled so needs a name given to it.

Names of pins may overlap: `plugin:math,cmd:*` is `math.+`, which covers `math.sum`. Messages of Seneca are told apart
by their keys, so the router decides; messages of other wires have nothing but the name (`PinTable.maybe_named`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeAlias, TypeVar

from raceway.errors import NameInvalidError, PinTakenError
from raceway.model.topics import ANY_LEVEL, MAX_NAME_LENGTH, canonical_name, fold, refuse_reserved

V = TypeVar("V")
Pattern: TypeAlias = dict[str, str]
Look: TypeAlias = Callable[[str], str]
MaybeLook: TypeAlias = Callable[[str], str | None]

KEY_ORDER = ("sys", "role", "plugin", "base", "area", "aim", "cmd")
# Actions every Seneca instance has for itself. They are never exposed to the network.
_INTERNAL_ROLES, _INTERNAL_SYSTEM = ("seneca", "transport"), "seneca"
INTERNAL_KEYS = ("role", "sys")

ANY_VALUE = "*"
_GLOB = re.compile(r"[*?]")
_GLOB_PIECE = re.compile(r"\*\*|\*\?|\*|\?|[^*?]+")
_ESCAPED = {"**": "*", "*?": "?"}


class Unmatchable(str):
    """Text of a value that is not there: it equals a literal of that text, but no glob matches it."""

    __slots__ = ()


class Compound(str):
    """Text of an array or object: every glob matches it."""

    __slots__ = ()


MISSING, NULL = Unmatchable("undefined"), Unmatchable("null")


def alphabetical(text: str) -> bytes:
    """JavaScript's order of texts, by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def canonical_text(pattern: Mapping[str, str]) -> str:
    """`role:math,cmd:sum` in any order is `cmd:sum,role:math`. Pairs are sorted, not keys: `a1:x,a:x`."""
    return ",".join(sorted((f"{key}:{value}" for key, value in pattern.items() if "$" not in key), key=alphabetical))


def is_internal(look: Look) -> bool:
    """Would a Seneca instance take this message for one of its own?"""
    return look("role") in _INTERNAL_ROLES or look("sys") == _INTERNAL_SYSTEM


# ---- globs ----------------------------------------------------------------------------------------------------------


def is_glob(value: str) -> bool:
    return _GLOB.search(value) is not None


def compile_glob(glob: str) -> Callable[[str], bool]:
    """`*` any run, `?` one UTF-16 unit. Parts between stars are found at their first place, and that is final
    (an atomic group), so no text can make the search backtrack."""
    parts = [""]
    for piece in _GLOB_PIECE.findall(_units(glob)):
        if piece == "*":
            parts.append("")
        else:
            parts[-1] += "." if piece == "?" else re.escape(_ESCAPED.get(piece, piece))
    first, *middle = parts
    last = ".*" + middle.pop() if middle else ""
    matching = re.compile(first + "".join(f"(?>.*?{part})" for part in middle) + last, re.DOTALL).fullmatch
    return lambda text: matching(_units(text)) is not None


def _units(text: str) -> str:
    """One character per UTF-16 unit, as a pattern of JavaScript counts them."""
    if not text or max(text) <= "\uffff":
        return text
    encoded = text.encode("utf-16-le", "surrogatepass")
    return "".join(chr(encoded[at] | encoded[at + 1] << 8) for at in range(0, len(encoded), 2))


# ---- the router -----------------------------------------------------------------------------------------------------


class _Node(Generic[V]):
    """Tests one key. `values` is empty or the one value of the pattern that ends here."""

    __slots__ = ("globs", "key", "literals", "order", "star", "values")

    def __init__(self) -> None:
        self.key: str | None = None
        self.order = b""
        self.literals: dict[str, _Node[V]] = {}
        self.globs: list[tuple[str, Callable[[str], bool], _Node[V]]] = []
        self.star: _Node[V] | None = None
        self.values: list[V] = []

    def test(self, key: str) -> None:
        self.key, self.order = key, alphabetical(key)

    def child(self, value: str) -> _Node[V]:
        """Made if it is new."""
        if not is_glob(value):
            return self.literals.setdefault(value, _Node())
        for glob, _, node in self.globs:
            if glob == value:
                return node
        self.globs.append((value, compile_glob(value), _Node()))
        return self.globs[-1][2]

    def step_aside(self, key: str) -> None:
        """Another key is tested here; what was tested before is tested when that finds nothing."""
        aside: _Node[V] = _Node()
        aside.key, aside.order, aside.star = self.key, self.order, self.star
        aside.literals, aside.globs = self.literals, self.globs
        self.test(key)
        self.literals, self.globs, self.star = {}, [], aside

    def follow(self, text: str) -> _Node[V] | None:
        node = self.literals.get(text)
        if node is not None:
            return node
        return next((child for _, matching, child in self.globs if _matches_glob(text, matching)), None)


class PatternRouter(Generic[V]):
    """Patterns with one value each, and the one that a message matches."""

    def __init__(self) -> None:
        self._top: _Node[V] = _Node()
        self._values: dict[str, tuple[Pattern, V]] = {}

    def add(self, pattern: Mapping[str, str], value: V) -> None:
        """The same pattern again replaces the value and keeps its place."""
        self._values[_exact(pattern)] = (dict(pattern), value)
        self._insert(pattern, value)

    def _insert(self, pattern: Mapping[str, str], value: V) -> None:
        node = self._top
        for key in sorted(pattern, key=alphabetical):
            node = _node_testing(node, key).child(pattern[key])
        node.values = [value]

    def remove(self, pattern: Mapping[str, str]) -> bool:
        """As if it had never been added: a branch left behind would still lead messages astray."""
        if self._values.pop(_exact(pattern), None) is None:
            return False
        self._top = _Node()
        for each, value in self._values.values():
            self._insert(each, value)
        return True

    def maybe_get(self, pattern: Mapping[str, str]) -> V | None:
        """The value of exactly this pattern."""
        known = self._values.get(_exact(pattern))
        return None if known is None else known[1]

    def maybe_find(self, look: Look) -> V | None:
        """`look` gives a message's value of a key as text."""
        node: _Node[V] | None = self._top
        found, aside = self._top.values, []
        while node is not None:
            child = None if node.key is None else node.follow(look(node.key))
            if child is not None:
                if node.star is not None:
                    aside.append(node.star)
                found = child.values or found
                node = child
            else:
                node = node.star if node.key is not None else None
            if node is None and not found and aside:
                node = aside.pop()
        return found[0] if found else None

    def __iter__(self) -> Iterator[tuple[Pattern, V]]:
        """In order of adding."""
        return iter(self._values.values())

    def __len__(self) -> int:
        return len(self._values)


def _node_testing(node: _Node[V], key: str) -> _Node[V]:
    """Where this key is tested on the way through nodes that test others; made if there is none."""
    order = alphabetical(key)
    while node.key is not None and node.key != key:
        if order < node.order:
            node.step_aside(key)
            return node
        if node.star is None:
            node.star = _Node()
        node = node.star
    if node.key is None:
        node.test(key)
    return node


def _exact(pattern: Mapping[str, str]) -> str:
    """A text that no other pattern has; in a canonical text a comma may be part of a value."""
    return repr(sorted(pattern.items()))


# ---- names ----------------------------------------------------------------------------------------------------------


class Pin:
    """A pattern and its name: `topic` has `+` for a level that may be anything. Not changed once it is made."""

    __slots__ = ("_folded", "_globs", "_literals", "_stars", "is_named", "pattern", "text", "topic")

    def __init__(self, pattern: Pattern, topic: str, is_named: bool) -> None:
        self.text, self.pattern, self.topic, self.is_named = canonical_text(pattern), pattern, topic, is_named
        self._folded = fold(topic).split(".")
        self._literals = {key: value for key, value in pattern.items() if not is_glob(value)}
        self._globs = {key: compile_glob(value) for key, value in pattern.items() if is_glob(value)}
        # Keys whose value is a level of its own, and which level.
        self._stars = [] if is_named else _stars(pattern)

    @classmethod
    def of(cls, pattern: Mapping[str, str], name: str | None = None) -> Pin:
        """`name` is one given to the pin. Raises NameInvalidError and NameReservedError."""
        ordered = {key: pattern[key] for key in sorted(pattern, key=_in_order)}
        topic = canonical_name(name) if name is not None else _name_of(ordered)
        refuse_reserved(topic)
        return cls(ordered, topic, name is not None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pin) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash((self.text, self.topic))

    @property
    def _identity(self) -> tuple[Pattern, str, bool]:
        return self.pattern, self.topic, self.is_named

    def matches(self, look: Look) -> bool:
        """Does a message say all that the pattern wants? Which of several that match wins is for the router to say."""
        if any(look(key) != value for key, value in self._literals.items()):
            return False
        return all(_matches_glob(look(key), matching) for key, matching in self._globs.items())

    def topic_for(self, look: Look) -> str:
        """The topic of a message that matches. Raises NameInvalidError where a value cannot be a level."""
        if not self._stars:
            return self.topic
        levels = self.topic.split(".")
        for key, level in self._stars:
            levels[level] = _single_level(look(key))
        return ".".join(levels)

    def maybe_keys(self, topic: str) -> Pattern | None:
        """What a message of that topic must say to match; None if the topic is not this pin's."""
        if not self._stars:
            return self._literals if topic == self.topic or fold(topic).split(".") == self._folded else None
        levels = topic.split(".")
        if len(levels) != len(self._folded) or not all(map(_is_level, self._folded, levels)):
            return None
        return self._literals | {key: levels[level] for key, level in self._stars}

    @property
    def open_levels(self) -> list[bool]:
        """Which levels of the topic may be anything. Of two pins that cover a topic, the lesser list says more."""
        return [level == ANY_LEVEL for level in self._folded]


def _matches_glob(text: str, matching: Callable[[str], bool]) -> bool:
    return not isinstance(text, Unmatchable) and (isinstance(text, Compound) or matching(text))


def _name_of(pattern: Pattern) -> str:
    text = canonical_text(pattern)
    if not pattern:
        raise NameInvalidError(text, "the empty pattern has no name of its own; one must be configured for it")
    topic = ".".join([_level(text, value) for value in pattern.values()])
    if len(topic) > MAX_NAME_LENGTH:
        raise NameInvalidError(topic, f"it has {len(topic)} characters, {MAX_NAME_LENGTH} are allowed")
    return topic


def _stars(pattern: Pattern) -> list[tuple[str, int]]:
    stars, level = [], 0
    for key, value in pattern.items():
        if value == ANY_VALUE:
            stars.append((key, level))
        level += value.count(".") + 1
    return stars


def _in_order(key: str) -> tuple[int, bytes]:
    return (KEY_ORDER.index(key) if key in KEY_ORDER else len(KEY_ORDER), alphabetical(key))


def _level(text: str, value: str) -> str:
    if value == ANY_VALUE:
        return ANY_LEVEL
    if is_glob(value):
        raise NameInvalidError(text, f"the glob {value!r} is more than one level; a name must be configured for it")
    return canonical_name(value)


def _is_level(folded: str, level: str) -> bool:
    return folded in (ANY_LEVEL, level) or folded == fold(level)


def _single_level(value: str) -> str:
    if value.isascii() and value.isalnum():
        return value
    level = canonical_name(value)
    if "." in level:
        raise NameInvalidError(value, "it stands for one level, and a dot would make it two")
    return level


def maybe_topic(text: MaybeLook) -> str | None:
    """The topic of a message that no pin matches: those of the seven keys that are text; None if none is.

    Raises NameInvalidError and NameReservedError.
    """
    values = [value for key in KEY_ORDER if (value := text(key)) is not None]
    if not values:
        return None
    topic = canonical_name(".".join([canonical_name(value) for value in values]))
    refuse_reserved(topic)
    return topic


class PinTable(Generic[V]):
    """Attached pins: found by message, told apart by name. `changes` counts what was added and removed."""

    def __init__(self) -> None:
        self.changes = 0
        self._router: PatternRouter[tuple[Pin, V]] = PatternRouter()
        self._names: dict[str, Pin] = {}

    def add(self, pin: Pin, value: V) -> None:
        """The same pin again replaces the value. Raises PinTakenError if another pin has its name, or the same pattern
        has another."""
        self.check([pin])
        self.changes += 1
        self._names[fold(pin.topic)] = pin
        self._router.add(pin.pattern, (pin, value))

    def check(self, pins: Iterable[Pin]) -> None:
        """Could all of them be added? Raises PinTakenError for the first that could not, also because of another one
        of them."""
        names: dict[str, Pin] = {}
        patterns: dict[str, Pin] = {}
        for pin in pins:
            name, pattern = fold(pin.topic), _exact(pin.pattern)
            known = self._router.maybe_get(pin.pattern)
            holders = (self._names.get(name), known and known[0], names.get(name), patterns.get(pattern))
            for holder in holders:
                if holder is not None and holder != pin:
                    raise PinTakenError(pin.text, pin.topic, holder.text, holder.topic)
            names[name] = patterns[pattern] = pin

    def remove(self, pin: Pin) -> bool:
        """False if it was not there."""
        if self.maybe_get(pin) is None:
            return False
        self.changes += 1
        del self._names[fold(pin.topic)]
        return self._router.remove(pin.pattern)

    def maybe_get(self, pin: Pin) -> V | None:
        known = self._router.maybe_get(pin.pattern)
        return known[1] if known is not None and known[0] == pin else None

    def maybe_attached(self, pattern: Mapping[str, str]) -> Pin | None:
        """The pin of this very pattern, whatever its name."""
        known = self._router.maybe_get(pattern)
        return None if known is None else known[0]

    def maybe_find(self, look: Look) -> tuple[Pin, V] | None:
        return self._router.maybe_find(look)

    def maybe_named(self, topic: str) -> Pin | None:
        """Whom a message of another wire means by this topic: the pin whose name says most of it, from the left. Where
        the router gives the message that is made for this pin to another one of that name, it means that one."""
        covering = [pin for pin, _ in self if pin.maybe_keys(topic) is not None]
        if len(covering) < 2:
            return covering[0] if covering else None
        nearest = min(covering, key=lambda pin: pin.open_levels)
        keys = nearest.maybe_keys(topic) or {}
        winner = self.maybe_find(lambda key: keys.get(key, MISSING))
        return nearest if winner is None or winner[0] not in covering else winner[0]

    def maybe_missed(self, topic: str, look: Look) -> tuple[Pin, V] | None:
        """Of the pins that this topic names, the one that a message matches although the router has not found it: the
        router does not come back from a branch that another pin has led it into."""
        missed = [entry for entry in self if entry[0].matches(look) and entry[0].maybe_keys(topic) is not None]
        return min(missed, key=lambda entry: entry[0].open_levels, default=None)

    def __iter__(self) -> Iterator[tuple[Pin, V]]:
        """In order of adding."""
        return (entry for _, entry in self._router)

    def __len__(self) -> int:
        return len(self._router)
