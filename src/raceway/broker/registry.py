"""The schema registry: subjects, their versions, and how versions may follow one another.

A subject has one `schema_id` for all its versions, counted from 1 and never given again; so are version numbers within
a subject. Every version has a `registry_id` of its own besides, from a counter of 31 bits, because the REST form and
its serializers name a version by one small number. All of it is control rows of the journal; in memory are the
definitions as they were registered. What checks payloads is made from them when first needed.

Deleting takes a version away everywhere; messages that were stored with it keep its numbers.
"""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from raceway import config
from raceway.broker.bus import Bus
from raceway.errors import BusyError, RacewayError, SchemaIncompatibleError, SchemaInvalidError, UnknownSchemaError
from raceway.model.schemas import Mode, SchemaVersion, SubjectRow
from raceway.schema.definition import Definition, mode_of, schema_type_of
from raceway.schema.reading import incompatibilities, read_definition

SUBJECTS, VERSIONS, REGISTRY = "subjects", "schemas", "registry"
COUNTERS, DEFAULT_MODE = "counters", "mode"
MAX_REGISTRY_ID = (1 << 31) - 1
MAX_NAME = 255
# Description, creator and tags of a version together.
MAX_NOTES = 64 * 1024
# What a version or a subject takes beside its texts; nothing is free, or strangers would register nothing for ever.
OVERHEAD = 512
# Deletions that can still be made final.
KEPT_DELETIONS = 1000
# Definitions that are ready to check with; others are read again when a message needs them.
READY = 500
# From this size on reading a definition takes so long that the loop should not wait for it; and how many may be read
# and not yet asked for.
LARGE, KEPT_READ = 16 * 1024, 16


class SubjectRecord(msgspec.Struct, gc=False, omit_defaults=True):
    """What is kept of a subject beside its versions. `deleted` are numbers whose deletion can still be made final."""

    schema_id: int
    mode: Mode | None = None
    next_version: int = 1
    deleted: list[int] = []


class Counters(msgspec.Struct, gc=False):
    """The last ones given."""

    schema_id: int = 0
    registry_id: int = 0


