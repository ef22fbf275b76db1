"""Intents that change the schema registry or read a definition with it, and their outcomes.

Outcomes of changes come after the commit. Reading what is registered is `Door.view.schemas`.
"""

from __future__ import annotations

from raceway.model.intents.kinds import Done, IntentFor, Outcome
from raceway.model.schemas import SchemaReference, SchemaVersion, SubjectAccess, TopicSchema


class Registered(Outcome, frozen=True):
    """A registered version. `is_new` is False if the subject had it already."""

    version: SchemaVersion
    is_new: bool


class RegisterSchema(IntentFor[Registered], frozen=True):
    """Register a schema as the next version of a subject."""

    subject: str
    schema_type: str
    definition: bytes
    references: tuple[SchemaReference, ...] = ()
    description: str = ""
    created_by: str = ""
    tags: tuple[str, ...] = ()


class CheckSchema(IntentFor[list[str]], frozen=True):
    """List why a schema is incompatible with a version, or with those that the mode compares."""

    subject: str
    schema_type: str
    definition: bytes
    references: tuple[SchemaReference, ...] = ()
    mode: str | None = None
    version: int | None = None


class FindSchema(IntentFor[SchemaVersion | None], frozen=True):
    """Find the version of a subject with this schema. `deleted`: also a deleted one."""

    subject: str
    schema_type: str
    definition: bytes
    references: tuple[SchemaReference, ...] = ()
    deleted: bool = False


class DeleteVersion(IntentFor[Done], frozen=True):
    """Delete a version; `permanent`: a deleted one for good."""

    subject: str
    version: int
    permanent: bool = False


class DeleteSubject(IntentFor[list[int]], frozen=True):
    """Delete all versions of a subject and list their numbers; `permanent`: deleted ones for good."""

    subject: str
    permanent: bool = False


class SetMode(IntentFor[Done], frozen=True):
    """Set the compatibility mode of a subject that has versions."""

    subject: str
    mode: str


class PrepareMode(IntentFor[Done], frozen=True):
    """Set the compatibility mode of a subject, also before its first version, or the default one (None).

    A mode of None removes the subject's own.
    """

    subject: str | None
    mode: str | None


class SetAccess(IntentFor[Done], frozen=True):
    """Set whether a subject may be changed, or the default (None). An access of None resets it."""

    subject: str | None
    access: SubjectAccess | None


class BindTopic(IntentFor[TopicSchema], frozen=True):
    """Bind a topic, created if it is new, to a subject. Fields that are None stay as they are.

    `changes_subject`: set the subject, also to None.
    """

    topic: str
    subject: str | None = None
    changes_subject: bool = False
    policy: str | None = None
    validate_payload: bool | None = None


class UnbindTopic(IntentFor[TopicSchema], frozen=True):
    """Remove the binding of a topic."""

    topic: str
