"""An Avro schema as a graph: a recursive record refers to its own node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMED = ("record", "error", "enum", "fixed")


class Field(NamedTuple):
    """A field of a record."""

    name: str
    node: Node
    aliases: tuple[str, ...]
    has_default: bool


class Node(msgspec.Struct, eq=False):
    """A type. `items` is the item type of an array, or the value type of a map."""

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    items: Node | None = None
    branches: list[Node] = []
    fields: list[Field] = []
    # An ordered set: the position is the binary encoding, and symbols are looked up by name.
    symbols: dict[str, None] = {}
    default_symbol: str | None = None
    size: int = 0

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
