"""The full schema registry over the console port, for `raceway schema` and the console.

Confluent's API for existing serializers is in `registry.py`; it has no creators, tags, fingerprints or bindings of
topics.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request

from raceway.errors import MalformedError, SchemaInvalidError, UnknownTopicError
from raceway.model.intents.schemas import BindTopic, CheckSchema, DeleteVersion, RegisterSchema, SetMode, UnbindTopic
from raceway.model.schemas import SchemaReference, SchemaVersion, SubjectRow, TopicSchema
from raceway.web.inputs import read_body, read_json
from raceway.web.routing import MANAGE_SCHEMA, READ_SCHEMAS, Answered, Site, SiteRoutes, delete, get, post, put

# Size of a body besides its definition, which may be base64.
OVERHEAD = 128 * 1024
SUBJECT = "/api/schemas/{subject:path}"
VERSION, TOPIC = f"{SUBJECT}/versions/{{version}}", "/api/topic-schemas/{topic:path}"


class DefinitionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A definition to register or check: as text, or as base64."""

    type: str
    definition: str | None = None
    definition_base64: str | None = None
    description: str = ""
    created_by: str = ""
    tags: tuple[str, ...] = ()
    mode: str | None = None
    version: int | None = None
    references: tuple[SchemaReference, ...] = ()

    @property
    def content(self) -> bytes:
        if self.definition_base64 is None:
            return (self.definition or "").encode()
        try:
            return b64decode(self.definition_base64, validate=True)
        except ValueError as error:
            raise SchemaInvalidError("definition_base64", str(error)) from error


class TopicSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Schema binding of a topic. Absent fields stay unchanged."""

    subject: str | UnsetType | None = UNSET
    policy: str | None = None
    validate_payload: bool | None = None


class DeletedQuery(msgspec.Struct, frozen=True, kw_only=True):
    deleted: Annotated[bool, Meta(description="Whether to show deleted ones too.")] = False


class DeletionQuery(msgspec.Struct, frozen=True, kw_only=True):
    permanent: Annotated[bool, Meta(description="Whether to remove a deleted version for good.")] = False


class DifferenceQuery(msgspec.Struct, frozen=True, kw_only=True):
    old: Annotated[str, Meta(description="A version, or `latest`.")] = "latest"
    new: Annotated[str, Meta(description="A version, or `latest`.")] = "latest"


class Subjects(msgspec.Struct, frozen=True):
    subjects: list[SubjectRow]


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a subject. A definition that is not text is base64."""

    subject: str
    schema_id: int
    version: int
    registry_id: int
    schema_type: str
    fingerprint: str
    description: str = ""
    created_at_ms: int = 0
    created_by: str = ""
    tags: tuple[str, ...] = ()
    references: tuple[SchemaReference, ...] = ()
    deleted: bool = False
    referenced_by: list[str] = []
    definition: str | UnsetType = UNSET
    definition_base64: str | UnsetType = UNSET
    mode: str | UnsetType = UNSET
    is_new_version: bool | UnsetType = UNSET


class VersionList(msgspec.Struct, frozen=True):
    subject: str
    mode: str
    versions: list[Version]


class Mode(msgspec.Struct, frozen=True):
    mode: str


class SubjectMode(msgspec.Struct, frozen=True):
    subject: str
    mode: str


class Compatibility(msgspec.Struct, frozen=True):
    subject: str
    version: int
    mode: str
    is_compatible: bool
    reasons: list[str]


class Differences(msgspec.Struct, frozen=True):
    """Two versions. `reasons`: why readers of the new version cannot read data of the old one (`backward`), and vice
    versa (`forward`)."""

    subject: str
    old: Version
    new: Version
    reasons: dict[str, list[str]]


class BoundTopics(msgspec.Struct, frozen=True):
    topics: list[TopicSchema]


