"""Avro schema resolution: can one schema read what was written with another? Rules of the specification (1.12, "Schema
Resolution"):

records     names match (an alias of the reader's counts); a field that only the reader has needs a default; fields
            are compared by name or alias of the reader's
promotions  int to long, float, double; long to float, double; float to double; string and bytes to one another
enums       names match; the reader knows every symbol, or has a default
fixed       names and sizes match
unions      every branch of the writer can be read; of a reader's union, by at least one branch
"""

from __future__ import annotations

from raceway.schema.avro_nodes import Node
from raceway.schema.effort import Comparison, Effort, TooIntricateError

# Reader's type to the writer's types it can also read.
PROMOTIONS = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "string": ("bytes",),
    "bytes": ("string",),
}


def refusals(reader: Node, writer: Node) -> list[str]:
    """List why `reader` cannot read what was written with `writer`; empty if it can."""
    try:
        return _AvroComparison(Effort()).compare(reader, writer, "")
    except (TooIntricateError, RecursionError):
        return ["comparison budget exceeded: the schemas are too complex to compare"]


class _AvroComparison(Comparison):
    """A comparison of two schemas, with a step budget."""

    def _compare(self, reader: Node, writer: Node, path: str) -> list[str]:
        """Compare two nodes that were not compared before."""
        # The writer's union first: each of its branches must be readable, whatever the reader is.
        if writer.kind == "union":
            return [reason for branch in writer.branches for reason in self.compare(reader, branch, path)]
        if reader.kind == "union":
            return self._into_union(reader, writer, path)
        here = path or "/"
        if reader.kind != writer.kind:
            if writer.kind in PROMOTIONS.get(reader.kind, ()):
                return []
            return [f"{here}: {writer.label} cannot be read as {reader.label}"]
        if reader.name and not _names_match(reader, writer):
            return [f"{here}: {writer.kind} {writer.name!r} cannot be read as {reader.name!r}"]
        if reader.kind == "record":
            return self._record(reader, writer, path)
        if reader.kind in ("array", "map"):
            assert reader.items is not None
            assert writer.items is not None
            return self.compare(reader.items, writer.items, f"{path}/{'[]' if reader.kind == 'array' else '*'}")
        if reader.kind == "enum":
            unknown = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
            if unknown and reader.default_symbol is None:
                return [f"{here}: the reader does not know the symbol {unknown[0]!r} and has no default"]
        if reader.kind == "fixed" and reader.size != writer.size:
            return [f"{here}: fixed of {writer.size} bytes cannot be read as fixed of {reader.size} bytes"]
        return []

    def _into_union(self, reader: Node, writer: Node, path: str) -> list[str]:
        """Find a branch of the reader's union that reads the writer's type."""
        for branch in reader.branches:
            if not _AvroComparison(self._effort, self).compare(branch, writer, ""):
                return []
        return [f"{path or '/'}: no branch of the reader's union reads {writer.label}"]

    def _record(self, reader: Node, writer: Node, path: str) -> list[str]:
        """Compare records field by field. Fields that only the writer has are ignored."""
        found: list[str] = []
        written = {field.name: field for field in writer.fields}
        for field in reader.fields:
            known = next((written[name] for name in (field.name, *field.aliases) if name in written), None)
            at = f"{path}/{field.name}"
            if known is not None:
                found += self.compare(field.node, known.node, at)
            elif not field.has_default:
                found.append(f"{at}: the writer has no such field, and the reader has no default")
        return found


def _names_match(reader: Node, writer: Node) -> bool:
    """Compare names without namespaces, as the specification says; a reader's alias counts as its name."""
    unqualified = writer.name.rpartition(".")[2]
    return reader.name.rpartition(".")[2] == unqualified or writer.name in reader.aliases
