"""The message being handled in this context, which messages sent meanwhile name as their parent.

Any client of any wire does so, so a conversation across wires is one tree (`raceway trace`). MB can only name a parent
whose id is a UUID, as its own ids are.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar

PARENT_KEY, PARENT_ATTRIBUTE = "msgid-raw", "x-parent-id"

# Id of that message, as received; None outside of handlers.
handling: ContextVar[str | None] = ContextVar("handling", default=None)


def with_parent(name: str, given: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Add the parent to headers or attributes under `name`. A value that the caller gave wins."""
    parent = handling.get()
    return given if parent is None else {name: parent, **(given or {})}
