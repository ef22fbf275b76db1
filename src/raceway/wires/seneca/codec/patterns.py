"""Seneca's patterns: the routing of messages by their keys, and the names of patterns on the bus.

A pattern is a set of keys with values, `cmd:sum,role:math`; values are compared as text. The winner is not the pattern
with most keys: keys are tested in alphabetical order, the first branch that matches is followed, deeper matches on it
override shallower ones, and other branches are tried only while nothing has been found. `PatternRouter` follows that
rule as npm `seneca` does, order of adding and globs included, because a service must get the same messages through the
bus as directly. (One thing is not copied: in JavaScript a value such as `constructor` is found as a property of every
object, and then hides globs.)

A pin is the pattern of an attached service. Its name on the bus is the values of its keys joined by dots, with the keys
in the order `sys role plugin base area aim cmd`, then alphabetical: `role:math,cmd:sum` is `math.sum`. A value `*` is
one level: `role:math,cmd:*` is the pattern `math.+` over topics. A pin whose values do not make a valid name needs one
in the settings.

Names of pins may overlap: `plugin:math,cmd:*` is `math.+`, which matches `math.sum`. Seneca's messages are routed by
their keys; messages of other wires have only the name (`PinTable.maybe_named`).
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
# Actions that every Seneca instance has for itself; they must never be reachable from the network.
_INTERNAL_ROLES, _INTERNAL_SYSTEM = ("seneca", "transport"), "seneca"
INTERNAL_KEYS = ("role", "sys")

ANY_VALUE = "*"
_GLOB = re.compile(r"[*?]")
_GLOB_PIECE = re.compile(r"\*\*|\*\?|\*|\?|[^*?]+")
_ESCAPED = {"**": "*", "*?": "?"}


class Unmatchable(str):
    """The text of an absent value: it equals a literal with that text, but no glob matches it."""

    __slots__ = ()


class Compound(str):
    """The text of an array or object: every glob matches it."""

    __slots__ = ()


MISSING, NULL = Unmatchable("undefined"), Unmatchable("null")


def alphabetical(text: str) -> bytes:
    """Return a sort key for JavaScript's order of strings, by UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def canonical_text(pattern: Mapping[str, str]) -> str:
    """Return the canonical text of a pattern: `role:math,cmd:sum` in any order is `cmd:sum,role:math`."""
    # Pairs are sorted, not keys, as in npm `seneca`: `a1:x` comes before `a:x`.
    return ",".join(sorted((f"{key}:{value}" for key, value in pattern.items() if "$" not in key), key=alphabetical))


def is_internal(look: Look) -> bool:
    """Return whether a message would reach an internal action of a Seneca instance."""
    return look("role") in _INTERNAL_ROLES or look("sys") == _INTERNAL_SYSTEM


# ---- globs ----------------------------------------------------------------------------------------------------------


def is_glob(value: str) -> bool:
    """Return whether a value has wildcards."""
    return _GLOB.search(value) is not None


def compile_glob(glob: str) -> Callable[[str], bool]:
    """Compile a glob: `*` is any text, `?` one UTF-16 code unit."""
    # Parts between stars are matched at their first place, in atomic groups: no text can make the search backtrack.
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
    """Return a text with one character per UTF-16 code unit, as JavaScript's patterns count them."""
    if not text or max(text) <= "\uffff":
        return text
    encoded = text.encode("utf-16-le", "surrogatepass")
    return "".join(chr(encoded[at] | encoded[at + 1] << 8) for at in range(0, len(encoded), 2))


# ---- the router -----------------------------------------------------------------------------------------------------


class _Node(Generic[V]):
    """A test of one key. `values` has the value of the pattern that ends here, if any."""

    __slots__ = ("globs", "key", "literals", "order", "star", "values")

    def __init__(self) -> None:
        self.key: str | None = None
        self.order = b""
        self.literals: dict[str, _Node[V]] = {}
        self.globs: list[tuple[str, Callable[[str], bool], _Node[V]]] = []
        self.star: _Node[V] | None = None
        self.values: list[V] = []

    def test(self, key: str) -> None:
        """Set the key that this node tests."""
        self.key, self.order = key, alphabetical(key)

    def child(self, value: str) -> _Node[V]:
        """Return the child for a value or glob, creating it if needed."""
        if not is_glob(value):
            return self.literals.setdefault(value, _Node())
        for glob, _, node in self.globs:
            if glob == value:
                return node
        self.globs.append((value, compile_glob(value), _Node()))
        return self.globs[-1][2]

    def step_aside(self, key: str) -> None:
        """Test another key here; the present test moves to `star`, which is tried when that key matches nothing."""
        aside: _Node[V] = _Node()
        aside.key, aside.order, aside.star = self.key, self.order, self.star
        aside.literals, aside.globs = self.literals, self.globs
        self.test(key)
        self.literals, self.globs, self.star = {}, [], aside

    def follow(self, text: str) -> _Node[V] | None:
        """Return the child that a text matches, literals before globs, or None."""
        node = self.literals.get(text)
        if node is not None:
            return node
        return next((child for _, matching, child in self.globs if _matches_glob(text, matching)), None)


