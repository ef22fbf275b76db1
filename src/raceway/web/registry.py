"""The schema registry in the form of Confluent's, so that existing serializers work as they are.

It names a version by one number, the `registry_id`. Types are spelled `AVRO` (also when none is said), `JSON` and
`PROTOBUF`; the plain types are there too, which that form does not know. Deleting happens in two steps there: a version
is gone for readers after the first, and `permanent=true` only makes the registry forget that it ever was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from raceway.broker.broker import Broker
from raceway.errors import (
    ForbiddenError,
    MalformedError,
    PeerError,
    RacewayError,
    SchemaIncompatibleError,
    SchemaInvalidError,
    TooLargeError,
    TooManyFailuresError,
    UnauthenticatedError,
    UnknownSchemaError,
)
from raceway.model.envelope import encode_json
from raceway.model.schemas import SchemaVersion
from raceway.web.answers import committed, definition_read, read_json
from raceway.web.routing import MANAGE_SCHEMA, READ_SCHEMAS, Access, Route

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
OVERHEAD = 128 * 1024
MAX_NUMBER = (1 << 31) - 1

TYPES = {"AVRO": "avro", "JSON": "json_schema", "PROTOBUF": "protobuf"}
TYPE_NAMES = {ours: theirs for theirs, ours in TYPES.items()}
# Levels that look at all earlier versions, which this registry does not.
TRANSITIVE = "_TRANSITIVE"

SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND = 40401, 40402, 40403
SUBJECT_NOT_DELETED, VERSION_NOT_DELETED, NO_OWN_LEVEL = 40405, 40407, 40408
INVALID_SCHEMA, INVALID_VERSION, INVALID_LEVEL = 42201, 42202, 42203
NOT_FOUND_CODES = {"subject": SUBJECT_NOT_FOUND, "version": VERSION_NOT_FOUND, "schema": SCHEMA_NOT_FOUND}

Answer = Callable[[Request], Awaitable[Any]]


class Method(NamedTuple):
    """One method of an address: who may use it, and what it answers."""

    access: Access
    answer: Answer


def reading(answer: Answer) -> Method:
    return Method(READ_SCHEMAS, answer)


class RefusalError(Exception):
    """An answer in this form's own words; the status is in the first three digits of the code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message


def registry_routes(broker: Broker) -> list[Route]:
    handlers = _Handlers(broker)

    def changing(change: Answer) -> Method:
        """Answered when the change is on the disk, refused while nothing can be put there."""

        async def answer(request: Request) -> Any:
            broker.journal.check_writable()
            found = await change(request)
            await committed(broker)
            return found

        return Method(MANAGE_SCHEMA, answer)

    versions = "/subjects/{subject:path}/versions"
    set_level, delete_level = changing(handlers.set_level), changing(handlers.delete_level)
    delete_version, delete_subject = changing(handlers.delete_version), changing(handlers.delete_subject)
    table: dict[str, dict[str, Method]] = {
        "/subjects": {"GET": reading(handlers.list_subjects)},
        f"{versions}": {"GET": reading(handlers.list_versions), "POST": changing(handlers.register)},
        f"{versions}/{{version}}": {"GET": reading(handlers.get_version), "DELETE": delete_version},
        f"{versions}/{{version}}/schema": {"GET": reading(handlers.get_version_schema)},
        f"{versions}/{{version}}/referencedby": {"GET": reading(handlers.referenced_by)},
        "/subjects/{subject:path}": {"POST": reading(handlers.look_up), "DELETE": delete_subject},
        "/schemas/types": {"GET": reading(handlers.list_types)},
        "/schemas/ids/{id}": {"GET": reading(handlers.get_schema)},
        "/schemas/ids/{id}/schema": {"GET": reading(handlers.get_schema_text)},
        "/schemas/ids/{id}/subjects": {"GET": reading(handlers.get_schema_subjects)},
        "/schemas/ids/{id}/versions": {"GET": reading(handlers.get_schema_versions)},
        f"/compatibility{versions}": {"POST": reading(handlers.check_all)},
        f"/compatibility{versions}/{{version}}": {"POST": reading(handlers.check)},
        "/config": {"GET": reading(handlers.get_level), "PUT": set_level},
        "/config/{subject:path}": {"GET": reading(handlers.get_level), "PUT": set_level, "DELETE": delete_level},
        "/mode": {"GET": reading(handlers.get_mode)},
        "/mode/{subject:path}": {"GET": reading(handlers.get_mode)},
    }
    return [
        Route(path, _endpoint(methods), {method: each.access for method, each in methods.items()}, _refused_for)
        for path, methods in table.items()
    ]


