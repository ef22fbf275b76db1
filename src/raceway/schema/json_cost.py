"""Upper bound of the work a JSON Schema can cause, computed at registration.

A few lines of schema can ask for exponential work: `allOf` of two references to an `allOf` of two references … doubles
with each line, and a recursive schema with two alternatives for the same member doubles with each level of the *value*.
Both are legal. So the schema is measured when it is registered:

    width     subschemas applied at one place of the value (alternatives, references): refused above a limit; values
              and patterns that must be tried one by one make it wider
    spread    number of paths to one place of the value through parts that do not recur: refused above a limit
    growth    factor by which the paths multiply per level of the value in parts that do

A value is validated only if width × spread × growth^depth × places stays within a budget of a second or two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from raceway.errors import SchemaInvalidError
from raceway.schema.json_refs import REFERENCES, References, nesting

# Far above what schemas need in practice.
MAX_WIDTH = 10_000
MAX_SPREAD = 10_000
# Evaluations; the library performs about a hundred million per second.
BUDGET = 200_000_000

_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLES = ("not", "if", "then", "else")
_TABLES = ("dependentSchemas", "dependencies")
_ANY_MEMBER = ("additionalProperties", "unevaluatedProperties")
_ANY_ITEM = ("items", "additionalItems", "unevaluatedItems", "contains")
# Cost, in evaluations, of what is tried one by one: a list or object in an `enum`, a pattern for a member's name.
_VALUE_WIDTH, _PATTERN_WIDTH = 40, 3
# Step budget of the measurement itself: about a second.
_MEASURING = 1_000_000
# Keywords with subschemas. Schemas without any, the majority of a large one, are leaves.
_LEADING_ON = {
    *_LISTS, *_SINGLES, *_TABLES, *_ANY_MEMBER, *_ANY_ITEM, *REFERENCES, "properties", "patternProperties",
    "prefixItems", "enum",
}  # fmt: skip
# Assumed width of a reference out of the document: a published meta-schema, known and harmless.
_FOREIGN_WIDTH = 100

# A place below a value: one member by name, any member, any item.
Slot = tuple[str, str]
MEMBER, ITEM = ("member", ""), ("item", "")
_NOWHERE: Counter[tuple[Slot, int]] = Counter()


class Cost(NamedTuple):
    """Upper bound of the work per value."""

    width: int
    spread: int
    growth: int

    def allows(self, value: Any, size: int) -> bool:
        """Report whether a value whose text has `size` bytes may be validated."""
        at_each = self.width * self.spread
        if self.growth > 1:
            at_each *= self.growth ** min(nesting(value), 64)
        # Every place takes at least a byte of text, so the size is an upper bound; places are counted only if it fails.
        return at_each * size <= BUDGET or at_each * _places(value) <= BUDGET


def cost_of(root: Any) -> Cost:
    """Measure a schema. Raises SchemaInvalidError if it is too expensive for any value."""
    return _Measure(References(root)).cost(root)


class _Measure:
    """Measurement of one schema."""

    def __init__(self, references: References) -> None:
        self._references = references
        self._left = _MEASURING
        # By schema: number of subschemas applied at the same place, and the same weighted by their cost.
        self._counts: dict[int, int] = {}
        self._widths: dict[int, int] = {}
        self._descents: dict[int, Counter[tuple[Slot, int]]] = {}
        self._nodes: dict[int, dict[str, Any]] = {}

    def cost(self, root: Any) -> Cost:
        """Measure all schemas reachable from the root."""
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
        """Compute width and descents of a schema and of everything applied at the same place, children first."""
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
                # Core 2020-12, 9.4.1: such a schema must not be evaluated.
                raise SchemaInvalidError("definition", "infinite recursion: a $ref leads back to itself at one value")
            else:
                open_nodes.add(id(child))
                path.append((child, iter(self._beside(child))))

    def _close(self, node: dict[str, Any]) -> None:
        """Store the results of a schema whose children are done."""
        beside = list(self._beside(node))
        count = 1 + sum(self._counts[id(child)] for child in beside)
        if count > MAX_WIDTH:
            raise SchemaInvalidError(
                "definition", f"too complex: more than {MAX_WIDTH:,} subschemas apply to one value"
            )
        width = 1 + sum(self._widths[id(child)] for child in beside) + _tried_one_by_one(node)
        if self._references.target(node) is None and any(key in node for key in REFERENCES):
            width += _FOREIGN_WIDTH
        self._counts[id(node)], self._widths[id(node)] = count, width
        self._descents[id(node)] = self._collect(node, beside)

    def _collect(self, node: dict[str, Any], beside: list[dict[str, Any]]) -> Counter[tuple[Slot, int]]:
        """Return the descents of a schema and of everything applied at the same place."""
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
                raise SchemaInvalidError("definition", "too complex: too many references and alternatives")
            descents.update(self._descents[id(child)])
        return descents

    def _beside(self, node: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Return the subschemas applied to the same value."""
        found: list[Any] = [self._references.target(node)]
        found += [child for key in _LISTS if isinstance(node.get(key), list) for child in node[key]]
        found += [node.get(key) for key in _SINGLES]
        found += [child for key in _TABLES if isinstance(node.get(key), dict) for child in node[key].values()]
        return (child for child in found if isinstance(child, dict))

    def _growth(self, groups: dict[int, int]) -> int:
        """Return the largest number of paths from one place back into a recurring part, at one place below."""
        growth = 1
        for node, group in groups.items():
            if not group:
                continue
            descents = self._descents[node]
            inner = Counter({way: count for way, count in descents.items() if groups[way[1]] == group})
            growth = max(growth, *_per_place(inner, dict.fromkeys((t for _, t in inner), 1)), 1)
        return growth

    def _spread(self, root: int, groups: dict[int, int]) -> int:
        """Return the largest number of paths to one place, counting each recurring part once."""
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
                raise SchemaInvalidError("definition", f"too complex: more than {MAX_SPREAD:,} paths reach one value")
        return max(spreads.values())


def _below(node: dict[str, Any]) -> Iterator[tuple[Slot, dict[str, Any]]]:
    """Yield the subschemas applied to parts of the value, with the part."""
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
    """Return the cost of values and patterns that are tried one by one."""
    values, patterns = node.get("enum"), node.get("patternProperties")
    structured = sum(isinstance(value, (dict, list)) for value in values) if isinstance(values, list) else 0
    return structured * _VALUE_WIDTH + (len(patterns) * _PATTERN_WIDTH if isinstance(patterns, dict) else 0)


def _places(value: Any) -> int:
    """Count the values inside a value, itself included."""
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
    """Return the number of paths to each place below: a named member is also reached by those to any member."""
    totals: Counter[Slot] = Counter()
    for (slot, target), count in descents.items():
        totals[slot] += count * weight[target]
    anywhere = totals.pop(MEMBER, 0)
    return [0, anywhere, *(count + (anywhere if slot != ITEM else 0) for slot, count in totals.items())]


def _recurring(edges: dict[int, list[int]], root: int) -> dict[int, int]:
    """Return for each node the number of its reference cycle; 0 if it is on none (Tarjan's algorithm, iterative)."""
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
