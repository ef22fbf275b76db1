"""Resolution of a JSON Schema's references within its own document. Nothing is ever fetched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_escape = re.compile(b"%([0-9A-Fa-f]{2})")
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# Drafts in which all keywords beside `$ref` are ignored (draft-07 Core, 8.3).
REF_ALONE = ("draft-04", "draft-06", "draft-07")
# Keywords that do not constrain values (Core 2020-12, 7.7; Validation, 9). `format` is one of them by default.
ANNOTATIONS = {
    "$schema", "$id", "id", "$comment", "$defs", "definitions", "$anchor", "$dynamicAnchor", "$recursiveAnchor",
    "$vocabulary", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "format",
    "contentEncoding", "contentMediaType", "contentSchema",
}  # fmt: skip


class References:
    """Find the schema a reference names: `#`, `#/pointer`, `#anchor`, and `$id`s embedded in the document."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.ref_stands_alone = isinstance(root, dict) and any(
            draft in str(root.get("$schema", "")) for draft in REF_ALONE
        )
        self._named: dict[str, Any] = {}
        # Cached, so that a schema met again is the same object: comparisons go by identity.
        self._resolved: dict[int, Any] = {}
        for node in walk(root):
            for key in ("$anchor", "$dynamicAnchor"):
                if isinstance(name := node.get(key), str):
                    self._named[f"#{name}"] = node
            for key in ("$id", "id"):
                if isinstance(name := node.get(key), str):
                    self._named[name.removesuffix("#")] = node

    def maybe_find(self, reference: str) -> Any | None:
        """Return the schema a reference names; None if it leads out of the document (a published meta-schema) or is of
        a form that is not supported."""
        if reference in self._named:
            return self._named[reference]
        base, _, fragment = reference.partition("#")
        start = self._named.get(base) if base else self.root
        if start is None:
            return None
        return _pointed(start, fragment) if fragment else start

    def target(self, node: dict[str, Any]) -> Any | None:
        """Return the schema that the reference of this schema leads to; None without one, or if it cannot be
        followed."""
        for key in REFERENCES:
            if isinstance(reference := node.get(key), str):
                return self.maybe_find(reference)
        return None

    def resolved(self, node: Any) -> Any:
        """Return a schema with its reference replaced. From 2019-09 on, keywords beside a reference apply as well."""
        if not isinstance(node, dict) or self.target(node) is None:
            return node
        if id(node) not in self._resolved:
            self._resolved[id(node)] = self._follow(node)
        return self._resolved[id(node)]

    def _follow(self, node: dict[str, Any]) -> Any:
        """Combine a reference's target with the keywords beside it."""
        rest = {key: value for key, value in node.items() if key not in REFERENCES and key not in ANNOTATIONS}
        target = self.target(node)
        if rest and not self.ref_stands_alone:
            return {**rest, "allOf": [*rest.get("allOf", ()), target]}
        return self.resolved(target)


def walk(root: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a document, schema or not."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node


def nesting(document: Any) -> int:
    """Return the nesting depth of lists and objects."""
    # Level by level, without recursion: the document may be nested as deep as the decoder accepts.
    level, depth = [document], 0
    while level:
        below: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                below += node.values()
            elif isinstance(node, list):
                below += node
        level = [node for node in below if isinstance(node, (dict, list))]
        depth += 1
    return depth


def _pointed(node: Any, pointer: str) -> Any | None:
    """Evaluate a JSON pointer (RFC 6901, 4)."""
    if not pointer.startswith("/"):
        return None
    for part in pointer[1:].split("/"):
        # RFC 6901, 6: percent escapes first; 4: then `~1` before `~0`, so that `~01` becomes `~1`.
        raw = _escape.sub(lambda match: bytes.fromhex(match[1].decode()), part.encode())
        name = raw.decode("utf-8", "replace").replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and name in node:
            node = node[name]
        elif isinstance(node, list) and name.isdecimal() and len(name) < 10 and int(name) < len(node):
            node = node[int(name)]
        else:
            return None
    return node
