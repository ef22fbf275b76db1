"""Records of the schema registry: versions of subjects, and the schemas of topics."""

from __future__ import annotations

from typing import Literal

import msgspec

SchemaType = Literal["bytes", "string", "number", "avro", "json_schema", "protobuf"]
# Transitive modes compare with every version, the others with the latest.
CompatibilityMode = Literal[
    "none", "backward", "forward", "full", "backward_transitive", "forward_transitive", "full_transitive"
]
SubjectAccess = Literal["READWRITE", "READONLY"]
Policy = Literal["none", "warn", "enforce"]


class _SchemaRecord(msgspec.Struct, frozen=True, gc=False):
    pass


class SchemaReference(_SchemaRecord, frozen=True):
    """A reference to a version of another subject; `name` is what the definition calls it.

    That is a type (Avro), an address (JSON Schema) or an imported file (Protobuf).
    """

    name: str
    subject: str
    version: int


class SchemaVersion(_SchemaRecord, frozen=True):
    """A version of a subject.

    Danube identifies it by (`schema_id`, `version`), the REST interface by `registry_id`, which subjects with the same
    definition share. `definition` is exactly as registered, except that a Protobuf descriptor becomes text. A `deleted`
    version can still be read, for messages written with it.
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
    references: tuple[SchemaReference, ...] = ()
    deleted: bool = False


class SubjectRow(_SchemaRecord, frozen=True):
    """A subject with properties of its latest version; `deleted` if all versions are."""

    subject: str
    schema_id: int
    mode: CompatibilityMode
    schema_type: SchemaType
    latest_version: int
    tags: tuple[str, ...] = ()
    deleted: bool = False


class TopicSchema(_SchemaRecord, frozen=True):
    """The schema and the policy of a topic. `schema_id` is None if `subject` is."""

    topic: str
    subject: str | None = None
    policy: Policy = "none"
    validate_payload: bool = False
    schema_id: int | None = None
