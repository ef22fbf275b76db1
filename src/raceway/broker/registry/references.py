"""References between schema definitions: collect all definitions that one needs, within limits.

A reference names a version, which never changes, and is resolved when the referring definition is registered. So
references cannot be circular; depth and total size are limited all the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from raceway import config
from raceway.errors import SchemaInvalidError
from raceway.model.schemas import SchemaReference, SchemaVersion
from raceway.schema.definition import Definition, Referenced, Resolved

# Longest chain of references.
MAX_DEPTH = 20

Find = Callable[[SchemaReference], SchemaVersion | None]


def resolve(references: Sequence[SchemaReference], find: Find, settings: config.SchemaSettings) -> Resolved:
    """Return all referenced definitions, dependencies first. Raises SchemaInvalidError."""
    return _Resolution(find, settings).all(references)


class _Resolution:
    def __init__(self, find: Find, settings: config.SchemaSettings) -> None:
        self._find, self._settings = find, settings
        self._found: dict[str, SchemaVersion] = {}
        self._order: list[Referenced] = []
        self._size = 0

    def all(self, references: Sequence[SchemaReference]) -> Resolved:
        self._add(references, 1)
        return tuple(self._order)

    def _add(self, references: Sequence[SchemaReference], depth: int) -> None:
        if references and depth > MAX_DEPTH:
            raise SchemaInvalidError("references", f"nested more than {MAX_DEPTH} levels deep")
        for reference in references:
            version = self._find(reference)
            if version is None:
                raise SchemaInvalidError(
                    "references",
                    f"{reference.name!r} is version {reference.version} of subject {reference.subject!r}, "
                    "which is not registered",
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
                    f"{name!r} is both version {known.version} of {known.subject!r} and version {version.version} of "
                    f"{version.subject!r}",
                )
            return False
        self._found[name] = version
        self._size += len(version.definition)
        if len(self._found) > self._settings.references:
            raise SchemaInvalidError(
                "references",
                f"include more than {self._settings.references} definitions (broker.schemas.references)",
            )
        if self._size > self._settings.referenced_bytes:
            raise SchemaInvalidError(
                "references",
                f"include more than {self._settings.referenced_bytes} bytes (broker.schemas.referenced_bytes)",
            )
        return True


def identities(read: Definition, references: Sequence[SchemaReference]) -> tuple[str, str]:
    """Return the fingerprint of a definition with its references, and the one that earlier releases used."""
    if not references:
        return read.fingerprint, read.former_fingerprint
    digest = hashlib.sha256(read.canonical)
    for each in sorted(references, key=lambda each: (each.name, each.subject, each.version)):
        digest.update(f"\0{each.name}\0{each.subject}\0{each.version}".encode("utf-8", "surrogatepass"))
    identity = f"sha256:{digest.hexdigest()}"
    return identity, identity
