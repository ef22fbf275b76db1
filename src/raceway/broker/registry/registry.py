"""The schema registry: subjects, their versions, and the compatibility of versions.

A subject has one `schema_id` for all its versions, counted from 1 and never reused. A definition with its references
also has a `registry_id` from a 31-bit counter, because the REST API and its serializers identify a definition by one
small number: subjects with the same definition share it. (Earlier releases numbered every version; those numbers stay.)
Everything is stored as control rows of the journal; definitions are kept in memory as registered. Validators are built
from them when first needed.

Deleting has two steps. A deleted version is invisible when registering and publishing, but its definition can still be
read by its number, to decode what was written with it. Deleting it permanently frees its version number.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from raceway import errors
from raceway.broker.bus import Bus
from raceway.broker.registry.references import identities
from raceway.broker.registry.versions import OVERHEAD, Versions, size_of
from raceway.model.intents.schemas import CheckSchema, FindSchema, RegisterSchema
from raceway.model.schemas import CompatibilityMode, SchemaReference, SchemaVersion, SubjectAccess, SubjectRow
from raceway.schema.definition import Definition, Resolved, mode_of, schema_type_of
from raceway.schema.reading import TRANSITIVE, incompatibilities, read_definition

SUBJECTS, VERSIONS, REGISTRY = "subjects", "schemas", "registry"
COUNTERS, DEFAULT_MODE, ACCESS = "counters", "mode", "access"
MAX_REGISTRY_ID = (1 << 31) - 1
MAX_NAME = 255
# Prefix of subjects in a context other than the default one, in Confluent's registry.
CONTEXT = ":."
# Description, creator and tags of a version together.
MAX_NOTES = 64 * 1024
# Version of a reference that stands for the current latest one.
LATEST = -1
# Definitions from this size on are parsed in a thread, to keep the loop responsive; and how many parsed ones may wait
# for their call.
LARGE, KEPT_READ = 16 * 1024, 16


class SubjectRecord(msgspec.Struct, gc=False, omit_defaults=True):
    """Stored properties of a subject besides its versions."""

    schema_id: int
    mode: CompatibilityMode | None = None
    next_version: int = 1
    access: SubjectAccess | None = None


class Counters(msgspec.Struct, gc=False):
    """The last numbers assigned, and how many versions were ever registered."""

    schema_id: int = 0
    registry_id: int = 0
    versions: int = 0


SchemaReferences = tuple[SchemaReference, ...]


class Registry:
    def __init__(self, bus: Bus) -> None:
        self._bus, self._settings = bus, bus.settings.schemas
        self._subjects: dict[str, SubjectRecord] = {}
        self.known = Versions(bus.settings.schemas)
        # Results of the parser thread, for the calls that follow.
        self._read_aside: dict[tuple[str, bytes, Resolved], Definition | errors.RacewayError] = {}
        self._thread: ThreadPoolExecutor | None = None
        self._restore()

    def _restore(self) -> None:
        state = self._bus.journal.state
        kept = state.section(REGISTRY)
        self._counters = msgspec.convert(kept.get(COUNTERS, {}), Counters)
        # Earlier releases numbered every version.
        self._counters.versions = self._counters.versions or self._counters.registry_id
        self.default_mode: CompatibilityMode = mode_of(kept.get(DEFAULT_MODE, "backward"))
        self._access: SubjectAccess = kept.get(ACCESS, "READWRITE")
        for subject, value in state.section(SUBJECTS).items():
            record = self._subjects[subject] = msgspec.convert(value, SubjectRecord)
            self.known.names[record.schema_id] = subject
        found = [msgspec.convert(value, SchemaVersion) for value in state.section(VERSIONS).values()]
        for version in sorted(found, key=lambda version: (version.registry_id, version.created_at_ms)):
            self.known.hold(version)
            self._complete(version)

    def _complete(self, version: SchemaVersion) -> None:
        """Restore from a version what was lost with the file of an older row: its subject, and numbers in use."""
        record = self._subjects.setdefault(version.subject, SubjectRecord(version.schema_id))
        record.next_version = max(record.next_version, version.version + 1)
        self.known.names[version.schema_id] = version.subject
        counters = self._counters
        counters.schema_id = max(counters.schema_id, version.schema_id)
        counters.registry_id = max(counters.registry_id, version.registry_id)

    # ---- reading -----------------------------------------------------------------------------------------------------

    def get(self, schema_id: int, version: int | None = None) -> SchemaVersion:
        """Return a version of the subject with this id, by default the latest. Raises UnknownSchemaError."""
        subject = self.known.names.get(schema_id)
        if subject is None or not self.known.of(subject):
            raise errors.UnknownSchemaError("schema", f"schema {schema_id}")
        return self.latest(subject) if version is None else self.find(subject, version)

    def latest(self, subject: str, deleted: bool = False) -> SchemaVersion:
        """Return the latest version. `deleted`: a deleted one if there is no other. Raises UnknownSchemaError."""
        versions = self.known.of(subject) or self._known(subject, deleted)
        return versions[max(versions)]

    def find(self, subject: str, version: int, deleted: bool = False) -> SchemaVersion:
        """Return a version. `deleted`: also a deleted one. Raises UnknownSchemaError."""
        found = self._known(subject, deleted).get(version)
        if found is None:
            raise errors.UnknownSchemaError("version", f"version {version} of subject {subject!r}")
        return found

    def versions(self, subject: str, deleted: bool = False) -> list[SchemaVersion]:
        """Return all versions, oldest first. `deleted`: include deleted ones. Raises UnknownSchemaError."""
        return sorted(self._known(subject, deleted).values(), key=lambda version: version.version)

    def subjects(self, deleted: bool = False) -> list[SubjectRow]:
        """Return subjects with versions, sorted by name. `deleted`: include those with only deleted versions."""
        rows = []
        for subject in sorted(self.known):
            is_live = bool(self.known.of(subject))
            if is_live or deleted:
                latest = self.latest(subject, deleted)
                rows.append(SubjectRow(
                    subject, latest.schema_id, self.mode(subject), latest.schema_type, latest.version, latest.tags,
                    not is_live,
                ))  # fmt: skip
        return rows

    def registered(self, registry_id: int, deleted: bool = False) -> list[SchemaVersion]:
        """Return all versions with this definition. `deleted`: include deleted ones."""
        return [each for each in self.known.with_definition(registry_id) if deleted or not each.deleted]

    def users(self, version: SchemaVersion, deleted: bool = False) -> list[SchemaVersion]:
        """Return the versions that refer to this one. `deleted`: include deleted ones."""
        return [each for each in self.known.users(version) if deleted or not each.deleted]

    def maybe_same(self, call: FindSchema) -> SchemaVersion | None:
        """Return the version of the subject with this schema. Raises SchemaInvalidError, UnknownSchemaError."""
        versions, references = self._known(call.subject, call.deleted), self._settled(call.references)
        return self._maybe_twin(versions, self._read(call.schema_type, call.definition, references), references)

    def mode(self, subject: str) -> CompatibilityMode:
        """Return the subject's compatibility mode, or the default."""
        return self.own_mode(subject) or self.default_mode

    def own_mode(self, subject: str) -> CompatibilityMode | None:
        record = self._subjects.get(subject)
        return None if record is None else record.mode

    def access(self, subject: str | None = None) -> SubjectAccess:
        """Return whether versions may be registered and deleted: the subject's setting, or the default."""
        return (None if subject is None else self.own_access(subject)) or self._access

    def own_access(self, subject: str) -> SubjectAccess | None:
        record = self._subjects.get(subject)
        return None if record is None else record.access

    # ---- changing ----------------------------------------------------------------------------------------------------

    def register(self, call: RegisterSchema) -> tuple[SchemaVersion, bool]:
        """Register a schema. Return the version, and whether it is new: a schema that the subject has already is not
        registered again. A deleted one is: it keeps the number of its definition and gets the next version.

        Raises SchemaInvalidError, SchemaIncompatibleError, SchemaReadOnlyError, BusyError if the registry is full,
        UnavailableError.
        """
        subject, tags = call.subject, call.tags
        _check_name(subject)
        if sum(map(len, (call.description, call.created_by, *tags))) + len(tags) > MAX_NOTES:
            raise errors.SchemaInvalidError(
                "description, creator and tags", f"have more than {MAX_NOTES} characters in total"
            )
        references = self._settled(call.references)
        read = self._read(call.schema_type, call.definition, references)
        twin = self._maybe_twin(self.known.of(subject, deleted=True), read, references)
        if twin is not None and not twin.deleted:
            return twin, False
        self._check_writable(subject)
        self._check_referable(references)
        self._check_follows(subject, read)
        if twin is not None and self.users(twin, deleted=True):  # they refer to it by its old version
            revived = msgspec.structs.replace(twin, deleted=False)
            self._replace(revived)
            return revived, True
        record = self._subject_record(subject)
        version = SchemaVersion(
            subject, record.schema_id, record.next_version, self._number_of(read, references), read.schema_type,
            read.text or call.definition, identities(read, references)[0], call.description,
            self._bus.clock_us() // 1000, call.created_by, tags, references,
        )  # fmt: skip
        self._keep_version(version, msgspec.structs.replace(record, next_version=version.version + 1))
        self.known.make_ready(version, read)
        return version, True

    def check(self, call: CheckSchema) -> list[str]:
        """Return why the definition is incompatible with the named version, or with those that the mode compares.
        Empty if it is compatible.

        Raises UnknownSchemaError, SchemaInvalidError.
        """
        subject, version = call.subject, call.version
        wanted = self.mode(subject) if call.mode is None else mode_of(call.mode)
        older = self._before(subject, wanted) if version is None else [self.find(subject, version)]
        if not older:
            raise errors.UnknownSchemaError("subject", f"subject {subject!r}")
        read = self._read(call.schema_type, call.definition, self._settled(call.references))
        return [reason for each in older for reason in incompatibilities(read, self.known.ready(each), wanted)]

    def differences(self, subject: str, new: int, old: int) -> dict[str, list[str]]:
        """Return why `new` is incompatible with `old`, backward and forward. Raises UnknownSchemaError."""
        newer, older = (self.known.ready(self.find(subject, number, deleted=True)) for number in (new, old))
        return {"backward": incompatibilities(newer, older, "backward"),
                "forward": incompatibilities(newer, older, "forward")}  # fmt: skip

    def set_mode(self, subject: str, mode: str) -> None:
        """Set the mode of a subject. Raises UnknownSchemaError, SchemaInvalidError, SchemaReadOnlyError."""
        wanted = mode_of(mode)
        self._known(subject)
        self._check_writable(subject)
        self._keep_subject(subject, msgspec.structs.replace(self._subjects[subject], mode=wanted))

    def prepare_mode(self, subject: str | None, mode: str | None) -> None:
        """Set the mode of a subject, also before its first version; None: the default. Without a subject, set the
        default. Raises SchemaInvalidError, SchemaReadOnlyError.
        """
        if subject is not None:
            _check_name(subject)
        wanted = None if mode is None else mode_of(mode)
        self._check_writable(subject)
        if subject is None:
            self._bus.set_state(REGISTRY, DEFAULT_MODE, wanted or "backward")
            self.default_mode = wanted or "backward"
            return
        self._check_room(OVERHEAD)
        self._keep_subject(subject, msgspec.structs.replace(self._subject_record(subject), mode=wanted))

    def set_access(self, subject: str | None, access: SubjectAccess | None) -> None:
        """Set the access of a subject, also before its first version, or the default. None resets it."""
        if subject is None:
            self._bus.set_state(REGISTRY, ACCESS, access)
            self._access = access or "READWRITE"
            return
        _check_name(subject)
        self._check_room(OVERHEAD)
        self._keep_subject(subject, msgspec.structs.replace(self._subject_record(subject), access=access))

    # ---- deleting ----------------------------------------------------------------------------------------------------

    def delete_version(self, subject: str, version: int, permanent: bool = False) -> None:
        """Delete a version; `permanent`: a deleted one for good.

        Raises UnknownSchemaError, SchemaDeletionError, SchemaInUseError, SchemaReadOnlyError.
        """
        found = self.find(subject, version, deleted=True)
        if found.deleted != permanent:
            raise errors.SchemaDeletionError(
                "version", f"version {version} of subject {subject!r}", already=found.deleted
            )
        self._check_writable(subject)
        self._check_unused(found, self.users(found, deleted=permanent))
        self._delete(found)

    def delete_subject(self, subject: str, permanent: bool = False) -> list[int]:
        """Delete all versions and settings of a subject, or its deleted versions for good. Raises as
        `delete_version`."""
        versions = self.versions(subject, deleted=True)
        is_deleted = not self.known.of(subject)
        if is_deleted != permanent:
            raise errors.SchemaDeletionError("subject", f"subject {subject!r}", already=is_deleted)
        self._check_writable(subject)
        versions = versions if permanent else self.versions(subject)
        for each in versions:
            others = [user for user in self.users(each, deleted=permanent) if user.subject != subject]
            self._check_unused(each, others)
        for each in versions:
            self._delete(each)
        if not permanent:
            self._keep_subject(subject, msgspec.structs.replace(self._subjects[subject], mode=None, access=None))
        return [each.version for each in versions]

    def _delete(self, version: SchemaVersion) -> None:
        if version.deleted:
            self._forget(version)
        else:
            self._replace(msgspec.structs.replace(version, deleted=True))

    def _check_unused(self, version: SchemaVersion, users: list[SchemaVersion]) -> None:
        if users:
            what = f"version {version.version} of subject {version.subject!r}"
            raise errors.SchemaInUseError(
                what, [f"version {each.version} of subject {each.subject!r}" for each in users]
            )

    # ---- storage -----------------------------------------------------------------------------------------------------

    def _keep_version(self, version: SchemaVersion, record: SubjectRecord) -> None:
        """Store a new version. The journal first: if it raises, nothing has changed."""
        self._check_room(size_of(version))
        if version.registry_id > MAX_REGISTRY_ID:
            raise errors.BusyError("no schema ids are left")
        self._bus.set_state(VERSIONS, self._key(version), msgspec.to_builtins(version))
        self._keep_subject(version.subject, record)
        self._counters.registry_id = max(self._counters.registry_id, version.registry_id)
        self._counters.versions += 1
        self._bus.set_state(REGISTRY, COUNTERS, msgspec.to_builtins(self._counters))
        for each in self.registered(version.registry_id, deleted=True):
            if each.subject == version.subject:  # a deleted version, whose row the new one replaces
                self.known.let_go(each)
        self.known.hold(version)

    def _key(self, version: SchemaVersion) -> str:
        """Return the key of a version's row in the state.

        The first subject with a definition uses its number alone, as earlier releases did; others add their own id.
        """
        rows = self._bus.journal.state.section(VERSIONS)
        alone, own = str(version.registry_id), f"{version.registry_id}/{version.schema_id}"
        is_free = alone not in rows or rows[alone]["subject"] == version.subject
        return alone if is_free and own not in rows else own

    def _replace(self, version: SchemaVersion) -> None:
        self._bus.set_state(VERSIONS, self._key(version), msgspec.to_builtins(version))
        self.known.let_go(self.known.of(version.subject, deleted=True)[version.version])
        self.known.hold(version)

    def _forget(self, version: SchemaVersion) -> None:
        self._bus.set_state(VERSIONS, self._key(version), None)
        self.known.let_go(version)
        left = max(self.known.of(version.subject, deleted=True), default=0)
        record = self._subjects[version.subject]
        self._keep_subject(version.subject, msgspec.structs.replace(record, next_version=left + 1))

    def _check_room(self, size: int) -> None:
        if self.known.size + OVERHEAD * len(self._subjects) + size > self._settings.total_bytes:
            raise errors.BusyError("the schema registry is full (broker.schemas.total_bytes)")

    def _subject_record(self, subject: str) -> SubjectRecord:
        """Return the record of a subject, or a new one with the next id."""
        return self._subjects.get(subject) or SubjectRecord(self._counters.schema_id + 1)

    def _keep_subject(self, subject: str, record: SubjectRecord) -> None:
        self._bus.set_state(SUBJECTS, subject, msgspec.to_builtins(record))
        self._subjects[subject] = record
        self.known.names[record.schema_id] = subject
        if record.schema_id > self._counters.schema_id:
            self._counters.schema_id = record.schema_id
            self._bus.set_state(REGISTRY, COUNTERS, msgspec.to_builtins(self._counters))

    def _number_of(self, read: Definition, references: SchemaReferences) -> int:
        """Return the number of a known definition, or the next free one."""
        known = self.known.maybe_number(read.schema_type, identities(read, references))
        return self._counters.registry_id + 1 if known is None else known

    # ---- definitions -------------------------------------------------------------------------------------------------

    def _settled(self, references: SchemaReferences) -> SchemaReferences:
        """Return the references with LATEST replaced by version numbers. Raises SchemaInvalidError."""
        if len(references) > self._settings.references:
            raise errors.SchemaInvalidError(
                "references", f"{len(references)} exceed {self._settings.references} (broker.schemas.references)"
            )
        return tuple(
            msgspec.structs.replace(each, version=latest.version)
            if each.version == LATEST and (latest := self.known.maybe_version(each.subject, None)) is not None
            else each
            for each in references
        )

    def _check_referable(self, references: SchemaReferences) -> None:
        """Check that no new reference is to a deleted version; existing references stay valid."""
        for each in references:
            if each.version not in self.known.of(each.subject):
                raise errors.SchemaInvalidError("references", f"version {each.version} of {each.subject!r} was deleted")

    def _read(self, schema_type: str, definition: bytes, references: SchemaReferences = ()) -> Definition:
        limit = self._settings.definition_bytes
        if len(definition) > limit:
            raise errors.SchemaInvalidError(
                "definition", f"has {len(definition)} bytes, {limit} are allowed (broker.schemas.definition_bytes)"
            )
        resolved = self.known.resolved(references)
        found = self._read_aside.pop((schema_type, definition, resolved), None)
        if isinstance(found, errors.RacewayError):
            raise found
        return found or read_definition(schema_type_of(schema_type), definition, resolved)

    def maybe_read_aside(
        self, schema_type: str, definition: bytes, references: SchemaReferences = ()
    ) -> Future[None] | None:
        """Start to parse a large definition in a thread; `register` or `check` must wait for the result. None if it is
        small, exceeds the limit, or has unknown references."""
        try:
            resolved = self.known.resolved(self._settled(references))
        except errors.SchemaInvalidError:
            return None
        size = len(definition) + sum(len(each.definition) for each in resolved)
        if size < LARGE or len(definition) > self._settings.definition_bytes:
            return None
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="raceway-schemas")
        return self._thread.submit(self._read_in_thread, schema_type, definition, resolved)

    def _read_in_thread(self, schema_type: str, definition: bytes, resolved: Resolved) -> None:
        found: Definition | errors.RacewayError
        try:
            found = read_definition(schema_type_of(schema_type), definition, resolved)
        except errors.RacewayError as error:
            found = error
        if len(self._read_aside) >= KEPT_READ:  # their callers have disconnected
            self._read_aside.clear()
        self._read_aside[schema_type, definition, resolved] = found

    def _known(self, subject: str, deleted: bool = False) -> dict[int, SchemaVersion]:
        versions = self.known.of(subject, deleted)
        if not versions:
            raise errors.UnknownSchemaError("subject", f"subject {subject!r}")
        return versions

    def _maybe_twin(
        self, versions: dict[int, SchemaVersion], read: Definition, references: SchemaReferences
    ) -> SchemaVersion | None:
        known_as = identities(read, references)
        same = (v for v in versions.values() if v.fingerprint in known_as and v.schema_type == read.schema_type)
        return next(same, None)

    def _before(self, subject: str, mode: CompatibilityMode) -> list[SchemaVersion]:
        """Return the versions that a mode compares with, latest first."""
        versions = sorted(self.known.of(subject).values(), key=lambda version: -version.version)
        return versions if mode.endswith(TRANSITIVE) else versions[:1]

    def _check_follows(self, subject: str, read: Definition) -> None:
        mode = self.mode(subject)
        for older in self._before(subject, mode):
            reasons = incompatibilities(read, self.known.ready(older), mode)
            if reasons:
                raise errors.SchemaIncompatibleError(subject, older.version, mode, reasons)

    def _check_writable(self, subject: str | None) -> None:
        if self.access(subject) == "READONLY":
            raise errors.SchemaReadOnlyError("the registry" if subject is None else f"subject {subject!r}")


def _check_name(subject: str) -> None:
    if not subject or len(subject) > MAX_NAME or not subject.isprintable():
        raise errors.SchemaInvalidError("subject", f"must have 1 to {MAX_NAME} printable characters")
    if subject.startswith(CONTEXT):
        raise errors.SchemaInvalidError("subject", f"{subject!r} names a context; contexts are not supported")
