"""Definitions that use other definitions: finding all that one needs, within bounds.

A reference names a version, which never changes, and is looked up when the definition that has it is registered. So
references cannot lead in a circle; how far they lead, and how much they bring along, is bounded all the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from raceway import config
from raceway.errors import SchemaInvalidError
from raceway.model.schemas import SchemaReference, SchemaVersion
from raceway.schema.definition import Definition, Referenced, Resolved

# Definitions that use definitions that use ….
MAX_DEPTH = 20

Find = Callable[[SchemaReference], SchemaVersion | None]


def resolve(references: Sequence[SchemaReference], find: Find, settings: config.Schemas) -> Resolved:
    """Everything they bring along, what is used before what uses it. Raises SchemaInvalidError."""
    return _Resolution(find, settings).all(references)


class _Resolution:
    def __init__(self, find: Find, settings: config.Schemas) -> None:
        self._find, self._settings = find, settings
        self._found: dict[str, SchemaVersion] = {}
        self._order: list[Referenced] = []
        self._size = 0

    def all(self, references: Sequence[SchemaReference]) -> Resolved:
        self._add(references, 1)
        return tuple(self._order)

    def _add(self, references: Sequence[SchemaReference], depth: int) -> None:
        if references and depth > MAX_DEPTH:
            raise SchemaInvalidError("references", f"lead through more than {MAX_DEPTH} definitions")
        for reference in references:
            version = self._find(reference)
            if version is None:
                raise SchemaInvalidError(
                    "references",
                    f"{reference.name!r} is version {reference.version} of subject {reference.subject!r}, "
                    "which nobody registered",
                )
            if self._is_new(reference.name, version):
                self._add(version.references, depth + 1)
                self._order.append(Referenced(reference.name, version.definition))

    def _is_new(self, name: str, version: SchemaVersion) -> bool:
        known = self._found.get(name)
        if known is not None:
            if known.registry_id != version.registry_id:
                raise SchemaInvalidError(
                    "references",
                    f"{name!r} is version {known.version} of {known.subject!r} and version {version.version} of "
                    f"{version.subject!r}",
                )
            return False
        self._found[name] = version
        self._size += len(version.definition)
        if len(self._found) > self._settings.references:
            raise SchemaInvalidError(
                "references",
                f"bring along more than {self._settings.references} definitions (broker.schemas.references)",
            )
        if self._size > self._settings.referenced_bytes:
            raise SchemaInvalidError(
                "references",
                f"bring along more than {self._settings.referenced_bytes} bytes (broker.schemas.referenced_bytes)",
            )
        return True


def identities(read: Definition, references: Sequence[SchemaReference]) -> tuple[str, str]:
    """What a definition and its references are known by; then what former releases, which had no references, used."""
    if not references:
        return read.fingerprint, read.former_fingerprint
    digest = hashlib.sha256(read.canonical)
    for each in sorted(references, key=lambda each: (each.name, each.subject, each.version)):
        digest.update(f"\0{each.name}\0{each.subject}\0{each.version}".encode("utf-8", "surrogatepass"))
    identity = f"sha256:{digest.hexdigest()}"
    return identity, identity
