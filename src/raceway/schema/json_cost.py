"""How much work a JSON Schema can make of a value, known before the first value comes.

A few lines of schema can ask for more work than there is time: `allOf` of two references to an `allOf` of two
references … doubles with each line, and a recursive schema with two alternatives for the same member doubles with each
level of the *value*. Both are legal. So the schema is measured when it is registered:

    width     evaluations at one place of the value (alternatives, references): refused above a limit; values and
              patterns that must be tried one by one make it wider
    spread    how many ways lead to one place of the value through parts that do not recur: refused above a limit
    growth    by how much the ways multiply per level of the value in parts that do

A value is then checked only if width × spread × growth^depth × places stays within a budget of a second or two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from raceway.errors import SchemaInvalidError
from raceway.schema.json_refs import REFERENCES, References, nesting

MAX_WIDTH = 10_000
MAX_SPREAD = 10_000
# Evaluations; the library makes about a hundred million in a second.
BUDGET = 200_000_000

_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLES = ("not", "if", "then", "else")
_TABLES = ("dependentSchemas", "dependencies")
_ANY_MEMBER = ("additionalProperties", "unevaluatedProperties")
_ANY_ITEM = ("items", "additionalItems", "unevaluatedItems", "contains")
# What is tried one by one, compared with an evaluation: a list or object in an `enum`, a pattern for a member's name.
_VALUE_WIDTH, _PATTERN_WIDTH = 40, 3
# Steps of measuring itself: a second.
_MEASURING = 1_000_000
# Schemas without any of these, most of a large one, are leaves: nothing leads on from them.
_LEADING_ON = {
    *_LISTS, *_SINGLES, *_TABLES, *_ANY_MEMBER, *_ANY_ITEM, *REFERENCES, "properties", "patternProperties",
    "prefixItems", "enum",
}  # fmt: skip
# A reference to a published meta-schema: what it holds is known and harmless, its size is this at most.
_FOREIGN_WIDTH = 100

# A place below a value: one member by name, any member, any item.
Slot = tuple[str, str]
MEMBER, ITEM = ("member", ""), ("item", "")
_NOWHERE: Counter[tuple[Slot, int]] = Counter()


class Cost(NamedTuple):
    width: int
    spread: int
    growth: int

    def allows(self, value: Any, size: int) -> bool:
        """May a value whose text has so many bytes be checked?"""
        at_each = self.width * self.spread
        if self.growth > 1:
            at_each *= self.growth ** min(nesting(value), 64)
        # A place takes a byte at least. Only where that would be too many are they counted.
        return at_each * size <= BUDGET or at_each * _places(value) <= BUDGET


def cost_of(root: Any) -> Cost:
    """Raises SchemaInvalidError if the schema asks for too much of any value."""
    return _Measure(References(root)).cost(root)


class _Measure:
    def __init__(self, references: References) -> None:
        self._references = references
        self._left = _MEASURING
        # How often schemas are applied at one place, and that with what makes each application wide.
        self._counts: dict[int, int] = {}
        self._widths: dict[int, int] = {}
        self._descents: dict[int, Counter[tuple[Slot, int]]] = {}
        self._nodes: dict[int, dict[str, Any]] = {}

    def cost(self, root: Any) -> Cost:
        if not isinstance(root, dict):
            return Cost(1, 1, 1)
        edges: dict[int, list[int]] = {}
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if id(node) not in edges:
                self._measure(node)
                edges[id(node)] = [target for _, target in self._descents[id(node)]]
                waiting += [self._nodes[target] for target in edges[id(node)]]
        groups = _recurring(edges, id(root))
        width = max(self._widths[node] for node in edges)
        return Cost(width, self._spread(id(root), groups), self._growth(groups))

    def _measure(self, node: dict[str, Any]) -> None:
        """Width and descents of a schema and of everything applied at the same place, children first."""
        if id(node) in self._widths:
            return
        if _LEADING_ON.isdisjoint(node):
            self._counts[id(node)] = self._widths[id(node)] = 1
            self._descents[id(node)] = _NOWHERE
            return
        path: list[tuple[dict[str, Any], Iterator[dict[str, Any]]]] = [(node, iter(self._beside(node)))]
        open_nodes = {id(node)}
        while path:
            current, children = path[-1]
            child = next((child for child in children if id(child) not in self._widths), None)
            if child is None:
                path.pop()
                open_nodes.discard(id(current))
                self._close(current)
            elif id(child) in open_nodes:
                raise SchemaInvalidError("definition", "a $ref leads back to itself without going into the value")
            else:
                open_nodes.add(id(child))
                path.append((child, iter(self._beside(child))))

    def _close(self, node: dict[str, Any]) -> None:
        beside = list(self._beside(node))
        count = 1 + sum(self._counts[id(child)] for child in beside)
        if count > MAX_WIDTH:
            raise SchemaInvalidError("definition", f"its alternatives multiply to more than {MAX_WIDTH:,} at one place")
        width = 1 + sum(self._widths[id(child)] for child in beside) + _tried_one_by_one(node)
        if self._references.target(node) is None and any(key in node for key in REFERENCES):
            width += _FOREIGN_WIDTH
        self._counts[id(node)], self._widths[id(node)] = count, width
        self._descents[id(node)] = self._collect(node, beside)

    def _collect(self, node: dict[str, Any], beside: list[dict[str, Any]]) -> Counter[tuple[Slot, int]]:
        """Where the schema leads, with everything applied at the same place."""
        own = list(_below(node))
        if not own and len(beside) == 1:
            return self._descents[id(beside[0])]
        descents: Counter[tuple[Slot, int]] = Counter()
        for slot, below in own:
            descents[slot, id(below)] += 1
            self._nodes[id(below)] = below
        for child in beside:
            self._left -= len(self._descents[id(child)])
            if self._left < 0:
                raise SchemaInvalidError("definition", "its references and alternatives are too many")
            descents.update(self._descents[id(child)])
        return descents

    def _beside(self, node: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Schemas that are applied to the same value."""
        found: list[Any] = [self._references.target(node)]
        found += [child for key in _LISTS if isinstance(node.get(key), list) for child in node[key]]
        found += [node.get(key) for key in _SINGLES]
        found += [child for key in _TABLES if isinstance(node.get(key), dict) for child in node[key].values()]
        return (child for child in found if isinstance(child, dict))

    def _growth(self, groups: dict[int, int]) -> int:
        """The most ways from one place back into a recurring part, to one place below."""
        growth = 1
        for node, group in groups.items():
            if not group:
                continue
            descents = self._descents[node]
            inner = Counter({way: count for way, count in descents.items() if groups[way[1]] == group})
            growth = max(growth, *_per_place(inner, dict.fromkeys((t for _, t in inner), 1)), 1)
        return growth

    def _spread(self, root: int, groups: dict[int, int]) -> int:
        """The most ways to one place, not counting how often recurring parts are gone through."""
        spreads: dict[int, int] = {}
        path = [root]
        while path:
            node = path[-1]
            if not self._descents[node]:
                spreads[path.pop()] = 1
                continue
            outer = Counter(
                {w: c for w, c in self._descents[node].items() if not (groups[node] and groups[w[1]] == groups[node])}
            )
            missing = [target for _, target in outer if target not in spreads]
            if missing:
                path += missing
                continue
            path.pop()
            spreads[node] = max(1, *_per_place(outer, spreads), 1)
            if spreads[node] > MAX_SPREAD:
                raise SchemaInvalidError("definition", f"more than {MAX_SPREAD:,} ways lead to one place of a value")
        return max(spreads.values())