class PatternRouter(Generic[V]):
    """Patterns with one value each. Finds the pattern that a message matches by Seneca's rule."""

    def __init__(self) -> None:
        self._top: _Node[V] = _Node()
        self._values: dict[str, tuple[Pattern, V]] = {}

    def add(self, pattern: Mapping[str, str], value: V) -> None:
        """Add a pattern. A repeat replaces the value and keeps the place."""
        self._values[_exact(pattern)] = (dict(pattern), value)
        self._insert(pattern, value)

    def _insert(self, pattern: Mapping[str, str], value: V) -> None:
        node = self._top
        for key in sorted(pattern, key=alphabetical):
            node = _node_testing(node, key).child(pattern[key])
        node.values = [value]

    def remove(self, pattern: Mapping[str, str]) -> bool:
        """Remove a pattern; return False if it is unknown."""
        # The tree is built again: an empty branch would still be followed, and hide other patterns.
        if self._values.pop(_exact(pattern), None) is None:
            return False
        self._top = _Node()
        for each, value in self._values.values():
            self._insert(each, value)
        return True

    def maybe_get(self, pattern: Mapping[str, str]) -> V | None:
        """Return the value of exactly this pattern, or None."""
        known = self._values.get(_exact(pattern))
        return None if known is None else known[1]

    def maybe_find(self, look: Look) -> V | None:
        """Return the value of the pattern that a message matches, or None. `look` gives the message's text of a key."""
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
        """Iterate in order of adding."""
        return iter(self._values.values())


def _node_testing(node: _Node[V], key: str) -> _Node[V]:
    """Return the node that tests this key, on the path of nodes that test other keys; create it if needed."""
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
    """Return a text that is unique for a pattern."""
    # The canonical text is not: a comma may be part of a value.
    return repr(sorted(pattern.items()))


# ---- names ----------------------------------------------------------------------------------------------------------


class Pin:
    """A pattern and its name, `topic`, in which `+` is a level that matches any value. Immutable."""

    __slots__ = ("_folded", "_globs", "_literals", "_stars", "is_named", "pattern", "text", "topic")

    def __init__(self, pattern: Pattern, topic: str, is_named: bool) -> None:
        self.text, self.pattern, self.topic, self.is_named = canonical_text(pattern), pattern, topic, is_named
        self._folded = fold(topic).split(".")
        self._literals = {key: value for key, value in pattern.items() if not is_glob(value)}
        self._globs = {key: compile_glob(value) for key, value in pattern.items() if is_glob(value)}
        # Keys with the value `*`, and the level of each in the topic.
        self._stars = [] if is_named else _stars(pattern)

    @classmethod
    def of(cls, pattern: Mapping[str, str], name: str | None = None) -> Pin:
        """Make a pin; `name`, if given, is its topic. Raises NameInvalidError and NameReservedError."""
        ordered = {key: pattern[key] for key in sorted(pattern, key=_in_order)}
        topic = canonical_name(name) if name is not None else _name_of(ordered)
        refuse_reserved(topic)
        return cls(ordered, topic, name is not None)

    def __eq__(self, other: object) -> bool:
        mine = (self.pattern, self.topic, self.is_named)
        return isinstance(other, Pin) and mine == (other.pattern, other.topic, other.is_named)

    def __hash__(self) -> int:
        return hash((self.text, self.topic))

    def matches(self, look: Look) -> bool:
        """Return whether a message matches the pattern. The router chooses among several that do."""
        if any(look(key) != value for key, value in self._literals.items()):
            return False
        return all(_matches_glob(look(key), matching) for key, matching in self._globs.items())

    def topic_for(self, look: Look) -> str:
        """Return the topic of a message that matches. Raises NameInvalidError if a value cannot be a level."""
        if not self._stars:
            return self.topic
        levels = self.topic.split(".")
        for key, level in self._stars:
            levels[level] = _single_level(look(key))
        return ".".join(levels)

    def maybe_keys(self, topic: str) -> Pattern | None:
        """Return the keys and values that a message of this topic needs to match; None if it is not the pin's topic."""
        if not self._stars:
            return self._literals if topic == self.topic or fold(topic).split(".") == self._folded else None
        levels = topic.split(".")
        if len(levels) != len(self._folded) or not all(map(_is_level, self._folded, levels)):
            return None
        return self._literals | {key: levels[level] for key, level in self._stars}

    @property
    def open_levels(self) -> list[bool]:
        """For each level of the topic, whether it matches any value."""
        # Compared as lists: of two pins for a topic, the smaller list is more specific, from the left.
        return [level == ANY_LEVEL for level in self._folded]


