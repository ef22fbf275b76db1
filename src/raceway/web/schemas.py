"""The full schema registry over the console port, for `raceway schema` and the console.

Confluent's API for existing serializers is in `registry.py`; it has no creators, tags, fingerprints or bindings of
topics.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from raceway.broker.broker import Broker
from raceway.broker.topics import Topic
from raceway.errors import MalformedError, SchemaInvalidError, UnknownTopicError
from raceway.model.schemas import SchemaReference, SchemaVersion
from raceway.model.topics import refuse_reserved
from raceway.web.answers import committed, definition_read, read_json, refusing
from raceway.web.routing import MANAGE_SCHEMA, READ_SCHEMAS, Route

# Size of a body besides its definition, which may be base64.
OVERHEAD = 128 * 1024
SUBJECT = "/api/schemas/{subject:path}"


class Definition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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

    subject: str | msgspec.UnsetType | None = msgspec.UNSET
    policy: str | None = None
    validate_payload: bool | None = None


def schema_routes(broker: Broker) -> list[Route]:
    handlers = _Handlers(broker)
    return [
        Route("/api/schemas", refusing(handlers.subjects), READ_SCHEMAS),
        Route(
            f"{SUBJECT}/versions/{{version}}",
            refusing(handlers.version),
            {"GET": READ_SCHEMAS, "DELETE": MANAGE_SCHEMA},
        ),
        Route(f"{SUBJECT}/versions", refusing(handlers.versions), {"GET": READ_SCHEMAS, "POST": MANAGE_SCHEMA}),
        Route(f"{SUBJECT}/check", refusing(handlers.check), {"POST": READ_SCHEMAS}),
        Route(f"{SUBJECT}/differences", refusing(handlers.differences), READ_SCHEMAS),
        Route(f"{SUBJECT}/mode", refusing(handlers.mode), {"PUT": MANAGE_SCHEMA}),
        Route("/api/topic-schemas", refusing(handlers.topics), READ_SCHEMAS),
        Route(
            "/api/topic-schemas/{topic:path}",
            refusing(handlers.topic),
            {"GET": READ_SCHEMAS, "PUT": MANAGE_SCHEMA, "DELETE": MANAGE_SCHEMA},
        ),
    ]


class _Handlers:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._schemas = broker.schemas
        self._body_limit = 2 * broker.settings.schemas.definition_bytes + OVERHEAD

    # ---- subjects ----------------------------------------------------------------------------------------------------

    async def subjects(self, request: Request) -> Response:
        rows = self._schemas.subjects(_asks(request, "deleted"))
        return JSONResponse({"subjects": [msgspec.to_builtins(row) for row in rows]})

    async def versions(self, request: Request) -> Response:
        subject = request.path_params["subject"]
        if request.method == "GET":
            versions = self._schemas.versions(subject, _asks(request, "deleted"))
            rows = [self._shown(version, with_definition=False) for version in versions]
            return JSONResponse({"subject": subject, "mode": self._schemas.mode(subject), "versions": rows})
        self._check_change()
        sent = await self._definition(request)
        version, is_new = self._schemas.register(
            subject, sent.type, sent.content, references=sent.references,
            description=sent.description, created_by=sent.created_by, tags=sent.tags,
        )  # fmt: skip
        await committed(self._broker)
        return JSONResponse(self._shown(version) | {"is_new_version": is_new}, status_code=201 if is_new else 200)

    async def version(self, request: Request) -> Response:
        subject, wanted = request.path_params["subject"], request.path_params["version"]
        is_deleting = request.method == "DELETE"
        found = self._find(subject, wanted, deleted=is_deleting or _asks(request, "deleted"))
        if is_deleting:
            self._check_change()
            if _asks(request, "permanent"):
                self._schemas.forget_version(subject, found.version)
            else:
                self._schemas.delete_version(subject, found.version)
            await committed(self._broker)
        return JSONResponse(self._shown(found) | {"mode": self._schemas.mode(subject)})

    async def check(self, request: Request) -> Response:
        subject = request.path_params["subject"]
        sent = await self._definition(request)
        reasons = self._schemas.check(subject, sent.type, sent.content, sent.mode, sent.version, sent.references)
        against = sent.version or self._schemas.latest(subject).version
        return JSONResponse(
            {"subject": subject, "version": against, "mode": sent.mode or self._schemas.mode(subject),
             "is_compatible": not reasons, "reasons": reasons}
        )  # fmt: skip

    async def differences(self, request: Request) -> Response:
        subject = request.path_params["subject"]
        new, old = (self._find(subject, request.query_params.get(each, "latest"), True) for each in ("new", "old"))
        reasons = self._schemas.differences(subject, new.version, old.version)
        return JSONResponse({"subject": subject, "old": self._shown(old), "new": self._shown(new), "reasons": reasons})

    async def mode(self, request: Request) -> Response:
        self._check_change()
        subject = request.path_params["subject"]
        self._schemas.set_mode(subject, str((await read_json(request, self._body_limit)).get("mode", "")))
        await committed(self._broker)
        return JSONResponse({"subject": subject, "mode": self._schemas.mode(subject)})

    # ---- topics ------------------------------------------------------------------------------------------------------

    async def topics(self, request: Request) -> Response:
        names = sorted(self._schemas.bound_topics())
        found = [self._schemas.topic_schema(self._broker.topics.own(name)) for name in names]
        return JSONResponse({"topics": [msgspec.to_builtins(each) for each in found]})

    async def topic(self, request: Request) -> Response:
        name = request.path_params["topic"]
        if request.method != "GET":
            self._check_change()
        if request.method == "PUT":
            sent = await self._read(request, TopicSettings)
            topics = self._topics(name, make=True)
            for topic in topics:
                self._configure(topic, sent)
        else:
            topics = self._topics(name, make=False)
        if request.method == "DELETE":
            for topic in topics:
                self._schemas.forget(topic)
        if request.method != "GET":
            await committed(self._broker)
        return JSONResponse(msgspec.to_builtins(self._schemas.topic_schema(topics[0])))

    def _configure(self, topic: Topic, sent: TopicSettings) -> None:
        known = self._schemas.topic_schema(topic)
        self._schemas.configure(
            topic,
            known.subject if sent.subject is msgspec.UNSET else sent.subject,
            sent.policy or known.policy,
            known.validate_payload if sent.validate_payload is None else sent.validate_payload,
        )

    def _topics(self, name: str, make: bool) -> tuple[Topic, ...]:
        """Return the topic itself, or its partitions. `make`: create it if it is new."""
        if make:
            refuse_reserved(name)
        topic = self._broker.topics.maybe_get(name)
        if topic is None:
            if not make:
                raise UnknownTopicError(name)
            topic = self._broker.topics.spelled(name.encode(), folds_case=False)
        return topic.partitions or (topic,)

    # ---- reading -----------------------------------------------------------------------------------------------------

    def _check_change(self) -> None:
        """Check that the journal is writable. Raises UnavailableError."""
        self._broker.journal.check_writable()

    def _find(self, subject: str, version: str, deleted: bool = False) -> SchemaVersion:
        """Return a version. `deleted`: also a deleted one. Raises MalformedError, UnknownSchemaError."""
        if version == "latest":
            return self._schemas.latest(subject, deleted)
        if not (version.isascii() and version.isdigit() and len(version) < 10):
            raise MalformedError(f"{version!r} is not a version: use a number or latest")
        return self._schemas.find(subject, int(version), deleted)

    async def _definition(self, request: Request) -> Definition:
        sent: Definition = await self._read(request, Definition)
        await definition_read(self._broker, sent.type, sent.content, sent.references)
        return sent

    async def _read(self, request: Request, kind: Any) -> Any:
        try:
            return msgspec.convert(await read_json(request, self._body_limit), kind)
        except msgspec.ValidationError as error:
            raise MalformedError(str(error)) from error

    def _shown(self, version: SchemaVersion, with_definition: bool = True) -> dict[str, Any]:
        """Return a version as JSON. Definitions are text, or base64 if they are not UTF-8."""
        row: dict[str, Any] = msgspec.to_builtins(version)
        row["referenced_by"] = [f"{each.subject} {each.version}" for each in self._schemas.users(version)]
        encoded = row.pop("definition")
        if with_definition:
            try:
                row["definition"] = version.definition.decode()
            except UnicodeDecodeError:
                row["definition_base64"] = encoded
        return row


def _asks(request: Request, name: str) -> bool:
    return request.query_params.get(name, "").lower() == "true"
