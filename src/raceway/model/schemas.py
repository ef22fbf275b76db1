"""What the schema registry keeps and shows: versions of subjects, and what topics are bound to."""

from __future__ import annotations

from typing import Literal

import msgspec

SchemaType = Literal["bytes", "string", "number", "avro", "json_schema", "protobuf"]
# The transitive ones look at every version there is, the others at the latest.
Mode = Literal["none", "backward", "forward", "full", "backward_transitive", "forward_transitive", "full_transitive"]
Access = Literal["READWRITE", "READONLY"]
Policy = Literal["none", "warn", "enforce"]


class _Record(msgspec.Struct, frozen=True, gc=False):
    pass


class SchemaReference(_Record, frozen=True):
    """Another version that a definition uses, and the `name` by which it does: a type, an address, an imported file."""

    name: str
    subject: str
    version: int


class SchemaVersion(_Record, frozen=True):
    """One version of a subject. (`schema_id`, `version`) names it on Danube, `registry_id` names its definition in the
    REST form: subjects that have the same definition share it.

    `definition` is exactly what was registered, except that a Protobuf descriptor becomes text. A version that is
    `deleted` still explains what was written with it.
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


class SubjectRow(_Record, frozen=True):
    """A subject that has versions, described by its latest one; `deleted` if all of them are."""

    subject: str
    schema_id: int
    mode: Mode
    schema_type: SchemaType
    latest_version: int
    tags: tuple[str, ...] = ()
    deleted: bool = False


class TopicSchema(_Record, frozen=True):
    """What a topic is bound to. Without a subject there is no `schema_id`."""

    topic: str
    subject: str | None = None
    policy: Policy = "none"
    validate_payload: bool = False
    schema_id: int | None = None