class Registry:
    def __init__(self, bus: Bus, settings: config.Schemas) -> None:
        self._bus = bus
        self._settings = settings
        self._subjects: dict[str, SubjectRecord] = {}
        self._versions: dict[str, dict[int, SchemaVersion]] = {}
        self._names: dict[int, str] = {}
        self._by_registry_id: dict[int, SchemaVersion] = {}
        self._ready: OrderedDict[int, Definition] = OrderedDict()
        # What the thread made of large definitions, for the call that follows.
        self._read_aside: dict[tuple[str, bytes], Definition | RacewayError] = {}
        self._thread: ThreadPoolExecutor | None = None
        self._size = 0
        # Raised by every change: what was concluded from the registry before may not hold any more.
        self.generation = 0
        self._restore()

    def _restore(self) -> None:
        state = self._bus.journal.state
        kept = state.section(REGISTRY)
        self._counters = msgspec.convert(kept.get(COUNTERS, {}), Counters)
        self._default_mode: Mode = mode_of(kept.get(DEFAULT_MODE, "backward"))
        for subject, value in state.section(SUBJECTS).items():
            record = self._subjects[subject] = msgspec.convert(value, SubjectRecord)
            self._names[record.schema_id] = subject
        found = [msgspec.convert(value, SchemaVersion) for value in state.section(VERSIONS).values()]
        for version in sorted(found, key=lambda version: version.registry_id):
            self._hold(version)

    # ---- reading -----------------------------------------------------------------------------------------------------

    def get(self, schema_id: int, version: int | None = None) -> SchemaVersion:
        """One version of the subject with this id, the latest if none is named. Raises UnknownSchemaError."""
        subject = self._names.get(schema_id)
        if subject is None or not self._versions.get(subject):
            raise UnknownSchemaError("schema", f"schema {schema_id}")
        return self.latest(subject) if version is None else self.find(subject, version)

    def latest(self, subject: str) -> SchemaVersion:
        """Raises UnknownSchemaError."""
        versions = self._known(subject)
        return versions[max(versions)]

    def find(self, subject: str, version: int) -> SchemaVersion:
        """Raises UnknownSchemaError."""
        found = self._known(subject).get(version)
        if found is None:
            raise UnknownSchemaError("version", f"version {version} of subject {subject!r}")
        return found

    def versions(self, subject: str) -> list[SchemaVersion]:
        """All of them, oldest first. Raises UnknownSchemaError."""
        return sorted(self._known(subject).values(), key=lambda version: version.version)

    def subjects(self) -> list[SubjectRow]:
        """Subjects that have versions, by name."""
        rows = []
        for subject in sorted(name for name, versions in self._versions.items() if versions):
            latest = self.latest(subject)
            rows.append(SubjectRow(
                subject, latest.schema_id, self.mode(subject), latest.schema_type, latest.version, latest.tags
            ))  # fmt: skip
        return rows

    def maybe_subject(self, schema_id: int) -> str | None:
        """The subject that has this id, also when all its versions were deleted."""
        return self._names.get(schema_id)

    def maybe_version(self, subject: str, version: int | None) -> SchemaVersion | None:
        """None as `version` means the latest."""
        versions = self._versions.get(subject)
        return versions.get(max(versions) if version is None else version) if versions else None

    def maybe_registered(self, registry_id: int) -> SchemaVersion | None:
        """The version that the REST form and its serializers call so."""
        return self._by_registry_id.get(registry_id)

    def maybe_same(self, subject: str, schema_type: str, definition: bytes) -> SchemaVersion | None:
        """The version of the subject that is this very schema. Raises SchemaInvalidError, UnknownSchemaError."""
        read = self._read(schema_type, definition)
        return self._maybe_twin(self._known(subject), read)

    def ready(self, version: SchemaVersion) -> Definition:
        """What checks payloads of this version."""
        found = self._ready.get(version.registry_id)
        if found is None:
            found = self._make_ready(version, read_definition(version.schema_type, version.definition))
        else:
            self._ready.move_to_end(version.registry_id)
        return found

    def mode(self, subject: str) -> Mode:
        """The subject's own, else the one for all."""
        return self.own_mode(subject) or self._default_mode

    def own_mode(self, subject: str) -> Mode | None:
        record = self._subjects.get(subject)
        return None if record is None else record.mode

    @property
    def default_mode(self) -> Mode:
        return self._default_mode

    # ---- changing ----------------------------------------------------------------------------------------------------

    def register(
        self,
        subject: str,
        schema_type: str,
        definition: bytes,
        *,
        description: str = "",
        created_by: str = "",
        tags: tuple[str, ...] = (),
    ) -> tuple[SchemaVersion, bool]:
        """The version, and whether it is new: a schema that the subject has already is not registered again.

        Raises SchemaInvalidError, SchemaIncompatibleError, BusyError when there is no room, UnavailableError.
        """
        _check_name(subject)
        if sum(map(len, (description, created_by, *tags))) + len(tags) > MAX_NOTES:
            raise SchemaInvalidError("description, creator and tags", f"have more than {MAX_NOTES} characters together")
        read = self._read(schema_type, definition)
        versions = self._versions.get(subject, {})
        twin = self._maybe_twin(versions, read)
        if twin is not None:
            return twin, False
        self._check_follows(subject, read)
        record = self._subject_record(subject)
        version = SchemaVersion(
            subject, record.schema_id, record.next_version, self._counters.registry_id + 1, read.schema_type,
            definition, read.fingerprint, description, self._bus.clock_us() // 1000, created_by, tags,
        )  # fmt: skip
        self._keep_version(version, msgspec.structs.replace(record, next_version=version.version + 1))
        self._make_ready(version, read)
        return version, True

    def check(
        self, subject: str, schema_type: str, definition: bytes, mode: str | None = None, version: int | None = None
    ) -> list[str]:
        """Why the definition may not follow the latest version, or the one named; empty when it may.

        Raises UnknownSchemaError, SchemaInvalidError.
        """
        wanted = self.mode(subject) if mode is None else mode_of(mode)
        old = self.latest(subject) if version is None else self.find(subject, version)
        return incompatibilities(self._read(schema_type, definition), self.ready(old), wanted)

    def differences(self, subject: str, new: int, old: int) -> dict[str, list[str]]:
        """Why `new` cannot follow `old`, for each mode that asks for something. Raises UnknownSchemaError."""
        newer, older = self.ready(self.find(subject, new)), self.ready(self.find(subject, old))
        return {"backward": incompatibilities(newer, older, "backward"),
                "forward": incompatibilities(newer, older, "forward")}  # fmt: skip

    def set_mode(self, subject: str, mode: str) -> None:
        """Raises UnknownSchemaError, SchemaInvalidError."""
        wanted = mode_of(mode)
        self._known(subject)
        self._keep_subject(subject, msgspec.structs.replace(self._subjects[subject], mode=wanted))

    def prepare_mode(self, subject: str, mode: str | None) -> None:
        """The subject's mode, also before its first version; None: the one for all."""
        _check_name(subject)
        wanted = None if mode is None else mode_of(mode)
        self._check_room(OVERHEAD)
        self._keep_subject(subject, msgspec.structs.replace(self._subject_record(subject), mode=wanted))

    def set_default_mode(self, mode: str) -> None:
        """For subjects that have none of their own."""
        wanted = mode_of(mode)
        self._bus.set_state(REGISTRY, DEFAULT_MODE, wanted)
        self._default_mode = wanted

    def delete_version(self, subject: str, version: int) -> None:
        """Raises UnknownSchemaError."""
        found = self.find(subject, version)
        record = self._subjects[subject]
        self._bus.set_state(VERSIONS, str(found.registry_id), None)
        self._keep_subject(
            subject, msgspec.structs.replace(record, deleted=[*record.deleted, version][-KEPT_DELETIONS:])
        )
        del self._versions[subject][version], self._by_registry_id[found.registry_id]
        self._ready.pop(found.registry_id, None)
        self._size -= _size_of(found)
        self.generation += 1

    def deleted(self, subject: str) -> list[int]:
        """Versions that were deleted, and not for good."""
        record = self._subjects.get(subject)
        return [] if record is None else sorted(record.deleted)

    def forget_deleted(self, subject: str, versions: list[int]) -> None:
        """Their deletion is final: nobody can be told any more that they were."""
        record = self._subjects[subject]
        left = [version for version in record.deleted if version not in versions]
        self._keep_subject(subject, msgspec.structs.replace(record, deleted=left))

    # ---- keeping -----------------------------------------------------------------------------------------------------

    def _keep_version(self, version: SchemaVersion, record: SubjectRecord) -> None:
        """The journal first: it raises if it takes nothing, and then nothing has changed."""
        self._check_room(_size_of(version))
        if version.registry_id > MAX_REGISTRY_ID:
            raise BusyError("all numbers for schemas are used up")
        self._bus.set_state(VERSIONS, str(version.registry_id), msgspec.to_builtins(version))
        self._keep_subject(version.subject, record)
        self._counters.registry_id = version.registry_id
        self._bus.set_state(REGISTRY, COUNTERS, msgspec.to_builtins(self._counters))
        self._hold(version)
        self.generation += 1

    def _check_room(self, size: int) -> None:
        if self._size + OVERHEAD * len(self._subjects) + size > self._settings.total_bytes:
            raise BusyError("there is no room for more schemas (broker.schemas.total_bytes)")

    def _subject_record(self, subject: str) -> SubjectRecord:
        """The one that is kept, else a new one with the next id."""
        return self._subjects.get(subject) or SubjectRecord(self._counters.schema_id + 1)

    def _keep_subject(self, subject: str, record: SubjectRecord) -> None:
        self._bus.set_state(SUBJECTS, subject, msgspec.to_builtins(record))
        self._subjects[subject] = record
        self._names[record.schema_id] = subject
        if record.schema_id > self._counters.schema_id:
            self._counters.schema_id = record.schema_id
            self._bus.set_state(REGISTRY, COUNTERS, msgspec.to_builtins(self._counters))

    def _hold(self, version: SchemaVersion) -> None:
        self._versions.setdefault(version.subject, {})[version.version] = version
        self._by_registry_id[version.registry_id] = version
        self._size += _size_of(version)

    def _make_ready(self, version: SchemaVersion, definition: Definition) -> Definition:
        self._ready[version.registry_id] = definition
        if len(self._ready) > READY:
            self._ready.popitem(last=False)
        return definition

    def _read(self, schema_type: str, definition: bytes) -> Definition:
        limit = self._settings.definition_bytes
        if len(definition) > limit:
            raise SchemaInvalidError(
                "definition", f"has {len(definition)} bytes, {limit} are allowed (broker.schemas.definition_bytes)"
            )
        found = self._read_aside.pop((schema_type, definition), None)
        if isinstance(found, RacewayError):
            raise found
        return found or read_definition(schema_type_of(schema_type), definition)

    def maybe_read_aside(self, schema_type: str, definition: bytes) -> Future[None] | None:
        """Whoever is about to register or check a large definition waits for this first: a thread reads it, so that
        nobody else waits. None: it is small, or too large to be looked at."""
        if not LARGE <= len(definition) <= self._settings.definition_bytes:
            return None
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="raceway-schemas")
        return self._thread.submit(self._read_in_thread, schema_type, definition)

    def _read_in_thread(self, schema_type: str, definition: bytes) -> None:
        found: Definition | RacewayError
        try:
            found = read_definition(schema_type_of(schema_type), definition)
        except RacewayError as error:
            found = error
        if len(self._read_aside) >= KEPT_READ:  # their senders have left
            self._read_aside.clear()
        self._read_aside[schema_type, definition] = found

    def _known(self, subject: str) -> dict[int, SchemaVersion]:
        versions = self._versions.get(subject)
        if not versions:
            raise UnknownSchemaError("subject", f"subject {subject!r}")
        return versions

    def _maybe_twin(self, versions: dict[int, SchemaVersion], read: Definition) -> SchemaVersion | None:
        fingerprint = read.fingerprint
        same = (v for v in versions.values() if v.fingerprint == fingerprint and v.schema_type == read.schema_type)
        return next(same, None)

    def _check_follows(self, subject: str, read: Definition) -> None:
        latest = self.maybe_version(subject, None)
        if latest is None:
            return
        mode = self.mode(subject)
        reasons = incompatibilities(read, self.ready(latest), mode)
        if reasons:
            raise SchemaIncompatibleError(subject, latest.version, mode, reasons)


def _size_of(version: SchemaVersion) -> int:
    texts = (version.description, version.created_by, *version.tags)
    return OVERHEAD + len(version.definition) + sum(map(len, texts))


def _check_name(subject: str) -> None:
    if not subject or len(subject) > MAX_NAME or not subject.isprintable():
        raise SchemaInvalidError("subject", f"a name has 1 to {MAX_NAME} visible characters")