def _endpoint(methods: dict[str, Method]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            return _answer(await methods["GET" if request.method == "HEAD" else request.method].answer(request))
        except RefusalError as refusal:
            return _refused(refusal)
        except RacewayError as error:
            return _refused_for(error)

    return endpoint


class _Handlers:
    def __init__(self, broker: Broker) -> None:
        self._broker, self._schemas = broker, broker.schemas
        self._body_limit = 2 * broker.settings.schemas.definition_bytes + OVERHEAD

    # ---- subjects and versions ---------------------------------------------------------------------------------------

    async def list_subjects(self, request: Request) -> Any:
        prefix = request.query_params.get("subjectPrefix", "")
        return [row.subject for row in self._schemas.subjects() if row.subject.startswith(prefix)]

    async def list_versions(self, request: Request) -> Any:
        return [version.version for version in self._schemas.versions(request.path_params["subject"])]

    async def register(self, request: Request) -> Any:
        schema_type, definition = await self._sent(request)
        version, _ = self._schemas.register(request.path_params["subject"], schema_type, definition)
        return {"id": version.registry_id, "version": version.version, **_schema(version)}

    async def look_up(self, request: Request) -> Any:
        schema_type, definition = await self._sent(request)
        found = self._schemas.maybe_same(request.path_params["subject"], schema_type, definition)
        if found is None:
            raise RefusalError(SCHEMA_NOT_FOUND, "Schema not found")
        return _named(found)

    async def get_version(self, request: Request) -> Any:
        return _named(self._find(request))

    async def get_version_schema(self, request: Request) -> Any:
        return self._find(request).definition

    async def referenced_by(self, request: Request) -> Any:
        """Definitions do not refer to one another here."""
        self._find(request)
        return []

    async def delete_version(self, request: Request) -> Any:
        subject = request.path_params["subject"]
        if _is_true(request, "permanent"):
            self._make_final(subject, [self._number(request)], VERSION_NOT_DELETED)
            return self._number(request)
        version = self._find(request).version
        self._schemas.delete_version(subject, version)
        return version

    async def delete_subject(self, request: Request) -> Any:
        subject = request.path_params["subject"]
        if _is_true(request, "permanent"):
            gone = self._schemas.deleted(subject)
            self._make_final(subject, gone, SUBJECT_NOT_DELETED)
            return gone
        versions = [version.version for version in self._schemas.versions(subject)]
        for version in versions:
            self._schemas.delete_version(subject, version)
        return versions

    def _make_final(self, subject: str, versions: list[int], otherwise: int) -> None:
        gone = self._schemas.deleted(subject)
        if not gone or not versions or any(version not in gone for version in versions):
            self._schemas.latest(subject)
            raise RefusalError(otherwise, f"'{subject}' was not deleted first before being permanently deleted")
        self._schemas.forget_deleted(subject, versions)

    # ---- by number ---------------------------------------------------------------------------------------------------

    async def list_types(self, request: Request) -> Any:
        return ["JSON", "PROTOBUF", "AVRO"]

    async def get_schema(self, request: Request) -> Any:
        return _schema(self._registered(request))

    async def get_schema_text(self, request: Request) -> Any:
        return self._registered(request).definition

    async def get_schema_subjects(self, request: Request) -> Any:
        return [self._registered(request).subject]

    async def get_schema_versions(self, request: Request) -> Any:
        version = self._registered(request)
        return [{"subject": version.subject, "version": version.version}]

    # ---- compatibility -----------------------------------------------------------------------------------------------

    async def check(self, request: Request) -> Any:
        schema_type, definition = await self._sent(request)
        subject, version = request.path_params["subject"], self._find(request).version
        return _verdict(request, self._schemas.check(subject, schema_type, definition, version=version))

    async def check_all(self, request: Request) -> Any:
        """Against every version there is; a subject without any admits everything."""
        schema_type, definition = await self._sent(request)
        subject = request.path_params["subject"]
        try:
            versions = self._schemas.versions(subject)
        except UnknownSchemaError:
            return _verdict(request, [])
        reasons = [
            reason
            for version in versions
            for reason in self._schemas.check(subject, schema_type, definition, version=version.version)
        ]
        return _verdict(request, reasons)

    async def get_level(self, request: Request) -> Any:
        subject = request.path_params.get("subject")
        if subject is None:
            return {"compatibilityLevel": self._schemas.default_mode.upper()}
        own = self._schemas.own_mode(subject)
        if own is None and not _is_true(request, "defaultToGlobal"):
            raise RefusalError(NO_OWN_LEVEL, f"Subject '{subject}' has no compatibility level of its own")
        return {"compatibilityLevel": self._schemas.mode(subject).upper()}

    async def set_level(self, request: Request) -> Any:
        level = (await read_json(request, self._body_limit)).get("compatibility")
        if not isinstance(level, str) or level.upper().endswith(TRANSITIVE):
            raise RefusalError(INVALID_LEVEL, "Invalid compatibility level: it is none, backward, forward or full")
        subject = request.path_params.get("subject")
        try:
            if subject is None:
                self._schemas.set_default_mode(level)
            else:
                self._schemas.prepare_mode(subject, level)
        except SchemaInvalidError as error:
            raise RefusalError(INVALID_LEVEL, str(error)) from error
        return {"compatibility": level.upper()}

    async def delete_level(self, request: Request) -> Any:
        subject = request.path_params["subject"]
        own = self._schemas.own_mode(subject)
        if own is None:
            raise RefusalError(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found")
        self._schemas.prepare_mode(subject, None)
        return {"compatibility": own.upper()}

    async def get_mode(self, request: Request) -> Any:
        """Of writing, not of compatibility: this registry is never read-only."""
        return {"mode": "READWRITE"}

    # ---- what was sent -----------------------------------------------------------------------------------------------

    async def _sent(self, request: Request) -> tuple[str, bytes]:
        """Type and definition."""
        body = await read_json(request, self._body_limit)
        schema, schema_type = body.get("schema"), body.get("schemaType") or "AVRO"
        if not isinstance(schema, str) or not isinstance(schema_type, str):
            raise RefusalError(INVALID_SCHEMA, "Empty schema: `schema` must be a text")
        if body.get("references"):
            raise RefusalError(INVALID_SCHEMA, "References to other schemas are not supported: put all in one")
        found = TYPES.get(schema_type.upper(), schema_type), schema.encode("utf-8", "replace")
        await definition_read(self._broker, *found)
        return found

    def _find(self, request: Request) -> SchemaVersion:
        subject, text = request.path_params["subject"], request.path_params["version"]
        latest = self._schemas.latest(subject)
        if text in ("latest", "-1"):
            return latest
        return self._schemas.find(subject, self._number(request))

    def _number(self, request: Request) -> int:
        text = request.path_params["version"]
        number = _maybe_number(text)
        if not number:
            raise RefusalError(INVALID_VERSION, f"The specified version '{text}' is not a valid version id")
        return number

    def _registered(self, request: Request) -> SchemaVersion:
        number = _maybe_number(request.path_params["id"])
        found = None if number is None else self._schemas.maybe_registered(number)
        if found is None:
            raise RefusalError(SCHEMA_NOT_FOUND, f"Schema {request.path_params['id']} not found")
        return found


def _maybe_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 11 and int(text) <= MAX_NUMBER else None


def _is_true(request: Request, name: str) -> bool:
    return request.query_params.get(name, "").lower() == "true"


def _verdict(request: Request, reasons: list[str]) -> dict[str, Any]:
    answer: dict[str, Any] = {"is_compatible": not reasons}
    return answer | {"messages": reasons} if _is_true(request, "verbose") else answer


def _schema(version: SchemaVersion) -> dict[str, Any]:
    """The type is left out where it is the one that is meant when none is said."""
    name = TYPE_NAMES.get(version.schema_type, version.schema_type.upper())
    kind = {} if name == "AVRO" else {"schemaType": name}
    return {"schema": version.definition.decode("utf-8", "replace"), **kind}


def _named(version: SchemaVersion) -> dict[str, Any]:
    return {
        "subject": version.subject, "version": version.version, "id": version.registry_id, **_schema(version)
    }  # fmt: skip


def _answer(found: Any, status: int = 200) -> Response:
    """A definition is sent as it was registered; everything else as JSON."""
    content = found if isinstance(found, bytes) else encode_json(found)
    return Response(content, status_code=status, media_type=CONTENT_TYPE)


def _refused(refusal: RefusalError) -> Response:
    status = refusal.code if refusal.code < 1000 else refusal.code // 100
    return _answer({"error_code": refusal.code, "message": refusal.message}, status)


def _refused_for(error: RacewayError) -> Response:
    return _refused(_refusal_of(error))


def _refusal_of(error: RacewayError) -> RefusalError:
    if isinstance(error, UnknownSchemaError):
        return RefusalError(NOT_FOUND_CODES[error.part], f"{error.part.capitalize()} not found: {error}")
    if isinstance(error, SchemaIncompatibleError):
        return RefusalError(409, f"Schema being registered is incompatible with an earlier schema: {error}")
    if isinstance(error, SchemaInvalidError):
        return RefusalError(INVALID_SCHEMA, f"Invalid schema: {error}")
    if isinstance(error, TooManyFailuresError):
        return RefusalError(42901, str(error))
    if isinstance(error, UnauthenticatedError):
        return RefusalError(40101, str(error))
    if isinstance(error, ForbiddenError):
        return RefusalError(40301, str(error))
    if isinstance(error, TooLargeError):
        return RefusalError(413, str(error))
    if isinstance(error, (MalformedError, PeerError)):
        return RefusalError(400, str(error))
    return RefusalError(50301, str(error))
