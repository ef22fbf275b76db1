"""Intents about services that the bus itself calls, and their outcomes. An administrator attached them."""

from __future__ import annotations

from typing import Any

from raceway.model.intents.kinds import Done, IntentFor
from raceway.model.intents.peers import SubscriptionKind


class AttachService(IntentFor[Done], frozen=True):
    """Send the peer what comes on a topic, whatever its own permissions. A responder is listed among the peers."""

    kind: SubscriptionKind
    topic: str


class DetachService(IntentFor[Done], frozen=True):
    """End everything that the peer was attached to."""


class CheckWritable(IntentFor[Done], frozen=True):
    """Fail with UnavailableError if nothing can be stored now."""


class KeepServices(IntentFor[Done], frozen=True):
    """Store small values, by key, in a section that `View.kept` returns after a restart; None removes one."""

    section: str
    values: dict[str, Any]
