"""What every kind of schema can do, and the words that name kinds, compatibility modes and policies.

A definition comes from a stranger and stays for ever, so reading it must be bounded: its size and its nesting are
limited, nothing is fetched, and whatever would make checking a payload take more than linear time is refused here.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, get_args

from raceway.errors import SchemaInvalidError
from raceway.model.schemas import Mode, Policy, SchemaType

# Deeper than any schema written by hand or made by a tool, shallow enough for every recursion over it.
MAX_NESTING = 100

TYPE_ALIASES: dict[str, SchemaType] = {
    **{name: name for name in get_args(SchemaType)},
    "json": "json_schema",
    "proto": "protobuf",
    "int": "number",
    "int64": "number",
    "float": "number",
    "double": "number",
}


class Referenced(NamedTuple):
    """A definition that another one uses under this name."""

    name: str
    definition: bytes


# Everything a definition uses, also by way of others; what is used by one of them comes before it.
Resolved = tuple[Referenced, ...]


class Fault(NamedTuple):
    """Why a payload is not what its schema says: where (a JSON pointer, or names joined by dots), which rule."""

    path: str
    rule: str
    reason: str


class Definition(ABC):
    """A schema that was read and found good."""

    schema_type: ClassVar[SchemaType]
    # What is kept instead of the bytes that came, where those are not text.
    text: bytes | None = None
    references: Resolved = ()

    @property
    @abstractmethod
    def canonical(self) -> bytes:
        """Definitions with equal canonical text are the same schema."""

    @abstractmethod
    def maybe_fault(self, payload: bytes, index: tuple[int, ...] = ()) -> Fault | None:
        """The first thing wrong with a payload. `index` chooses a message type where a definition has several."""

    def maybe_json(self, payload: bytes, index: tuple[int, ...] = ()) -> str | None:
        """What a payload without fault says, as JSON; None for types that say nothing of their bytes."""
        return None

    @abstractmethod
    def refusals(self, writer: Definition) -> list[str]:
        """Why this schema cannot read what was written with `writer`, of the same type; empty when it can."""

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.canonical)

    @property
    def former_fingerprint(self) -> str:
        """The one that former releases gave it."""
        return self.fingerprint


def fingerprint_of(canonical: bytes) -> str:
    return f"sha256:{hashlib.sha256(canonical).hexdigest()}"


def schema_type_of(text: str) -> SchemaType:
    """One of the six types, by name or alias in any case."""
    found = TYPE_ALIASES.get(text.lower())
    if found is None:
        raise SchemaInvalidError("schema type", f"{text!r} is none of {', '.join(get_args(SchemaType))}")
    return found


def mode_of(text: str) -> Mode:
    return _one_of(text, get_args(Mode), "compatibility mode")  # type: ignore[return-value]  # one of them


def policy_of(text: str) -> Policy:
    return _one_of(text, get_args(Policy), "validation policy")  # type: ignore[return-value]  # one of them


def _one_of(text: str, known: tuple[str, ...], what: str) -> str:
    if text.lower() not in known:
        raise SchemaInvalidError(what, f"{text!r} is none of {', '.join(known)}")
    return text.lower()


def text_of(definition: bytes) -> str:
    try:
        return definition.decode()
    except UnicodeDecodeError as error:
        raise SchemaInvalidError("definition", f"is not UTF-8: {error}") from error
