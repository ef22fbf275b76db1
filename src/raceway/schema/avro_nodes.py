"""An Avro schema as a graph: a recursive record refers to its own node."""

from __future__ import annotations

from collections.abc import Iterator

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMED = ("record", "error", "enum", "fixed")


class Field:
    __slots__ = ("aliases", "has_default", "name", "node")

    def __init__(self, name: str, node: Node, aliases: tuple[str, ...], has_default: bool) -> None:
        self.name, self.node, self.aliases, self.has_default = name, node, aliases, has_default


class Node:
    """One type. `items` is that of arrays and of a map's values."""

    __slots__ = ("aliases", "branches", "default_symbol", "fields", "items", "kind", "name", "size", "symbols")

    def __init__(
        self,
        kind: str,
        *,
        name: str = "",
        aliases: tuple[str, ...] = (),
        items: Node | None = None,
        branches: list[Node] | None = None,
    ) -> None:
        self.kind, self.name, self.aliases, self.items = kind, name, aliases, items
        self.branches: list[Node] = branches or []
        self.fields: list[Field] = []
        # In order; a dictionary, because there may be many and they are looked up.
        self.symbols: dict[str, None] = {}
        self.default_symbol: str | None = None
        self.size = 0

    @property
    def label(self) -> str:
        """What tells it from the other branches of a union: its name, else its kind."""
        return self.name or self.kind

    def below(self) -> list[Node]:
        return [*self.branches, *([self.items] if self.items else []), *(field.node for field in self.fields)]

    def everything(self) -> Iterator[Node]:
        """This node and all that it is made of, each once."""
        seen: set[int] = set()
        waiting: list[Node] = [self]
        while waiting:
            node = waiting.pop()
            if id(node) not in seen:
                seen.add(id(node))
                yield node
                waiting += node.below()
