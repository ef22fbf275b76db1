"""An Avro schema as a graph: a recursive record refers to its own node."""

from __future__ import annotations

from collections.abc import Iterator

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMED = ("record", "error", "enum", "fixed")


class Field:
    """A field of a record."""

    __slots__ = ("aliases", "has_default", "name", "node")

    def __init__(self, name: str, node: Node, aliases: tuple[str, ...], has_default: bool) -> None:
        self.name, self.node, self.aliases, self.has_default = name, node, aliases, has_default


class Node:
    """A type. `items` is the item type of an array, or the value type of a map."""

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
        # An ordered set: the position is the binary encoding, and symbols are looked up by name.
        self.symbols: dict[str, None] = {}
        self.default_symbol: str | None = None
        self.size = 0

    @property
    def label(self) -> str:
        """The name that distinguishes it from other branches of a union: its full name, otherwise its kind."""
        return self.name or self.kind

    def below(self) -> list[Node]:
        """The types it is directly made of."""
        return [*self.branches, *([self.items] if self.items else []), *(field.node for field in self.fields)]

    def everything(self) -> Iterator[Node]:
        """Yield this node and all it is made of, each once."""
        seen: set[int] = set()
        waiting: list[Node] = [self]
        while waiting:
            node = waiting.pop()
            if id(node) not in seen:
                seen.add(id(node))
                yield node
                waiting += node.below()