def _matches_glob(text: str, matching: Callable[[str], bool]) -> bool:
    return not isinstance(text, Unmatchable) and (isinstance(text, Compound) or matching(text))


def _name_of(pattern: Pattern) -> str:
    text = canonical_text(pattern)
    if not pattern:
        raise NameInvalidError(text, "the empty pattern has no name; configure one in seneca.names")
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
        raise NameInvalidError(text, f"the glob {value!r} is more than one level; configure a name in seneca.names")
    return canonical_name(value)


def _is_level(folded: str, level: str) -> bool:
    return folded in (ANY_LEVEL, level) or folded == fold(level)


def _single_level(value: str) -> str:
    if value.isascii() and value.isalnum():
        return value
    level = canonical_name(value)
    if "." in level:
        raise NameInvalidError(value, "it is the value of one level and must not contain a dot")
    return level


def maybe_topic(text: MaybeLook) -> str | None:
    """Return the topic of a message that no pin matches, from the texts of the seven keys; None if it has none.

    Raises NameInvalidError and NameReservedError.
    """
    values = [value for key in KEY_ORDER if (value := text(key)) is not None]
    if not values:
        return None
    topic = canonical_name(".".join([canonical_name(value) for value in values]))
    refuse_reserved(topic)
    return topic


class PinTable(Generic[V]):
    """The attached pins, found by message or by name. `changes` counts additions and removals."""

    def __init__(self) -> None:
        self.changes = 0
        self._router: PatternRouter[tuple[Pin, V]] = PatternRouter()
        self._names: dict[str, Pin] = {}

    def add(self, pin: Pin, value: V) -> None:
        """Add a pin. A repeat replaces the value.

        Raises PinTakenError if another pin has its name, or if its pattern has another name.
        """
        self.check([pin])
        self.changes += 1
        self._names[fold(pin.topic)] = pin
        self._router.add(pin.pattern, (pin, value))

    def check(self, pins: Iterable[Pin]) -> None:
        """Check that all pins could be added together. Raises PinTakenError for the first that conflicts."""
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
        """Remove a pin; return False if it is unknown."""
        if self.maybe_get(pin) is None:
            return False
        self.changes += 1
        del self._names[fold(pin.topic)]
        return self._router.remove(pin.pattern)

    def maybe_get(self, pin: Pin) -> V | None:
        """Return the value of a pin, or None."""
        known = self._router.maybe_get(pin.pattern)
        return known[1] if known is not None and known[0] == pin else None

    def maybe_attached(self, pattern: Mapping[str, str]) -> Pin | None:
        """Return the pin with exactly this pattern, whatever its name, or None."""
        known = self._router.maybe_get(pattern)
        return None if known is None else known[0]

    def maybe_find(self, look: Look) -> tuple[Pin, V] | None:
        """Return the pin that a Seneca message matches, with its value, or None."""
        return self._router.maybe_find(look)

    def maybe_named(self, topic: str) -> Pin | None:
        """Return the pin for a message of another wire on this topic, or None.

        That is the pin with the most specific name, from the left; unless the router would give the message made for it
        to another pin that the topic matches.
        """
        covering = [pin for pin, _ in self if pin.maybe_keys(topic) is not None]
        if len(covering) < 2:
            return covering[0] if covering else None
        nearest = min(covering, key=lambda pin: pin.open_levels)
        keys = nearest.maybe_keys(topic) or {}
        winner = self.maybe_find(lambda key: keys.get(key, MISSING))
        return nearest if winner is None or winner[0] not in covering else winner[0]

    def maybe_missed(self, topic: str, look: Look) -> tuple[Pin, V] | None:
        """Return a pin that both topic and message match although the router has not found it, or None."""
        # The router does not return from a branch into which another pin has led it.
        missed = [entry for entry in self if entry[0].matches(look) and entry[0].maybe_keys(topic) is not None]
        return min(missed, key=lambda entry: entry[0].open_levels, default=None)

    def __iter__(self) -> Iterator[tuple[Pin, V]]:
        """Iterate in order of adding."""
        return (entry for _, entry in self._router)