class RegistryGroup(SiteRoutes):
    """A group of routes of the schema registry."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._schemas = self._view.schemas
        self._body_limit = 2 * self._door.runtime.settings.schemas.definition_bytes + OVERHEAD


class SchemaRoutes(RegistryGroup):
    # ---- subjects ----------------------------------------------------------------------------------------------------

    @get("/api/schemas", READ_SCHEMAS, "schemas")
    async def subjects(self, query: DeletedQuery) -> Subjects:
        """Subjects with their latest version."""
        return Subjects(self._schemas.subjects(query.deleted))

    @get(VERSION, READ_SCHEMAS, "schemas")
    async def version(self, subject: str, version: str, query: DeletedQuery) -> Version:
        """A version of a subject."""
        return self._shown(self._find(subject, version, query.deleted), mode=self._schemas.mode(subject))

    @delete(VERSION, MANAGE_SCHEMA, "schemas")
    async def delete_version(self, request: Request, subject: str, version: str, query: DeletionQuery) -> Version:
        """Delete a version."""
        found = self._find(subject, version, deleted=True)
        await self._ask(request, DeleteVersion(subject, found.version, query.permanent))
        return self._shown(found, mode=self._schemas.mode(subject))

    @get(f"{SUBJECT}/versions", READ_SCHEMAS, "schemas")
    async def versions(self, subject: str, query: DeletedQuery) -> VersionList:
        """Versions of a subject."""
        rows = [self._described(version) for version in self._schemas.versions(subject, query.deleted)]
        return VersionList(subject, self._schemas.mode(subject), rows)

    @post(f"{SUBJECT}/versions", MANAGE_SCHEMA, "schemas", body=DefinitionBody, statuses=(200, 201))
    async def register(self, request: Request, subject: str) -> Answered[Version]:
        """Register a version."""
        sent = await read_body(request, DefinitionBody, self._body_limit)
        wanted = RegisterSchema(
            subject, sent.type, sent.content, sent.references, sent.description, sent.created_by, sent.tags
        )
        found = await self._ask(request, wanted)
        return Answered(self._shown(found.version, is_new_version=found.is_new), 201 if found.is_new else 200)

    @post(f"{SUBJECT}/check", READ_SCHEMAS, "schemas", body=DefinitionBody)
    async def check(self, request: Request, subject: str) -> Compatibility:
        """Check whether a definition is compatible as the next version."""
        sent = await read_body(request, DefinitionBody, self._body_limit)
        wanted = CheckSchema(subject, sent.type, sent.content, sent.references, sent.mode, sent.version)
        reasons = await self._ask(request, wanted)
        against = sent.version or self._schemas.latest(subject).version
        return Compatibility(subject, against, sent.mode or self._schemas.mode(subject), not reasons, reasons)

    @get(f"{SUBJECT}/differences", READ_SCHEMAS, "schemas")
    async def differences(self, subject: str, query: DifferenceQuery) -> Differences:
        """Compare two versions."""
        new, old = (self._find(subject, each, deleted=True) for each in (query.new, query.old))
        reasons = self._schemas.differences(subject, new.version, old.version)
        return Differences(subject, self._shown(old), self._shown(new), reasons)

    @put(f"{SUBJECT}/mode", MANAGE_SCHEMA, "schemas", body=Mode)
    async def set_mode(self, request: Request, subject: str) -> SubjectMode:
        """Set the compatibility mode."""
        mode = str((await read_json(request, self._body_limit)).get("mode", ""))
        await self._ask(request, SetMode(subject, mode))
        return SubjectMode(subject, self._schemas.mode(subject))

    # ---- topics ------------------------------------------------------------------------------------------------------

    @get("/api/topic-schemas", READ_SCHEMAS, "schemas")
    async def bound_topics(self) -> BoundTopics:
        """Topics that are bound to a subject."""
        return BoundTopics(self._schemas.bound_topics())

    @get(TOPIC, READ_SCHEMAS, "schemas")
    async def topic(self, topic: str) -> TopicSchema:
        """Schema binding of a topic."""
        known = self._view.topics.maybe(topic)
        if known is None:
            raise UnknownTopicError(topic)
        return self._schemas.topic_schema(known.parts[0])

    @put(TOPIC, MANAGE_SCHEMA, "schemas", body=TopicSettings)
    async def bind(self, request: Request, topic: str) -> TopicSchema:
        """Bind a topic to a subject."""
        sent = await read_body(request, TopicSettings, self._body_limit)
        changes = sent.subject is not UNSET
        subject = None if sent.subject is UNSET else sent.subject
        return await self._ask(request, BindTopic(topic, subject, changes, sent.policy, sent.validate_payload))

    @delete(TOPIC, MANAGE_SCHEMA, "schemas")
    async def unbind(self, request: Request, topic: str) -> TopicSchema:
        """Remove the binding of a topic."""
        return await self._ask(request, UnbindTopic(topic))

    # ---- reading -----------------------------------------------------------------------------------------------------

    def _find(self, subject: str, version: str, deleted: bool = False) -> SchemaVersion:
        """Return a version. `deleted`: also a deleted one. Raises MalformedError, UnknownSchemaError."""
        if version == "latest":
            return self._schemas.latest(subject, deleted)
        if not (version.isascii() and version.isdigit() and len(version) < 10):
            raise MalformedError(f"{version!r} is not a version: use a number or latest")
        return self._schemas.find(subject, int(version), deleted)

    def _described(self, version: SchemaVersion) -> Version:
        """Return a version without its definition."""
        facts = msgspec.structs.asdict(version)
        del facts["definition"]
        return Version(
            **facts, referenced_by=[f"{each.subject} {each.version}" for each in self._schemas.users(version)]
        )

    def _shown(self, version: SchemaVersion, **more: Any) -> Version:
        """Return a version with its definition: as text, or as base64 if it is not UTF-8."""
        try:
            more["definition"] = version.definition.decode()
        except UnicodeDecodeError:
            more["definition_base64"] = b64encode(version.definition).decode()
        return msgspec.structs.replace(self._described(version), **more)
