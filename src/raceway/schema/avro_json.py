"""JSON values that an Avro schema accepts: defaults, and payloads in JSON."""

from __future__ import annotations

from typing import Any

from raceway.schema.avro_nodes import Field, Node
from raceway.schema.definition import Fault

MAX_DEPTH = 100
# Comparisons of a value with a type: about a second of work.
MAX_STEPS = 2_000_000


def fits(node: Node, value: Any, *, tagged: bool = True) -> bool:
    """Report whether a value is of the type. With `tagged` a union's branch may be named: {"string": "x"} (JSON
    encoding)."""
    return _Fit(tagged).fits(node, value, 0)


def fault_of(node: Node, value: Any) -> Fault:
    """Return the first member that does not fit, as deep as records go. The value must not fit."""
    path, fit = "", _Fit(tagged=True)
    while node.kind == "record" and isinstance(value, dict):
        unknown = next((name for name in value if name not in {field.name for field in node.fields}), None)
        if unknown is not None:
            return Fault(f"{path}/{unknown}", "record", "the schema has no such field")
        wrong = next((field for field in node.fields if not fit.has_field(field, value, 0)), None)
        if wrong is None:
            break
        path += f"/{wrong.name}"
        if wrong.name not in value:
            return Fault(path, "record", "the field is missing and has no default")
        node, value = wrong.node, value[wrong.name]
    return Fault(path or "/", node.kind, f"is not a valid {node.label}")


class _Fit:
    """A check of one value, with a step budget."""

    def __init__(self, tagged: bool) -> None:
        self._tagged = tagged
        # Results by node and value: without them nested unions would be tried exponentially often.
        self._known: dict[tuple[int, int], bool] = {}
        self._left = MAX_STEPS

    def fits(self, node: Node, value: Any, depth: int) -> bool:
        """Report whether a value is of the type."""
        self._left -= 1 + len(node.branches)
        if self._left < 0:  # budget exceeded: refused like a value that does not fit
            return False
        if not isinstance(value, (dict, list)):
            return _is_scalar(node, value)
        key = (id(node), id(value))
        if key not in self._known:
            self._known[key] = depth <= MAX_DEPTH and self._holds(node, value, depth + 1)
        return self._known[key]

    def has_field(self, field: Field, value: dict[str, Any], depth: int) -> bool:
        """Report whether a record's value has a valid field, or may lack it."""
        if field.name not in value:
            return field.has_default
        return self.fits(field.node, value[field.name], depth)

    def _holds(self, node: Node, value: Any, depth: int) -> bool:
        """Report whether an object or array is of the type."""
        kind = node.kind
        if kind == "union":
            return self._tagged_branch(node, value, depth) or any(self.fits(b, value, depth) for b in node.branches)
        if kind == "record" and isinstance(value, dict):
            if value.keys() - {field.name for field in node.fields}:
                return False
            return all(self.has_field(field, value, depth) for field in node.fields)
        if node.items is not None and isinstance(value, list if kind == "array" else dict):
            items = value if isinstance(value, list) else value.values()
            return all(self.fits(node.items, each, depth) for each in items)
        return False

    def _tagged_branch(self, node: Node, value: Any, depth: int) -> bool:
        """Report whether a value names its branch and is of it."""
        if not self._tagged or not isinstance(value, dict) or len(value) != 1:
            return False
        (label, inner), *_ = value.items()
        return any(branch.label == label and self.fits(branch, inner, depth) for branch in node.branches)


def _is_scalar(node: Node, value: Any) -> bool:
    """Report whether a scalar is of the type."""
    kind = node.kind
    if kind == "union":
        return any(_is_scalar(branch, value) for branch in node.branches)
    if kind in ("int", "long"):
        bits = 31 if kind == "int" else 63
        return type(value) is int and -(1 << bits) <= value < 1 << bits
    if kind in ("float", "double"):
        return type(value) in (int, float)
    if kind in ("bytes", "fixed"):
        # Avro 1.12, "JSON Encoding": bytes are a string of code points 0 to 255.
        is_text = isinstance(value, str) and all(ord(c) < 256 for c in value)
        return is_text and (kind == "bytes" or len(value) == node.size)
    if kind == "enum":
        return isinstance(value, str) and value in node.symbols
    return type(value) is {"null": type(None), "boolean": bool, "string": str}.get(kind)
