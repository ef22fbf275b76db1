"""What the schema registry keeps and shows: versions of subjects, and what topics are bound to."""

from __future__ import annotations

from typing import Literal

import msgspec

SchemaType = Literal["bytes", "string", "number", "avro", "json_schema", "protobuf"]
Mode = Literal["none", "backward", "forward", "full"]
Policy = Literal["none", "warn", "enforce"]


class _Record(msgspec.Struct, frozen=True, gc=False):
    pass


class SchemaVersion(_Record, frozen=True):
    """One version of a subject. (`schema_id`, `version`) names it on Danube, `registry_id` alone in the REST form.

    `definition` is exactly what was registered.
    """

    subject: str
    schema_id: int
    version: int
    registry_id: int
    schema_type: SchemaType
    definition: bytes
    fingerprint: str
    description: str = ""
    created_at_ms: int = 0
    created_by: str = ""
    tags: tuple[str, ...] = ()


class SubjectRow(_Record, frozen=True):
    """A subject that has versions, described by its latest one."""

    subject: str
    schema_id: int
    mode: Mode
    schema_type: SchemaType
    latest_version: int
    tags: tuple[str, ...] = ()


class TopicSchema(_Record, frozen=True):
    """What a topic is bound to. Without a subject there is no `schema_id`."""

    topic: str
    subject: str | None = None
    policy: Policy = "none"
    validate_payload: bool = False
    schema_id: int | None = None
