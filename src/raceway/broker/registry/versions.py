"""Index of schema versions in memory: by subject and number, by number of the definition, by fingerprint, and by
reference."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from raceway import config
from raceway.broker.registry.references import resolve
from raceway.model.schemas import SchemaReference, SchemaVersion
from raceway.schema.definition import Definition, Resolved
from raceway.schema.reading import read_definition

# Size counted per version besides its texts, so that many empty ones reach the limit too.
OVERHEAD = 512
# Cached validators; others are built again when a message needs them.
READY = 500


class Versions:
    """All versions, including deleted ones that are not deleted permanently."""

    def __init__(self, settings: config.SchemaSettings) -> None:
        self._settings = settings
        # Schema ids to subjects, also of subjects whose versions were all deleted.
        self.names: dict[int, str] = {}
        # Incremented by every change, to invalidate caches.
        self.generation = 0
        self._ready: OrderedDict[int, Definition] = OrderedDict()
        self._of_subject: dict[str, dict[int, SchemaVersion]] = {}
        self._by_registry_id: dict[int, list[SchemaVersion]] = {}
        # (type, fingerprint) to the number of the definition.
        self._numbers: dict[tuple[str, str], int] = {}
        # Versions to those that refer to them.
        self._users: dict[tuple[str, int], set[tuple[str, int]]] = {}
        self.size = 0

    def __iter__(self) -> Iterator[str]:
        """Iterate over the subjects."""
        return iter(self._of_subject)

    def hold(self, version: SchemaVersion) -> None:
        self._of_subject.setdefault(version.subject, {})[version.version] = version
        self._by_registry_id.setdefault(version.registry_id, []).append(version)
        self._numbers.setdefault((version.schema_type, version.fingerprint), version.registry_id)
        for each in version.references:
            self._users.setdefault((each.subject, each.version), set()).add((version.subject, version.version))
        self.size += size_of(version)
        self.generation += 1

    def let_go(self, version: SchemaVersion) -> None:
        del self._of_subject[version.subject][version.version]
        if not self._of_subject[version.subject]:
            del self._of_subject[version.subject]
        self._by_registry_id[version.registry_id].remove(version)
        if not self._by_registry_id[version.registry_id]:
            del self._by_registry_id[version.registry_id]
            self._ready.pop(version.registry_id, None)
            self._numbers.pop((version.schema_type, version.fingerprint), None)
        for key in {(each.subject, each.version) for each in version.references}:
            self._users[key].discard((version.subject, version.version))
            if not self._users[key]:
                del self._users[key]
        self.size -= size_of(version)
        self.generation += 1

    def of(self, subject: str, deleted: bool = False) -> dict[int, SchemaVersion]:
        """Return versions by number. `deleted`: include deleted ones."""
        versions = self._of_subject.get(subject, {})
        if deleted or not any(version.deleted for version in versions.values()):
            return versions
        return {number: version for number, version in versions.items() if not version.deleted}

    def with_definition(self, registry_id: int) -> Sequence[SchemaVersion]:
        return self._by_registry_id.get(registry_id, ())

    def maybe_number(self, schema_type: str, fingerprints: tuple[str, ...]) -> int | None:
        """Return the number of a definition with one of these fingerprints, if known."""
        known = (self._numbers.get((schema_type, each)) for each in fingerprints)
        return next((number for number in known if number is not None), None)

    def users(self, version: SchemaVersion) -> list[SchemaVersion]:
        """Return the versions that refer to this one."""
        found = self._users.get((version.subject, version.version), ())
        return [self._of_subject[subject][number] for subject, number in sorted(found)]

    def maybe_version(self, subject: str, version: int | None) -> SchemaVersion | None:
        """Return a version, or the latest if `version` is None."""
        versions = self.of(subject)
        return versions.get(max(versions) if version is None else version) if versions else None

    def maybe_registered(self, registry_id: int, subject: str | None = None) -> SchemaVersion | None:
        """Return a version with this definition: preferably of this subject, then one that is not deleted."""
        found = self.with_definition(registry_id)
        return min(found, key=lambda each: (each.subject != subject, each.deleted), default=None)

    # ---- validators --------------------------------------------------------------------------------------------------

    def ready(self, version: SchemaVersion) -> Definition:
        """Return the validator of this version, built if needed."""
        found = self._ready.get(version.registry_id)
        if found is None:
            resolved = self.resolved(version.references)
            found = self.make_ready(version, read_definition(version.schema_type, version.definition, resolved))
        else:
            self._ready.move_to_end(version.registry_id)
        return found

    def make_ready(self, version: SchemaVersion, definition: Definition) -> Definition:
        self._ready[version.registry_id] = definition
        if len(self._ready) > READY:
            self._ready.popitem(last=False)
        return definition

    def resolved(self, references: Sequence[SchemaReference]) -> Resolved:
        """Return all referenced definitions, dependencies first. Raises SchemaInvalidError."""
        return resolve(references, lambda each: self.of(each.subject, deleted=True).get(each.version), self._settings)


def size_of(version: SchemaVersion) -> int:
    texts = [version.description, version.created_by, *version.tags]
    texts += [text for each in version.references for text in (each.name, each.subject)]
    return OVERHEAD + len(version.definition) + sum(map(len, texts))
