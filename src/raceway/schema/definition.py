"""Interface of every schema type, and the names of types, compatibility modes and policies.

A definition comes from an untrusted client and is kept forever, so parsing it is bounded: size and nesting are limited,
nothing is fetched, and anything that would make validation take more than linear time is refused here.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, get_args

from raceway.errors import SchemaInvalidError
from raceway.model.schemas import CompatibilityMode, Policy, SchemaType

# Deeper than any schema written by hand or generated, shallow enough for Python's recursion limit.
MAX_NESTING = 100

TYPE_ALIASES: dict[str, SchemaType] = {
    **{name: name for name in get_args(SchemaType)},
    # Spellings of Danube's clients, and common ones.
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


# All references of a definition, transitively, in dependency order.
Resolved = tuple[Referenced, ...]


class Fault(NamedTuple):
    """The reason a payload is not valid: where (a JSON pointer, or names joined by dots) and which rule."""

    path: str
    rule: str
    reason: str


class Definition(ABC):
    """A parsed and accepted schema."""

    schema_type: ClassVar[SchemaType]
    # The text to store instead of the received bytes, if those are not text.
    text: bytes | None = None
    references: Resolved = ()

    @property
    @abstractmethod
    def canonical(self) -> bytes:
        """The canonical text: definitions with equal ones are the same schema."""

    @abstractmethod
    def maybe_fault(self, payload: bytes, index: tuple[int, ...] = ()) -> Fault | None:
        """Return the first fault of a payload. `index` selects a message type if the definition has several."""

    def maybe_json(self, payload: bytes, index: tuple[int, ...] = ()) -> str | None:
        """Return a valid payload as JSON; None for types that do not describe their bytes."""
        return None

    @abstractmethod
    def refusals(self, writer: Definition) -> list[str]:
        """List why this schema cannot read what was written with `writer`, of the same type; empty if it can."""

    @property
    def fingerprint(self) -> str:
        """The hash of the canonical text."""
        return fingerprint_of(self.canonical)

    @property
    def former_fingerprint(self) -> str:
        """The fingerprint that earlier releases computed."""
        return self.fingerprint


def fingerprint_of(canonical: bytes) -> str:
    """Hash a canonical text."""
    return f"sha256:{hashlib.sha256(canonical).hexdigest()}"


def schema_type_of(text: str) -> SchemaType:
    """Return one of the six types by name or alias, case-insensitive. Raises SchemaInvalidError."""
    found = TYPE_ALIASES.get(text.lower())
    if found is None:
        raise SchemaInvalidError("schema type", f"{text!r} is not one of {', '.join(get_args(SchemaType))}")
    return found


def mode_of(text: str) -> CompatibilityMode:
    """Parse a compatibility mode. Raises SchemaInvalidError."""
    return _one_of(text, get_args(CompatibilityMode), "compatibility mode")  # type: ignore[return-value]  # one of them


def policy_of(text: str) -> Policy:
    """Parse a validation policy. Raises SchemaInvalidError."""
    return _one_of(text, get_args(Policy), "validation policy")  # type: ignore[return-value]  # one of them


def _one_of(text: str, known: tuple[str, ...], what: str) -> str:
    """Check a word against the known ones, case-insensitive."""
    if text.lower() not in known:
        raise SchemaInvalidError(what, f"{text!r} is not one of {', '.join(known)}")
    return text.lower()


def text_of(definition: bytes) -> str:
    """Decode a definition as UTF-8. Raises SchemaInvalidError."""
    try:
        return definition.decode()
    except UnicodeDecodeError as error:
        raise SchemaInvalidError("definition", f"is not UTF-8: {error}") from error
