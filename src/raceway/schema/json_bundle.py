"""A JSON Schema bundled with the schemas it refers to (JSON Schema Core 2020-12, 9.3).

Each referenced schema becomes an entry of `$defs`, and every `$ref` to it, or within it, a pointer there. So
validation, cost and comparison have one document, and nothing is ever fetched.
"""

from __future__ import annotations

from typing import Any

from raceway.errors import SchemaInvalidError
from raceway.schema.definition import Resolved
from raceway.schema.json_refs import walk
from raceway.schema.json_text import document_of

DEFINITIONS = "$defs"
# These hold values, not schemas: a `$ref` inside is data.
_VALUES = ("enum", "const", "default", "examples")
# Resolved by the path of evaluation, which bundling would change.
_DYNAMIC = ("$dynamicRef", "$recursiveRef", "$dynamicAnchor", "$recursiveAnchor")


def bundled(document: Any, references: Resolved) -> Any:
    """Return the document with its references bundled; unchanged if it has none. Raises SchemaInvalidError."""
    if not references or not isinstance(document, dict):
        return document
    places = {each.name: f"#/{DEFINITIONS}/{_escaped(_entry(each.name))}" for each in references}
    entries: dict[str, Any] = {}
    for each in references:
        used = document_of(each.definition)
        for key in (key for node in walk(used) for key in _DYNAMIC if key in node):
            raise SchemaInvalidError("references", f"{each.name!r} uses {key}, not supported in a referenced schema")
        entries[_entry(each.name)] = _joined(used, _Names(used, places, places[each.name]), is_root=True)
    own = _joined(document, _Names(document, places, ""), is_root=False)
    return own | {DEFINITIONS: {**own.get(DEFINITIONS, {}), **entries}}


class _Names:
    """Resolution of one document's references. `place` is its pointer in the bundle; "" is the main document, whose own
    references stay unchanged."""

    def __init__(self, document: Any, places: dict[str, str], place: str) -> None:
        self._place = place
        self._base = document.get("$id", "") if isinstance(document, dict) else ""
        self._base = self._base if isinstance(self._base, str) else ""
        self._places = {_against(self._base, name): found for name, found in places.items()} | places
        self._anchors = dict(_anchors(document, "")) if place else {}

    def rewritten(self, reference: str) -> str:
        """Return a reference as a pointer into the bundle."""
        base, _, fragment = reference.partition("#")
        found = self._places.get(base) or self._places.get(_against(self._base, base))
        if base and found is not None:
            if fragment and not fragment.startswith("/"):
                raise SchemaInvalidError(
                    "definition", f"the reference {reference!r} must use a JSON pointer, not the name of an anchor"
                )
            return f"{found}{fragment}"
        if not self._place or (base and base != self._base):
            return reference
        if fragment and not fragment.startswith("/"):
            return f"{self._place}{self._anchors.get(fragment, f'/{fragment}')}"
        return f"{self._place}{fragment}"


def _joined(node: Any, names: _Names, is_root: bool) -> Any:
    """Copy a document with its references rewritten."""
    if isinstance(node, list):
        return [_joined(each, names, False) for each in node]
    if not isinstance(node, dict):
        return node
    found = {
        key: value if key in _VALUES else _joined(value, names, False)
        for key, value in node.items()
        # An entry with its own `$id` would be another resource, in which "#" does not mean the bundle.
        if not (is_root and key in ("$id", "id", "$schema"))
    }
    if isinstance(reference := node.get("$ref"), str):
        found["$ref"] = names.rewritten(reference)
    return found


def _anchors(node: Any, path: str) -> list[tuple[str, str]]:
    """List the anchors of a document with their pointers."""
    found: list[tuple[str, str]] = []
    if isinstance(node, dict):
        if isinstance(name := node.get("$anchor"), str):
            found.append((name, path))
        for key, value in node.items():
            found += _anchors(value, f"{path}/{_escaped(key)}")
    elif isinstance(node, list):
        for place, value in enumerate(node):
            found += _anchors(value, f"{path}/{place}")
    return found


def _against(base: str, name: str) -> str:
    """Resolve a relative address against a base (RFC 3986, 5, without dot segments)."""
    scheme, separator, rest = base.partition("://")
    if not separator or "://" in name or name.startswith("urn:"):
        return name
    host = rest.partition("/")[0]
    if name.startswith("/"):
        return f"{scheme}://{host}{name}"
    folder = rest.rpartition("/")[0] or host
    return f"{scheme}://{folder}/{name}"


def _entry(name: str) -> str:
    """The name of a bundled schema in `$defs`, chosen not to clash with the document's own."""
    return f"reference {name}"


def _escaped(part: str) -> str:
    """Escape a name for a JSON pointer in a URI fragment (RFC 6901, 3 and 6)."""
    return part.replace("~", "~0").replace("/", "~1").replace("%", "%25").replace(" ", "%20").replace("#", "%23")
