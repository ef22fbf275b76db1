"""Budget of the work a JSON Schema can cause: a limit at registration, and a count of steps before a validation.

A few lines of schema can ask for exponential work: `allOf` of two references to an `allOf` of two references … doubles
with each line, and a recursive schema with two alternatives for the same member doubles with each level of the *value*.
Both are legal, and the validating library cannot be interrupted. So

    at registration   a schema is refused if too many subschemas apply to one value (alternatives, references)
    at run time       the evaluations that a value causes are counted first, level by level, up to a budget of a second
                      or two. Values and patterns that must be tried one by one count as several

Counting takes longer than validating, so it is left out where a bound computed at registration is enough: the size of
the schema with its references written out (unlimited if it is recursive) times the number of values in the payload.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from raceway.errors import SchemaInvalidError
from raceway.schema.json_refs import REFERENCES, References

# Far above what schemas need in practice.
MAX_WIDTH = 10_000
# Evaluations; the library performs about a hundred million per second.
BUDGET = 200_000_000
# Steps of counting them, and of measuring a schema: one or two seconds.
COUNTING = 1_000_000

# A part of a value that subschemas apply to: a member by its name, or one of these.
_Slot = str | int
_ITSELF, _ANY_MEMBER, _ANY_ITEM = range(3)
# Keywords with subschemas, besides `properties`.
_SLOTS = {
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "not", "if", "then", "else"), _ITSELF),
    **dict.fromkeys(("dependentSchemas", "dependencies"), _ITSELF),
    **dict.fromkeys(("patternProperties", "additionalProperties", "unevaluatedProperties"), _ANY_MEMBER),
    **dict.fromkeys(("prefixItems", "items", "additionalItems", "unevaluatedItems", "contains"), _ANY_ITEM),
}
# Those whose subschemas are the members of an object.
_TABLES = ("dependentSchemas", "dependencies", "patternProperties")
# Cost, in evaluations, of what is tried one by one: a list or object in an `enum`, a pattern for a member's name.
_VALUE_WIDTH, _PATTERN_WIDTH = 40, 3
# Assumed width of a reference out of the document: a published meta-schema, known and harmless.
_FOREIGN_WIDTH = 100


# By part of a value: the schemas applied to it, and how often.
_Below = dict[_Slot, Counter[int]]
_NONE: Counter[int] = Counter()


class _Applied(NamedTuple):
    """Everything that a schema applies at one place of a value: number, cost, and what follows for parts of it, with
    the number of that."""

    number: int
    width: int
    below: _Below
    size: int


class Cost:
    """Bound of the work per value. Raises SchemaInvalidError for a schema that is too expensive for any value."""

    def __init__(self, root: Any) -> None:
        references = References(root)
        widths: dict[int, int] = {}
        children: dict[int, list[tuple[_Slot, int]]] = {}
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if isinstance(node, dict) and id(node) not in children:
                target = references.target(node)
                is_foreign = target is None and any(key in node for key in REFERENCES)
                widths[id(node)] = 1 + _tried_one_by_one(node) + _FOREIGN_WIDTH * is_foreign
                found = [each for each in (*_subschemas(node), (_ITSELF, target)) if isinstance(each[1], dict)]
                children[id(node)] = [(slot, id(child)) for slot, child in found]
                waiting += [child for _, child in found]
        self._root, self._applied = id(root), _applied(widths, children)
        different = {id(applied.below): applied.below for applied in self._applied.values()}
        if all(map(_is_plain, different.values())):
            self._at_each = max((applied.width for applied in self._applied.values()), default=1)
        else:
            self._at_each = _unfolded(widths, children).get(self._root, BUDGET + 1)

    def allows(self, value: Any, payload: bytes) -> bool:
        """Report whether a value, decoded from `payload`, may be validated."""
        # Every value but the outermost one follows a comma or the beginning of a list or object.
        return (
            self._at_each * len(payload) <= BUDGET
            or self._at_each * (1 + sum(map(payload.count, (b",", b"[", b"{")))) <= BUDGET
            or self._is_within_budget(value)
        )

    def _is_within_budget(self, value: Any) -> bool:
        """Count the evaluations of a value, level by level."""
        evaluations = steps = 0
        level: dict[tuple[int, int], tuple[Any, int]] = {(self._root, id(value)): (value, 1)}
        while level:
            following: dict[tuple[int, int], tuple[Any, int]] = {}
            for (schema, _), (place, times) in level.items():
                _, width, below, _ = self._applied[schema]
                evaluations += times * width
                for slot, part in _parts(place) if below else ():
                    targets = below.get(slot, _NONE)
                    steps += 1 + len(targets)
                    if evaluations > BUDGET or steps > COUNTING:
                        return False
                    for target, ways in targets.items():
                        known = following.get((target, id(part)), (part, 0))[1]
                        following[target, id(part)] = part, known + times * ways
            level = following
        return evaluations <= BUDGET


def _applied(widths: dict[int, int], children: dict[int, list[tuple[_Slot, int]]]) -> dict[int, _Applied]:
    """Sum up, for each schema, what it applies at the same place. Raises SchemaInvalidError above a limit."""
    found: dict[int, _Applied] = {}
    left = COUNTING
    order = _maybe_ordered({node: [id_ for slot, id_ in below if slot == _ITSELF] for node, below in children.items()})
    if order is None:
        # Core 2020-12, 9.4.1: such a schema must not be evaluated.
        raise SchemaInvalidError("definition", "infinite recursion: a $ref leads back to itself at one value")
    for node in order:
        beside = [found[child] for slot, child in children[node] if slot == _ITSELF]
        number, width = 1 + sum(each.number for each in beside), widths[node] + sum(each.width for each in beside)
        if number > MAX_WIDTH:
            raise SchemaInvalidError(
                "definition", f"too complex: more than {MAX_WIDTH:,} subschemas apply to one value"
            )
        if len(beside) == len(children[node]) == 1:  # most references stand alone: they share what they lead to
            found[node] = beside[0]._replace(number=number, width=width)
            continue
        left -= sum(each.size for each in beside)
        if left < 0:
            raise SchemaInvalidError("definition", "too complex: too many references and alternatives")
        below: _Below = defaultdict(Counter)
        for slot, child in children[node]:
            for way, targets in found[child].below.items() if slot == _ITSELF else ((slot, (child,)),):
                below[way].update(targets)
        found[node] = _Applied(number, width, below, sum(map(len, below.values())))
    return found


def _unfolded(widths: dict[int, int], children: dict[int, list[tuple[_Slot, int]]]) -> dict[int, int]:
    """Return the cost of each schema with all references written out, at most just above the budget; empty if the
    schema is recursive."""
    found: dict[int, int] = {}
    for node in _maybe_ordered({node: [child for _, child in below] for node, below in children.items()}) or ():
        found[node] = min(BUDGET + 1, widths[node] + sum(found[child] for _, child in children[node]))
    return found


def _maybe_ordered(graph: dict[int, list[int]]) -> list[int] | None:
    """Return the nodes, each after those it leads to; None if there is a cycle."""
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError:
        return None


def _is_plain(below: _Below) -> bool:
    """Report whether each part of a value gets one schema at most: then no value multiplies the work."""
    members = below.get(_ANY_MEMBER, _NONE).total()
    return all(t.total() + (members if isinstance(slot, str) else 0) <= 1 for slot, t in below.items())


def _subschemas(node: dict[str, Any]) -> Iterator[tuple[_Slot, Any]]:
    """Yield the subschemas of a schema with the part of the value that each applies to. Some may be no schemas."""
    for key, value in node.items():
        if key == "properties" and isinstance(value, dict):
            yield from value.items()
        elif key in _SLOTS:
            inner = list(value.values()) if key in _TABLES and isinstance(value, dict) else value
            yield from ((_SLOTS[key], child) for child in (inner if isinstance(inner, list) else [inner]))


def _parts(value: Any) -> Iterator[tuple[_Slot, Any]]:
    """Yield the parts of a value with the slots of the subschemas that apply to each."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield name, part
            yield _ANY_MEMBER, part
    elif isinstance(value, list):
        yield from ((_ANY_ITEM, part) for part in value)


def _tried_one_by_one(node: dict[str, Any]) -> int:
    """Return the cost of values and patterns that are tried one by one."""
    values, patterns = node.get("enum"), node.get("patternProperties")
    structured = sum(isinstance(value, (dict, list)) for value in values) if isinstance(values, list) else 0
    return structured * _VALUE_WIDTH + (len(patterns) * _PATTERN_WIDTH if isinstance(patterns, dict) else 0)
