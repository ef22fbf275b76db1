"""Which message is being handled here: what is sent meanwhile, by a client of any wire, names it as its parent.

So a conversation that crosses wires is one tree (`raceway trace`). MB can name only what looks like its own ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar

from raceway.codec.mb_header import is_uuid

PARENT_KEY, PARENT_ATTRIBUTE = "msgid-raw", "x-parent-id"

# The id under which it was received.
handling: ContextVar[str | None] = ContextVar("handling", default=None)


def mb_parent() -> bytes | None:
    parent = handling.get()
    return parent.encode() if parent is not None and is_uuid(parent) else None


def with_parent(name: str, given: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Headers or attributes that name the parent; what the caller says itself counts."""
    parent = handling.get()
    return given if parent is None else {name: parent, **(given or {})}
