"""Schema calls of a client, over the console port of its bus."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from raceway.model.schemas import TopicSchema
from raceway.net.client.console import ConsoleCalls
from raceway.net.client.messages import encode_payload, is_model

JSON_SCHEMA = "json_schema"


class RegisteredSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a subject. `is_new_version`: whether this call registered it; None if it was only fetched."""

    subject: str
    version: int
    schema_id: int
    registry_id: int
    schema_type: str
    fingerprint: str
    is_new_version: bool | None = None
    definition: str | None = None
    definition_base64: str | None = None

    @property
    def content(self) -> bytes:
        """The definition, as it was registered."""
        return b64decode(self.definition_base64) if self.definition_base64 else (self.definition or "").encode()


class CheckedSchema(msgspec.Struct, frozen=True):
    """Whether a definition may follow `version` of a subject, under its `mode` of compatibility; if not, `reasons`."""

    subject: str
    version: int
    mode: str
    is_compatible: bool
    reasons: list[str]


class ClientSchemas:
    """The schema registry of the bus: `Client.schemas`. It is reached over the console port (`Options.console`).

    A definition is text or bytes of the given type, or a class (of msgspec, a dataclass, a model of pydantic), of which
    the JSON Schema is made. All calls raise RemoteError, RequestTimeoutError, ConnectionLostError.
    """

    def __init__(self, console: ConsoleCalls) -> None:
        self._console = console

    async def register(
        self, subject: str, definition: str | bytes | type[Any], *, type: str = JSON_SCHEMA, description: str = ""
    ) -> RegisteredSchema:
        """Register a definition as the next version of a subject; one that is registered already is found again.

        `type`: json_schema, avro, protobuf, string, number or bytes.
        """
        wanted = _definition(definition, type) | {"description": description}
        answer = await self._console.ask("POST", f"{_path(subject)}/versions", wanted)
        return msgspec.convert(answer, RegisteredSchema)

    async def check(
        self, subject: str, definition: str | bytes | type[Any], *, type: str = JSON_SCHEMA
    ) -> CheckedSchema:
        """Check whether a definition could be registered as the next version of a subject, which must exist."""
        answer = await self._console.ask("POST", f"{_path(subject)}/check", _definition(definition, type))
        return msgspec.convert(answer, CheckedSchema)

    async def fetch(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """Fetch a version of a subject with its definition; by default the latest."""
        answer = await self._console.ask("GET", f"{_path(subject)}/versions/{version or 'latest'}")
        return msgspec.convert(answer, RegisteredSchema)

    async def bind(
        self,
        topic: str,
        subject: str,
        *,
        policy: Literal["none", "warn", "enforce"] | None = None,
        validate: bool | None = None,
    ) -> TopicSchema:
        """Bind a topic, which is created if it does not exist, to a subject.

        `policy`: what happens to messages that do not match; `enforce` refuses them. `validate`: look at payloads, not
        only at the schema that a message names. What is not given stays as it is.
        """
        wanted = {"subject": subject, "policy": policy, "validate_payload": validate}
        answer = await self._console.ask("PUT", f"/api/topic-schemas/{quote(topic, safe='')}", wanted)
        return msgspec.convert(answer, TopicSchema)


def _path(subject: str) -> str:
    return f"/api/schemas/{quote(subject, safe='')}"


def _definition(definition: str | bytes | type[Any], kind: str) -> dict[str, Any]:
    content = encode_payload(definition if isinstance(definition, str | bytes) else json_schema(definition))
    return {"type": kind, "definition_base64": b64encode(content).decode()}


def json_schema(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a class of msgspec, a dataclass or a model of pydantic. Raises TypeError for other classes."""
    found: dict[str, Any] = kind.model_json_schema() if is_model(kind) else msgspec.json.schema(kind)
    return found
