"""Parser of Avro definitions (specification 1.12)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from raceway.errors import SchemaInvalidError
from raceway.schema.avro_json import fits
from raceway.schema.avro_nodes import NAMED, PRIMITIVES, Field, Node

# Avro 1.12, "Names".
_name = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch


def read_schema(document: Any, used: Sequence[Any] = ()) -> Node:
    """Parse a definition. `used` are documents that define names for it, each after those it uses itself. Raises
    SchemaInvalidError."""
    reader = _AvroParser()
    for each in used:
        reader.read(each, "", "")
    node = reader.read(document, "", "")
    _refuse_weightless_items(node, _weightless_records(node))
    return node


class _AvroParser:
    """Parser that knows the names defined so far."""

    def __init__(self) -> None:
        self._named: dict[str, Node] = {}

    def read(self, document: Any, namespace: str, path: str) -> Node:
        """Parse one schema: a name, a union, or an object."""
        if isinstance(document, str):
            return self._by_name(document, namespace, path)
        if isinstance(document, list):
            return self._union(document, namespace, path)
        if not isinstance(document, dict) or "type" not in document:
            raise _invalid(path, "a schema must be a name, a list (union), or an object with `type`")
        kind = document["type"]
        # {"type": {"type": …}}: redundant nesting, and harmless.
        if isinstance(kind, (dict, list)):
            return self.read(kind, namespace, path)
        if kind in PRIMITIVES:
            return Node(kind)
        if kind == "array":
            return Node("array", items=self.read(_member(document, "items", path), namespace, f"{path}[]"))
        if kind == "map":
            return Node("map", items=self.read(_member(document, "values", path), namespace, f"{path}{{}}"))
        if kind in NAMED:
            return self._definition(kind, document, namespace, path)
        if isinstance(kind, str):
            return self._by_name(kind, namespace, path)
        raise _invalid(path, f"unknown type {kind!r}")

    def _by_name(self, name: str, namespace: str, path: str) -> Node:
        """Resolve a name: a primitive, a full name, or one in the enclosing namespace."""
        if name in PRIMITIVES:
            return Node(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._named.get(full) or self._named.get(name)
        if found is None:
            raise _invalid(path, f"undefined name {name!r}")
        return found

    def _union(self, document: list[Any], namespace: str, path: str) -> Node:
        """Parse a union."""
        branches = [self.read(each, namespace, path) for each in document]
        labels = [branch.label for branch in branches]
        # Avro 1.12, "Unions": none directly within another, and no two branches of one type unless they are named.
        if "union" in labels:
            raise _invalid(path, "a union must not directly contain another union")
        twice = [label for label, count in Counter(labels).items() if count > 1]
        if twice:
            raise _invalid(path, f"duplicate branch {twice[0]!r} in a union")
        return Node("union", branches=branches)

    def _definition(self, kind: str, document: dict[str, Any], namespace: str, path: str) -> Node:
        """Parse a record, enum or fixed."""
        full = _full_name(document, namespace, path)
        if full in self._named:
            raise _invalid(path, f"{full!r} is defined twice")
        space = full.rpartition(".")[0]
        aliases = tuple(a if "." in a or not space else f"{space}.{a}" for a in _strings(document, "aliases", path))
        # Known before its fields are read: they may refer to it.
        node = self._named[full] = Node("record" if kind == "error" else kind, name=full, aliases=aliases)
        if kind == "enum":
            self._enum(node, document, path)
        elif kind == "fixed":
            size = document.get("size")
            if type(size) is not int or size < 0:
                raise _invalid(path, f"{full!r} needs a non-negative integer `size`")
            node.size = size
        else:
            node.fields = self._fields(document, space, path or full)
        return node

    def _enum(self, node: Node, document: dict[str, Any], path: str) -> None:
        """Parse symbols and default."""
        symbols = _strings(document, "symbols", path)
        node.symbols = dict.fromkeys(symbols)
        if not symbols or len(node.symbols) < len(symbols) or not all(map(_name, symbols)):
            raise _invalid(path, f"the symbols of {node.name!r} must be one or more different names")
        if "default" in document:
            node.default_symbol = document["default"]
            if node.default_symbol not in node.symbols:
                raise _invalid(path, f"the default of {node.name!r} is not one of its symbols")

    def _fields(self, document: dict[str, Any], namespace: str, path: str) -> list[Field]:
        """Parse the fields of a record."""
        found: list[Field] = []
        fields = _member(document, "fields", path)
        if not isinstance(fields, list):
            raise _invalid(path, "`fields` must be a list")
        for each in fields:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str) or not _name(each["name"]):
                raise _invalid(path, "every field needs a valid name")
            at = f"{path}.{each['name']}"
            node = self.read(_member(each, "type", at), namespace, at)
            field = Field(each["name"], node, _strings(each, "aliases", at), "default" in each)
            # Since 1.12 the default of a union may be of any branch; before, only of the first.
            if field.has_default and not fits(node, each["default"], tagged=False):
                raise _invalid(at, f"the default {each['default']!r} is not a valid {node.label}")
            found.append(field)
        names = [field.name for field in found]
        if len(set(names)) < len(names):
            raise _invalid(path, "duplicate field name")
        return found


def _full_name(document: dict[str, Any], namespace: str, path: str) -> str:
    """Return the full name of a definition."""
    name = document.get("name")
    if not isinstance(name, str):
        raise _invalid(path, f"a {document['type']} needs a name")
    # Avro 1.12, "Names": a name with dots is a full name, whatever `namespace` says.
    if "." not in name:
        space = document.get("namespace", namespace)
        name = f"{space}.{name}" if space else name
    if not all(_name(part) for part in name.split(".")) or name in PRIMITIVES:
        raise _invalid(path, f"{name!r} is not a valid name")
    return name


def _weightless_records(root: Node) -> set[int]:
    """Return the records whose datums take no bytes. Raises SchemaInvalidError for a record that contains itself
    without an array, map or union between."""
    records = {id(node): node for node in root.everything() if node.kind == "record"}
    below = {at: [id(field.node) for field in node.fields if id(field.node) in records] for at, node in records.items()}
    weightless: set[int] = set()
    try:
        for at in TopologicalSorter(below).static_order():
            if all(_is_weightless(field.node, weightless) for field in records[at].fields):
                weightless.add(at)
    except CycleError:
        raise SchemaInvalidError("definition", "a record contains itself, so every datum would be infinite") from None
    return weightless


def _refuse_weightless_items(root: Node, weightless: set[int]) -> None:
    """Refuse arrays whose items take no bytes: a datum of six bytes could announce 2^63 of them."""
    for node in root.everything():
        if node.kind == "array" and node.items is not None and _is_weightless(node.items, weightless):
            raise SchemaInvalidError(
                "definition", f"array items of type {node.items.label} take no bytes, so their number is not bounded"
            )


def _is_weightless(node: Node, records: set[int]) -> bool:
    """Report whether datums take no bytes; `records` are the records of which that is known."""
    return id(node) in records or node.kind == "null" or (node.kind == "fixed" and node.size == 0)


def _member(document: dict[str, Any], key: str, path: str) -> Any:
    """Return a required member."""
    if key not in document:
        raise _invalid(path, f"`{key}` is missing")
    return document[key]


def _strings(document: dict[str, Any], key: str, path: str) -> tuple[str, ...]:
    """Return an optional list of strings."""
    found = document.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise _invalid(path, f"`{key}` must be a list of names")
    return tuple(found)


def _invalid(path: str, reason: str) -> SchemaInvalidError:
    """The error for a definition."""
    return SchemaInvalidError("definition", f"not a valid Avro schema: {f'at {path}: ' if path else ''}{reason}")
