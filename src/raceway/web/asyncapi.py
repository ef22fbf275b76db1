"""`GET /asyncapi.json`: the current topics and their schemas, as an AsyncAPI 3.1 document.

The bus is the application it describes: it receives what clients publish and sends it to subscribers; if a topic has
responders, receiving has a reply. A channel names the servers (ports of the bus) on which the topic's name can be
expressed. A document has a limited number of topics; `after`, the last topic of one, asks for the next.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import Meta
from starlette.requests import Request

from raceway import __version__
from raceway.broker.view.topics import KnownTopic
from raceway.model.addresses import host_port
from raceway.model.schemas import SchemaVersion
from raceway.model.topics import is_reserved
from raceway.web.inputs import CLAMPED
from raceway.web.routing import LOOKUP, Site, SiteRoutes, get
from raceway.wires import WIRES
from raceway.wires.wire import Wire, load

VERSION = "3.1.0"
TOPICS = 1000
# Size of the definitions in one document; further messages only name their subject.
SCHEMA_BYTES = 8 * 1024 * 1024
MORE = "x-raceway-after"

_DRAFTS = ("draft-04", "draft-06", "draft-07", "2019-09")
_PLAIN = {"string": {"type": "string"}, "number": {"type": "number"}, "bytes": {"type": "string", "format": "binary"}}
# Content type of a schema type; others are bytes.
_CONTENT_TYPES = {
    "string": "text/plain",
    "number": "application/json",
    "json_schema": "application/json",
    "avro": "application/vnd.apache.avro",
    "protobuf": "application/x-protobuf",
}


class Spoken(NamedTuple):
    """Protocol of a port by name, and its wire."""

    protocol: str
    wire: Wire | None


class _Schemas(dict[str, Any]):
    """Schemas of one document, and how many bytes of definitions still fit."""

    room = SCHEMA_BYTES

    def add(self, key: str, version: SchemaVersion, document: Any = None) -> None:
        self[key] = schema_of(version, document)
        self.room -= len(version.definition)


class AsyncQuery(msgspec.Struct, frozen=True, kw_only=True):
    after: Annotated[str, Meta(description="Only topics after this one.")] = ""
    limit: Annotated[int, Meta(description="Maximum number of topics.", ge=1, extra=CLAMPED)] = TOPICS


class AsyncApiRoutes(SiteRoutes):
    def __init__(self, site: Site) -> None:
        super().__init__(site)
        known = {port.name: Spoken(port.protocol, wire) for wire in WIRES for port in wire.ports if port.protocol}
        known["console"] = Spoken("http", None)
        self._doors = {name: port for name, port in site.ports.items() if name in known}
        self._spoken = known

    @get("/asyncapi.json", LOOKUP, "door")
    async def document(self, request: Request, query: AsyncQuery) -> dict[str, Any]:
        """Topics and their schemas, as AsyncAPI."""
        limit = min(query.limit, TOPICS)
        names = nsmallest(limit, (name for name in self._view.topics if name > query.after))
        document = self._document(request.url.hostname or "127.0.0.1", names)
        if len(names) == limit:
            document[MORE] = names[-1]
        return document

    def _document(self, host: str, names: list[str]) -> dict[str, Any]:
        channels: dict[str, Any] = {}
        operations: dict[str, Any] = {}
        schemas = _Schemas()
        for name in names:
            topic = self._view.topics.maybe(name)
            assert topic is not None
            channels[name] = self._channel(topic, schemas)
            operations |= self._operations(topic)
        return {
            "asyncapi": VERSION,
            "info": {
                "title": "Raceway",
                "version": __version__,
                "description": "The current topics of this bus. Topics are on all servers unless a channel lists some.",
            },
            "defaultContentType": "application/octet-stream",
            "servers": {
                _server_name(door): {"host": host_port(host, port), "protocol": self._spoken[door].protocol}
                for door, port in self._doors.items()
            },
            "channels": channels,
            "operations": operations,
            "components": {"schemas": schemas},
        }

    def _channel(self, topic: KnownTopic, schemas: _Schemas) -> dict[str, Any]:
        first, following = self._view.topics.offsets(topic.name)
        channel: dict[str, Any] = {
            "address": topic.name,
            "messages": {"message": self._message(topic, schemas)},
            "x-raceway-offsets": {"first": first, "next": following},
        }
        servers = [door for door in self._doors if _spells(self._spoken[door].wire, topic)]
        if len(servers) < len(self._doors):
            channel["servers"] = [{"$ref": _pointer("servers", _server_name(door))} for door in servers]
        return channel

    def _message(self, topic: KnownTopic, schemas: _Schemas) -> dict[str, Any]:
        bound = self._view.schemas.topic_schema(topic.name)
        version = None if bound.subject is None else self._view.schemas.maybe_version(bound.subject, None)
        message: dict[str, Any] = {"name": topic.name}
        if version is None:
            return message
        message["contentType"] = _CONTENT_TYPES.get(version.schema_type, "application/octet-stream")
        message["x-raceway-schema"] = {
            "subject": version.subject, "version": version.version, "policy": bound.policy,
            "validate_payload": bound.validate_payload,
        }  # fmt: skip
        key = _component(version)
        if key not in schemas and schemas.room >= len(version.definition):
            schemas.add(key, version, self._maybe_whole(version))
        if key in schemas:
            message["payload"] = {"$ref": _pointer("components", "schemas", key)}
        return message

    def _operations(self, topic: KnownTopic) -> dict[str, Any]:
        channel, message = _pointer("channels", topic.name), _pointer("channels", topic.name, "messages", "message")
        shared = {"channel": {"$ref": channel}, "messages": [{"$ref": message}]}
        operations = {f"subscribe {topic.name}": {"action": "send", "summary": "To subscribers.", **shared}}
        if is_reserved(topic.name):  # only the bus itself publishes there
            return operations
        receive = {"action": "receive", "summary": "From publishers.", **shared}
        if self._view.topics.has_responder(topic.name):
            receive |= {"summary": "From publishers and requesters.", "reply": {"channel": {"$ref": channel}}}
        return {f"publish {topic.name}": receive} | operations

    def _maybe_whole(self, version: SchemaVersion) -> Any:
        """Return a JSON Schema bundled with its references, or None if it has none."""
        if version.schema_type != "json_schema" or not version.references:
            return None
        from raceway.schema.json_schema import JsonSchema

        read = self._view.schemas.ready(version)
        assert isinstance(read, JsonSchema)
        return read.document


def _server_name(door: str) -> str:
    return door.replace("+", "-")


def _spells(wire: Wire | None, topic: KnownTopic) -> bool:
    """Return whether a wire can name a topic; None is HTTP, on the console port."""
    if wire is not None and wire.namespaces:
        return True
    return bool(topic.public) and (wire is None or not wire.spells or load(wire.spells)(topic.public))


def _pointer(*parts: str) -> str:
    """Return a JSON pointer as URI fragment (RFC 6901, 6)."""
    return "#/" + "/".join(quote(part.replace("~", "~0").replace("/", "~1"), safe="~") for part in parts)


def _component(version: SchemaVersion) -> str:
    """Return the key of a component, which allows few characters: the ids are unique, the subject is for people."""
    subject = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in version.subject)
    return f"{subject}-{version.schema_id}-{version.version}"


def schema_of(version: SchemaVersion, document: Any = None) -> dict[str, Any]:
    """Return a schema in AsyncAPI's form for its language. `document`: a JSON Schema bundled with its references."""
    if version.schema_type in _PLAIN:
        return dict(_PLAIN[version.schema_type])
    text = version.definition.decode("utf-8", "replace")
    if version.schema_type == "protobuf":
        return {"schemaFormat": "application/vnd.google.protobuf;version=3", "schema": text}
    definition = msgspec.json.decode(version.definition) if document is None else document
    if version.schema_type == "avro":
        return {"schemaFormat": "application/vnd.apache.avro;version=1.9.0", "schema": definition}
    return {"schemaFormat": f"application/schema+json;version={_draft(definition)}", "schema": definition}


def _draft(definition: Any) -> str:
    """Return the draft that a JSON Schema declares, by default the newest."""
    named = str(definition.get("$schema", "")) if isinstance(definition, dict) else ""
    return next((draft for draft in _DRAFTS if draft in named), "2020-12")