def _below(node: dict[str, Any]) -> Iterator[tuple[Slot, dict[str, Any]]]:
    """Schemas that are applied to parts of the value, and to which."""
    properties = node.get("properties")
    if isinstance(properties, dict):
        yield from ((("property", name), child) for name, child in properties.items() if isinstance(child, dict))
    patterns = node.get("patternProperties")
    if isinstance(patterns, dict):
        yield from ((MEMBER, child) for child in patterns.values() if isinstance(child, dict))
    yield from ((MEMBER, node[key]) for key in _ANY_MEMBER if isinstance(node.get(key), dict))
    for key in (*_ANY_ITEM, "prefixItems"):
        below = node.get(key)
        children = below if isinstance(below, list) else [below]
        yield from ((ITEM, child) for child in children if isinstance(child, dict))


def _tried_one_by_one(node: dict[str, Any]) -> int:
    values, patterns = node.get("enum"), node.get("patternProperties")
    structured = sum(isinstance(value, (dict, list)) for value in values) if isinstance(values, list) else 0
    return structured * _VALUE_WIDTH + (len(patterns) * _PATTERN_WIDTH if isinstance(patterns, dict) else 0)


def _places(value: Any) -> int:
    """Values inside a value, itself included."""
    count, waiting = 0, [value]
    while waiting:
        node = waiting.pop()
        count += 1
        if isinstance(node, dict):
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return count


def _per_place(descents: Counter[tuple[Slot, int]], weight: dict[int, int]) -> Iterable[int]:
    """The ways to each place below: those to a named member, and those to any member, come together there."""
    totals: Counter[Slot] = Counter()
    for (slot, target), count in descents.items():
        totals[slot] += count * weight[target]
    anywhere = totals.pop(MEMBER, 0)
    return [0, anywhere, *(count + (anywhere if slot != ITEM else 0) for slot, count in totals.items())]


def _recurring(edges: dict[int, list[int]], root: int) -> dict[int, int]:
    """For each node the number of the ring of references it lies on; 0 when it lies on none (Tarjan, without calls)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    groups: dict[int, int] = {}
    stack: list[int] = []
    path: list[tuple[int, Iterator[int]]] = []

    def enter(node: int) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        path.append((node, iter(edges[node])))

    enter(root)
    while path:
        node, targets = path[-1]
        target = next(targets, None)
        if target is None:
            path.pop()
            if path:
                low[path[-1][0]] = min(low[path[-1][0]], low[node])
            if low[node] == index[node]:
                members = stack[stack.index(node) :]
                del stack[stack.index(node) :]
                is_ring = len(members) > 1 or node in edges[node]
                groups.update((member, index[node] + 1 if is_ring else 0) for member in members)
        elif target not in index:
            enter(target)
        elif target not in groups:
            low[node] = min(low[node], index[target])
    return groups
