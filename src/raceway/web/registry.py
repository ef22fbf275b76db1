"""The schema registry with Confluent's REST API, so that existing serializers work unchanged.

A definition is identified by one number, the `registry_id`. Types are `AVRO` (the default), `JSON` and `PROTOBUF`; our
plain types, which Confluent's API does not have, are shown too. Deleting has two steps: after the first a version can
still be read by its number, and with `deleted=true`; `permanent=true` is the second.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any, ClassVar, NamedTuple

from starlette.requests import Request

from raceway import __version__
from raceway.broker.registry.registry import CONTEXT
from raceway.errors import SchemaInvalidError
from raceway.model.intents import schemas as intents
from raceway.model.schemas import SchemaReference, SchemaVersion, SubjectAccess
from raceway.web import registry_form as codes
from raceway.web.inputs import read_json
from raceway.web.registry_form import REGISTRY, TYPES, RefusalError, is_true, page, references_of, shown
from raceway.web.routing import MANAGE_SCHEMA, READ_SCHEMAS, ResponseForm, delete, get, post, put
from raceway.web.schemas import RegistryGroup

MAX_NUMBER = (1 << 31) - 1
# Maximum number of schemas in one answer that includes definitions.
MOST_SCHEMAS = 1000
# The default context, and the wildcard for all contexts.
USUAL, ALL = ":.:", ":*:"
MODES: tuple[SubjectAccess, ...] = ("READWRITE", "READONLY")
# Unsupported modes of Confluent's registry: ids are assigned here only, and there is no leader to forward to.
OTHER_MODES = ("IMPORT", "READONLY_OVERRIDE", "FORWARD")

VERSIONS, VERSION = "/subjects/{subject:path}/versions", "/subjects/{subject:path}/versions/{version}"
SUBJECT, ID = "/subjects/{subject:path}", "/schemas/ids/{id}"
LEVEL, MODE = "/config/{subject:path}", "/mode/{subject:path}"


class SentSchema(NamedTuple):
    """The schema in a request."""

    schema_type: str
    definition: bytes
    references: tuple[SchemaReference, ...]


class RegistryRoutes(RegistryGroup):
    form: ClassVar[ResponseForm] = REGISTRY

    # ---- subjects and versions ---------------------------------------------------------------------------------------

    @get("/subjects", READ_SCHEMAS)
    async def list_subjects(self, request: Request) -> Any:
        prefix, deleted_only = _prefix(request), _deleted_only(request)
        rows = self._schemas.subjects(deleted_only or is_true(request, "deleted"))
        found = [row for row in rows if row.subject.startswith(prefix) and (row.deleted or not deleted_only)]
        return page(request, [row.subject for row in found])

    @get(VERSIONS, READ_SCHEMAS)
    async def list_versions(self, request: Request) -> Any:
        deleted_only = _deleted_only(request)
        versions = self._schemas.versions(self._subject(request), deleted_only or is_true(request, "deleted"))
        return page(request, [each.version for each in versions if each.deleted or not deleted_only])

    @post(VERSIONS, MANAGE_SCHEMA)
    async def register(self, request: Request) -> Any:
        sent = await self._sent(request)
        version = (await self._ask(request, intents.RegisterSchema(self._subject(request), *sent))).version
        return {"id": version.registry_id, "version": version.version, **self._shown(version, request)}

    @get(VERSION, READ_SCHEMAS)
    async def get_version(self, request: Request) -> Any:
        return self._named(self._find(request, is_true(request, "deleted")), request)

    @get(f"{VERSION}/schema", READ_SCHEMAS)
    async def get_version_schema(self, request: Request) -> Any:
        return self._definition(self._find(request, is_true(request, "deleted")), request)

    @get(f"{VERSION}/referencedby", READ_SCHEMAS)
    async def referenced_by(self, request: Request) -> Any:
        users = self._schemas.users(self._find(request, deleted=True), is_true(request, "deleted"))
        return page(request, sorted({each.registry_id for each in users}))

    @delete(VERSION, MANAGE_SCHEMA)
    async def delete_version(self, request: Request) -> Any:
        subject = self._subject(request)
        version = self._find(request, deleted=True).version
        await self._ask(request, intents.DeleteVersion(subject, version, is_true(request, "permanent")))
        return version

    @post(SUBJECT, READ_SCHEMAS)
    async def look_up(self, request: Request) -> Any:
        sent = await self._sent(request)
        wanted = intents.FindSchema(self._subject(request), *sent, is_true(request, "deleted"))
        found = await self._ask(request, wanted)
        if found is None:
            raise RefusalError(codes.SCHEMA_NOT_FOUND, "Schema not found")
        return self._named(found, request)

    @delete(SUBJECT, MANAGE_SCHEMA)
    async def delete_subject(self, request: Request) -> Any:
        return await self._ask(request, intents.DeleteSubject(self._subject(request), is_true(request, "permanent")))

    # ---- schemas -----------------------------------------------------------------------------------------------------

    @get("/schemas", READ_SCHEMAS)
    async def list_schemas(self, request: Request) -> Any:
        prefix, deleted = _prefix(request), is_true(request, "deleted")
        found: list[SchemaVersion] = []
        for row in self._schemas.subjects(deleted):
            if row.subject.startswith(prefix):
                versions = self._schemas.versions(row.subject, deleted)
                found += versions[-1:] if is_true(request, "latestOnly") else versions
        return [self._named(version, request) for version in page(request, found, MOST_SCHEMAS)]

    @get("/schemas/types", READ_SCHEMAS)
    async def list_types(self, request: Request) -> Any:
        return ["JSON", "PROTOBUF", "AVRO"]

    @get(ID, READ_SCHEMAS)
    async def get_schema(self, request: Request) -> Any:
        return self._shown(self._registered(request), request)

    @get(f"{ID}/schema", READ_SCHEMAS)
    async def get_schema_text(self, request: Request) -> Any:
        return self._definition(self._registered(request), request)

    @get(f"{ID}/subjects", READ_SCHEMAS)
    async def get_schema_subjects(self, request: Request) -> Any:
        return page(request, [version.subject for version in self._versions_of(request)])

    @get(f"{ID}/versions", READ_SCHEMAS)
    async def get_schema_versions(self, request: Request) -> Any:
        versions = self._versions_of(request)
        return page(request, [{"subject": each.subject, "version": each.version} for each in versions])

    @get(f"{ID}/referencedby", READ_SCHEMAS)
    async def schema_referenced_by(self, request: Request) -> Any:
        users = [user for each in self._versions_of(request) for user in self._schemas.users(each)]
        return page(request, sorted({each.registry_id for each in users}))

    @get("/contexts", READ_SCHEMAS)
    async def list_contexts(self, request: Request) -> Any:
        return ["."]

    @get("/v1/metadata/id", READ_SCHEMAS)
    async def get_id(self, request: Request) -> Any:
        return {"id": "", "scope": {"path": [], "clusters": {"schema-registry-cluster": "raceway"}}}

    @get("/v1/metadata/version", READ_SCHEMAS)
    async def get_release(self, request: Request) -> Any:
        return {"version": __version__, "commitId": ""}

    # ---- compatibility -----------------------------------------------------------------------------------------------

    @post(f"/compatibility{VERSIONS}", READ_SCHEMAS)
    async def check_all(self, request: Request) -> Any:
        """Check against the versions that the level compares; a subject without versions accepts everything."""
        sent = await self._sent(request)
        subject = self._subject(request)
        if self._schemas.maybe_version(subject, None) is None:
            return _verdict(request, [])
        return _verdict(request, await self._ask(request, intents.CheckSchema(subject, *sent)))

    @post(f"/compatibility{VERSION}", READ_SCHEMAS)
    async def check(self, request: Request) -> Any:
        sent = await self._sent(request)
        version = self._find(request).version
        wanted = intents.CheckSchema(self._subject(request), *sent, version=version)
        return _verdict(request, await self._ask(request, wanted))

    @get("/config", READ_SCHEMAS)
    @get(LEVEL, READ_SCHEMAS)
    async def get_level(self, request: Request) -> Any:
        subject = self._maybe_subject(request)
        if subject is None:
            return {"compatibilityLevel": self._schemas.default_mode.upper()}
        own = self._schemas.own_mode(subject)
        if own is None and not is_true(request, "defaultToGlobal"):
            raise RefusalError(codes.NO_OWN_LEVEL, f"Subject '{subject}' has no compatibility level of its own")
        return {"compatibilityLevel": self._schemas.mode(subject).upper()}

    @put("/config", MANAGE_SCHEMA)
    @put(LEVEL, MANAGE_SCHEMA)
    async def set_level(self, request: Request) -> Any:
        level = (await read_json(request, self._body_limit)).get("compatibility")
        subject = self._maybe_subject(request)
        try:
            if not isinstance(level, str):
                raise SchemaInvalidError("compatibility", "must be a string")
            await self._ask(request, intents.PrepareMode(subject, level))
        except SchemaInvalidError as error:
            code = codes.INVALID_SUBJECT if error.what == "subject" else codes.INVALID_LEVEL
            raise RefusalError(code, f"Invalid compatibility level: {error}") from error
        return {"compatibility": level.upper()}

    @delete("/config", MANAGE_SCHEMA)
    @delete(LEVEL, MANAGE_SCHEMA)
    async def delete_level(self, request: Request) -> Any:
        """Remove a compatibility level. A subject without one is 404, as in Confluent's registry."""
        subject = self._maybe_subject(request)
        if subject is None:
            before = self._schemas.default_mode
            await self._ask(request, intents.PrepareMode(None, None))
            return {"compatibilityLevel": before.upper()}
        own = self._schemas.own_mode(subject)
        if own is None:
            raise RefusalError(codes.SUBJECT_NOT_FOUND, f"Subject '{subject}' not found: it has no level of its own")
        await self._ask(request, intents.PrepareMode(subject, None))
        return {"compatibility": own.upper(), "compatibilityLevel": own.upper()}

    # ---- modes -------------------------------------------------------------------------------------------------------

    @get("/mode", READ_SCHEMAS)
    @get(MODE, READ_SCHEMAS)
    async def get_mode(self, request: Request) -> Any:
        subject = self._maybe_subject(request)
        own = self._schemas.access() if subject is None else self._schemas.own_access(subject)
        if own is None and not is_true(request, "defaultToGlobal"):
            raise RefusalError(codes.NO_OWN_MODE, f"Subject '{subject}' has no mode of its own")
        return {"mode": self._schemas.access(subject)}

    @put("/mode", MANAGE_SCHEMA)
    @put(MODE, MANAGE_SCHEMA)
    async def set_mode(self, request: Request) -> Any:
        mode = (await read_json(request, self._body_limit)).get("mode")
        if mode in OTHER_MODES:
            raise RefusalError(
                codes.NOT_PERMITTED, f"Mode {mode} is not supported: this registry assigns all ids itself"
            )
        if mode not in MODES:
            raise RefusalError(codes.INVALID_MODE, f"Invalid mode {mode!r}: must be {' or '.join(MODES)}")
        await self._ask(request, intents.SetAccess(self._maybe_subject(request), mode))
        return {"mode": mode}

    @delete("/mode", MANAGE_SCHEMA)
    @delete(MODE, MANAGE_SCHEMA)
    async def delete_mode(self, request: Request) -> Any:
        subject = self._maybe_subject(request)
        if subject is not None and self._schemas.own_access(subject) is None:
            raise RefusalError(codes.NO_OWN_MODE, f"Subject '{subject}' has no mode of its own")
        before = self._schemas.access(subject)
        await self._ask(request, intents.SetAccess(subject, None))
        return {"mode": before}

    # ---- requests ----------------------------------------------------------------------------------------------------

    async def _sent(self, request: Request) -> SentSchema:
        body = await read_json(request, self._body_limit)
        schema, schema_type = body.get("schema"), body.get("schemaType") or "AVRO"
        if not isinstance(schema, str) or not isinstance(schema_type, str):
            raise RefusalError(codes.INVALID_SCHEMA, "Empty schema: `schema` must be a string")
        references = references_of(body.get("references") or [])
        return SentSchema(TYPES.get(schema_type.upper(), schema_type), schema.encode("utf-8", "replace"), references)

    def _maybe_subject(self, request: Request) -> str | None:
        """Return the subject of the path, None without one. Only the default context may be named."""
        subject: str | None = request.path_params.get("subject")
        if subject is None or not subject.startswith(CONTEXT) or self._schemas.maybe_version(subject, None):
            return subject
        if not subject.startswith(USUAL):
            raise RefusalError(codes.INVALID_SUBJECT, f"Invalid subject '{subject}': only the default context exists")
        return subject.removeprefix(USUAL) or None

    def _subject(self, request: Request) -> str:
        return self._maybe_subject(request) or ""

    def _find(self, request: Request, deleted: bool = False) -> SchemaVersion:
        subject, text = self._subject(request), request.path_params["version"]
        if text in ("latest", "-1"):
            return self._schemas.latest(subject, deleted)
        number = _maybe_number(text)
        if not number:
            self._schemas.latest(subject, deleted)
            raise RefusalError(codes.INVALID_VERSION, f"The specified version '{text}' is not a valid version id")
        return self._schemas.find(subject, number, deleted)

    def _registered(self, request: Request) -> SchemaVersion:
        """Return a version by id, also a deleted one, to decode existing data. `subject` is preferred, if given."""
        number = _maybe_number(request.path_params["id"])
        subject = request.query_params.get("subject", "").removeprefix(USUAL)
        found = None if number is None else self._schemas.maybe_registered(number, subject)
        if found is None:
            raise RefusalError(codes.SCHEMA_NOT_FOUND, f"Schema {request.path_params['id']} not found")
        return found

    def _versions_of(self, request: Request) -> list[SchemaVersion]:
        """Return the versions with the definition of this id."""
        number = self._registered(request).registry_id
        wanted = request.query_params.get("subject")
        found = self._schemas.registered(number, is_true(request, "deleted"))
        return [each for each in found if wanted is None or each.subject == wanted]

    # ---- answers -----------------------------------------------------------------------------------------------------

    def _definition(self, version: SchemaVersion, request: Request) -> bytes:
        """Return the definition; with `format=serialized` the descriptor of a Protobuf definition."""
        if version.schema_type == "protobuf" and request.query_params.get("format") == "serialized":
            from raceway.schema.protobuf import Protobuf

            read = self._schemas.ready(version)
            assert isinstance(read, Protobuf)
            return b64encode(read.serialized)
        return version.definition

    def _shown(self, version: SchemaVersion, request: Request) -> dict[str, Any]:
        return shown(version, self._definition(version, request))

    def _named(self, version: SchemaVersion, request: Request) -> dict[str, Any]:
        names = {"subject": version.subject, "version": version.version, "id": version.registry_id}
        return {**names, **({"deleted": True} if version.deleted else {}), **self._shown(version, request)}


def _maybe_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 11 and int(text) <= MAX_NUMBER else None


def _prefix(request: Request) -> str:
    prefix = request.query_params.get("subjectPrefix", "")
    return prefix.removeprefix(ALL).removeprefix(USUAL)


def _deleted_only(request: Request) -> bool:
    return is_true(request, "deletedOnly", "deleted_only")


def _verdict(request: Request, reasons: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"is_compatible": not reasons}
    return found | {"messages": reasons} if is_true(request, "verbose") else found
